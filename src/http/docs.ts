// The API reference at /docs: Swagger UI with /openapi.json. Only two files of the package are served, and read once.
// The page fetches nothing from another host, so it works offline.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { asset, constant, type Served } from './constant.ts';
import type { Response } from './message.ts';
import { firstPaths, sampleOrigin } from './samples.ts';

const { resolve } = createRequire(import.meta.url);
const fromPackage = (name: string) => readFileSync(resolve(`swagger-ui-dist/${name}`));
const { version } = JSON.parse(fromPackage('package.json').toString()) as { version: string };

// The names contain the version, so that browsers may cache the files forever.
const [script, styles] = [`/docs/swagger-ui-${version}.js`, `/docs/swagger-ui-${version}.css`];

// The root key is the only field of Authorize. Swagger UI focuses the last field of a dialog, and shows those of all
// security schemes; the gateway check has its own dialog, of its padlock. An entered root key stays in the memory of
// the page. The document is JSON, and its references are within it and not circular, so they are followed here: the
// parser of YAML and the resolver of Swagger UI take four times as long for the whole page.
const tollgate = `const first = ${JSON.stringify(Object.keys(firstPaths))};
const start = 'start here';
let whole;
const at = (pointer) => pointer.slice(2).split('/').reduce((node, name) => node[name], whole);
const resolved = (node) => {
  if (typeof node !== 'object' || node === null) return node;
  if (node.$ref) return resolved(at(node.$ref));
  if (Array.isArray(node)) return node.map(resolved);
  return Object.fromEntries(Object.entries(node).map(([name, part]) => [name, resolved(part)]));
};
let samples;
let chosen = 'curl';
const withSample = (Parameters, { React, getComponent }) => {
  const { createElement, useEffect, useState } = React;
  const Sample = ({ path }) => {
    const [sample, setSample] = useState();
    const [language, setLanguage] = useState(chosen);
    useEffect(() => {
      samples ??= fetch('/docs/samples.json').then((response) => response.json());
      samples.then((all) => setSample(all[path]), () => (samples = undefined));
    }, [path]);
    if (!sample) return null;
    const button = (name) =>
      createElement('button', {
        key: name,
        className: 'btn',
        'aria-pressed': name === language,
        onClick: () => setLanguage((chosen = name)),
      }, name);
    const head = { className: 'opblock-section-header', role: 'group', 'aria-label': 'Language of the sample' };
    const title = createElement('h4', { className: 'opblock-title' }, 'Sample');
    const code = { language: language === 'curl' ? 'bash' : 'javascript', canCopy: true };
    const program = sample.programs[language].replaceAll('${sampleOrigin}', location.origin);
    return createElement('div', { className: 'sample' },
      createElement('div', head, title, Object.keys(sample.programs).map(button)),
      createElement('p', null, 'Reads the environment variables ' + sample.variables.join(', ') + '.'),
      createElement(getComponent('HighlightCode', true), code, program));
  };
  return (props) =>
    createElement(React.Fragment, null,
      createElement(Sample, { path: props.pathMethod[0] }),
      createElement(Parameters, props));
};
const forRootKey = (definitions) => definitions.filter((each) => each.has('rootKey'));
const tollgate = {
  fn: {
    opsFilter: (tags, text) => {
      const contains = (value) => String(value ?? '').toLowerCase().includes(text.toLowerCase());
      const found = (operation) =>
        contains(operation.get('path')) || ['operationId', 'summary'].some((name) => contains(operation.getIn(['operation', name])));
      return tags
        .map((tag, name) => (contains(name) ? tag : tag.update('operations', (operations) => operations.filter(found))))
        .filter((tag, name) => name !== start && tag.get('operations').size > 0);
    },
  },
  statePlugins: {
    auth: {
      wrapActions: {
        showDefinitions: (show) => (definitions) =>
          show(definitions && forRootKey(definitions).size > 0 ? forRootKey(definitions) : definitions),
        authorizeWithPersistOption: (authorize, { authActions }) => (entered) => {
          authorize(entered);
          authActions.showDefinitions(false);
        },
      },
    },
    spec: {
      wrapActions: {
        parseToJson: (parse, { specActions }) => (text) => specActions.updateJsonSpec(JSON.parse(text)),
        updateJsonSpec: (update) => ({ paths, tags, ...document }) => {
          const again = first.map((path) => {
            const { post } = paths[path];
            return [path, { post: { ...post, tags: [start, ...post.tags] } }];
          });
          const others = Object.entries(paths).filter(
            ([path, { post }]) => !post?.['x-alias-of'] && !first.includes(path),
          );
          whole = { ...document, tags: [{ name: start }, ...tags], paths: Object.fromEntries([...again, ...others]) };
          return update(whole);
        },
        requestResolvedSubtree: (request, { specActions }) => (path) =>
          specActions.updateResolvedSubtree(path, resolved(path.reduce((node, name) => node[name], whole))),
      },
    },
  },
  wrapComponents: {
    parameters: withSample,
    authorizationPopup: (Popup, { React }) =>
      class extends React.Component {
        opener = document.activeElement;
        componentDidMount() {
          document.querySelector('.auth-container input')?.focus();
        }
        componentWillUnmount() {
          this.opener?.focus();
        }
        render() {
          return React.createElement(Popup, this.props);
        }
      },
  },
};`;

// `validatorUrl` would send the address of the document to swagger.io.
const start = `const dark = matchMedia('(prefers-color-scheme: dark)');
const setColors = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', setColors);
setColors();
${tollgate}
SwaggerUIBundle({
  url: '/openapi.json',
  dom_id: '#reference',
  plugins: [tollgate],
  deepLinking: true,
  filter: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: 0,
  defaultModelRendering: 'example',
  displayRequestDuration: true,
  validatorUrl: null,
});`;
// A root key is longer than the input field of Swagger UI. The page is dark before its script has run.
const look = [
  'body{margin:0}',
  '.swagger-ui .auth-container input{width:100%;max-width:none}',
  '.swagger-ui .sample .btn{margin-left:8px;padding:4px 12px;color:inherit}',
  '.swagger-ui .sample .btn[aria-pressed=true]{border-color:currentColor;text-decoration:underline}',
  '.swagger-ui .sample p,.swagger-ui .sample .highlight-code{margin:12px 20px}',
  '@media(prefers-color-scheme:dark){html{background:#1c2022}}',
].join('');

const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tollgate API</title>
<link rel="icon" href="data:,">
<link rel="preload" href="/openapi.json" as="fetch" crossorigin>
<link rel="stylesheet" href="${styles}">
<style>${look}</style>
</head>
<body>
<div id="reference"></div>
<noscript>This page needs JavaScript. The document itself is at <a href="/openapi.json">/openapi.json</a>.</noscript>
<script src="${script}"></script>
<script>${start}</script>
</body>
</html>
`;

const hashOf = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** The page may run these scripts and call this server, and may not be framed. */
const policy = [
  "default-src 'none'",
  `script-src 'self' ${hashOf(start)}`,
  `style-src 'self' ${hashOf(look)}`,
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const page = constant(
  'text/html; charset=utf-8',
  [
    ['Cache-Control', 'no-cache'],
    ['Content-Security-Policy', policy],
    ['Referrer-Policy', 'no-referrer'],
    ['X-Content-Type-Options', 'nosniff'],
  ],
  html,
);

const redirect: Response = {
  status: 308,
  contentType: 'text/plain; charset=utf-8',
  headers: [['Location', '/docs']],
  body: 'The reference is at /docs.\n',
};

/** The pages of the reference by path. */
export const docs: readonly (readonly [path: string, page: Served])[] = [
  ['/docs', page],
  ['/docs/', () => redirect],
  [script, asset('text/javascript; charset=utf-8', fromPackage('swagger-ui-bundle.js'))],
  [styles, asset('text/css; charset=utf-8', fromPackage('swagger-ui.css'))],
];
