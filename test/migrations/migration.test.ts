// The migration of stored data: who may start it, the lock, places, and that any interruption leaves the same result.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

import { Heartbeat, type RegisteredServer, serversMax } from '../../src/migrations/heartbeat.ts';
import { blockersAsText } from '../../src/migrations/migration.ts';
import { startMigrator } from '../../src/migrator.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { dataKey, formKey, scriptKey, serversKey, workspaceKey } from '../../src/redis/names.ts';
import { openCalls, type Run } from '../../src/scripts/calls.ts';
import { exitCodeOf, readData } from '../../src/scripts/dataVersion.ts';
import { dataVersion } from '../../src/scripts/layout.ts';
import { loadScripts } from '../../src/scripts/scripts.ts';
import { openStore, type Store } from '../../src/store.ts';
import { version } from '../../src/version.ts';
import { type Fixture, loadFixture, readFixture } from '../fixtures/data/make.ts';
import { testSettings } from '../support/harness.ts';
import { namesIn } from '../support/keyspace.ts';
import { runRedis } from '../support/processes.ts';
import { random, seed } from '../support/random.ts';
import { testRedisUrl } from '../support/redis.ts';
import { thoroughTest } from '../support/testIf.ts';

const url = testRedisUrl();
const fixture: Fixture = readFixture(4);
const [{ workspaceId }] = fixture.workspaces as [Fixture['workspaces'][number]];
const supported = { oldest: 4, newest: 5, release: '1.0.0' };

let redis: RedisClient;
let run: Run;
const toClose: (() => unknown)[] = [];
beforeEach(async () => {
  redis = await connect(url, { commandTimeoutMs: 5000 });
  toClose.push(() => redis.disconnect());
  await loadFixture(redis, fixture);
  run = openCalls(await loadScripts(redis, scriptKey), { now: () => '', actorText: JSON.stringify });
});
afterEach(async () => {
  while (toClose.length > 0) await toClose.pop()!();
});

async function open(settings: Partial<Parameters<typeof openStore>[0]> = {}): Promise<Store> {
  const store = await openStore({ ...testSettings, url, nowMs: () => fixture.nowMs, ...settings });
  toClose.push(() => store.close());
  return store;
}

/** The index by expiry of a workspace: each key as a line. */
async function indexOf(of: string): Promise<string[]> {
  const lines: string[] = [];
  for (const name of await namesIn(redis)) {
    if (!name.toString('latin1').startsWith(`${workspaceKey(of)}:ke:`)) continue;
    const flat = await redis.zrangeBuffer(name, '0', '-1', 'WITHSCORES');
    for (let at = 0; at < flat.length; at += 2)
      lines.push(`${name.toString('latin1').slice(-8)} ${flat[at]!.toString('hex')} ${flat[at + 1]}`);
  }
  return lines.sort();
}

const claim = (holder: string, termMs = 10_000) =>
  run('data/claim', dataKey, { holder, release: version, target: 5, termMs, done: 0, total: 9 });
const step = (fence: number, count: number, number = 1) =>
  run('migrations/to5', workspaceId, { fence, run: number, count });
const stepToEnd = async (fence: number) => {
  while ((await step(fence, 50))[0] === 'more');
};

describe('who may start', () => {
  test('a server registers its release and versions, and removes its entry when it stops', async () => {
    const store = await open();
    const entries = Object.values(await redis.hgetall(serversKey));
    expect(entries).toEqual([expect.stringMatching(new RegExp(`^\\d{13} 4 ${dataVersion} ${version}$`))]);
    await store.close();
    toClose.pop();
    expect(await redis.exists(serversKey)).toBe(0);
  });

  test('entries of servers that are gone are removed, also those of a clock that was set back', async () => {
    const now = Date.now();
    await redis.hset(serversKey, {
      gone: `${now - 31_000} 4 4 0.9.0`,
      future: `${now + 3_600_000} 4 4 0.9.0`,
      live: `${now - 25_000} 4 5 1.0.0`,
    });
    const [isRegistered, ...others] = await run('data/beat', serversKey, {
      server: 'me',
      versions: '4 5 1.0.0',
      lifeMs: 30_000,
      count: 9,
    });
    expect([isRegistered, others]).toEqual([1, ['live', '4 5 1.0.0']]);
    expect(Object.keys(await redis.hgetall(serversKey)).sort()).toEqual(['live', 'me']);
  });

  test('there is a limit of registered processes, beyond which none starts', async () => {
    const now = Date.now();
    for (let count = 0; count < serversMax; count++) await redis.hset(serversKey, `${count}`, `${now} 4 5 1.0.0`);
    await expect(open()).rejects.toThrow(`More than ${serversMax} processes`);
    await redis.hdel(serversKey, '7');
    await open();
    expect(await redis.hlen(serversKey)).toBe(serversMax);
  });

  test('a registered server that does not support the version prevents the migration', async () => {
    const store = await open();
    await redis.hset(serversKey, 'older', `${Date.now()} 4 4 0.9.0`);
    expect(blockersAsText(await store.migrations.blockers())).toEqual([
      'A server of Tollgate 0.9.0 reads versions up to 4.',
    ]);
    // By hand, too.
    expect(await store.migrations.migrate({ force: true })).toBe('blocked');
    expect(await redis.hmget(dataKey, 'version', 'target')).toEqual(['4', null]);
    // Servers of version 4 may start again.
    expect(await redis.get(formKey)).toBe('4');
    expect(await indexOf(workspaceId)).toEqual([]);
  });

  test('a connection as servers of version 4 have prevents it, until it is closed', async () => {
    const store = await open();
    const earlier = new Redis({ path: new URL(url).pathname, db: Number(new URL(url).searchParams.get('db') ?? 0) });
    await earlier.ping();
    expect(await store.migrations.blockers()).toEqual({ registered: [], unnamed: [] });
    await earlier.eval('return 1', 0);
    expect((await store.migrations.blockers()).unnamed).toHaveLength(1);
    expect(await store.migrations.migrate({ byHand: true })).toBe('blocked');
    earlier.disconnect();
    await expect.poll(async () => (await store.migrations.blockers()).unnamed).toEqual([]);
    expect(await store.migrations.migrate()).toBe('migrated');
  });

  thoroughTest('an account that may not list connections migrates by hand only', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'tollgate-test-'));
    const narrow = await runRedis(dir, ['--user', 'default', 'on', 'nopass', '~*', '&*', '+@all', '-client|list']);
    toClose.push(async () => {
      await narrow.stop();
      rmSync(dir, { recursive: true });
    });
    const client = await connect(narrow.url, { commandTimeoutMs: 5000 });
    await loadFixture(client, fixture);
    client.disconnect();
    const store = await open({ url: narrow.url });
    expect(blockersAsText(await store.migrations.blockers())[0]).toContain('CLIENT LIST');
    expect(await store.migrations.migrate()).toBe('blocked');
    expect(await store.migrations.migrate({ byHand: true })).toBe('migrated');
  });

  test('a server starts it by itself, and logs what prevents it once', async () => {
    const lines: { msg: string; blockers?: string[] }[] = [];
    const log = pino({}, { write: (line: string) => void lines.push(JSON.parse(line)) });
    const store = await open();
    await redis.hset(serversKey, 'older', `${Date.now() + 20_000} 4 4 0.9.0`);
    const migrator = startMigrator(store, { log, intervalMs: 20 });
    toClose.push(() => migrator.stop());
    await expect.poll(() => lines.length).toBeGreaterThan(0);
    await redis.hdel(serversKey, 'older');
    await expect.poll(() => store.dataVersion.current).toBe(dataVersion);
    await migrator.stop();
    expect(lines.filter(({ blockers }) => blockers)).toHaveLength(1);
    expect(lines.at(-1)).toMatchObject({ msg: 'Migrated the stored data.', from: 4, to: dataVersion });
    const steps = `${dataVersion - 4}`;
    expect(await redis.hgetall(dataKey)).toEqual({
      moveless: '1',
      version: `${dataVersion}`,
      release: version,
      fence: steps,
    });
    expect(await redis.get(formKey)).toBe(`${dataVersion}`);
  });
});

describe('the lock', () => {
  beforeEach(() => redis.hset(dataKey, 'version', '4'));

  test('has one holder, and a larger number for each', async () => {
    expect(await claim('a')).toEqual(['held', 1, 1, 0]);
    expect(await claim('b')).toEqual(['busy', 1, 1, 0]);
    expect(await claim('a')).toEqual(['held', 1, 1, 0]);
    await claim('a', 1);
    await expect.poll(() => claim('b')).toEqual(['held', 2, 1, 0]);
    expect(await claim('a')).toEqual(['busy', 2, 1, 0]);
  });

  test('a holder that lost it can neither go on nor end the migration', async () => {
    await claim('paused', 1);
    expect((await step(1, 10))[0]).toBe('more');
    await expect.poll(async () => (await claim('b'))[0]).toBe('held');
    expect((await step(2, 10))[0]).toBe('more');
    const before = await redis.hgetall(`${workspaceKey(workspaceId)}:data`);
    expect(await step(1, 10)).toEqual(['fenced', 0, expect.any(Number)]);
    expect(await redis.hgetall(`${workspaceKey(workspaceId)}:data`)).toEqual(before);
    for (const outcome of ['migrated', 'cancelled', 'released'] as const)
      expect(await run('data/finish', dataKey, { fence: 1, outcome, release: version })).toBe(0);
    expect(await redis.hmget(dataKey, 'version', 'target', 'fence')).toEqual(['4', '5', '2']);
  });

  test('is taken over when its holder was killed, and the migration continues at its place', async () => {
    await claim('killed', 1);
    expect((await step(1, 100))[0]).toBe('more');
    await redis.set(formKey, '5');
    const store = await open();
    expect(store.dataVersion.current).toBe(4);
    expect(store.dataVersion.migration).toMatchObject({ from: 4, to: 5, total: 9 });
    const dones: number[] = [];
    expect(await store.migrations.migrate({ onProgress: ({ done }) => void dones.push(done) })).toBe('migrated');
    const place = await redis.hgetall(`${workspaceKey(workspaceId)}:data`);
    expect(place).toEqual({ run: '1', at: 'end', fence: '2', done: expect.any(String) });
    expect(await indexOf(workspaceId)).toHaveLength(await expiring());
  });

  thoroughTest('a migration that was given up begins anew, as servers of version 4 may have run', async () => {
    const [, fence, number] = await claim('a');
    expect((await step(fence, 100, number))[0]).toBe('more');
    await run('data/finish', dataKey, { fence, outcome: 'cancelled', release: version });
    const store = await open();
    // As such a server: it does not keep the index.
    const apis = await redis.zrange(`${workspaceKey(workspaceId)}:apis`, '0', '-1');
    await redis.del(...apis.map((api) => `${workspaceKey(workspaceId)}:ke:${api.slice(-8)}`));
    expect(await store.migrations.migrate()).toBe('migrated');
    expect(await indexOf(workspaceId)).toHaveLength(await expiring());
  });

  test('a migration that was interrupted goes on beside connections without a name, but not before it was checked', async () => {
    const earlier = new Redis({ path: new URL(url).pathname, db: Number(new URL(url).searchParams.get('db') ?? 0) });
    toClose.push(() => earlier.disconnect());
    await earlier.get('any');
    const [, , number] = await claim('killed', 1);
    const store = await open();
    expect(await store.migrations.migrate()).toBe('blocked');
    expect(await redis.hget(dataKey, 'checked')).toBeNull();
    const [, , next] = await claim('killed', 1);
    expect(next).toBeGreaterThan(number);
    await redis.hset(dataKey, 'checked', String(next));
    await expect.poll(() => store.migrations.migrate()).toBe('migrated');
  });

  thoroughTest('a server that stops releases it, and another one continues at once', async () => {
    const store = await open();
    let looks = 0;
    expect(await store.migrations.migrate({ isStopped: () => ++looks > 5 })).toBe('stopped');
    const stored = await redis.hgetall(dataKey);
    expect(stored).toMatchObject({ version: '4', target: '5', run: '1', checked: '1' });
    expect(stored.holder).toBeUndefined();
    expect(await (await open()).migrations.migrate()).toBe('migrated');
    // One more than steps.
    expect(await redis.hget(dataKey, 'fence')).toBe(`${dataVersion - 3}`);
    expect(await indexOf(workspaceId)).toHaveLength(await expiring());
  });

  test('another process that has it is not disturbed', async () => {
    await claim('another');
    const store = await open();
    expect(await store.migrations.migrate({ force: true })).toBe('busy');
    expect(await redis.hmget(dataKey, 'holder', 'target')).toEqual(['another', '5']);
  });
});

/** Keys that expire and are not deleted, by the fixture's answers. */
async function expiring(): Promise<number> {
  const [answers] = fixture.answers;
  const all = answers!.find(({ name, input }) => name === 'keys.listKeys' && JSON.stringify(input) === '{}');
  return (all!.data as { expires?: number }[]).filter(({ expires }) => expires !== undefined).length;
}

describe('steps', () => {
  test(`steps of any size, by several holders, have the same result (seed ${seed})`, async () => {
    await stepToEnd(1);
    const expected = await indexOf(workspaceId);
    expect(expected).toHaveLength(await expiring());
    const pick = random(seed);
    for (let round = 0; round < 5; round++) {
      await loadFixture(redis, fixture);
      let fence = 1;
      let last = 0;
      for (let outcome = 'more'; outcome === 'more'; ) {
        if (pick(0, 9) === 0) fence++;
        const [next, done] = await step(fence, pick(1, 40));
        expect(done).toBeGreaterThanOrEqual(last);
        [outcome, last] = [next, done];
      }
      expect(await indexOf(workspaceId)).toEqual(expected);
      expect(await step(fence, 10)).toEqual(['done', last, expect.any(Number)]);
    }
  });

  test('an API that is deleted in the middle of its keys has no index afterwards', async () => {
    const store = await open();
    const pick = random(seed);
    const apis = (await store.apis.list(workspaceId, { count: 100, order: 'asc', after: undefined, search: undefined }))
      .items;
    const largest = apis.sort((a, b) => b.keyCount - a.keyCount)[0]!;
    let isDeleted = false;
    for (let outcome = 'more'; outcome === 'more'; ) {
      [outcome] = await step(1, pick(1, 20));
      const at = await redis.hget(`${workspaceKey(workspaceId)}:data`, 'at');
      // In the middle of its keys.
      if (isDeleted || !at?.startsWith(`k${largest.id.slice('api_'.length)}`)) continue;
      const { id: apiId, name: confirm } = largest;
      expect(await store.apis.delete(workspaceId, { apiId, confirm }, cliActor)).toBeUndefined();
      isDeleted = true;
    }
    expect(isDeleted).toBe(true);
    const names = (await namesIn(redis)).map((name) => name.toString('latin1'));
    expect(names.filter((name) => name.endsWith(`:ke:${largest.id.slice(-8)}`))).toEqual([]);
  });

  test('a broken record does not stop it', async () => {
    const names = (await namesIn(redis)).filter((name) =>
      name.toString('latin1').startsWith(`${workspaceKey(workspaceId)}:k:`),
    );
    await redis.hset(names[0]!, 'state', 'x');
    await redis.hdel(names[1]!, 'state');
    await redis.del(names[2]!);
    await stepToEnd(1);
    expect((await indexOf(workspaceId)).length).toBeGreaterThanOrEqual((await expiring()) - 3);
  });

  test('a workspace without a record, and one that is empty, are done at once', async () => {
    expect((await run('migrations/to5', 'ws_1111111111111111', { fence: 1, run: 1, count: 9 }))[0]).toBe('done');
    expect(await redis.exists(`${workspaceKey('ws_1111111111111111')}:data`)).toBe(0);
  });
});

describe('a server that was paused', () => {
  const heartbeatAt = async (clock: { ms: number }, onUnsupported: (error: Error) => void) => {
    const heartbeat = new Heartbeat(await readData(redis, supported), {
      redis,
      run,
      supported,
      onUnsupported,
      monotonicMs: () => clock.ms,
    });
    await heartbeat.start();
    toClose.push(() => heartbeat.close());
    return heartbeat;
  };

  test('reads the version before its next script, and refuses it if the data is newer', async () => {
    const clock = { ms: 0 };
    const errors: Error[] = [];
    const heartbeat = await heartbeatAt(clock, (error) => errors.push(error));
    expect(heartbeat.fresh()).toBeUndefined();
    await redis.hset(dataKey, { version: '6', release: '1.2.0' });
    expect(heartbeat.fresh()).toBeUndefined();
    clock.ms += 60_000;
    await expect(heartbeat.fresh()).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(errors).toHaveLength(1);
    expect(errors[0]!.message).toContain('Run Tollgate 1.2.0 or a later one');
    expect(exitCodeOf(errors[0])).toBe(78);
    // Also when the clock says nothing of a pause.
    await expect(heartbeat.fresh()).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(errors).toHaveLength(1);
  });

  test('goes on if the data is supported, and if Redis does not reply to the question', async () => {
    const clock = { ms: 0 };
    const heartbeat = await heartbeatAt(clock, () => {});
    clock.ms += 60_000;
    await heartbeat.fresh();
    expect(heartbeat.fresh()).toBeUndefined();
    clock.ms += 60_000;
    redis.disconnect();
    await heartbeat.fresh();
    expect(heartbeat.fresh()).toBeUndefined();
  });

  thoroughTest('refuses requests of a store', async () => {
    let unsupported: Error | undefined;
    const store = await open({ onUnsupported: (error) => (unsupported = error) });
    const next = dataVersion + 1;
    await redis.hset(dataKey, { version: `${next}`, release: '9.0.0' });
    await expect.poll(() => unsupported?.message, { timeout: 10_000 }).toContain(`version ${next}`);
    await expect(store.apis.create(workspaceId, 'new', cliActor)).rejects.toMatchObject({ code: 'store_unavailable' });
    await redis.hset(dataKey, { version: '4' });
  });

  test('its entry has how long it has seen the same life of Redis', async () => {
    const clock = { ms: 0 };
    const heartbeat = await heartbeatAt(clock, () => {});
    await heartbeat.redisAgeMs();
    clock.ms += 1234;
    expect(await heartbeat.redisAgeMs()).toBe(1234);
    await heartbeat.beat();
    const [entry] = Object.values(await redis.hgetall(serversKey));
    expect(entry).toMatch(new RegExp(`^\\d{13} 4 5 ${version} [0-9a-f]{32} 1234$`));
    const later = await heartbeatAt({ ms: 0 }, () => {});
    const [seen] = await later.beat();
    expect(seen).toMatchObject({ release: version, lifeMs: 1234 });
    expect(await later.redisAgeMs()).toBe(1234);
  });

  test('has an entry again afterwards', async () => {
    const clock = { ms: 0 };
    const heartbeat = await heartbeatAt(clock, () => {});
    await redis.del(serversKey);
    const others: RegisteredServer[] = await heartbeat.beat();
    expect(others).toEqual([]);
    expect(await redis.hlen(serversKey)).toBe(1);
  });
});
