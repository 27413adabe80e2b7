// The console at /console: one page with one script and one stylesheet. It calls /v2 of this server and nothing else.
// Both are built from src/console by `npm run console`.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { asset, constant, type Served } from './constant.ts';

// The paths are the same from src/http and dist/http.
const script = new URL('../../src/http/console.bundle.js', import.meta.url);
const styles = new URL('../../src/http/console.bundle.css', import.meta.url);

/** The page may load and call this server only, may not be framed, and cannot make markup of text. */
const policy = [
  "default-src 'self'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "object-src 'none'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
  "trusted-types 'none'",
].join('; ');

const icon =
  "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' rx='4' fill='%235b50e6'/%3E%3Cpath d='M4 5h8M8 5v7' stroke='white' stroke-width='2' fill='none'/%3E%3C/svg%3E";

const pageHeaders = [
  ['Cache-Control', 'no-cache'],
  ['Content-Security-Policy', policy],
  ['Cross-Origin-Opener-Policy', 'same-origin'],
  ['Referrer-Policy', 'no-referrer'],
  ['X-Content-Type-Options', 'nosniff'],
  ['X-Frame-Options', 'DENY'],
] as const;

const pageOf = (scriptPath: string, stylesPath: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Tollgate</title>
<link rel="icon" href="${icon}">
<link rel="stylesheet" href="${stylesPath}">
<script type="module" src="${scriptPath}"></script>
</head>
<body>
<div id="root"></div>
<noscript>The console needs JavaScript. The API reference is at <a href="/docs">/docs</a>.</noscript>
</body>
</html>
`;

export const isOfConsole = (path: string): boolean => path === '/console' || path.startsWith('/console/');

/**
 * Returns a function that returns the document of a path of the console: a file, or the page, whose screen depends on
 * the path.
 */
export function createConsole(): (path: string) => Served | undefined {
  const [code, css] = [readFileSync(script), readFileSync(styles)];
  // The names change with the content, so that browsers may cache the files forever.
  const hash = createHash('sha256').update(code).update(css).digest('hex').slice(0, 16);
  const [scriptPath, stylesPath] = [`/console/assets/${hash}.js`, `/console/assets/${hash}.css`];
  const page = constant('text/html; charset=utf-8', pageHeaders, pageOf(scriptPath, stylesPath));
  const assets = new Map([
    [scriptPath, asset('text/javascript; charset=utf-8', code)],
    [stylesPath, asset('text/css; charset=utf-8', css)],
  ]);
  return (path) => (path.startsWith('/console/assets/') ? assets.get(path) : page);
}
