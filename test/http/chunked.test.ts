// A request with Transfer-Encoding is the last on its connection, whichever handler responds. uWebSockets.js parses the
// trailers of a chunked body as the next request. Behind a proxy that passes trailers on, another client chooses these
// bytes.

import { connect } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createId } from '../../src/domain/keyString.ts';
import { createGateway, gatewayPath, gatewayPaths } from '../../src/http/gateway.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { listen, type Server } from '../../src/http/server.ts';
import { operations } from '../../src/operations/index.ts';
import { harness } from '../support/harness.ts';

const h = harness();
const bodyBytesMax = 1_000;
let server: Server;
let isStopping = false;

beforeAll(async () => {
  const log = pino({ level: 'silent' });
  const nowMs = () => h.clock.now;
  const gateway = createGateway({ store: h.store, log, keyHeader: 'Authorization', rootKey: h.rootKey, meta: [] });
  server = await listen({
    host: '127.0.0.1',
    port: 0,
    bodyBytesMax,
    newRequestId: () => createId('req', nowMs()),
    handler: createPipeline(operations, {
      store: h.store,
      log,
      metaBytesMax: 10_240,
      isStopping: () => isStopping,
      scrape: async () => 'tollgate_up 1\n',
    }),
    byHeaders: gatewayPaths.map((path) => ({ path, handler: gateway })),
  });
});
afterAll(() => server.close());

/**
 * Sends each part in a packet of its own, and `afterwards` when the first byte of a response has arrived. Returns
 * everything received until the server closed the connection. If the server closes it with unread bytes, the response
 * may be lost.
 */
async function exchange(parts: readonly string[], afterwards = ''): Promise<string> {
  const socket = connect(server.port, '127.0.0.1').setNoDelay();
  let text = '';
  socket.on('error', () => {});
  socket.once('data', () => socket.write(afterwards));
  socket.on('data', (data) => (text += data.toString('latin1')));
  const closed = new Promise((resolve) => socket.once('close', resolve));
  for (const part of parts) {
    if (socket.destroyed) break;
    await new Promise((resolve) => socket.write(part, resolve));
    await turn();
  }
  await closed;
  return text;
}

const answersIn = (text: string) => text.match(/HTTP\/1\.1 (?!100)\d+ /g) ?? [];

const body = (path: string, json: unknown, headers: string[] = []) => {
  const text = JSON.stringify(json);
  const bearer = `Authorization: Bearer ${h.rootKey}`;
  return [`POST ${path}`, [bearer, 'Content-Type: application/json', ...headers], text] as const;
};
type Call = readonly [line: string, headers: readonly string[], text: string];

/** Requests by the handler that responds. */
const calls: [what: string, status: number, call: () => Call][] = [
  ['an operation that decides', 200, () => body('/v2/keys.verifyKey', { key: 'made_up' })],
  ['an operation that manages', 404, () => body('/v2/apis.getApi', { apiId: 'api_none1234' })],
  ['a schema', 400, () => body('/v2/apis.getApi', {})],
  ['no JSON', 400, () => ['POST /v2/apis.getApi', body('/', {})[1], '{']],
  ['no root key', 401, () => ['POST /v2/apis.getApi', [], '{}']],
  ['another media type', 415, () => ['POST /v2/apis.getApi', [`Authorization: Bearer ${h.rootKey}`], '{}']],
  ['a method that is not taken', 405, () => ['PUT /v2/apis.getApi', [], '{}']],
  ['an unknown method', 405, () => ['BREW /v2/apis.getApi', [], '{}']],
  ['no route', 404, () => ['POST /v2/nothing', [], '{}']],
  ['a page', 200, () => ['GET /v2/liveness', [], '{}']],
  ['a page without its body', 200, () => ['HEAD /v2/liveness', [], '{}']],
  ['a redirect', 308, () => ['GET /docs/', [], '{}']],
  ['a page that is sent in pieces', 200, () => ['GET /openapi.json', [], '{}']],
  ['a probe', 200, () => ['GET /health/ready', [], '{}']],
  ['the metrics', 200, () => ['GET /metrics', [], '{}']],
  ['the gateway check', 401, () => [`GET ${gatewayPath}`, ['Authorization: Bearer made_up'], '{}']],
  ['a body that is too long', 413, () => body('/v2/apis.getApi', { apiId: 'x'.repeat(bodyBytesMax) })],
  ['headers in doubt', 400, () => body('/v2/apis.getApi', {}, ['Content-Type: text/plain'])],
];

/** A request that would charge the key, in a form that proxies accept as a trailer: a name, a colon and a value. */
const trailers = (key: string) => `aax: ${gatewayPath} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer ${key}\r\n\r\n`;

const forms: [name: string, parts: (before: string, after: string) => string[]][] = [
  ['one packet', (before, after) => [before + after]],
  ['a packet of its own', (before, after) => [before, after]],
  ['a packet after its first two bytes', (before, after) => [before + after.slice(0, 2), after.slice(2)]],
  ['bytes', (before, after) => [...(before + after)]],
];

describe.each(calls)('answered by %s', (_what, status, call) => {
  test.each(forms)('its trailers in %s are not served as a request', async (_form, parts) => {
    const { key, keyId } = await h.createKey({ credits: { remaining: 9 } });
    const [line, headers, text] = call();
    const head = [`${line} HTTP/1.1`, 'Host: t', ...headers, 'Transfer-Encoding: chunked'].join('\r\n');
    const before = `${head}\r\n\r\n${text.length.toString(16)}\r\n${text}\r\n0\r\n`;
    const answer = await exchange(parts(before, trailers(key)));
    // In one packet, the connection is closed before there is a response.
    expect(answersIn(answer).length).toBeLessThanOrEqual(1);
    expect(['', `HTTP/1.1 ${status} `]).toContain(answersIn(answer)[0] ?? '');
    if (answer !== '') expect(answer).toMatch(/^connection: close\r$/im);
    expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 9 });
  });

  test('without trailers it gets a response, and nothing follows', async () => {
    const { key, keyId } = await h.createKey({ credits: { remaining: 9 } });
    const [line, headers, text] = call();
    const head = [`${line} HTTP/1.1`, 'Host: t', ...headers, 'Transfer-Encoding: chunked'].join('\r\n');
    const next = `GET ${gatewayPath} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer ${key}\r\n\r\n`;
    const answer = await exchange([`${head}\r\n\r\n${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`], next);
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} [\\s\\S]*^connection: close\r$`, 'im'));
    expect(answersIn(answer)).toHaveLength(1);
    expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 9 });
  });
});

test('the smuggled request is one that would be served', async () => {
  const { key, keyId } = await h.createKey({ credits: { remaining: 9 } });
  const request = trailers(key).replace('aax:', 'GET').replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');
  expect(await exchange([request])).toMatch(/^HTTP\/1\.1 200 /);
  expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 8 });
});

test('a request followed by another in its packet changes nothing', async () => {
  const { keyId } = await h.createKey({ name: 'before' });
  const text = JSON.stringify({ keyId, name: 'after' });
  const [line, headers] = body('/v2/keys.updateKey', {});
  const head = [`${line} HTTP/1.1`, 'Host: t', ...headers, 'Transfer-Encoding: chunked'].join('\r\n');
  const chunked = `${head}\r\n\r\n${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`;
  await exchange([`${chunked}GET /v2/liveness HTTP/1.1\r\nHost: t\r\n\r\n`]);
  expect((await h.ok('keys.getKey', { keyId })).name).toBe('before');
  expect(await exchange([chunked])).toMatch(/^HTTP\/1\.1 200 /);
  expect((await h.ok('keys.getKey', { keyId })).name).toBe('after');
});

test('an unknown method ends its connection, also at the gateway check', async () => {
  const { key, keyId } = await h.createKey({ credits: { remaining: 9 } });
  const next = `GET ${gatewayPath} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer ${key}\r\n\r\n`;
  for (const method of ['x:', 'get', 'BREW', 'GET,POST']) {
    for (const path of [gatewayPath, `${gatewayPath}/below`, '/v2/keys.verifyKey', '/v2/liveness']) {
      const first = `${method} ${path} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer ${key}\r\n\r\n`;
      const apart = await exchange([first], next);
      expect(apart, `${method} ${path}`).toMatch(/^HTTP\/1\.1 405 [\s\S]*^allow: .*\r$[\s\S]*^connection: close\r$/im);
      expect(answersIn(apart)).toHaveLength(1);
      expect(answersIn(await exchange([first + next]))).toEqual([]);
    }
  }
  expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 9 });
});

test('it is also the last on its connection while the server stops', async () => {
  const { key, keyId } = await h.createKey({ credits: { remaining: 9 } });
  isStopping = true;
  const before = 'GET /health/ready HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n';
  for (const [, parts] of forms) {
    const answer = await exchange(parts(before, trailers(key)));
    expect(['', 'HTTP/1.1 503 ']).toContain(answersIn(answer).join());
  }
  isStopping = false;
  expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 9 });
});
