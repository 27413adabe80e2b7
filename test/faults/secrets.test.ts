// Calls every operation, records every secret, and searches for the secrets in: the logs at level trace, responses that
// must not have them, commands that Redis received, its data and slow log, and its files.
//
// The search is for the last sixteen characters of each secret, which the `start` of a key never contains.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { connect as connectSocket, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { createKeyString } from '../../src/domain/keyString.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { embeddedUrlIfRunning } from '../../src/redis/embedded.ts';
import { exampleOf, makeThings } from '../support/examples.ts';
import type { Called, InputOf, OutputOf } from '../support/harness.ts';
import { namesIn } from '../support/keyspace.ts';
import { type Alone, build, endAll, startAlone } from '../support/processes.ts';
import { report } from './report.ts';

let server: Alone;
let redis: RedisClient;
let monitor: Socket;
const sentToRedis: Buffer[] = [];

/** Every secret, with its origin. */
const secrets = new Map<string, string>();
const answers: { path: string; status: number; text: string }[] = [];
/** The operations that return a new secret. */
const returning = ['keys.createKey', 'keys.rerollKey', 'rootKeys.createRootKey'];

beforeAll(async () => {
  build();
  server = await startAlone({ LOG_LEVEL: 'trace', REDIS_TIMEOUT_MS: '300', SWEEP_INTERVAL_MS: '100' });
  secrets.set(server.rootKey, 'the first root key');
  const url = (await embeddedUrlIfRunning(server.dataDir))!;
  redis = await connect(url, { commandTimeoutMs: 20_000 });
  // The slow log has every command, and files are not compressed.
  await redis.config('SET', 'slowlog-log-slower-than', '0');
  await redis.config('SET', 'slowlog-max-len', '1000000');
  await redis.config('SET', 'latency-monitor-threshold', '1');
  await redis.config('SET', 'rdbcompression', 'no');
  monitor = connectSocket(url.slice('unix:'.length)).on('error', () => {});
  monitor.on('data', (bytes) => sentToRedis.push(bytes));
  monitor.write('MONITOR\r\n');
  await vi.waitFor(() => expect(sentToRedis.length).toBeGreaterThan(0));
});
afterAll(async () => {
  monitor.destroy();
  redis.disconnect();
  await endAll();
});

/** Sends any request and records the response. */
async function ask(path: string, { rootKey = server.rootKey, ...init }: RequestInit & { rootKey?: string } = {}) {
  const response = await fetch(`http://127.0.0.1:${server.port}${path}`, {
    method: 'POST',
    ...init,
    headers: { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json', ...init.headers },
  });
  const text = await response.text();
  answers.push({ path, status: response.status, text: `${[...response.headers].join('\n')}\n${text}` });
  return { status: response.status, text };
}

async function call<Name extends OperationName>(name: Name, input: InputOf<Name>, as?: string | string[]) {
  const { status, text } = await ask(`/v2/${name}`, { body: JSON.stringify(input), rootKey: as as string });
  const { data, error, meta, pagination } = JSON.parse(text);
  if (status === 200 && returning.includes(name)) secrets.set(data.key, name);
  const code = error?.type.split('/').at(-1);
  return { status, code, data, error, pagination, requestId: meta.requestId } as Called<OutputOf<Name>>;
}

const needle = (secret: string) => secret.slice(-16);

/** The origins of the secrets that a text contains. */
function found(where: string | Buffer, { but = new Set<string>() } = {}): string[] {
  const text = typeof where === 'string' ? where : where.toString('latin1');
  return [...secrets].filter(([secret]) => !but.has(secret) && text.includes(needle(secret))).map(([, from]) => from);
}

/** Secrets that were sent in place of an id. Redis gets them as ids, in commands only. */
const misplaced = new Set<string>();

// Some thousand requests, one after the other.
test('every operation is called, and its secrets collected', async () => {
  const workspace = JSON.parse(server.cli('workspace', 'create', 'second', '--json')).workspaceId;
  const made = JSON.parse(
    server.cli('root-key', 'create', '--workspace', workspace, '--permission', '*', '--name', 'gateway', '--json'),
  );
  secrets.set(made.rootKey, 'tollgate root-key create');
  expect(found(server.cli('root-key', 'list', '--workspace', workspace, '--json'))).toEqual([]);

  for (const { name } of operations) {
    // A response without an end: test/operations/analytics/tail.test.ts finds no secret in it.
    if (name === 'analytics.tail') continue;
    const things = await makeThings(call, server.rootKey);
    secrets.set(things.key, 'keys.createKey');
    const { status } = await call(name, exampleOf(name).input(things));
    expect(status, name).toBe(200);
  }
  // A key reads itself, and is misplaced.
  await call('workspace.updateSettings', { me: { origins: ['https://app.example'] } });
  const { key } = await makeThings(call, server.rootKey);
  secrets.set(key, 'keys.createKey');
  const me = (path: string, more = {}) => ask(path, { method: 'GET', rootKey: key, ...more });
  await vi.waitFor(async () => expect((await me('/v2/me')).status).toBe(200), { timeout: 5000, interval: 600 });
  expect((await me(`/v2/me?key=${key}`)).status).toBe(400);
  expect((await me('/v2/me', { headers: { origin: key, authorization: `Basic ${key}` } })).status).toBe(401);
  // Imported by hash: the server never had the string.
  const elsewhere = createKeyString({ prefix: 'old', byteLength: 16 }).key;
  secrets.set(elsewhere, 'a key made elsewhere');
  const { apiId } = await makeThings(call, made.rootKey);
  const hash = createHash('sha256').update(elsewhere).digest('base64');
  await call('keys.migrateKeys', { apiId, migrationId: 'moved', keys: [{ hash }] }, made.rootKey);
  expect((await call('keys.verifyKey', { key: elsewhere }, made.rootKey)).data.code).toBe('VALID');
  for (const byteLength of [16, 64, 255]) await call('keys.createKey', { apiId, byteLength }, made.rootKey);
  expect(secrets.size).toBeGreaterThan(100);
});

test('secrets in other fields are refused without repeating them', async () => {
  const { key, apiId, keyId } = await makeThings(call, server.rootKey);
  const rootKey = (await call('rootKeys.createRootKey', { permissions: ['*'] })).data.key;
  misplaced.add(key).add(rootKey);
  const before = answers.length;
  for (const secret of [key, rootKey]) {
    const bodies = [
      `{"key":"${secret}"`,
      `{"key":${secret}}`,
      secret,
      `"${secret}"`,
      `["${secret}"]`,
      `{"key":["${secret}"]}`,
      `{"key":{"${secret.slice(0, 4)}":"${secret}"}}`,
      `{"key":"${secret}\0"}`,
      `{"key":"${secret}\\ud800"}`,
      JSON.stringify({ key: secret.repeat(20) }),
      JSON.stringify({ key: secret, apiId }),
      JSON.stringify({ key: secret, permissions: '((' }),
      JSON.stringify({ key: secret, permissions: `${secret} AND` }),
      JSON.stringify({ key: secret, ratelimits: [{ name: 'nowhere' }] }),
      JSON.stringify({ keyId: secret }),
      JSON.stringify({ keyId: secret, expiration: 0 }),
      JSON.stringify({ apiId: secret }),
      JSON.stringify({ apiId, cursor: secret }),
      JSON.stringify({ keyId, enabled: secret }),
      JSON.stringify({ keyId, operation: secret, value: 1 }),
      JSON.stringify({ migrationId: 'abc', apiId, keys: [{ hash: secret }] }),
      JSON.stringify({ rootKeyId: secret }),
      JSON.stringify({ keyIds: [secret], change: { enabled: true } }),
      JSON.stringify({ text: secret }),
    ];
    for (const body of bodies) {
      for (const { name } of operations) {
        // Other operations would store the text, for example as the name of a namespace.
        if (
          !/^(keys\.(verify|get|explain|whoami|update|reroll|delete|migrate|create|change)|system\.find|apis\.(get|list|delete)|rootKeys)/.test(
            name,
          )
        )
          continue;
        await ask(`/v2/${name}`, { body });
      }
    }
    // A caller that is still sending beyond the limit may be disconnected before it gets the 413.
    await ask('/v2/keys.verifyKey', { body: 'x'.repeat(2_000_000) + secret }).catch(() => {});
    await ask(`/v2/keys.verifyKey?key=${secret}`, { body: '{}' });
    await ask(`/v2/${secret}`, { body: '{}' });
    await ask(`/${secret}`, { method: 'GET' });
    await ask('/v2/keys.verifyKey', { body: '{}', headers: { 'content-type': secret } });
    await ask('/v2/keys.verifyKey', {
      body: '{}',
      headers: { accept: secret, 'x-request-id': secret, cookie: secret },
    });
    await ask('/v2/keys.verifyKey', { body: '{}', headers: { authorization: secret } });
    await ask('/v2/keys.verifyKey', { body: '{}', headers: { authorization: `Basic ${secret}` } });
    await ask('/v2/keys.verifyKey', { body: JSON.stringify({ key }), rootKey: `${secret}x` });
    await ask('/v2/keys.verifyKey', { body: JSON.stringify({ key }), rootKey: key });
    const introspect = (body: string, headers: Record<string, string> = {}, query = '') =>
      ask(`/v2/introspect${query}`, {
        body,
        headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
      });
    const basicOf = (text: string) => ({ authorization: `Basic ${Buffer.from(text).toString('base64')}` });
    for (const headers of [{}, basicOf(`a:${secret}`), basicOf(secret), basicOf(`${secret}:%`)])
      for (const body of [`token=${secret}`, `token=${secret}&token=${secret}`, secret, `token=%${secret}`])
        await introspect(body, headers, body === secret ? `?token=${secret}` : '');
    await introspect(`token=${secret}`, { 'content-type': secret });
    await ask('/v2/keys.verifyKey', { method: secret.slice(0, 20), body: '{}' }).catch(() => {});
  }
  expect(answers.length - before).toBeGreaterThan(500);
  for (const path of [
    '/',
    '/openapi.json',
    '/llms.txt',
    '/metrics',
    '/docs',
    '/docs/samples.json',
    '/v2/liveness',
    '/errors/internal',
  ])
    await ask(path, { method: 'GET' });
});

test('errors of Redis are reported without its commands', async () => {
  const { key, apiId } = await makeThings(call, server.rootKey);
  const some = async () => {
    await Promise.all([
      call('keys.verifyKey', { key }),
      call('keys.whoami', { key }),
      call('keys.createKey', { apiId }),
      call('rootKeys.createRootKey', { permissions: ['*'] }),
    ]);
  };
  const faults = (status: number) => answers.filter((answer) => answer.status === status).length;

  // A timeout: the error of ioredis contains the command.
  const pid = Number(/process_id:(\d+)/.exec(await redis.info('server'))![1]);
  process.kill(pid, 'SIGSTOP');
  await some().finally(() => process.kill(pid, 'SIGCONT'));
  expect(faults(503)).toBeGreaterThan(2);
  // Out of memory.
  await redis.config('SET', 'maxmemory', '1');
  await some();
  await redis.config('SET', 'maxmemory', '0');
  // A record of another type.
  const digest = createHash('sha256').update(key).digest().toString('latin1');
  const record = (await namesIn(redis)).find((name) => name.toString('latin1').endsWith(`:k:${digest}`))!;
  await redis.rename(record, 'aside');
  await redis.set(record, 'not a hash');
  await some();
  expect(faults(500)).toBeGreaterThan(0);
  await redis.del(record);
  await redis.rename('aside', record);
  expect((await call('keys.verifyKey', { key })).status).toBe(200);
});

test('no secret is in Redis’s commands, data or slow log', async () => {
  // The recording is not empty: it contains the commands with the secrets' digests.
  const sent = Buffer.concat(sentToRedis);
  expect(sent.length).toBeGreaterThan(1_000_000);
  expect(found(sent, { but: misplaced })).toEqual([]);

  let values = 0;
  for (const name of await namesIn(redis)) {
    const type = await redis.type(name);
    const read = {
      string: () => redis.getBuffer(name),
      hash: () => redis.callBuffer('HGETALL', name),
      zset: () => redis.callBuffer('ZRANGE', name, '0', '-1', 'WITHSCORES'),
      set: () => redis.callBuffer('SMEMBERS', name),
      list: () => redis.callBuffer('LRANGE', name, '0', '-1'),
      stream: () => redis.callBuffer('XRANGE', name, '-', '+'),
      none: async () => [],
    }[type as 'string'];
    const value = [name, await read()].flat(4) as Buffer[];
    expect(found(Buffer.concat(value)), name.toString('latin1')).toEqual([]);
    values++;
  }
  expect(values).toBeGreaterThan(500);

  const slow = (await redis.callBuffer('SLOWLOG', 'GET', '-1')) as unknown[];
  expect(slow.length).toBeGreaterThan(500);
  const bytesOf = (value: unknown): Buffer[] =>
    Array.isArray(value) ? value.flatMap(bytesOf) : Buffer.isBuffer(value) ? [value] : [];
  expect(found(Buffer.concat(bytesOf(slow)), { but: misplaced })).toEqual([]);
  expect(found(String(await redis.call('LATENCY', 'LATEST')))).toEqual([]);
  counts.values = values;
  counts.slow = slow.length;
});

const counts = { values: 0, slow: 0, files: 0, fileBytes: 0 };

test('no secret is in Redis’s files, as appended, as rewritten and after the end', async () => {
  const look = () => {
    for (const path of readdirSync(server.dataDir, { recursive: true, encoding: 'utf8' })) {
      const file = join(server.dataDir, path);
      if (!statSync(file).isFile()) continue;
      const bytes = readFileSync(file);
      counts.files++;
      counts.fileBytes += bytes.length;
      expect(found(bytes), path).toEqual([]);
    }
  };
  look();
  expect(counts.fileBytes).toBeGreaterThan(300_000);
  await redis.call('BGREWRITEAOF');
  await vi.waitFor(async () => expect(await redis.info('persistence')).toMatch(/aof_rewrite_in_progress:0/), {
    timeout: 10_000,
  });
  await redis.call('SAVE');
  look();
  monitor.destroy();
  redis.disconnect();
  await server.stop();
  look();
});

test('no secret is in the logs, or in a response other than the one that returns it', async () => {
  expect(server.err.split('\n').length).toBeGreaterThan(300);
  expect(server.err).toMatch(/store_unavailable/);
  expect(server.err).toMatch(/WRONGTYPE/);
  expect(found(server.err)).toEqual([]);
  // Standard output has the first root key, once, and no other secret.
  expect(found(server.out)).toEqual(['the first root key']);
  expect(server.out.split(needle(server.rootKey))).toHaveLength(2);

  for (const { path, status, text } of answers) {
    const returnsOne = status === 200 && returning.some((name) => path === `/v2/${name}`);
    expect(found(text), `${path} ${text}`).toHaveLength(returnsOne ? 1 : 0);
  }
  report({
    order: '12.1',
    fault: 'every plaintext secret of a run searched for',
    expected: 'in no log, error, file, record or command of Redis; in no response except the one that returns it',
    measured:
      `${secrets.size} secrets; ${answers.length} answers, ${server.err.length} bytes of log at LOG_LEVEL=trace, ` +
      `${Buffer.concat(sentToRedis).length} bytes that Redis received, ${counts.values} records, ${counts.slow} entries of SLOWLOG ` +
      `and ${counts.files} files (${counts.fileBytes} bytes) without them`,
  });
});
