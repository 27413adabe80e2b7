// What the server sends for /console: the page, its files, their headers and their size.

import { readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { bundleConsole, consoleFile } from '../../bin/console.mjs';
import { harness } from '../support/harness.ts';
import { serveStore } from '../support/serving.ts';

const h = harness();
let server: Awaited<ReturnType<typeof serveStore>>;
let url: string;

beforeAll(async () => {
  server = await serveStore(h.store);
  url = server.url;
});
afterAll(() => server.close());

const get = (path: string, init?: RequestInit) => fetch(url + path, { redirect: 'manual', ...init });
const page = async () => (await get('/console')).text();
const filesOf = (html: string) => [...new Set(html.match(/\/console\/assets\/[^"]+/g))];

test('the page may load and call this server only, and cannot be framed', async () => {
  const { status, headers } = await get('/console');
  expect(status).toBe(200);
  const policy = headers.get('content-security-policy')!;
  expect(policy).toContain("default-src 'self'; script-src 'self'; style-src 'self';");
  expect(policy).toContain("frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'");
  expect(policy).not.toMatch(/unsafe|http|\*/);
  expect(headers.get('x-frame-options')).toBe('DENY');
  expect(headers.get('referrer-policy')).toBe('no-referrer');
  expect(headers.get('cache-control')).toBe('no-cache');
  const html = await page();
  expect(html.replace('http://www.w3.org/2000/svg', '')).not.toMatch(/https?:/);
  expect(html).not.toMatch(/\son\w+=|style="/);
});

test('every screen has the page; the files are immutable; nothing else is served', async () => {
  const html = await page();
  for (const path of ['/console/', '/console/keys', '/console/keys/key_x', '/console/customers/a%20b']) {
    expect(await (await get(path)).text()).toBe(html);
  }
  for (const path of filesOf(html)) {
    const { status, headers } = await get(path);
    expect([path, status]).toEqual([path, 200]);
    expect(headers.get('content-type')).toMatch(/^text\/(javascript|css); charset=utf-8$/);
    expect(headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
    expect(headers.get('x-content-type-options')).toBe('nosniff');
  }
  for (const path of ['', 'main.js', '..%2f..%2fpackage.json', 'style.css']) {
    expect((await get(`/console/assets/${path}`)).status, path).toBe(404);
  }
  expect((await get('/console', { method: 'POST' })).status).toBe(405);
  expect((await get('/consoles')).status).toBe(404);
});

test('all of it is at most 90 KB compressed', async () => {
  const html = await page();
  const bodies = await Promise.all(filesOf(html).map(async (path) => (await get(path)).arrayBuffer()));
  const bytes = [html, ...bodies.map((body) => Buffer.from(body))].map((body) => gzipSync(body).length);
  expect(bytes.reduce((sum, one) => sum + one, 0)).toBeLessThan(90 * 1024);
});

test('GET / leads to it; CONSOLE=0 serves none, and leads to the reference', async () => {
  expect((await get('/')).headers.get('location')).toBe('/console');
  const without = await serveStore(h.store, { CONSOLE: '0' });
  try {
    const { headers } = await fetch(`${without.url}/`, { redirect: 'manual' });
    expect(headers.get('location')).toBe('/docs');
    expect((await fetch(`${without.url}/console`)).status).toBe(404);
  } finally {
    await without.close();
  }
});

test('src/http/console.bundle.js and .css are built from src/console: `npm run console`', async () => {
  const built = await bundleConsole();
  for (const name of ['js', 'css'] as const) expect(built[name]).toBe(readFileSync(consoleFile(name), 'utf8'));
});
