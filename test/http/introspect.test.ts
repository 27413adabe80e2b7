// Token introspection (RFC 7662) on a real socket, and with openid-client.

import { once } from 'node:events';
import { connect } from 'node:net';
import * as oauth from 'openid-client';
import { pino } from 'pino';
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import { digestOf } from '../../src/domain/keyString.ts';
import { introspectPath } from '../../src/http/introspect.ts';
import type { OpenApiDocument } from '../../src/http/openapi.ts';
import type { Server } from '../../src/http/server.ts';
import { Metrics } from '../../src/metrics.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { serve } from '../../src/serve.ts';
import { openStore, type Store } from '../../src/store.ts';
import { dayMs, harness, hourMs, type InputOf, testSettings } from '../support/harness.ts';
import { ownRedis } from '../support/ownRedis.ts';
import { serveStore } from '../support/serving.ts';

const h = harness();
const startMs = h.clock.now;
beforeEach(() => {
  h.clock.now = startMs;
});

let server: Server;
let url: string;
/** Log lines of the server. */
const logged: string[] = [];
beforeAll(async () => {
  const log = pino({ level: 'trace' }, { write: (line) => void logged.push(line) });
  const scrape = async () => '';
  const options = { config: loadConfig({}), log, port: 0, sharePort: false, metrics: new Metrics(), scrape };
  server = await serve({ store: h.store, ...options });
  url = `http://127.0.0.1:${server.port}`;
});
afterAll(() => server.close());

const basic = (password: string, user = 'tollgate') => `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`;
const formType = 'application/x-www-form-urlencoded';

/** Sends a form as it is, or one with this token. */
async function post(body: string | Buffer | { token: string }, headers: Record<string, string> = {}, path = '') {
  const response = await fetch(`${url}${introspectPath}${path}`, {
    method: 'POST',
    headers: { authorization: basic(h.rootKey), 'content-type': formType, ...headers },
    body: typeof body === 'string' || Buffer.isBuffer(body) ? body : String(new URLSearchParams(body)),
  });
  // biome-ignore lint/suspicious/noExplicitAny: any response.
  return { status: response.status, headers: response.headers, json: (await response.json()) as any };
}

async function introspect(token: string, authorization = basic(h.rootKey)) {
  const { status, headers, json } = await post({ token }, { authorization });
  expect([status, headers.get('content-type'), headers.get('cache-control')]).toEqual([
    200,
    'application/json',
    'no-store',
  ]);
  expect(headers.get('x-request-id')).toMatch(/^req_/);
  return json;
}

/** Of RFC 6749, section 5.2. */
const descriptionCharacters = /^[\x20\x21\x23-\x5b\x5d-\x7e]+$/;
const requests = { name: 'requests', limit: 1, duration: hourMs, autoApply: true };

describe('an active key', () => {
  test('has its ids, owner, permissions and times', async () => {
    h.clock.now += 999;
    await h.ok('permissions.createRole', { name: 'editor', permissions: ['documents.write'] });
    await h.ok('plans.createPlan', { planId: 'pro', ratelimits: [], permissions: ['reports.read'], roles: [] });
    const expires = startMs + dayMs + 1999;
    const { key, keyId, apiId } = await h.createKey({
      externalId: 'ada',
      permissions: ['documents.*'],
      roles: ['editor'],
      planId: 'pro',
      expires,
    });
    h.clock.advance(hourMs);
    const { scope, ...answer } = await introspect(key);
    expect(answer).toEqual({
      active: true,
      token_type: 'Bearer',
      client_id: keyId,
      jti: keyId,
      sub: 'ada',
      aud: apiId,
      iat: startMs / 1000,
      exp: startMs / 1000 + 86_401,
      code: 'VALID',
    });
    const { permissions } = await h.ok('keys.verifyKey', { key });
    expect(scope.split(' ').sort()).toEqual(['documents.*', 'documents.write', 'reports.read']);
    expect(scope.split(' ').sort()).toEqual([...permissions!].sort());
  });

  test('has no member without a value', async () => {
    const { key, keyId, apiId } = await h.createKey();
    const ids = { client_id: keyId, jti: keyId, aud: apiId };
    expect(await introspect(key)).toEqual({
      active: true,
      token_type: 'Bearer',
      ...ids,
      iat: startMs / 1000,
      code: 'VALID',
    });
  });

  test('that was imported has the time of its creation, not that of its import', async () => {
    const { apiId } = await h.ok('apis.createApi', { name: 'imported' });
    const created = startMs - 10 * dayMs;
    // keys.verifyKey refuses a string of more than 512 characters, so it is no key here either.
    const long = 'x'.repeat(513);
    const keys = ['an imported key', long].map((key) => ({ digest: digestOf(key), start: '', created }));
    await h.store.keys.create(h.workspaceId, { apiId, keys, mayCreatePermissions: false }, cliActor);
    expect(await introspect('an imported key')).toMatchObject({ active: true, iat: created / 1000 });
    expect(await introspect(long)).toEqual({ active: false, code: 'NOT_FOUND' });
  });

  test('with so many permissions that Redis returns their numbers has all of them', async () => {
    const many = (role: number) => Array.from({ length: 1000 }, (_, at) => `many.${role}.${at}`);
    const roles = Array.from({ length: 5 }, (_, role) => `many${role}`);
    for (const [role, name] of roles.entries()) await h.ok('permissions.createRole', { name, permissions: many(role) });
    const { key } = await h.createKey({ roles });
    const { scope } = await introspect(key);
    expect(scope.split(' ').sort()).toEqual(roles.flatMap((_, role) => many(role)).sort());
  });

  test('stays active without room in a limit or credits, and has the code of a verification', async () => {
    const { key: limited } = await h.createKey({ ratelimits: [requests] });
    await h.ok('keys.verifyKey', { key: limited });
    expect(await introspect(limited)).toMatchObject({ active: true, code: 'RATE_LIMITED' });
    const { key: spent } = await h.createKey({ credits: { remaining: 0 } });
    expect(await introspect(spent)).toMatchObject({ active: true, code: 'USAGE_EXCEEDED' });
    await h.ok('identities.createIdentity', { externalId: 'poor', credits: { remaining: 0 } });
    const { key: poor } = await h.createKey({ externalId: 'poor' });
    expect(await introspect(poor)).toMatchObject({ active: true, sub: 'poor', code: 'USAGE_EXCEEDED' });
  });

  test('stays active when a slot would need a hold that cannot be made', async () => {
    const slots = { limit: 1, duration: hourMs, autoApply: true, type: 'concurrency' as const };
    const ratelimits = Array.from({ length: 50 }, (_, at) => ({ ...slots, name: `${at}`.padEnd(128, 'x') }));
    const { key, keyId } = await h.createKey({ externalId: 'slots', ratelimits, permissions: ['documents.read'] });
    expect((await h.call('keys.verifyKey', { key })).code).toBe('precondition_failed');
    expect(await introspect(key)).toMatchObject({
      active: true,
      jti: keyId,
      sub: 'slots',
      scope: 'documents.read',
      code: 'precondition_failed',
    });
    const { rules } = await h.ok('keys.explainKey', { key });
    const ofLimits = rules.find(({ rule }) => rule === 'ratelimits');
    expect(ofLimits).toEqual({ rule: 'ratelimits', result: 'failed', reason: 'hold_too_large' });
  });
});

test.each<[string, Omit<InputOf<'keys.createKey'>, 'apiId'>]>([
  ['DISABLED', { enabled: false }],
  ['EXPIRED', { expires: 0 }],
  ['FORBIDDEN', { allowedIps: ['203.0.113.0/24'] }],
])('a key that is %s is not active, and nothing else of it is returned', async (code, input) => {
  const { key } = await h.createKey({ ...input, externalId: 'ada', permissions: ['documents.read'] });
  expect(await introspect(key)).toEqual({ active: false, code });
  expect((await h.ok('keys.verifyKey', { key })).code).toBe(code);
});

test('what is no key of this workspace is not active: unknown, deleted, too long, a root key, any text', async () => {
  const { key, keyId } = await h.createKey();
  await h.ok('keys.deleteKey', { keyId });
  const { of } = await h.openWorkspace();
  const { apiId } = await of('apis.createApi', { name: 'other' });
  const foreign = (await of('keys.createKey', { apiId })).key;
  for (const token of [key, foreign, 'k', h.rootKey, 'x'.repeat(513), 'x'.repeat(32_000), '\0', 'a b+c', 'ż😀', '%'])
    expect(await introspect(token), token.slice(0, 20)).toEqual({ active: false, code: 'NOT_FOUND' });
  // Not percent-encoded as UTF-8: a text that no key is.
  for (const body of ['token=%zz', 'token=%', 'token=%ff', Buffer.from([...Buffer.from('token='), 0xff, 0, 0x80])])
    expect(await post(body)).toMatchObject({ status: 200, json: { active: false, code: 'NOT_FOUND' } });
});

test('nothing is charged, counted or changed', async () => {
  const { of, rootKey } = await h.openWorkspace();
  const { apiId } = await of('apis.createApi', { name: 'own' });
  const { key, keyId } = await of('keys.createKey', {
    apiId,
    externalId: 'ada',
    credits: { remaining: 5, refill: { interval: 'daily', amount: 5 } },
    ratelimits: [
      { ...requests, limit: 3 },
      { ...requests, name: 'slots', type: 'concurrency' },
    ],
  });
  const disabled = (await of('keys.createKey', { apiId, enabled: false })).key;
  const request = { key, ratelimits: [{ name: 'requests' }] };
  const before = [await of('keys.getKey', { keyId }), await of('keys.explainKey', request)];
  const events = await of('audit.listEvents', {});
  for (let times = 0; times < 10; times++)
    for (const token of [key, disabled, 'none']) await introspect(token, basic(rootKey));
  expect([await of('keys.getKey', { keyId }), await of('keys.explainKey', request)]).toEqual(before);
  expect(await of('audit.listEvents', {})).toEqual(events);
  const hours = { start: startMs - hourMs, end: startMs + hourMs };
  expect(await of('analytics.getVerifications', hours)).toEqual([]);
  expect(await of('keys.verifyKey', { key })).toMatchObject({ code: 'VALID', credits: 4 });
});

test('it follows changes at once', async () => {
  const { key, keyId } = await h.createKey();
  expect(await introspect(key)).toMatchObject({ active: true });
  await h.ok('keys.updateKey', { keyId, enabled: false });
  expect(await introspect(key)).toEqual({ active: false, code: 'DISABLED' });
  await h.ok('keys.updateKey', { keyId, enabled: true, permissions: ['documents.read'] });
  expect(await introspect(key)).toMatchObject({ active: true, scope: 'documents.read' });
});

describe('the client', () => {
  test('is a root key as the password of Basic with any user, as curl and as RFC 6749 encode it, or after Bearer', async () => {
    const { key } = await h.createKey();
    const encoded = h.rootKey.replaceAll('_', '%5F');
    const credentials = [
      basic(h.rootKey, ''),
      basic(h.rootKey, 'root_1'),
      basic(encoded, 'a%20b'),
      `Bearer ${h.rootKey}`,
    ];
    for (const authorization of [...credentials, basic(h.rootKey).replace('Basic', 'bAsIc  ')])
      expect(await introspect(key, authorization)).toMatchObject({ active: true });
  });

  test('needs verify_key for the API of the key, by the rule of keys.verifyKey', async () => {
    const [own, other] = [await h.createKey(), await h.createKey()];
    const scoped = await h.createRootKey([`api.${own.apiId}.verify_key`]);
    expect(await introspect(own.key, basic(scoped))).toMatchObject({ active: true, aud: own.apiId });
    expect(await introspect(other.key, basic(scoped))).toEqual({ active: false, code: 'NOT_FOUND' });
    expect((await h.ok('keys.verifyKey', { key: other.key }, scoped)).code).toBe('NOT_FOUND');
    const reader = await h.createRootKey(['api.*.read_key', `api.${own.apiId}.read_api`]);
    for (const token of [own.key, 'none']) {
      const { status, json } = await post({ token }, { authorization: basic(reader) });
      expect([status, json.error]).toEqual([403, 'insufficient_scope']);
      expect(json.error_description).toContain('api.*.verify_key');
    }
  });

  const key = () => h.createKey().then((made) => made.key);
  test.each<[string, () => Promise<string> | string, RegExp]>([
    ['no header', () => '', /^Authorization must be/],
    ['another scheme', () => 'Digest a=b', /^Authorization must be/],
    ['Basic without a value', () => 'Basic', /^Authorization must be/],
    ['Basic without a colon', () => `Basic ${Buffer.from(h.rootKey).toString('base64')}`, /^Authorization must be/],
    ['Basic with invalid base64', () => `${basic(h.rootKey)}!`, /^Authorization must be/],
    ['Basic with an empty password', () => basic(''), /^Authorization must be/],
    ['Basic with invalid percent-encoding', () => basic(`${h.rootKey}%zz`), /^The root key is unknown/],
    ['Basic with NUL', () => basic(`${h.rootKey}\0`), /^The root key is unknown/],
    ['the root key as the user', () => basic('', h.rootKey), /^Authorization must be/],
    ['an unknown root key', () => basic('root_1111111111111111_abc'), /^The root key is unknown/],
    ['a key', async () => basic(await key()), /^The root key is unknown/],
    ['a key after Bearer', async () => `Bearer ${await key()}`, /^The root key is unknown/],
    ['an expired root key', async () => basic(await h.createRootKey(['*'], h.workspaceId, 0)), /has expired/],
    ['a disabled root key', async () => basic(await disabledRootKey()), /is disabled/],
  ])('that is %s gets 401 invalid_client', async (_title, authorization, description) => {
    const sent = await authorization();
    const { status, headers, json } = await post({ token: await key() }, { authorization: sent });
    expect({ status, json }).toEqual({
      status: 401,
      json: { error: 'invalid_client', error_description: expect.stringMatching(description) },
    });
    const scheme = sent.startsWith('Bearer') ? 'Bearer' : 'Basic';
    expect(headers.get('www-authenticate')).toBe(`${scheme} realm="Tollgate"`);
    expect(headers.get('cache-control')).toBe('no-store');
  });

  async function disabledRootKey() {
    const { key, rootKeyId } = await h.ok('rootKeys.createRootKey', { permissions: ['*'] });
    await h.ok('rootKeys.updateRootKey', { rootKeyId, enabled: false });
    return key;
  }
});

describe('a request that is refused', () => {
  test.each<[string, number, string | Buffer, Record<string, string>, RegExp]>([
    ['without a body', 400, '', {}, /^The parameter token is missing or empty/],
    ['without a token', 400, 'token_type_hint=access_token', {}, /token is missing/],
    ['with an empty token', 400, 'token=&a=b', {}, /token is missing or empty/],
    ['with two tokens', 400, 'token=a&token=b', {}, /^The parameter token is repeated/],
    ['with an empty token and another', 400, 'token=&token=b', {}, /repeated/],
    ['with an encoded name of a second one', 400, 'token=a&%74oken=b', {}, /repeated/],
    ['with JSON', 415, '{"token":"a"}', { 'content-type': 'application/json' }, /application\/x-www-form-urlencoded/],
    ['with a multipart form', 415, 'a', { 'content-type': 'multipart/form-data; boundary=a' }, /urlencoded/],
    ['with a similar type', 415, 'token=a', { 'content-type': `${formType}2` }, /urlencoded/],
    ['that is compressed', 415, 'token=a', { 'content-encoding': 'gzip' }, /uncompressed/],
    ['of 32 KB', 413, `token=${'x'.repeat(32_768 - 6)}`, {}, /more than 32767 bytes/],
    ['with a token of a megabyte', 413, `token=${'x'.repeat(1_000_000)}`, {}, /more than 32767 bytes/],
    ['with a body above BODY_LIMIT_BYTES', 413, `token=${'x'.repeat(2_000_000)}`, {}, /more than 32767 bytes/],
  ])('%s: %i invalid_request', async (_title, status, body, headers, description) => {
    const answer = await post(body, headers);
    expect({ status: answer.status, json: answer.json }).toEqual({
      status,
      json: { error: 'invalid_request', error_description: expect.stringMatching(description) },
    });
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect(answer.json.error_description).toMatch(descriptionCharacters);
  });

  test('with a token in the URL: it is not read, and not repeated', async () => {
    const { key } = await h.createKey();
    for (const body of ['', `token=${key}`]) {
      const { status, json } = await post(body, {}, `?token=${key}`);
      expect([status, json.error]).toEqual([400, 'invalid_request']);
      expect(JSON.stringify(json)).not.toContain(key);
    }
  });

  test('by another method: 405 with Allow', async () => {
    for (const method of ['GET', 'PUT', 'DELETE', 'OPTIONS']) {
      const response = await fetch(url + introspectPath, { method });
      expect([response.status, response.headers.get('allow')]).toEqual([405, 'POST']);
      expect(await response.json()).toMatchObject({ error: 'invalid_request' });
    }
    expect((await fetch(url + introspectPath, { method: 'HEAD' })).status).toBe(405);
    expect((await fetch(`${url}${introspectPath}/`, { method: 'POST' })).status).toBe(404);
  });

  test('with two Authorization headers: 400', async () => {
    const socket = connect(server.port, '127.0.0.1');
    const authorization = `Authorization: ${basic(h.rootKey)}\r\n`;
    socket.write(
      `POST ${introspectPath} HTTP/1.1\r\nHost: a\r\n${authorization}${authorization}Content-Length: 0\r\n\r\n`,
    );
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 400 /);
    socket.destroy();
  });
});

test('other parameters, their order, a charset and the case of the type have no effect', async () => {
  const { key } = await h.createKey();
  for (const type of [`${formType}; charset=UTF-8`, `${formType};charset=utf-8`, formType.toUpperCase()])
    expect(await post({ token: key }, { 'content-type': type })).toMatchObject({ status: 200, json: { active: true } });
  const ignored =
    'token_type_hint=refresh_token&token_type_hint=x&scope=a&client_id=b&client_secret=c&Token=d&tokens=e&%zz=%';
  for (const body of [`${ignored}&token=${key}`, `token=${key}&${ignored}`, `&&token=${key}&`])
    expect(await post(body)).toMatchObject({ status: 200, json: { active: true } });
});

describe('while Redis is away', () => {
  const redis = ownRedis();
  let store: Store;
  let away: Awaited<ReturnType<typeof serveStore>>;
  let rootKey: string;
  beforeAll(async () => {
    store = await openStore({ ...testSettings, commandTimeoutMs: 300, url: redis.url });
    rootKey = (await store.workspaces.createFirst('away'))!.rootKey;
    away = await serveStore(store);
  });
  afterAll(async () => {
    await away.close();
    await store.close();
  });

  test('the status is 503 with Retry-After, and the error has the form of OAuth', async () => {
    const ask = (authorization = basic(rootKey)) =>
      fetch(away.url + introspectPath, {
        method: 'POST',
        headers: { authorization },
        body: new URLSearchParams({ token: 'a_made_up_token' }),
      });
    expect((await ask()).status).toBe(200);
    redis.signal('SIGSTOP');
    // Of a caller that is known, and of one that is not.
    for (const authorization of [basic(rootKey), basic('root_1111111111111111_abc')]) {
      const response = await ask(authorization);
      expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1']);
      expect(await response.json()).toEqual({
        error: 'temporarily_unavailable',
        error_description: expect.stringMatching(descriptionCharacters),
      });
    }
    redis.signal('SIGCONT');
    await vi.waitFor(async () => expect((await ask()).status).toBe(200), { timeout: 20_000 });
  });
});

describe('openid-client', () => {
  const configure = (authenticate: oauth.ClientAuth) => {
    const metadata = { issuer: url, introspection_endpoint: url + introspectPath };
    const config = new oauth.Configuration(metadata, 'tollgate', undefined, authenticate);
    oauth.allowInsecureRequests(config);
    return config;
  };

  test('introspects keys', async () => {
    const config = configure(oauth.ClientSecretBasic(h.rootKey));
    const { key, keyId, apiId } = await h.createKey({ externalId: 'ada', permissions: ['documents.read'] });
    expect(await oauth.tokenIntrospection(config, key, { token_type_hint: 'access_token' })).toEqual({
      active: true,
      token_type: 'Bearer',
      client_id: keyId,
      jti: keyId,
      sub: 'ada',
      aud: apiId,
      scope: 'documents.read',
      iat: startMs / 1000,
      code: 'VALID',
    });
    expect(await oauth.tokenIntrospection(config, 'none')).toEqual({ active: false, code: 'NOT_FOUND' });
  });

  test('reads errors', async () => {
    const { key } = await h.createKey();
    const wrong = configure(oauth.ClientSecretBasic(key));
    await expect(oauth.tokenIntrospection(wrong, key)).rejects.toMatchObject({
      status: 401,
      cause: [{ scheme: 'basic', parameters: { realm: 'Tollgate' } }],
    });
    const reader = configure(oauth.ClientSecretBasic(await h.createRootKey(['api.*.read_key'])));
    await expect(oauth.tokenIntrospection(reader, key)).rejects.toMatchObject({
      status: 403,
      error: 'insufficient_scope',
      error_description: 'The root key lacks api.*.verify_key.',
    });
    // A secret in the body is no client authentication here.
    const inBody = configure(oauth.ClientSecretPost(h.rootKey));
    await expect(oauth.tokenIntrospection(inBody, key)).rejects.toMatchObject({ status: 401 });
  });
});

test('the document has the members and statuses of the responses', async () => {
  const document = (await (await fetch(`${url}/openapi.json`)).json()) as OpenApiDocument;
  const { responses, security } = document.paths[introspectPath]!.post!;
  expect(security).toEqual([{ rootKeyBasic: [] }, { rootKey: [] }]);
  const { properties, required } = responses[200]!.content['application/json']!.schema as {
    properties: object;
    required: string[];
  };
  const { key } = await h.createKey({ externalId: 'a', permissions: ['a.b'], expires: startMs + dayMs });
  expect(Object.keys(await introspect(key)).sort()).toEqual(Object.keys(properties).sort());
  expect(Object.keys(await introspect('none')).sort()).toEqual(required.sort());
  expect(Object.keys(responses)).toEqual(['200', '400', '401', '403', '413', '415', '429', '500', '503']);
});

test('no key and no root key is in the log', async () => {
  const { key } = await h.createKey();
  await post({ token: key });
  await post({ token: key }, { authorization: basic(key) });
  await post(`token=${key}&token=${h.rootKey}`);
  await post(`token=${key}`, { 'content-type': 'text/plain' });
  for (const secret of [key, h.rootKey]) expect(logged.join('\n')).not.toContain(secret.slice(-16));
});
