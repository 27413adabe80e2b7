// The gateway check on a real socket: input in headers, result as a status and headers.

import { once } from 'node:events';
import { Agent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { connect } from 'node:net';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createId } from '../../src/domain/keyString.ts';
import { outcomeErrors } from '../../src/domain/verification.ts';
import { ApiError } from '../../src/errors.ts';
import { createGateway, type GatewayOptions, gatewayPath, gatewayPaths } from '../../src/http/gateway.ts';
import type { OpenApiDocument } from '../../src/http/openapi.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { listen, type Server } from '../../src/http/server.ts';
import { operations } from '../../src/operations/index.ts';
import { harness } from '../support/harness.ts';
import { outcomeExamples } from '../support/keyExamples.ts';

const h = harness();
const bodyBytesMax = 1_000;
const servers: Server[] = [];
/** Log lines of the servers below. */
const logged: string[] = [];

async function serve(options: Partial<GatewayOptions> = {}): Promise<Server> {
  const log = pino({ level: 'trace' }, { write: (line) => void logged.push(line) });
  const settings = { keyHeader: 'Authorization', rootKey: h.rootKey, meta: [], ...options };
  const handler = createGateway({ store: h.store, log, ...settings });
  const server = await listen({
    host: '127.0.0.1',
    port: 0,
    bodyBytesMax,
    newRequestId: () => createId('req', h.clock.now),
    handler: createPipeline(operations, { store: h.store, log, metaBytesMax: 10_240 }),
    byHeaders: gatewayPaths.map((path) => ({ path, handler })),
  });
  servers.push(server);
  return server;
}

/** The root key is a setting; some metadata is returned. */
let own: Server;
/** The root key is in a header, and the key in a header other than Authorization. */
let open: Server;
beforeAll(async () => {
  own = await serve({ meta: ['plan', 'seats', 'note', 'tags', 'is_free', 'gone'] });
  open = await serve({ rootKey: '', keyHeader: 'X-Api-Key' });
});
afterAll(() => Promise.all(servers.map((server) => server.close())));

interface Answer {
  status: number;
  headers: IncomingMessage['headers'];
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: any response.
  json: any;
}

/** All responses of the tests below. */
const answered: IncomingMessage[] = [];

/** With node:http, which can send a header twice, and any method. */
async function ask(server: Server, options: RequestOptions & { body?: string | Buffer } = {}): Promise<Answer> {
  const { body, ...rest } = options;
  const request = httpRequest({ host: '127.0.0.1', port: server.port, path: gatewayPath, ...rest });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of response) text += chunk;
  answered.push(response);
  return {
    status: response.statusCode!,
    headers: response.headers,
    text,
    json: text === '' ? undefined : JSON.parse(text),
  };
}

const bearer = (key: string, more: Record<string, string> = {}) => ({
  headers: { authorization: `Bearer ${key}`, ...more },
});
const codeOf = ({ json }: Answer) => json.error?.type.split('/').at(-1);
const refused = (answer: Answer) => [answer.status, codeOf(answer), answer.headers['x-tollgate-code']];

const minute = 60_000;
const requests = { name: 'requests', limit: 2, duration: minute, autoApply: true };

describe('the gateway check of a valid key', () => {
  test('responds with 200, its owner and its limits, and charges as keys.verifyKey does', async () => {
    const { key, keyId, apiId } = await h.createKey({
      externalId: 'ada',
      credits: { remaining: 10 },
      ratelimits: [requests, { name: 'tokens', limit: 1000, duration: 90_500, autoApply: true }],
    });
    const answer = await ask(own, bearer(key));
    expect(answer).toMatchObject({
      status: 200,
      headers: {
        'x-tollgate-code': 'VALID',
        'x-tollgate-key-id': keyId,
        'x-tollgate-api-id': apiId,
        'x-tollgate-external-id': 'ada',
        'ratelimit-policy': '"requests";q=2;w=60, "tokens";q=1000;w=91',
        'cache-control': 'no-store',
        'x-request-id': answer.json.meta.requestId,
      },
      json: { meta: { requestId: expect.stringMatching(/^req_/) }, data: { valid: true, code: 'VALID', keyId } },
    });
    // A unit leaves 1 ms after its window, or a 64th of the duration if the limit is above 64: rounded up to seconds.
    expect(answer.headers.ratelimit).toMatch(/^"requests";r=1;t=61, "tokens";r=999;t=9[12]$/);
    expect(answer.headers).not.toHaveProperty('retry-after');
    expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 9 });
  });

  test('responds with its API; a root key for one API accepts no key of another', async () => {
    const [maps, payments] = [await h.createKey(), await h.createKey()];
    const rootKey = await h.createRootKey([`api.${payments.apiId}.verify_key`]);
    const scoped = await serve({ rootKey });
    // Twice each: the second response uses the cached snapshot of the key.
    for (let round = 0; round < 3; round++) {
      for (const { key, apiId } of [maps, payments]) {
        expect((await ask(own, bearer(key))).headers['x-tollgate-api-id']).toBe(apiId);
      }
      expect((await ask(scoped, bearer(payments.key))).headers['x-tollgate-api-id']).toBe(payments.apiId);
      const refusal = await ask(scoped, bearer(maps.key));
      expect(refused(refusal)).toEqual([401, 'invalid_key', 'NOT_FOUND']);
      expect(refusal.headers).not.toHaveProperty('x-tollgate-api-id');
    }
  });

  test('has no RateLimit header for a key without limits', async () => {
    const { key } = await h.createKey();
    const { status, headers } = await ask(own, bearer(key));
    expect(status).toBe(200);
    expect(Object.keys(headers).filter((name) => name.includes('ratelimit'))).toEqual([]);
  });

  test.each(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'PROPFIND'])(
    'is the same by %s',
    async (method) => {
      const { key, keyId } = await h.createKey();
      const { status, headers, text } = await ask(own, { method, ...bearer(key) });
      expect([status, headers['x-tollgate-key-id'], text === '']).toEqual([200, keyId, method === 'HEAD']);
    },
  );

  test('accepts any path below its own, as Envoy sends it', async () => {
    const { key } = await h.createKey();
    for (const path of ['/', '/orders/7?cost=5&x', '/../keys.createKey', '//', '/%00']) {
      expect((await ask(own, { path: gatewayPath + path, ...bearer(key) })).status).toBe(200);
    }
    expect((await ask(own, { path: `${gatewayPath}s`, ...bearer(key) })).status).toBe(404);
  });

  test('charges the cost in the header, and checks the limits that it names', async () => {
    const { key, keyId } = await h.createKey({
      credits: { remaining: 10 },
      ratelimits: [
        requests,
        { name: 'a, b=100%', limit: 9, duration: minute },
        { name: 'tokens', limit: 9, duration: minute },
      ],
    });
    const headers = { 'x-tollgate-cost': '4', 'x-tollgate-limits': ' tokens = 3 ,a%2C%20b%3D100%25' };
    const answer = await ask(own, bearer(key, headers));
    expect(answer.headers.ratelimit).toBe('"requests";r=1;t=61, "a,%20b=100%25";r=8;t=61, "tokens";r=6;t=61');
    expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 6 });
  });

  test('holds what it charges, if the gateway says so', async () => {
    const { keyId, key } = await h.createKey({ credits: { remaining: 10 }, ratelimits: [requests] });
    expect((await ask(own, bearer(key))).headers['x-tollgate-hold-id']).toBe('');
    const { headers } = await ask(own, bearer(key, { 'x-tollgate-cost': '4', 'x-tollgate-hold': '60000' }));
    const holdId = headers['x-tollgate-hold-id'] as string;
    expect(holdId).toMatch(/^hold_\w{24}\.\d+$/);
    expect(headers.ratelimit).toBe('"requests";r=0;t=61');
    expect(await h.ok('keys.listHolds', { keyId })).toMatchObject([{ id: holdId, credits: 4 }]);
    const refusal = await ask(own, bearer(key, { 'x-tollgate-hold': '60000' }));
    expect(refused(refusal)).toEqual([429, 'rate_limited', 'RATE_LIMITED']);
    expect(refusal.headers).not.toHaveProperty('x-tollgate-hold-id');
    expect(await h.ok('keys.settleHold', { holdId, credits: { cost: 1 } })).toMatchObject({ credits: 8, late: false });
  });

  test('that takes a slot responds with its hold, also if the gateway asks for none, and is 429 without a free one', async () => {
    const jobs = { name: 'jobs', limit: 1, duration: 60_000, autoApply: true, type: 'concurrency' as const };
    const { key, keyId } = await h.createKey({ ratelimits: [jobs] });
    const { status, headers } = await ask(own, bearer(key));
    const holdId = headers['x-tollgate-hold-id'] as string;
    expect([status, holdId]).toEqual([200, expect.stringMatching(/^hold_\w{24}\.\d+$/)]);
    expect(headers['ratelimit-policy']).toBe('"jobs";q=1;w=60');
    expect(headers.ratelimit).toBe('"jobs";r=0;t=60');
    expect(await h.ok('keys.listHolds', { keyId })).toMatchObject([{ id: holdId, slots: [{ name: 'jobs', cost: 1 }] }]);
    const refusal = await ask(own, bearer(key));
    expect(refused(refusal)).toEqual([429, 'rate_limited', 'RATE_LIMITED']);
    expect(refusal.headers['retry-after']).toBe('60');
    await h.ok('keys.releaseHold', { holdId });
    expect((await ask(own, bearer(key, { 'x-tollgate-hold': '5000' }))).status).toBe(200);
    expect((await h.ok('keys.listHolds', { keyId })).length).toBe(1);
  });

  test('is 429 for a key with 10,000 open holds: the client is at fault, not the gateway', async () => {
    const { key } = await h.createKey({});
    for (let first = 0; first < 10_000; first += 250) {
      const held = () => h.ok('keys.verifyKey', { key, hold: { ttl: 60_000 } });
      await Promise.all(Array.from({ length: 250 }, held));
    }
    const answer = await ask(own, bearer(key, { 'x-tollgate-hold': '60000' }));
    expect(refused(answer)).toEqual([429, 'rate_limited', 'RATE_LIMITED']);
    expect(answer.headers['retry-after']).toBe('1');
    expect((await ask(own, bearer(key))).status).toBe(200);
  });

  test('accepts a key that satisfies the permission query', async () => {
    const { key } = await h.createKey({ permissions: ['documents.read'] });
    const passes = async (query: string) => (await ask(own, bearer(key, { 'x-tollgate-permissions': query }))).status;
    expect(await passes('documents.read OR admin')).toBe(200);
    expect(await passes('documents.read AND admin')).toBe(403);
    expect(await passes('')).toBe(200);
  });
});

describe('the gateway check of a refused key', () => {
  test.each([
    ['no header', {}],
    ['an empty one', { authorization: '' }],
    ['another scheme', { authorization: 'Basic YWRhOnNlY3JldA==' }],
    ['no token', { authorization: 'Bearer ' }],
    ['a key that is unknown', { authorization: 'Bearer made_up' }],
    ['one that is too long to be one', { authorization: `Bearer ${'k'.repeat(513)}` }],
  ])('401 and a challenge: %s', async (_what, headers) => {
    const answer = await ask(own, { headers });
    expect(refused(answer)).toEqual([401, 'invalid_key', 'NOT_FOUND']);
    expect(answer.headers['www-authenticate']).toBe('Bearer');
  });

  test('401, which is the fault of the end user: the header with the key twice, with the same key or another', async () => {
    const { key, keyId } = await h.createKey({ credits: { remaining: 5 } });
    for (const [server, name, value] of [
      [own, 'Authorization', `Bearer ${key}`],
      [open, 'X-Api-Key', key],
    ] as const) {
      for (const second of [value, `${value}x`, '']) {
        for (const values of [
          [value, second],
          [second, value],
        ]) {
          const headers = ['Host', 'a', 'X-Tollgate-Root-Key', h.rootKey, ...values.flatMap((each) => [name, each])];
          const answer = await ask(server, { headers } as unknown as RequestOptions);
          expect(refused(answer)).toEqual([401, 'invalid_key', 'NOT_FOUND']);
          expect(answer.json.error.detail).toBe(`The header ${name} holds no key, or is repeated.`);
          expect(answer.headers.connection?.toLowerCase()).not.toBe('close');
        }
      }
    }
    expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 5 });
  });

  test('a header that the check does not read may be repeated', async () => {
    const { key } = await h.createKey();
    const headers = ['Host', 'a', 'Authorization', `Bearer ${key}`, 'Content-Type', 'a', 'Content-Type', 'b'];
    expect((await ask(own, { headers } as unknown as RequestOptions)).status).toBe(200);
  });

  test('400: a length of the body that is repeated, as it is ambiguous where the next request begins', async () => {
    const { key } = await h.createKey();
    const socket = connect(own.port, '127.0.0.1');
    socket.end(
      `POST ${gatewayPath} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n`,
    );
    let text = '';
    for await (const chunk of socket) text += chunk;
    expect(text).toMatch(/^HTTP\/1\.1 400 .*malformed_request/s);
    socket.destroy();
  });

  test('a body that is announced and not sent: the check is answered at once, and the connection closed', async () => {
    const { key, keyId } = await h.createKey({ credits: { remaining: 9 } });
    const head = (more: string) =>
      `POST ${gatewayPath} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n${more}\r\n\r\n`;
    for (const announced of ['Content-Length: 10', 'Content-Length: 3000000', 'Transfer-Encoding: chunked']) {
      const socket = connect(own.port, '127.0.0.1');
      socket.write(head(announced));
      let text = '';
      for await (const chunk of socket) text += chunk;
      expect(text).toMatch(/^HTTP\/1\.1 200 .*^connection: close\r$/ims);
    }
    expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 6 });
    // A body that has arrived is skipped, and the connection stays open.
    const socket = connect(own.port, '127.0.0.1');
    const whole = `${head('Content-Length: 10')}0123456789`;
    for (const left of [5, 4]) {
      socket.write(whole);
      expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1\.1 200 /);
      expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: left });
    }
    socket.destroy();
  });

  test('401 also for a root key, and for a key of another workspace', async () => {
    const { rootKey } = await h.createWorkspace();
    const { key } = await h.createKey();
    const other = await serve({ rootKey });
    expect(refused(await ask(own, bearer(h.rootKey)))[0]).toBe(401);
    expect(refused(await ask(other, bearer(key)))[0]).toBe(401);
  });

  test('403 if disabled, expired or without the permission, with only the id of the key', async () => {
    const { key, keyId, apiId } = await h.createKey({ externalId: 'ada', meta: { plan: 'pro' } });
    const refusal = async (headers = {}) => {
      const answer = await ask(own, bearer(key, headers));
      expect(answer.headers).toMatchObject({ 'x-tollgate-key-id': keyId, 'x-tollgate-api-id': apiId });
      expect(JSON.stringify(answer)).not.toMatch(/"ada"|pro"|www-authenticate|retry-after/);
      return refused(answer);
    };
    const permissions = { 'x-tollgate-permissions': 'admin' };
    expect(await refusal(permissions)).toEqual([403, 'key_lacks_permission', 'INSUFFICIENT_PERMISSIONS']);
    await h.ok('keys.updateKey', { keyId, expires: 0 });
    expect(await refusal()).toEqual([403, 'key_expired', 'EXPIRED']);
    await h.ok('keys.updateKey', { keyId, enabled: false });
    expect(await refusal()).toEqual([403, 'key_disabled', 'DISABLED']);
  });

  test.each(Object.entries(outcomeErrors).filter(([outcome]) => outcome !== 'NOT_FOUND'))(
    'the status and the error of its own: %s',
    async (outcome, { code, detail }) => {
      const { status } = new ApiError(code, detail);
      const { key: fields, request } = outcomeExamples[outcome as keyof typeof outcomeExamples];
      const { key } = await h.createKey(fields);
      const { permissions, ratelimits } = request;
      const answer = await ask(
        own,
        bearer(key, {
          ...(permissions && { 'x-tollgate-permissions': permissions }),
          ...(ratelimits && { 'x-tollgate-limits': ratelimits.map(({ name, cost }) => `${name}=${cost}`).join() }),
        }),
      );
      expect(refused(answer)).toEqual([status, code, outcome]);
      expect(answer.json.error.detail).toContain(detail);
    },
  );

  describe('by the address of the end user', () => {
    const allowedIps = ['203.0.113.0/24', '2001:db8::/32'];
    const [inside, outside] = ['203.0.113.7', '198.51.100.7'];

    test.each<[string, string, string | string[], number]>([
      ['X-Real-IP', 'x-real-ip', inside, 200],
      ['X-Real-IP', 'x-real-ip', outside, 403],
      ['X-Real-IP', 'x-real-ip', '2001:DB8::7', 200],
      ['X-Real-IP', 'x-real-ip', `::ffff:${inside}`, 200],
      ['X-Real-IP', 'x-forwarded-for', inside, 403],
      // The end user sends the first addresses of the list, the nearest proxy adds the last one.
      ['X-Forwarded-For', 'x-forwarded-for', `${inside}, ${outside}`, 403],
      ['X-Forwarded-For', 'x-forwarded-for', `${outside},${inside} `, 200],
      ['X-Forwarded-For', 'x-forwarded-for', `not an address, ${inside}`, 200],
      ['X-Forwarded-For', 'x-forwarded-for', [inside, outside], 403],
      ['X-Forwarded-For', 'x-forwarded-for', [`${inside}, ${inside}`, `${outside}, ${inside}`], 200],
      ['', 'x-real-ip', inside, 403],
    ])('with the setting %j, %s: %j is %i', async (ipHeader, name, value, status) => {
      const server = await serve({ ipHeader });
      const { key, keyId } = await h.createKey({ allowedIps });
      const answer = await ask(server, { headers: { authorization: `Bearer ${key}`, [name]: value } });
      const code = status === 200 ? [200, undefined, 'VALID'] : [403, 'ip_not_allowed', 'FORBIDDEN'];
      expect(refused(answer)).toEqual(code);
      expect(answer.headers['x-tollgate-key-id']).toBe(keyId);
    });

    test.each([
      [`${inside}:4711`, 200],
      [`${outside}:4711`, 403],
      ['[2001:DB8::7]', 200],
      ['[2001:db8::7]:4711', 200],
      [`[::ffff:${inside}]:4711`, 200],
      [`${outside}, ${inside}:4711`, 200],
    ])('%s has a port or brackets: %i', async (value, status) => {
      const server = await serve({ ipHeader: 'X-Forwarded-For' });
      const { key } = await h.createKey({ allowedIps });
      expect((await ask(server, bearer(key, { 'x-forwarded-for': value }))).status).toBe(status);
    });

    test.each([
      '',
      `${inside},`,
      `${inside}, ,`,
      'unknown',
      '_hidden:4711',
      '010.1.1.1',
      `[${inside}]`,
      `${inside}:`,
      `${inside}:123456`,
      '[2001:db8::7',
      '2001:db8::7]',
      '[]:1',
      `${inside}, fe80::1%eth0`,
      '[fe80::1%eth0]:1',
      'x'.repeat(60),
    ])(
      'a header that ends with %j instead of an address is the fault of the gateway, for a key with allowedIps',
      async (value) => {
        const server = await serve({ ipHeader: 'X-Forwarded-For' });
        const check = async (fields: object) =>
          ask(server, bearer((await h.createKey(fields)).key, { 'x-forwarded-for': value }));
        expect((await check({})).status).toBe(200);
        const answer = await check({ allowedIps: [...allowedIps, '0.0.0.0/0', '::/0'] });
        expect([answer.status, codeOf(answer)]).toEqual([400, 'invalid_input']);
        expect(answer.json.error.errors[0].location).toBe('headers.X-Forwarded-For');
        expect(answer.json.error.detail).toMatch(/^headers\.X-Forwarded-For /);
        // Another reason for a refusal is reported as such.
        expect((await check({ allowedIps, enabled: false })).status).toBe(403);
      },
    );

    test('a key that any address may use needs none', async () => {
      const server = await serve({ ipHeader: 'X-Real-IP' });
      const { key } = await h.createKey();
      expect((await ask(server, bearer(key))).status).toBe(200);
      expect((await ask(server, bearer(key, { 'x-real-ip': outside }))).status).toBe(200);
    });
  });

  test('429 without Retry-After if the cost is above the limit, so that it is never admitted', async () => {
    const { key } = await h.createKey({ ratelimits: [requests, { name: 'tokens', limit: 10, duration: minute }] });
    const check = (limits: string) => ask(own, bearer(key, { 'x-tollgate-limits': limits }));
    expect((await check('tokens=11')).headers).not.toHaveProperty('retry-after');
    expect((await check('tokens=10')).status).toBe(200);
    expect((await check('tokens=10')).headers).toHaveProperty('retry-after');
    const both = await check('tokens=11,requests=2');
    expect([both.status, both.headers['retry-after']]).toEqual([429, undefined]);
  });

  test('429 with Retry-After: the next check passes after these seconds, and not a second earlier', async () => {
    const { key, keyId } = await h.createKey({ credits: { remaining: 9 }, ratelimits: [requests] });
    const check = () => ask(own, bearer(key));
    await check();
    h.clock.advance(12_345);
    await check();
    const limited = await check();
    expect(refused(limited)).toEqual([429, 'rate_limited', 'RATE_LIMITED']);
    expect(limited.headers).toMatchObject({ ratelimit: '"requests";r=0;t=48', 'retry-after': '48' });
    expect(limited.headers['content-type']).toBe('application/problem+json');
    expect(limited.json.error.detail).toBe('A limit is exceeded: "requests".');
    expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 7 });
    h.clock.advance(47_000);
    expect((await check()).headers['retry-after']).toBe('1');
    h.clock.advance(1_000);
    expect((await check()).status).toBe(200);
  });

  test('429 waits for the last of the limits that are exceeded', async () => {
    const { key } = await h.createKey({
      ratelimits: [
        { ...requests, limit: 1 },
        { ...requests, name: 'hourly', limit: 1, duration: 60 * minute },
      ],
    });
    await ask(own, bearer(key));
    expect((await ask(own, bearer(key))).headers['retry-after']).toBe('3601');
  });

  test('429 without Retry-After when credits are used up', async () => {
    const { key } = await h.createKey({ credits: { remaining: 0 }, ratelimits: [requests] });
    const answer = await ask(own, bearer(key));
    expect(refused(answer)).toEqual([429, 'usage_exceeded', 'USAGE_EXCEEDED']);
    expect(answer.headers).not.toHaveProperty('retry-after');
  });

  test.each([-10, 0, 10])(
    'seconds are counted on Redis’s clock, %j minutes from that of this machine',
    async (minutes) => {
      h.clock.now = Date.now() + minutes * minute;
      const { key } = await h.createKey({ ratelimits: [{ ...requests, limit: 1 }] });
      expect((await ask(own, bearer(key))).headers.ratelimit).toBe('"requests";r=0;t=61');
      h.clock.advance(20_000);
      const { headers } = await ask(own, bearer(key));
      expect(headers).toMatchObject({ ratelimit: '"requests";r=0;t=41', 'retry-after': '41' });
    },
  );
});

describe('metadata as headers', () => {
  const shown = async (meta: Record<string, unknown>) => {
    const { key } = await h.createKey({ meta });
    return (await ask(own, bearer(key))).headers;
  };

  test('are all those of the setting, empty where the key has none', async () => {
    expect(await shown({ plan: 'pro', secret: 'no', seats: 5 })).toMatchObject({
      'x-tollgate-external-id': '',
      'x-tollgate-meta-plan': 'pro',
      'x-tollgate-meta-seats': '5',
      'x-tollgate-meta-note': '',
      'x-tollgate-meta-is-free': '',
    });
    expect(Object.keys(await shown({ secret: 'no' })).join()).not.toContain('secret');
    expect(await shown({ gone: null, is_free: false, tags: ['a', { b: 1 }] })).toMatchObject({
      'x-tollgate-meta-gone': '',
      'x-tollgate-meta-is-free': 'false',
      'x-tollgate-meta-tags': '[%22a%22,{%22b%22:1}]',
    });
  });

  test('cannot add a header, and decodeURIComponent returns the value', async () => {
    const values = [
      'a\r\nX-Injected: 1\r\n\r\n<body>',
      '\n',
      'Grüße, 世界 🔑',
      ' 100% "quoted" \\ back ',
      '\u0000\u001f\u007f\u0085\u2028',
      "!#$&'()*+,-./:;<=>?@[]^_`{|}~",
    ];
    for (const note of values) {
      const headers = await shown({ note });
      expect(headers).not.toHaveProperty('x-injected');
      expect(headers['x-tollgate-meta-note']).toMatch(/^[!-~]+$/);
      expect(decodeURIComponent(String(headers['x-tollgate-meta-note']))).toBe(note);
    }
    expect((await shown({ note: values.at(-1) }))['x-tollgate-meta-note']).toBe(values.at(-1));
  });

  test('of numbers have the digits that were stored', async () => {
    const { apiId } = await h.ok('apis.createApi', { name: 'numbers' });
    const body = `{"apiId":"${apiId}","meta":{"seats":12345678901234567890.10}}`;
    const { json } = await h.send('/v2/keys.createKey', { body });
    expect((await ask(own, bearer(json.data.key))).headers['x-tollgate-meta-seats']).toBe('12345678901234567890.10');
  });

  test('are empty if the value would be longer than 1024 characters', async () => {
    expect(await shown({ note: 'x'.repeat(1024), plan: `${'x'.repeat(1020)}é` })).toMatchObject({
      'x-tollgate-meta-note': 'x'.repeat(1024),
      'x-tollgate-meta-plan': '',
    });
  });
});

test('the policy of a quota has the length of its period, and its state when that ends', async () => {
  const before = h.clock.now;
  h.clock.now = Date.UTC(2026, 1, 27, 23, 59, 30);
  const { key } = await h.createKey({ ratelimits: [{ name: 'tokens', limit: 2, period: 'month', autoApply: true }] });
  const states: [string, number, string][] = [
    [`"tokens";q=2;w=${28 * 86_400}`, 200, `"tokens";r=1;t=${86_400 + 30}`],
    [`"tokens";q=2;w=${28 * 86_400}`, 200, `"tokens";r=0;t=${86_400 + 30}`],
    [`"tokens";q=2;w=${28 * 86_400}`, 429, `"tokens";r=0;t=${86_400 + 30}`],
  ];
  for (const state of states) {
    const { status, headers } = await ask(own, bearer(key));
    expect([headers['ratelimit-policy'], status, headers.ratelimit]).toEqual(state);
  }
  h.clock.now = Date.UTC(2026, 2, 1);
  const { headers } = await ask(own, bearer(key));
  expect(headers['ratelimit-policy']).toBe(`"tokens";q=2;w=${31 * 86_400}`);
  h.clock.now = before;
});

test('the name of a limit cannot end its quotes in a RateLimit header', async () => {
  const name = 'a"b\\c\r\nü';
  const { key } = await h.createKey({ ratelimits: [{ ...requests, name, limit: 2 ** 53 - 1 }] });
  const { headers } = await ask(own, bearer(key));
  expect(headers['ratelimit-policy']).toBe('"a%22b%5Cc%0D%0A%C3%BC";q=999999999999999;w=60');
  expect(headers.ratelimit).toMatch(/^"a%22b%5Cc%0D%0A%C3%BC";r=999999999999999;t=\d+$/);
});

describe('the root key of a gateway check', () => {
  test('is in a header if the setting is empty', async () => {
    const { key } = await h.createKey();
    const headers = { 'X-Api-Key': key, 'X-Tollgate-Root-Key': h.rootKey };
    expect((await ask(open, { headers })).status).toBe(200);
    const unknown = await ask(open, { headers: { ...headers, 'X-Api-Key': '' } });
    expect([...refused(unknown), unknown.headers['www-authenticate']]).toEqual([
      401,
      'invalid_key',
      'NOT_FOUND',
      'ApiKey header="X-Api-Key"',
    ]);
    // Authorization is ignored then.
    expect((await ask(open, { headers: { ...headers, authorization: 'Basic YTpi' } })).status).toBe(200);
  });

  test('of the setting is not replaced by the header, so that an end user cannot choose the workspace', async () => {
    const stranger = await h.createWorkspace();
    const { key } = await h.createKey();
    const headers = { 'X-Tollgate-Root-Key': stranger.rootKey };
    expect((await ask(own, bearer(key, headers))).status).toBe(200);
  });

  test('that is missing, unknown, expired or lacks verify_key is an error of the operator: 500, logged without it', async () => {
    const { key } = await h.createKey();
    const expired = await h.createRootKey(['*'], h.workspaceId, 0);
    const other = await h.createRootKey(['api.*.read_api']);
    const unknown = h.rootKey.replace(/.$/, (last) => (last === '1' ? '2' : '1'));
    logged.length = 0;
    for (const [rootKey, detail] of [
      ['', /^There is no root key: the setting GATEWAY_ROOT_KEY and/],
      ['nonsense', /^The root key is unknown/],
      [unknown, /^The root key is unknown/],
      [expired, /^The root key has expired/],
      [other, /^The root key lacks api\.\*\.verify_key/],
    ] as const) {
      // A server writes one such line a second.
      const server = await serve({ rootKey: '', keyHeader: 'X-Api-Key' });
      const answer = await ask(server, { headers: { 'X-Api-Key': key, 'X-Tollgate-Root-Key': rootKey } });
      expect([answer.status, codeOf(answer)]).toEqual([500, 'gateway_misconfigured']);
      expect(answer.json.error.detail).toMatch(detail);
      expect(answer.headers).not.toHaveProperty('www-authenticate');
      expect(JSON.parse(logged.at(-1)!)).toMatchObject({
        operation: 'gateway.check',
        status: 500,
        code: 'gateway_misconfigured',
        requestId: answer.json.meta.requestId,
        cause: expect.stringMatching(detail),
      });
    }
    expect(logged).toHaveLength(5);
    for (const secret of [key, unknown, expired, other]) expect(logged.join()).not.toContain(secret);
  });

  test('for another API gets 401, so that the existence of the key is not revealed', async () => {
    const { key } = await h.createKey();
    const other = await h.createKey();
    const rootKey = await h.createRootKey([`api.${other.apiId}.verify_key`]);
    const headers = { 'X-Api-Key': key, 'X-Tollgate-Root-Key': rootKey };
    expect((await ask(open, { headers })).status).toBe(401);
  });
});

describe('an invalid header is named', () => {
  const valid = { 'x-tollgate-permissions': 'a.b', 'x-tollgate-cost': '1', 'x-tollgate-limits': 'requests' };
  test.each([
    ['X-Tollgate-Cost', 'many', 'must hold a cost that is a whole number'],
    ['X-Tollgate-Cost', '-1', 'must hold'],
    ['X-Tollgate-Cost', '1.5', 'must hold'],
    ['X-Tollgate-Cost', '1e3', 'must hold'],
    ['X-Tollgate-Cost', '1000000000001', 'must be at most 1000000000000'],
    ['X-Tollgate-Hold', '1m', 'must hold a time in milliseconds that is a whole number'],
    ['X-Tollgate-Hold', '999', 'must be at least 1000'],
    ['X-Tollgate-Hold', '86400001', 'must be at most 86400000'],
    ['X-Tollgate-Limits', 'requests=', 'must hold a cost'],
    ['X-Tollgate-Limits', 'requests=x', 'must hold a cost'],
    ['X-Tollgate-Limits', 'requests=1=2', 'must be a comma-separated list'],
    ['X-Tollgate-Limits', 'requests,', 'must have at least 3 characters'],
    ['X-Tollgate-Limits', '%zz%', 'has a name with invalid percent-encoding'],
    ['X-Tollgate-Limits', 'requests, requests=2', 'repeats "requests"'],
    ['X-Tollgate-Limits', Array(51).fill('requests').join(), 'must have at most 50 items'],
    // One error for all of them, and none of an item: none is read. Nobody has to know a root key to send this.
    ['X-Tollgate-Limits', ','.repeat(3_000), 'must have at most 50 items'],
    ['X-Tollgate-Limits', '%zz%=1=2,'.repeat(300), 'must have at most 50 items'],
    ['X-Tollgate-Limits', '='.repeat(3_000), 'must be a comma-separated list'],
    ['X-Tollgate-Permissions', 'a.b AND', 'Expected a permission or "(" instead of the end at position 7'],
    ['X-Tollgate-Permissions', 'a'.repeat(1001), 'must have at most 1000 characters'],
  ])('400: %s: %.30s', async (name, value, message) => {
    const { key, keyId } = await h.createKey({
      permissions: ['a.b'],
      credits: { remaining: 5 },
      ratelimits: [requests],
    });
    const answer = await ask(own, bearer(key, { ...valid, [name.toLowerCase()]: value }));
    expect(answer.status).toBe(400);
    expect(answer.json.error.errors).toEqual([
      {
        location: `headers.${name}`,
        message: expect.stringContaining(message),
        ...(message.startsWith('repeats') && { fix: expect.any(String) }),
      },
    ]);
    expect(answer.json.error.detail).not.toContain('body');
    expect((await h.ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 5 });
  });

  test.each(['X-Tollgate-Cost', 'X-Tollgate-Hold', 'X-Tollgate-Limits', 'X-Tollgate-Permissions'])(
    '400: %s twice',
    async (name) => {
      const { key } = await h.createKey();
      const headers = ['Authorization', `Bearer ${key}`, 'Host', 'a', name, '1', name, '1'];
      const answer = await ask(own, { headers } as unknown as RequestOptions);
      expect([answer.status, answer.json.error.errors]).toEqual([
        400,
        [{ location: `headers.${name}`, message: 'must not be repeated' }],
      ]);
    },
  );

  test('400: a query string', async () => {
    const { key } = await h.createKey();
    expect((await ask(own, { path: `${gatewayPath}?cost=2`, ...bearer(key) })).status).toBe(400);
  });

  test('412: a limit that the key does not have', async () => {
    const { key } = await h.createKey();
    const answer = await ask(own, bearer(key, { 'x-tollgate-limits': 'nowhere' }));
    expect([answer.status, codeOf(answer)]).toEqual([412, 'precondition_failed']);
  });
});

describe('the body of a gateway check', () => {
  test('is skipped, at any size, and the connection stays open', async () => {
    const { key } = await h.createKey({ ratelimits: [{ ...requests, limit: 100 }] });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    let sockets = 0;
    const large = Buffer.alloc(64 * 1024 * 1024);
    const before = process.memoryUsage().arrayBuffers;
    for (const body of ['', '{"key":"none"', 'x'.repeat(bodyBytesMax + 1), large]) {
      const { status, headers } = await ask(own, { method: 'POST', agent, body, ...bearer(key) });
      expect([status, headers.connection?.toLowerCase() === 'close']).toEqual([200, false]);
      sockets += Object.values(agent.sockets).concat(Object.values(agent.freeSockets)).flat().length;
    }
    expect(sockets).toBe(4);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(large.length / 2);
    agent.destroy();
  });

  test('in chunks is skipped too', async () => {
    const { key } = await h.createKey();
    const request = httpRequest({
      host: '127.0.0.1',
      port: own.port,
      path: gatewayPath,
      method: 'PUT',
      ...bearer(key),
    });
    for (let chunk = 0; chunk < 10; chunk++) request.write('x'.repeat(bodyBytesMax));
    request.end();
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    expect(response.resume().statusCode).toBe(200);
  });
});

test('every response of these tests is described in the OpenAPI document, with its headers', async () => {
  const response = await fetch(`http://127.0.0.1:${own.port}/openapi.json`);
  const { responses } = ((await response.json()) as OpenApiDocument).paths[gatewayPath]!.get!;
  const statuses = new Set<string>();
  // Headers of HTTP itself.
  const ofHttp = /^(connection|keep-alive|date|uwebsockets|content-(type|length)|transfer-encoding)$/;
  for (const { statusCode, headers, url } of answered) {
    if (statusCode === 404) continue; // The unknown path.
    const described = responses[statusCode!]!;
    expect(described, `${url} ${statusCode}`).toBeDefined();
    expect(Object.keys(described.content)).toContain(headers['content-type']);
    const names = Object.keys(described.headers as object).map((name) => name.toLowerCase());
    const others = Object.keys(headers).filter((name) => !ofHttp.test(name) && !name.startsWith('x-tollgate-meta-'));
    expect(
      others.filter((name) => !names.includes(name)),
      String(statusCode),
    ).toEqual([]);
    statuses.add(String(statusCode));
  }
  expect([...statuses].sort()).toEqual(['200', '400', '401', '403', '412', '429', '500']);
});
