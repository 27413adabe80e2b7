// Documents that stay the same: compression, ETags, and what is never compressed.

import { request } from 'node:http';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { acceptsGzip } from '../../src/http/constant.ts';
import { harness } from '../support/harness.ts';
import { serveStore } from '../support/serving.ts';

const h = harness();
let server: Awaited<ReturnType<typeof serveStore>>;
let documents: string[];

beforeAll(async () => {
  server = await serveStore(h.store);
  const pages = await Promise.all(['/console', '/docs'].map((path) => get(path).then(({ body }) => body.toString())));
  const files = pages.flatMap((html) => html.match(/\/(console\/assets|docs)\/[^"]+\.(js|css)(?=")/g)!);
  documents = ['/console', '/docs', '/docs/samples.json', '/openapi.json', '/llms.txt', ...files];
  expect(documents).toHaveLength(9);
});
afterAll(() => server.close());

interface Answer {
  status: number;
  headers: Record<string, string | undefined>;
  body: Buffer;
}

/** Unlike `fetch`, it sends no Accept-Encoding of its own, and does not decompress. */
const get = (path: string, headers: Record<string, string> = {}, method = 'GET', text?: string) =>
  new Promise<Answer>((resolve, reject) => {
    const sent = request(server.url + path, { method, headers }, (response) => {
      const parts: Buffer[] = [];
      response.on('data', (part: Buffer) => parts.push(part));
      response.on('end', () =>
        resolve({
          status: response.statusCode!,
          headers: response.headers as Answer['headers'],
          body: Buffer.concat(parts),
        }),
      );
    });
    sent.on('error', reject).end(text);
  });

const gzip = { 'accept-encoding': 'br, gzip' };

test('every document is compressed for clients that accept gzip, and for no others', async () => {
  for (const path of documents) {
    const plain = await get(path);
    const compressed = await get(path, gzip);
    expect([path, plain.status, plain.headers['content-encoding']]).toEqual([path, 200, undefined]);
    expect([path, compressed.status, compressed.headers['content-encoding']]).toEqual([path, 200, 'gzip']);
    expect(gunzipSync(compressed.body).equals(plain.body)).toBe(true);
    expect(compressed.body.length).toBeLessThan(plain.body.length);
    for (const { headers, body } of [plain, compressed]) {
      expect(headers.vary).toBe('Accept-Encoding');
      expect(headers['content-length']).toBe(`${body.length}`);
    }
    expect(compressed.headers['content-type']).toBe(plain.headers['content-type']);
    expect(compressed.headers.etag).not.toBe(plain.headers.etag);
  }
});

test('HEAD has the headers of GET in both encodings', async () => {
  for (const path of documents) {
    for (const headers of [{}, gzip]) {
      const { date: _date, 'x-request-id': _id, ...got } = (await get(path, headers)).headers;
      const head = await get(path, headers, 'HEAD');
      expect(head.headers).toMatchObject(got);
      expect(head.body.length).toBe(0);
    }
  }
});

test('304 for the version that a client has, of the encoding that it accepts', async () => {
  for (const path of documents) {
    for (const headers of [{}, gzip]) {
      const { etag, 'cache-control': caching } = (await get(path, headers)).headers;
      for (const tag of [etag!, `"x", W/${etag}`, '*']) {
        for (const method of ['GET', 'HEAD']) {
          const again = await get(path, { ...headers, 'if-none-match': tag }, method);
          expect([path, again.status, again.body.length]).toEqual([path, 304, 0]);
          expect(again.headers).toMatchObject({ etag, 'cache-control': caching, vary: 'Accept-Encoding' });
          expect(again.headers['content-length']).toBeUndefined();
        }
      }
      const other = headers === gzip ? {} : gzip;
      expect((await get(path, { ...other, 'if-none-match': etag! })).status).toBe(200);
      expect((await get(path, { ...headers, 'if-none-match': '"x"' })).status).toBe(200);
      // No more than 20 are read.
      for (const [others, status] of [
        [19, 304],
        [20, 200],
        [3000, 200],
      ] as const) {
        const tags = `${'"x",'.repeat(others)}${etag}`;
        expect((await get(path, { ...headers, 'if-none-match': tags })).status).toBe(status);
      }
    }
  }
});

test('a connection serves further requests after a 304', async () => {
  const { etag } = (await get('/console')).headers;
  const of304 = await fetch(`${server.url}/console`, { headers: { 'if-none-match': etag!, 'accept-encoding': '' } });
  expect(of304.status).toBe(304);
  expect((await fetch(`${server.url}/v2/liveness`)).status).toBe(200);
});

test('responses with data of a workspace are never compressed', async () => {
  const { rootKey } = await h.createWorkspace();
  const headers = { ...gzip, authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' };
  for (let count = 0; count < 10; count++) await h.call('apis.createApi', { name: 'x'.repeat(250) }, rootKey);
  const list = await get('/v2/apis.listApis', headers, 'POST', '{}');
  expect(list.body.length).toBeGreaterThan(2500);
  const others = [
    await get('/v2/keys.verifyKey', headers, 'POST', '{"key":"none"}'),
    await get('/v2/none', headers, 'POST', '{}'),
    await get('/v2/liveness', gzip),
    await get('/health/ready', gzip),
    await get('/metrics', gzip),
  ];
  for (const { headers: got } of [list, ...others]) {
    expect([got['content-encoding'], got.vary, got.etag]).toEqual([undefined, undefined, undefined]);
  }
});

describe('acceptsGzip', () => {
  test.each([
    ['', false],
    ['br', false],
    ['identity', false],
    ['gzip', true],
    ['GZIP', true],
    ['x-gzip', true],
    ['deflate, gzip;q=0.5', true],
    ['br;q=1.0,gzip ; q=0.001', true],
    ['gzip;q=0', false],
    ['gzip; q=0.000, *', false],
    ['*', true],
    ['*;q=0', false],
    ['gzip;q=x', false],
    ['gzip;level=9', true],
    [',,;;=', false],
    [`${'a,'.repeat(19)}gzip`, true],
    // No more than 20 are read.
    [`${'a,'.repeat(10_000)}gzip`, false],
    [`gzip${';a'.repeat(10_000)};q=0`, true],
  ])('%.60s', (header, expected) => {
    expect(acceptsGzip(header)).toBe(expected);
  });
});
