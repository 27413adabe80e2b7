// /llms.txt: each operation is in it once, and each link and page exists.

import { existsSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { outcomes } from '../../src/domain/verification.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { operations } from '../../src/operations/index.ts';
import { harness } from '../support/harness.ts';
import { serveStore } from '../support/serving.ts';

const h = harness();
let server: Awaited<ReturnType<typeof serveStore>>;
let text: string;
const get = (path: string) => fetch(server.url + path);
beforeAll(async () => {
  server = await serveStore(h.store);
  text = await (await get('/llms.txt')).text();
});
afterAll(() => server.close());

const links = () =>
  [...text.matchAll(/^- \[([^\]]+)\]\(([^)]+)\): (\S.*)$/gm)].map(([, name, to, note]) => ({ name, to, note }));

test('is plain text in the form of llmstxt.org, and short', async () => {
  const { status, headers } = await get('/llms.txt');
  expect([status, headers.get('content-type')]).toEqual([200, 'text/plain; charset=utf-8']);
  expect(text).toMatch(/^# Tollgate\n\n> \S.*\n\n/);
  expect(text.match(/^# /gm)).toHaveLength(1);
  expect(Buffer.byteLength(text)).toBeLessThan(24_000);
  // After the first section there are only lists of links.
  const sections = text.split(/^## /m).slice(2);
  for (const section of sections) expect(section).toMatch(/^\w+\n\n(- \[[^\]]+\]\([^)]+\): .+\n)+\n?$/);
  for (const outcome of outcomes) expect(text).toContain(outcome);
});

test('has every operation once, with its summary, below its service', () => {
  const named = new Map(links().map(({ name, note }) => [name, note]));
  const all: readonly AnyOperation[] = operations;
  for (const { name, summary } of all) expect([name, named.get(name)]).toEqual([name, summary]);
  expect(named.has('introspect') && named.has('gateway.check')).toBe(true);
  expect(new Set(links().map(({ name }) => name)).size).toBe(links().length);
  for (const { alias } of all) if (alias) expect(named.has(alias)).toBe(false);
  const inKeys = text.split('\n## keys\n')[1]!.split('\n## ')[0]!;
  expect(inKeys.match(/^- \[keys\.\w+\]/gm)).toHaveLength(all.filter(({ name }) => name.startsWith('keys.')).length);
});

test('every link leads to a page, and every pointer into the OpenAPI document to an operation of that name', async () => {
  // biome-ignore lint/suspicious/noExplicitAny: any value in the document.
  const document: any = await (await get('/openapi.json')).json();
  for (const { name, to } of links()) {
    const [path, pointer] = to!.split('#') as [string, string?];
    expect((await get(path)).status, to).toBe(200);
    if (pointer === undefined) continue;
    const steps = pointer
      .slice(1)
      .split('/')
      .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
    const found = steps.reduce((at, step) => at?.[step], document);
    expect(found?.operationId, to).toBe(name);
  }
});

test('every page of the repository and every path that it names exists', async () => {
  const pages = text.match(/docs\/[\w-]+\.md/g)!;
  expect(pages.length).toBeGreaterThan(5);
  expect(pages.filter((page) => !existsSync(page))).toEqual([]);
  for (const path of text.match(/\/v2\/[a-z]\w*\.\w+(?=`)/g)!) expect((await get(path)).status, path).toBe(405);
});
