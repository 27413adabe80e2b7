// Real faults of a redis-server that this file starts. Every request gets a response in time and in the envelope,
// nothing is charged twice or in part, and the server recovers without intervention when Redis does.

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { type Logger, pino } from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createKeyString, createRootKeyString, digestOf } from '../../src/domain/keyString.ts';
import type { Handler } from '../../src/http/message.ts';
import { createPipeline } from '../../src/http/pipeline.ts';
import { operations } from '../../src/operations/index.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { openStore, type Store } from '../../src/store.ts';
import { testSettings } from '../support/harness.ts';
import { endAll, startRedis, temporaryDir } from '../support/processes.ts';
import { freePort } from '../support/redisNodes.ts';
import { report } from './report.ts';
import { sendTimed, type Timed } from './timed.ts';

const commandTimeoutMs = 500;
/** Tolerance for the time of a response beyond the command timeout, for other load of the machine. */
const slackMs = 400;
const credits = 1_000_000;

let dir: string;
let redis: ChildProcess;
/** A connection of the test, to cause faults. */
let admin: Redis;
let store: Store;
let answer: Handler;
let log: Logger;
let logged: string;
let rootKey: string;
let keyId: string;
let key: string;

const start = () => startRedis(dir, { fsync: 'always' });

beforeEach(async () => {
  dir = temporaryDir();
  const started = await start();
  ({ child: redis, admin } = started);
  const { url } = started;
  logged = '';
  log = pino(
    { level: 'info' },
    {
      write(line: string) {
        logged += line;
      },
    },
  );

  // The tested timeout is short, so the set-up uses a longer one.
  const patient = await openStore({ ...testSettings, url });
  const { workspaceId } = await patient.workspaces.create('faults');
  const root = createRootKeyString(workspaceId);
  rootKey = root.key;
  await patient.rootKeys.create(
    workspaceId,
    { digest: digestOf(rootKey), start: root.start, permissions: ['*'] },
    cliActor,
  );
  const apiId = await patient.apis.create(workspaceId, 'faults', cliActor);
  const created = createKeyString({ byteLength: 16 });
  key = created.key;
  const newKey = { digest: digestOf(key), start: created.start, remaining: credits };
  const result = await patient.keys.create(
    workspaceId,
    { apiId, keys: [newKey], mayCreatePermissions: false },
    cliActor,
  );
  keyId = 'created' in result ? result.created[0]! : '';
  await patient.close();
  store = await open(url);
  answer = createPipeline(operations, { store, log, metaBytesMax: 10_240 });
});

const open = (url: string, onEvent?: (message: string) => void) =>
  vi.waitFor(() => openStore({ ...testSettings, url, commandTimeoutMs, onEvent }), { timeout: 10_000 });

afterEach(async () => {
  await store.close();
  await endAll();
});

const send = (operation: string, body: unknown) => sendTimed(answer, operation, rootKey, body);

const ms = (measured: number) => `${Math.round(measured)} ms`;
const slowest = (responses: Timed[]) => ms(Math.max(...responses.map(({ tookMs }) => tookMs)));

const verify = () => send('keys.verifyKey', { key });

/** A refusal because Redis is unavailable: 503 in the envelope, with Retry-After, in time. */
function expectUnavailable(response: Timed, code = 'store_unavailable') {
  expect(response.status).toBe(503);
  expect(JSON.parse(response.body)).toMatchObject({ error: { type: `/errors/${code}`, status: 503 } });
  expect(response.headers).toContainEqual(['Retry-After', '1']);
  expect(response.tookMs).toBeLessThan(commandTimeoutMs + slackMs);
}

/** Returns the time until it resolves, in milliseconds. */
async function untilWell(withinMs: number): Promise<number> {
  const startedAt = performance.now();
  await vi.waitFor(async () => expect((await verify()).status).toBe(200), { timeout: withinMs, interval: 10 });
  return performance.now() - startedAt;
}

/** Verifies without pause, several at a time, until `stop` is called, which returns all responses. */
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

test('Redis killed under load: every request gets a response in time, and the first success comes within a second of its return', async () => {
  const loaded = load();
  await vi.waitFor(() => expect(loaded.responses.length).toBeGreaterThan(200));
  redis.kill('SIGKILL');
  await once(redis, 'exit');
  await vi.waitFor(() => expect(loaded.responses.at(-1)!.status).toBe(503));
  for (let call = 0; call < 5; call++) expectUnavailable(await verify());
  redis = (await start()).child;
  const wellMs = await untilWell(1000);
  await loaded.stop();

  for (const response of loaded.responses) {
    if (response.status === 200) expect(JSON.parse(response.body).data.code).toBe('VALID');
    else expectUnavailable(response);
  }
  // Each confirmed verification was charged once. A refused one may have been charged, at most once.
  const passed = loaded.responses.filter(({ status }) => status === 200).length;
  const { remaining } = JSON.parse((await send('keys.getKey', { keyId })).body).data.credits;
  expect(credits - remaining).toBeGreaterThanOrEqual(passed);
  expect(credits - remaining).toBeLessThanOrEqual(loaded.responses.length + 100);
  expect(logged).toContain('store_unavailable');
  const refused = loaded.responses.filter(({ status }) => status === 503);
  report({
    order: '1.1',
    fault: 'kill -9 of Redis under load',
    expected: `every request answered, 200 or 503, within the command timeout (${ms(commandTimeoutMs)}) plus 100 ms; well within 1 s of its return`,
    measured:
      `${passed} passed, ${refused.length} refused, none without an answer; slowest ${slowest(loaded.responses)}; ` +
      `first success ${ms(wellMs)} after its return; ${credits - remaining} charged`,
  });
});

test('Redis hanging: requests are refused at the timeout, and served as soon as it continues', async () => {
  await untilWell(1000);
  redis.kill('SIGSTOP');
  const refused = await Promise.all([
    verify(),
    send('keys.getKey', { keyId }),
    send('ratelimits.limit', { namespace: 'a', identifier: 'b', limit: 1, duration: 1000 }),
  ]);
  for (const response of refused) expectUnavailable(response);
  redis.kill('SIGCONT');
  const wellMs = await untilWell(1000);
  expect(logged).toContain('Command timed out');
  report({
    order: '2.1',
    fault: 'Redis alive but silent (SIGSTOP)',
    expected: `503 at the command timeout (${ms(commandTimeoutMs)}); well when it goes on`,
    measured: `slowest refusal ${slowest(refused)}; first success ${ms(wellMs)} after SIGCONT`,
  });
});

test('Redis blocked by a long command of another client: requests are refused at the timeout, and served afterwards', async () => {
  const busy = admin.call('DEBUG', 'SLEEP', '1');
  let response = await verify();
  while (response.status === 200) response = await verify(); // It has not begun yet.
  expectUnavailable(response);
  await busy;
  const wellMs = await untilWell(1000);
  report({
    order: '2.2',
    fault: 'Redis blocked for a second by another client (DEBUG SLEEP)',
    expected: `503 at the command timeout (${ms(commandTimeoutMs)}); well afterwards`,
    measured: `${response.status} after ${ms(response.tookMs)}; first success ${ms(wellMs)} afterwards`,
  });
});

test('functions flushed: they are loaded again without an error to a caller', async () => {
  await admin.function('FLUSH');
  // More than a batch, so that several calls miss the scripts at once.
  const verified = await Promise.all(Array.from({ length: 100 }, verify));
  expect(new Set(verified.map(({ status }) => status))).toEqual(new Set([200]));
  expect(JSON.parse((await verify()).body).data.credits).toBe(credits - 101);
  await admin.function('FLUSH');
  const read = await send('keys.getKey', { keyId });
  expect(read.status).toBe(200);
  const slowestMs = Math.max(...verified.map(({ tookMs }) => tookMs));
  report({
    order: '1.2',
    fault: 'FUNCTION FLUSH',
    expected: 'scripts are loaded again without an error to a caller, and every call is charged once',
    measured: `100 verifications at once 200, the slowest in ${ms(slowestMs)}; getKey ${read.status} in ${ms(read.tookMs)}`,
  });
});

test('Redis out of memory: requests are refused and charge nothing, and served when there is room', async () => {
  await admin.config('SET', 'maxmemory-policy', 'noeviction');
  await admin.config('SET', 'maxmemory', '1');
  const refused = [await verify(), await send('apis.createApi', { name: 'no room' })];
  for (const response of refused) expectUnavailable(response, 'store_full');
  expect(logged).toContain('OOM');
  await admin.config('SET', 'maxmemory', '0');
  expect(JSON.parse((await verify()).body).data).toMatchObject({ code: 'VALID', credits: credits - 1 });
  report({
    order: '2.3',
    fault: 'Redis out of memory (noeviction)',
    expected: '503 store_full, the log says OOM, nothing is charged; well when there is room',
    measured: `verifyKey and createApi refused in ${slowest(refused)} at most; the next verification charged 1 credit of 1`,
  });
});

test('Redis read-only, as a replica: requests are refused, and served when it is a master again', async () => {
  await admin.call('REPLICAOF', '127.0.0.1', '1');
  const refused = await verify();
  expectUnavailable(refused);
  expect(logged).toContain('READONLY');
  await admin.call('REPLICAOF', 'NO', 'ONE');
  const wellMs = await untilWell(2000);
  report({
    order: '2.4',
    fault: 'Redis read-only, as a replica is',
    expected: '503, the log says READONLY; well when it is a master',
    measured: `refused in ${ms(refused.tookMs)}; first success ${ms(wellMs)} after REPLICAOF NO ONE`,
  });
});

test('Redis with other data: a foreign value is an error of that record only', async () => {
  const name = (await admin.keysBuffer('tg:*:k:*'))[0]!;
  await admin.rename(name, 'elsewhere');
  await admin.set(name, 'not a hash');
  const broken = await verify();
  expect(broken.status).toBe(500);
  expect(JSON.parse(broken.body)).toMatchObject({ error: { type: '/errors/internal' } });
  const limited = await send('ratelimits.limit', { namespace: 'a', identifier: 'b', limit: 1, duration: 1000 });
  expect(limited.status).toBe(200);
  expect(logged).toContain('WRONGTYPE');
  await admin.rename('elsewhere', name);
  const wellMs = await untilWell(1000);
  report({
    order: '2.5',
    fault: "Foreign data under a key's name",
    expected: '500 in the envelope for that key alone, the log says WRONGTYPE; well when it is gone',
    measured: `that key ${broken.status}, others ${limited.status}; first success ${ms(wellMs)} after its record was back`,
  });
});

test('Redis flushed while it runs: root keys are unknown, and nothing fails', async () => {
  await admin.flushall();
  const refused = await verify();
  expect(refused.status).toBe(401);
  report({
    order: '2.6',
    fault: 'Redis emptied (FLUSHALL)',
    expected: '401: the root key is unknown; nothing fails',
    measured: `${refused.status} in ${ms(refused.tookMs)}`,
  });
});

test('Redis refusing authentication: requests are refused, the cause is logged without the password, and they are served when it is accepted', async () => {
  const password = 'must-not-be-logged';
  const port = await freePort();
  await admin.config('SET', 'port', port, 'requirepass', password);
  const events: string[] = [];
  const url = `redis://:${password}@127.0.0.1:${port}`;
  await store.close();
  store = await open(url, (message) => events.push(message));
  answer = createPipeline(operations, { store, log, metaBytesMax: 10_240 });
  expect((await verify()).status).toBe(200);

  // The password is changed, and clients with the old one are disconnected.
  await admin.config('SET', 'requirepass', 'another');
  await admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  await vi.waitFor(() => expect(events.join()).toContain('WRONGPASS'), { timeout: 5000 });
  const refused = [await verify(), await send('keys.getKey', { keyId })];
  for (const response of refused) expectUnavailable(response);
  await expect(openStore({ ...testSettings, url, commandTimeoutMs })).rejects.toThrow(
    /^Cannot reach Redis: .*WRONGPASS/,
  );

  await admin.config('SET', 'requirepass', password);
  const wellMs = await untilWell(2000);
  for (const said of [logged, events.join(), JSON.stringify(refused)]) expect(said).not.toContain(password);
  report({
    order: '2.7',
    fault: 'Redis refuses the password',
    expected: '503; the log says WRONGPASS and not the password; well when it is accepted',
    measured: `refused in ${slowest(refused)} at most; logged “${events.find((event) => event.includes('WRONGPASS'))}”; first success ${ms(wellMs)} after it was`,
  });
});

test('Redis restarted empty: root keys are unknown, and the scripts are loaded again', async () => {
  redis.kill('SIGKILL');
  await once(redis, 'exit');
  rmSync(join(dir, 'appendonlydir'), { recursive: true });
  redis = (await start()).child;
  const startedAt = performance.now();
  await vi.waitFor(async () => expect((await verify()).status).toBe(401), { timeout: 1000, interval: 10 });
  const wellMs = performance.now() - startedAt;
  const second = await verify();
  expect(second.status).toBe(401);
  report({
    order: '2.8',
    fault: 'Redis restarted without its files',
    expected: '401 within 1 s of its return: the root key is unknown, the scripts are loaded again',
    measured: `first 401 ${ms(wellMs)} after its return, the next in ${ms(second.tookMs)}`,
  });
});
