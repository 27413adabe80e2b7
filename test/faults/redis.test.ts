// Faults of Redis, made for real on a redis-server of this file's own: every request is answered, in time and in the
// envelope, nothing is charged twice or half, and all is well again by itself when Redis is.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createId, createKeyString, createRootKeyString, digestOf } from '../../src/domain/keyString.ts';
import type { Answer, Response } from '../../src/http/message.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { operations } from '../../src/operations/index.ts';
import { cliActor } from '../../src/store/rootKeys.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { testSettings } from '../support/harness.ts';

const commandTimeoutMs = 300;
/** What an answer may take beyond the command timeout, on a machine that does other things as well. */
const slackMs = 400;
const credits = 1_000_000;

let dir: string;
let redis: ChildProcess;
/** Beside the store, to make faults with. */
let admin: Redis;
let store: Store;
let answer: Answer;
let logged: string;
let rootKey: string;
let keyId: string;
let key: string;

async function startRedis() {
  const socket = join(dir, 'redis.sock');
  rmSync(socket, { force: true });
  const settings = `--port 0 --unixsocket ${socket} --dir ${dir} --appendonly yes --appendfsync always`.split(' ');
  redis = spawn('redis-server', [...settings, '--save', ''], { stdio: 'ignore' });
  while (!existsSync(socket)) await delay(5);
}

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'tollgate-faults-'));
  await startRedis();
  const url = `unix:${join(dir, 'redis.sock')}`;
  admin = new Redis({ path: join(dir, 'redis.sock'), retryStrategy: () => 20 });
  admin.on('error', () => {});
  store = await openStore({ ...testSettings, url, commandTimeoutMs });
  logged = '';
  const log = pino(
    { level: 'info' },
    {
      write(line: string) {
        logged += line;
      },
    },
  );
  answer = createPipeline(operations, { store, log, metaBytesMax: 10_240 });

  const { workspaceId } = await store.workspaces.create('faults');
  const root = createRootKeyString(workspaceId);
  rootKey = root.key;
  await store.rootKeys.create(
    workspaceId,
    { digest: digestOf(rootKey), start: root.start, permissions: ['*'] },
    cliActor,
  );
  const apiId = await store.apis.create(workspaceId, 'faults', cliActor);
  const created = createKeyString({ byteLength: 16 });
  key = created.key;
  const newKey = { digest: digestOf(key), start: created.start, remaining: credits };
  const result = await store.keys.create(workspaceId, { apiId, keys: [newKey], mayCreatePermissions: false }, cliActor);
  keyId = 'created' in result ? result.created[0]! : '';
});

afterEach(async () => {
  await store.close();
  admin.disconnect();
  redis.kill('SIGKILL');
  rmSync(dir, { recursive: true, force: true });
});

interface Timed extends Response {
  tookMs: number;
}

async function send(operation: string, body: unknown): Promise<Timed> {
  const startedAt = performance.now();
  const response = await answer({
    method: 'POST',
    path: `/v2/${operation}`,
    hasQuery: false,
    authorization: `Bearer ${rootKey}`,
    contentType: 'application/json',
    accept: '',
    requestId: createId('req', 0),
    body: Buffer.from(JSON.stringify(body)),
  });
  return { ...response, tookMs: performance.now() - startedAt };
}

const verify = () => send('keys.verifyKey', { key });

/** A refusal for want of the store: 503 in the envelope, with Retry-After, in time. */
function expectUnavailable(response: Timed) {
  expect(response.status).toBe(503);
  expect(JSON.parse(response.body)).toMatchObject({ error: { type: '/errors/store_unavailable', status: 503 } });
  expect(response.headers).toContainEqual(['Retry-After', '1']);
  expect(response.tookMs).toBeLessThan(commandTimeoutMs + slackMs);
}

const untilWell = (withinMs: number) =>
  vi.waitFor(async () => expect((await verify()).status).toBe(200), { timeout: withinMs, interval: 10 });

/** Verifies without pause in several places until `stop` is called; answers all there was to answer. */
function load() {
  let stopped = false;
  const responses: Timed[] = [];
  const workers = Array.from({ length: 32 }, async () => {
    while (!stopped) {
      responses.push(await verify());
      await delay(0);
    }
  });
  return {
    responses,
    async stop() {
      stopped = true;
      await Promise.all(workers);
    },
  };
}

test('killed during load: every request is answered in time, and the first success comes within a second of its return', async () => {
  const loaded = load();
  await vi.waitFor(() => expect(loaded.responses.length).toBeGreaterThan(200));
  redis.kill('SIGKILL');
  await once(redis, 'exit');
  await vi.waitFor(() => expect(loaded.responses.at(-1)!.status).toBe(503));
  for (let call = 0; call < 5; call++) expectUnavailable(await verify());
  await startRedis();
  await untilWell(1000);
  await loaded.stop();

  for (const response of loaded.responses) {
    if (response.status === 200) expect(JSON.parse(response.body).data.code).toBe('VALID');
    else expectUnavailable(response);
  }
  // What was answered was charged; what was refused may have been, once, but for what was in the file nothing is lost.
  const passed = loaded.responses.filter(({ status }) => status === 200).length;
  const { remaining } = JSON.parse((await send('keys.getKey', { keyId })).body).data.credits;
  expect(credits - remaining).toBeGreaterThanOrEqual(passed);
  expect(credits - remaining).toBeLessThanOrEqual(loaded.responses.length + 100);
  expect(logged).toContain('store_unavailable');
}, 30_000);

test('alive but silent: refused at the timeout, and well as soon as it goes on', async () => {
  await untilWell(1000);
  redis.kill('SIGSTOP');
  const refused = await Promise.all([
    verify(),
    send('keys.getKey', { keyId }),
    send('ratelimits.limit', { namespace: 'a', identifier: 'b', limit: 1, duration: 1000 }),
  ]);
  for (const response of refused) expectUnavailable(response);
  redis.kill('SIGCONT');
  await untilWell(1000);
});

test('held up by a long command of somebody else: refused at the timeout, and well afterwards', async () => {
  const busy = admin.call('DEBUG', 'SLEEP', '1').catch(() => {});
  const response = await verify();
  if (response.status !== 200) expectUnavailable(response);
  await busy;
  await untilWell(1000);
});

test('its scripts forgotten: loaded again without an error to anybody', async () => {
  await admin.script('FLUSH');
  expect((await verify()).status).toBe(200);
  await admin.script('FLUSH');
  expect((await send('keys.getKey', { keyId })).status).toBe(200);
});

test('out of memory: refused, charged nothing, and well when there is room', async () => {
  await admin.config('SET', 'maxmemory-policy', 'noeviction');
  await admin.config('SET', 'maxmemory', '1');
  expectUnavailable(await verify());
  expectUnavailable(await send('apis.createApi', { name: 'no room' }));
  expect(logged).toContain('OOM');
  await admin.config('SET', 'maxmemory', '0');
  expect(JSON.parse((await verify()).body).data).toMatchObject({ code: 'VALID', credits: credits - 1 });
});

test('read-only, as a replica is: refused, and well when it is a master again', async () => {
  await admin.call('REPLICAOF', '127.0.0.1', '1');
  expectUnavailable(await verify());
  expect(logged).toContain('READONLY');
  await admin.call('REPLICAOF', 'NO', 'ONE');
  await untilWell(2000);
});

test('full of other data: what is not ours is a fault of that record only', async () => {
  const name = (await admin.keysBuffer('tg:*:k:*'))[0]!;
  await admin.rename(name, 'elsewhere');
  await admin.set(name, 'not a hash');
  const broken = await verify();
  expect(broken.status).toBe(500);
  expect(JSON.parse(broken.body)).toMatchObject({ error: { type: '/errors/internal' } });
  const limited = await send('ratelimits.limit', { namespace: 'a', identifier: 'b', limit: 1, duration: 1000 });
  expect(limited.status).toBe(200);
});

test('restarted empty: root keys are unknown, and nothing fails', async () => {
  await admin.flushall();
  expect((await verify()).status).toBe(401);
});
