// GET /v2/me on a real socket: what a key sees of itself, and what an attacker with one key gets.

import { once } from 'node:events';
import { request as httpRequest, type IncomingHttpHeaders, type IncomingMessage, type RequestOptions } from 'node:http';
import { connect } from 'node:net';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { digestTextOf } from '../../src/domain/keyString.ts';
import { outcomeErrors } from '../../src/domain/verification.ts';
import type { Server } from '../../src/http/server.ts';
import { compileInput } from '../../src/input/validate.ts';
import { Metrics } from '../../src/metrics.ts';
import { Holder } from '../../src/operations/keys/me.ts';
import { holdersMax } from '../../src/records/holders.ts';
import { serve } from '../../src/serve.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';
import { observing } from '../support/observer.ts';

/** The scripts that Redis has run. */
const ran: string[] = [];
const h = harness(undefined, { observe: observing({ ran: (script) => void ran.push(script) }) });
const { clock, ok, call, createKey } = h;
const origin = 'https://app.example.com';
const logged: string[] = [];
/** All keys of the tests. */
const keys: string[] = [];
let server: Server;

beforeAll(async () => {
  await ok('workspace.updateSettings', { me: { origins: [origin, 'http://localhost:5173'], meta: ['tier', 'seats'] } });
  server = await serve({
    store: h.store,
    config: loadConfig({ GATEWAY_IP_HEADER: 'X-Real-IP' }),
    log: pino({ level: 'trace' }, { write: (line) => void logged.push(line) }),
    port: 0,
    sharePort: false,
    metrics: new Metrics(),
    scrape: async () => '',
  });
});
afterAll(() => server?.close());

interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: any response.
  json: any;
}

async function ask(options: RequestOptions & { body?: string } = {}): Promise<Answer> {
  const { body, ...rest } = options;
  const request = httpRequest({ host: '127.0.0.1', port: server.port, path: '/v2/me', ...rest });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  let text = '';
  for await (const chunk of response) text += chunk;
  // A page of the HTTP parser has no media type.
  const json = response.headers['content-type']?.includes('json') && text !== '' ? JSON.parse(text) : undefined;
  return { status: response.statusCode!, headers: response.headers, text, json };
}
const bearer = (key: string, more: Record<string, string> = {}) => ({
  headers: { authorization: `Bearer ${key}`, ...more },
});
const me = (key: string, more?: Record<string, string>) => ask(bearer(key, more));
const codeOf = ({ json }: Answer): string => json.error?.type.split('/').at(-1);

async function newKey(input: Parameters<typeof createKey>[0] = {}) {
  const created = await createKey(input);
  keys.push(created.key);
  return created;
}

/** All of an answer but what differs between any two. */
function withoutChance({ status, headers, json }: Answer) {
  const { date: _date, 'x-request-id': _id, 'content-length': length, ...same } = headers;
  return { status, headers: same, length, error: json.error };
}

const requests = { name: 'requests', limit: 100, duration: hourMs, autoApply: true };
const exact = {
  ratelimits: [requests, { name: 'tokens', limit: 1000, period: 'month' as const }],
  credits: { remaining: 50, refill: { interval: 'monthly' as const, amount: 50 } },
};

describe('a key', () => {
  test('reads what it may use, what is shared, and what it used', async () => {
    await ok('plans.createPlan', {
      planId: 'pro',
      ratelimits: [{ name: 'jobs', limit: 3, duration: hourMs, type: 'concurrency' }],
      permissions: ['documents.read'],
      meta: { tier: 'gold', margin: 0.4 },
    });
    const identity = { externalId: 'customer-7', credits: { remaining: 900 }, meta: { secret: 'of the product' } };
    await ok('identities.createIdentity', { ...identity, ratelimits: [{ ...requests, name: 'of all', limit: 500 }] });
    const { key, keyId, apiId } = await newKey({
      ...exact,
      name: 'CI',
      prefix: 'pk',
      externalId: 'customer-7',
      planId: 'pro',
      meta: { seats: 5, internal: 'note' },
      expires: clock.now + 90 * dayMs,
    });
    const request = { key, ratelimits: [{ name: 'jobs' }, { name: 'tokens', cost: 7 }], credits: { cost: 2 } };
    await ok('keys.verifyKey', { ...request, hold: { ttl: dayMs } });
    await ok('keys.verifyKey', { key, permissions: 'nothing' });

    const { status, json, headers } = await me(key);
    expect(status).toBe(200);
    expect(headers).toMatchObject({ 'cache-control': 'no-store', vary: 'Origin', 'content-type': 'application/json' });
    expect(headers['x-request-id']).toBe(json.meta.requestId);
    const nothing = { count: 0, refused: 0, spentCredits: 0 };
    const today = Date.UTC(2026, 0, 15);
    // Credits of a hold are counted when it is settled.
    const used = { count: 2, refused: 1, spentCredits: 0 };
    expect(json.data).toEqual({
      keyId,
      start: key.slice(0, 7),
      enabled: true,
      time: clock.now,
      name: 'CI',
      expires: clock.now + 90 * dayMs,
      plan: { planId: 'pro', meta: { tier: 'gold' } },
      meta: { seats: 5 },
      permissions: ['documents.read'],
      ratelimits: [
        { name: 'requests', limit: 100, duration: hourMs, used: 1, remaining: 99, reset: expect.any(Number) },
        {
          name: 'tokens',
          limit: 1000,
          duration: 31 * dayMs,
          type: 'quota',
          period: 'month',
          anchor: expect.any(Number),
          used: 7,
          remaining: 993,
          reset: Date.UTC(2026, 1),
        },
        {
          name: 'jobs',
          limit: 3,
          duration: hourMs,
          type: 'concurrency',
          used: 1,
          remaining: 2,
          reset: clock.now + hourMs,
        },
        expect.objectContaining({ name: 'of all', limit: 500, used: 1, remaining: 499, shared: true }),
      ],
      credits: { remaining: 48, refill: { interval: 'monthly', amount: 50, refillDay: 1, next: Date.UTC(2026, 1) } },
      identity: { credits: { remaining: 898 } },
      holds: {
        open: 1,
        credits: 2,
        ratelimits: [
          { name: 'jobs', cost: 1 },
          { name: 'of all', cost: 1 },
          { name: 'requests', cost: 1 },
          { name: 'tokens', cost: 7 },
        ],
      },
      usage: {
        days: Array.from({ length: 30 }, (_, ago) => ({
          time: today - (29 - ago) * dayMs,
          ...(ago === 29 ? used : nothing),
        })),
        month: { time: Date.UTC(2026, 0), ...used },
      },
    });
    compileInput(Holder)(json.data, 1);
    for (const hidden of [key, apiId, 'customer-7', 'of the product', 'internal', 'margin', h.workspaceId])
      expect(JSON.stringify(json)).not.toContain(hidden);
  });

  test('that has nothing reads little; a debt, a moved balance and full limits are shown', async () => {
    const { key } = await newKey();
    const { data } = (await me(key)).json;
    expect(Object.keys(data)).toEqual(['keyId', 'start', 'enabled', 'time', 'ratelimits', 'usage']);

    const spent = await newKey({ credits: { remaining: 1 }, ratelimits: [{ ...requests, limit: 1 }] });
    const { hold } = await ok('keys.verifyKey', { key: spent.key, hold: { ttl: dayMs } });
    await ok('keys.settleHold', {
      holdId: hold!.id,
      credits: { cost: 5 },
      ratelimits: [{ name: 'requests', cost: 3 }],
    });
    expect((await me(spent.key)).json.data).toMatchObject({
      credits: { remaining: 0, debt: 4 },
      ratelimits: [{ used: 3, remaining: 0 }],
    });
    const { key: next } = await ok('keys.rerollKey', { keyId: spent.keyId, expiration: dayMs, credits: 'move' });
    keys.push(next);
    for (const each of [spent.key, next])
      expect((await me(each)).json.data.credits).toEqual({ remaining: 0, debt: 4, shared: true });
  });

  test('with a hundred limits reads all of them', async () => {
    const many = (of: string) =>
      Array.from({ length: 50 }, (_, index) => ({ ...requests, name: `${of} ${index}`, autoApply: index % 2 === 0 }));
    await ok('identities.createIdentity', { externalId: 'many', ratelimits: [...many('of all').slice(1), requests] });
    const { key } = await newKey({ externalId: 'many', ratelimits: [...many('own').slice(1), requests] });
    const { ratelimits } = (await me(key)).json.data;
    // That of the identity with the name of its own does not apply to it.
    expect(ratelimits.map(({ shared = false }) => shared)).toEqual([...Array(50).fill(false), ...Array(49).fill(true)]);
  });

  test('is not charged, counted or renewed', async () => {
    const { key, keyId, apiId } = await newKey(exact);
    clock.advance(40 * dayMs);
    const before = await h.store.keys.inspect(h.workspaceId, { keyId });
    const { data } = (await me(key)).json;
    expect(data.credits).toMatchObject({ remaining: 50, refill: { next: Date.UTC(2026, 2) } });
    expect((await ask({ ...bearer(key, { 'content-length': '6' }), body: 'a body' })).status).toBe(200);
    expect(await h.store.keys.inspect(h.workspaceId, { keyId })).toEqual(before);
    expect(await ok('analytics.getVerifications', { apiId })).toEqual([]);
    expect((await ok('keys.getKey', { keyId })).lastUsedAt).toBeUndefined();
    clock.advance(-40 * dayMs);
  });

  test('sees nothing of another key of its identity but what they share', async () => {
    const externalId = 'two-keys';
    await ok('identities.createIdentity', { externalId, ratelimits: [{ ...requests, name: 'of all' }] });
    const mine = await newKey({ externalId });
    const theirs = await newKey({ ...exact, externalId, name: 'theirs', apiId: mine.apiId });
    await ok('keys.verifyKey', { key: theirs.key, hold: { ttl: dayMs } });
    const answer = await me(mine.key);
    expect(answer.json.data.ratelimits).toMatchObject([{ name: 'of all', used: 1, shared: true }]);
    expect(answer.json.data.usage.month.count).toBe(0);
    for (const hidden of [theirs.keyId, 'theirs', 'requests', 'credits"', 'holds', externalId])
      expect(answer.text.replaceAll('spentCredits"', '')).not.toContain(hidden);
  });
});

describe('401, with the same words', () => {
  const words = (outcome: keyof typeof outcomeErrors) => outcomeErrors[outcome].detail;
  const refusalOf = async (key: string) => {
    const answer = await me(key, { origin });
    expect([answer.status, codeOf(answer), answer.headers['www-authenticate']]).toEqual([401, 'invalid_key', 'Bearer']);
    return answer;
  };

  test('for every key that is not found: unknown, deleted, of a workspace without the setting, a root key', async () => {
    const unknown = withoutChance(await refusalOf('pk_unknown'));
    expect(unknown.error.detail).toBe(words('NOT_FOUND'));
    expect(unknown.headers).not.toHaveProperty('access-control-allow-origin');
    const deleted = await newKey();
    await me(deleted.key);
    await ok('keys.deleteKey', { keyId: deleted.keyId });
    const erased = await newKey();
    await ok('keys.deleteKey', { keyId: erased.keyId, permanent: true });
    const ofDeletedApi = await newKey();
    await ok('apis.deleteApi', { apiId: ofDeletedApi.apiId });
    const off = await h.openWorkspace();
    const { apiId } = await off.of('apis.createApi', { name: 'off' });
    const { key: offKey } = await off.of('keys.createKey', { apiId });
    for (const key of [deleted.key, erased.key, ofDeletedApi.key, offKey, h.rootKey, 'k'.repeat(512), '😀'])
      expect(withoutChance(await refusalOf(encodeURI(key)))).toEqual(unknown);
    // As often as anybody asks, and it costs no more than two reads a second.
    ran.length = 0;
    const startedAt = Math.floor(performance.now() / 1000);
    for (let times = 0; times < 20; times++)
      expect(withoutChance(await refusalOf(deleted.key)), `${times}`).toEqual(unknown);
    const seconds = Math.floor(performance.now() / 1000) - startedAt + 1;
    expect(ran.filter((script) => script === 'keys/explain').length).toBeLessThanOrEqual(2 * seconds);
    await ok('keys.restoreKey', { keyId: deleted.keyId });
    await expect.poll(() => me(deleted.key), { timeout: 5000, interval: 600 }).toMatchObject({ status: 200 });
  });

  test('for a key that is disabled or has expired', async () => {
    const disabled = await newKey({ enabled: false });
    const expired = await newKey({ expires: 0 });
    expect((await refusalOf(disabled.key)).json.error.detail).toBe(words('DISABLED'));
    const answer = await refusalOf(expired.key);
    expect(answer.json.error.detail).toBe(words('EXPIRED'));
    // A page of the product may show why.
    expect(answer.headers['access-control-allow-origin']).toBe(origin);
  });

  test('without a key, or with a repeated, malformed or too long one', async () => {
    const { key } = await newKey();
    const heads: (RequestOptions['headers'] | string[])[] = [
      {},
      { authorization: '' },
      { authorization: key },
      { authorization: `Basic ${key}` },
      { authorization: `Bearer ${key} ${key}` },
      { authorization: `Bearer ${'k'.repeat(513)}` },
      { 'x-api-key': key },
      ['Host', 'a', 'Authorization', `Bearer ${key}`, 'Authorization', `Bearer ${key}`],
    ];
    for (const headers of heads) {
      const answer = await ask({ headers: headers as Record<string, string> });
      expect([answer.status, codeOf(answer)], JSON.stringify(headers)).toEqual([401, 'invalid_key']);
      expect(answer.text).not.toContain(key);
    }
    expect((await ask({ headers: { authorization: `bearer  ${key}` } })).status).toBe(200);
  });
});

describe('addresses', () => {
  test('a key with allowedIps is read from these only, by the header of the gateway', async () => {
    const { key } = await newKey({ allowedIps: ['203.0.113.0/24'] });
    const other = await newKey({ allowedIps: ['203.0.113.0/24'] });
    expect((await me(key, { 'x-real-ip': '198.51.100.1, 203.0.113.7' })).status).toBe(200);
    for (const more of [{}, { 'x-real-ip': '203.0.113.7, 198.51.100.1' }]) {
      const answer = await me(other.key, more as Record<string, string>);
      expect([answer.status, codeOf(answer)]).toEqual([403, 'ip_not_allowed']);
      expect(answer.json.error.detail).toBe(outcomeErrors.FORBIDDEN.detail);
    }
    const third = await newKey({ allowedIps: ['203.0.113.0/24'] });
    const answer = await me(third.key, { 'x-real-ip': 'unknown' });
    expect([answer.status, codeOf(answer)]).toEqual([400, 'invalid_input']);
  });
});

describe('requests of another form', () => {
  test.each(['HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'PROPFIND'])('%s is 405 with Allow', async (method) => {
    const { key } = await newKey();
    const answer = await ask({ ...bearer(key), method });
    expect([answer.status, answer.headers.allow]).toEqual([405, 'GET, OPTIONS']);
    expect(answer.headers).toMatchObject({ 'cache-control': 'no-store', vary: 'Origin' });
    if (method !== 'HEAD') expect(codeOf(answer)).toBe('method_not_allowed');
  });

  test('a query is 400, and a key in it is in no answer', async () => {
    const { key } = await newKey();
    const answer = await ask({ ...bearer(key), path: `/v2/me?key=${key}` });
    expect([answer.status, codeOf(answer)]).toEqual([400, 'invalid_input']);
    expect(answer.text).not.toContain(key);
    expect((await ask({ path: '/v2/me/', ...bearer(key) })).status).toBe(404);
    expect((await ask({ path: '/v2/me/x', ...bearer(key) })).status).toBe(404);
  });

  test('headers that are too large are 431, and a body is ignored', async () => {
    const { key } = await newKey();
    expect((await me(key, { 'x-large': 'x'.repeat(17_000) })).status).toBe(431);
    for (const [name, value] of [
      ['transfer-encoding', 'chunked'],
      ['content-length', '5'],
    ]) {
      const other = await newKey();
      const answer = await ask({ ...bearer(other.key, { [name!]: value! }), body: '{"a":' });
      expect(answer.status).toBe(200);
    }
    const socket = connect(server.port, '127.0.0.1');
    socket.write(
      `GET /v2/me HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n`,
    );
    const [data] = (await once(socket, 'data')) as [Buffer];
    expect(data.toString()).toMatch(/^HTTP\/1\.1 400 /);
    socket.destroy();
  });
});

describe('CORS', () => {
  const cors = ({ headers }: Answer) =>
    Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('access-control-')));

  test('an origin of the setting may read the answer, and no other, never with credentials', async () => {
    for (const each of [origin, 'http://localhost:5173']) {
      const { key } = await newKey();
      expect(cors(await me(key, { origin: each }))).toEqual({
        'access-control-allow-origin': each,
        'access-control-expose-headers': 'Retry-After, X-Request-Id',
      });
    }
    for (const each of [
      'https://evil.example',
      'https://app.example.com.evil.example',
      'https://APP.example.com',
      'https://app.example.com:443',
      'https://app.example.com/',
      'http://app.example.com',
      'null',
      '*',
      `${origin}, ${origin}`,
    ]) {
      const { key } = await newKey();
      const answer = await me(key, { origin: each, cookie: 'session=1' });
      expect([answer.status, cors(answer), answer.headers.vary]).toEqual([200, {}, 'Origin']);
    }
    const { key } = await newKey();
    const headers = ['Host', 'a', 'Authorization', `Bearer ${key}`, 'Origin', origin, 'Origin', origin];
    expect(cors(await ask({ headers: headers as never }))).toEqual({});
  });

  test('a preflight has no key: it is the same for all, and lets no page read an answer', async () => {
    const answers = [];
    for (const each of [origin, 'https://evil.example', undefined]) {
      const headers = {
        ...(each && { origin: each }),
        'access-control-request-method': 'GET',
        'access-control-request-headers': 'authorization',
      };
      answers.push(await ask({ method: 'OPTIONS', headers }));
    }
    for (const answer of answers) {
      expect(answer).toMatchObject({ status: 200, json: { data: {} } });
      expect(cors(answer)).toEqual({
        'access-control-allow-origin': '*',
        'access-control-allow-methods': 'GET',
        'access-control-allow-headers': 'Authorization',
        'access-control-max-age': '600',
      });
    }
    const { key } = await newKey();
    expect(cors(await me(key, { origin: 'https://evil.example' }))).toEqual({});
  });
});

describe('bounds', () => {
  test('a loop with one key is refused with 429, reads nothing meanwhile, and delays no other key', async () => {
    const { key } = await newKey();
    const other = await newKey();
    await me(other.key);
    ran.length = 0;
    const startedAt = Math.floor(performance.now() / 1000);
    const answers = [];
    for (let times = 0; times < 40; times++) answers.push(await me(key, { origin }));
    const seconds = Math.floor(performance.now() / 1000) - startedAt + 1;
    const passed = answers.filter(({ status }) => status === 200);
    expect(passed.length).toBeLessThanOrEqual(2 * seconds);
    expect(ran.filter((script) => script === 'keys/explain')).toHaveLength(passed.length);
    const [refused] = answers.filter(({ status }) => status === 429);
    expect(refused!.headers).toMatchObject({
      'retry-after': '1',
      'content-type': 'application/problem+json',
      'access-control-allow-origin': origin,
      'cache-control': 'no-store',
    });
    expect(codeOf(refused!)).toBe('too_many_requests');
    expect((await me(other.key)).status).toBe(200);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'VALID' });
  });

  test('at once, too: of a hundred requests with one key few are read', async () => {
    const { key } = await newKey();
    ran.length = 0;
    const answers = await Promise.all(Array.from({ length: 100 }, () => me(key)));
    const passed = answers.filter(({ status }) => status === 200).length;
    expect(passed).toBeGreaterThan(0);
    expect(passed).toBeLessThanOrEqual(6);
    expect(ran.filter((script) => script === 'keys/explain')).toHaveLength(passed);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200, 429]));
  });

  test('at first, too: a deleted key is as an unknown one, and a page may read why it is refused', async () => {
    const atOnce = (key: string) => Promise.all(Array.from({ length: 20 }, () => me(key, { origin })));
    const deleted = await newKey();
    await ok('keys.deleteKey', { keyId: deleted.keyId });
    const unknown = withoutChance(await me('pk_unknown', { origin }));
    ran.length = 0;
    for (const answer of await atOnce(deleted.key)) expect(withoutChance(answer)).toEqual(unknown);
    expect(ran.filter((script) => script.startsWith('keys/')).length).toBeLessThanOrEqual(5);
    const refused = (await atOnce((await newKey()).key)).filter(({ status }) => status === 429);
    expect(refused.length).toBeGreaterThan(10);
    for (const { headers } of refused) expect(headers['access-control-allow-origin']).toBe(origin);
  });

  test('the keys of one workspace do not keep those of another out', async () => {
    const other = await h.openWorkspace();
    await other.of('workspace.updateSettings', { me: {} });
    const { apiId } = await other.of('apis.createApi', { name: 'quiet' });
    const few = await Promise.all(Array.from({ length: 20 }, () => other.of('keys.createKey', { apiId })));
    const many = await Promise.all(Array.from({ length: 400 }, () => newKey()));
    await new Promise((resolve) => setTimeout(resolve, 1100));
    const crowd = Promise.all(many.map(({ key }) => me(key)));
    const others = await Promise.all(few.map(({ key }) => me(key)));
    expect(new Set((await crowd).map(({ status }) => status))).toEqual(new Set([200, 429]));
    expect(new Set(others.map(({ status }) => status))).toEqual(new Set([200]));
    await other.of('workspace.updateSettings', { me: null });
  });

  test('an unknown key costs no script', async () => {
    ran.length = 0;
    for (let number = 0; number < 50; number++) expect((await me(`unknown_${number}`)).status).toBe(401);
    expect(ran.filter((script) => script !== 'data/beat')).toEqual([]);
  });
});

describe('the setting', () => {
  test('applies at once when it is taken away or changed, and within a second when it is given', async () => {
    const { of, rootKey } = await h.openWorkspace();
    const { apiId } = await of('apis.createApi', { name: 'switched' });
    const { key } = await of('keys.createKey', { apiId });
    keys.push(key);
    expect((await me(key)).status).toBe(401);
    await of('workspace.updateSettings', { me: {} });
    await expect.poll(() => me(key), { timeout: 10_000, interval: 600 }).toMatchObject({ status: 200 });
    await new Promise((resolve) => setTimeout(resolve, 1100));
    expect((await me(key, { origin })).headers).not.toHaveProperty('access-control-allow-origin');
    await of('workspace.updateSettings', { me: { origins: [origin] } });
    expect((await me(key, { origin })).headers['access-control-allow-origin']).toBe(origin);
    await of('workspace.updateSettings', { me: null });
    await new Promise((resolve) => setTimeout(resolve, 1100));
    const closed = await me(key, { origin });
    expect(closed.status).toBe(401);
    expect(closed.headers).not.toHaveProperty('access-control-allow-origin');
    expect(withoutChance(closed)).toEqual(withoutChance(await me('pk_unknown', { origin })));
    expect((await call('workspace.getSettings', {}, rootKey)).data).not.toHaveProperty('me');
  });

  test('a key string that two workspaces have is that of the older one', async () => {
    const { key, keyId } = await newKey();
    clock.advance(1);
    const other = await h.openWorkspace();
    await other.of('workspace.updateSettings', { me: {} });
    const { apiId } = await other.of('apis.createApi', { name: 'other' });
    const hash = Buffer.from(digestTextOf(key), 'latin1').toString('base64');
    await other.of('keys.migrateKeys', { migrationId: 'twice', apiId, keys: [{ hash }] });
    expect((await me(key)).json.data.keyId).toBe(keyId);
    await other.of('workspace.updateSettings', { me: null });
  });

  test('a key string that is deleted in one workspace is that of another, which has it', async () => {
    clock.advance(1);
    const other = await h.openWorkspace();
    await other.of('workspace.updateSettings', { me: { origins: [origin] } });
    const { apiId } = await other.of('apis.createApi', { name: 'second' });
    const second = async (key: string, migrationId: string) => {
      const hash = Buffer.from(digestTextOf(key), 'latin1').toString('base64');
      const { migrated } = await other.of('keys.migrateKeys', { migrationId, apiId, keys: [{ hash }] });
      return migrated[0]!.keyId;
    };
    const [before, meanwhile] = [await newKey(), await newKey()];
    const [first, then] = [await second(before.key, 'before'), await second(meanwhile.key, 'meanwhile')];
    await new Promise((resolve) => setTimeout(resolve, 1100));
    expect((await me(meanwhile.key)).json.data.keyId).toBe(meanwhile.keyId);
    for (const { keyId } of [before, meanwhile]) await ok('keys.deleteKey', { keyId });
    for (const [key, keyId] of [
      [before.key, first],
      [meanwhile.key, then],
    ] as const) {
      const answer = await me(key, { origin });
      expect([answer.status, answer.json.data?.keyId]).toEqual([200, keyId]);
      expect(answer.headers['access-control-allow-origin']).toBe(origin);
    }
    await other.of('workspace.updateSettings', { me: null });
  });

  test('is refused for more workspaces than are looked into, and a flood of unknown keys is refused', async () => {
    const ids = Array.from({ length: holdersMax - 1 }, (_, index) => `ws_${String(index).padStart(16, 'a')}`);
    for (const id of ids) await h.store.holders.add(id);
    const { rootKey } = await h.createWorkspace();
    expect(await call('workspace.updateSettings', { me: {}, name: 'too many' }, rootKey)).toMatchObject({
      status: 412,
      code: 'precondition_failed',
    });
    expect((await call('workspace.getSettings', {}, rootKey)).data).toMatchObject({ name: 'test' });
    const [workspace] = (await h.store.workspaces.list()).slice(-1);
    const workspaceId = `ws_${'imported'.padStart(16, 'b')}`;
    const imported = { ...workspace!, workspaceId, protectApis: false, me: {}, sequence: 0, importId: 'a' };
    await expect(h.store.workspaces.import(imported, false)).rejects.toMatchObject({ code: 'precondition_failed' });
    expect((await h.store.workspaces.list()).map((each) => each.workspaceId)).not.toContain(workspaceId);
    // One that has it may change it.
    await ok('workspace.updateSettings', { me: { origins: [origin] } });
    const { key } = await newKey();
    await new Promise((resolve) => setTimeout(resolve, 1100));
    expect((await me(key)).status).toBe(200);
    let refused = 0;
    for (let round = 0; round < 20 && refused === 0; round++) {
      const answers = await Promise.all(Array.from({ length: 150 }, (_, index) => me(`unknown_${round}_${index}`)));
      refused = answers.filter(({ status }) => status === 429).length;
      for (const answer of answers) expect([401, 429]).toContain(answer.status);
    }
    expect(refused).toBeGreaterThan(0);
    // One that is known is not looked up.
    await new Promise((resolve) => setTimeout(resolve, 1100));
    const [known] = await Promise.all([me(key), ...Array.from({ length: 150 }, (_, index) => me(`flood_${index}`))]);
    expect(known!.status).toBe(200);
    for (const id of ids) await h.store.holders.remove(id);
  });
});

test('no log line has a key', () => {
  expect(keys.length).toBeGreaterThan(20);
  for (const key of keys) expect(logged.join('')).not.toContain(key);
});
