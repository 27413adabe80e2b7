// The sweeper's steps, and its loop. Callers cannot see whether it has run, because a request applies a due refill
// itself. So the tests read Redis, and use a store whose clock is before the time of the refill.

import { createHash, randomBytes } from 'node:crypto';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { cliActor } from '../src/records/rootKeys.ts';
import { openStore, type Store } from '../src/store.ts';
import { startSweeper } from '../src/sweeper.ts';
import { dayMs, harness, hourMs, type InputOf, testSettings } from './support/harness.ts';
import { namesIn } from './support/keyspace.ts';
import { observing } from './support/observer.ts';
import { redisOfFile } from './support/ofFile.ts';
import { testRedisUrl } from './support/redis.ts';

const redis = await redisOfFile();
// The tests count all records, and records of earlier test files would expire at any time.
await redis.flushdb();

const tollgate = harness();
const { call, ok, createKey, createWorkspace, clock } = tollgate;

/** A store that returns balances as stored: its clock never reaches a refill. */
let past: Store;
beforeAll(async () => {
  past = await openStore({ ...testSettings, url: testRedisUrl(), nowMs: () => 0 });
});
afterAll(() => past.close());

const hashOf = (key: string) => createHash('sha256').update(key).digest('base64');

const newKeys = (count: number, more: object = {}) =>
  Array.from({ length: count }, () => ({ digest: randomBytes(32), start: '', ...more }));

/** Creates many keys in the store, without the API. */
async function createKeys(apiId: string, count: number, more: object = {}, workspaceId = tollgate.workspaceId) {
  for (let left = count; left > 0; left -= 1000) {
    const keys = newKeys(Math.min(left, 1000), more);
    await tollgate.store.keys.create(workspaceId, { apiId, keys, mayCreatePermissions: false }, cliActor);
  }
}

/** Takes steps until one returns that nothing is left. Returns their number. */
async function sweepAll(
  kind: 'refill' | 'purge',
  each: () => unknown = () => {},
  workspaceId: string = tollgate.workspaceId,
) {
  for (let steps = 1; ; steps++) {
    const more = await tollgate.store.sweep[kind](workspaceId);
    await each();
    if (!more) return steps;
  }
}

const nextMidnight = (ms: number) => (Math.floor(ms / dayMs) + 1) * dayMs;

const storedBalance = async (keyId: string) =>
  (await past.keys.find(tollgate.workspaceId, keyId))?.key.credits?.remaining;

describe('refills', () => {
  const daily = (amount: number): InputOf<'keys.createKey'>['credits'] => ({
    remaining: 1,
    refill: { interval: 'daily', amount },
  });

  test('updates stored balances that no request has read', async () => {
    const due = await createKey({ credits: daily(10) });
    const down = await createKey({ credits: { ...daily(10), remaining: 500 } });
    const disabled = await createKey({ credits: daily(11), enabled: false });
    const expired = await createKey({ credits: daily(12), expires: 0 });
    const monthly = await createKey({ credits: { remaining: 1, refill: { interval: 'monthly', amount: 13 } } });
    const plain = await createKey({ credits: { remaining: 1 } });
    const keyIds = [due, down, disabled, expired, monthly, plain].map(({ keyId }) => keyId);
    const stored = () => Promise.all(keyIds.map(storedBalance));

    clock.now = Date.UTC(2026, 0, 16) - 1;
    await sweepAll('refill');
    expect(await stored()).toEqual([1, 500, 1, 1, 1, 1]);
    clock.now = Date.UTC(2026, 0, 16);
    expect(await stored()).toEqual([1, 500, 1, 1, 1, 1]);
    await sweepAll('refill');
    expect(await stored()).toEqual([10, 10, 11, 12, 1, 1]);
  });

  test('each refill is applied once', async () => {
    const { keyId, key } = await createKey({ credits: daily(10) });
    clock.advance(dayMs);
    await sweepAll('refill');
    await ok('keys.verifyKey', { key, credits: { cost: 4 } });
    clock.advance(hourMs);
    await sweepAll('refill');
    expect(await storedBalance(keyId)).toBe(6);
    clock.advance(dayMs);
    await sweepAll('refill');
    expect(await storedBalance(keyId)).toBe(10);
  });

  test('several days without a sweep are one refill', async () => {
    const { keyId } = await createKey({ credits: daily(10) });
    clock.advance(40 * dayMs);
    await sweepAll('refill');
    expect(await storedBalance(keyId)).toBe(10);
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ credits: { remaining: 10 } });
  });

  test('does not change a key whose refill was removed, nor restore a deleted one', async () => {
    const stopped = await createKey({ credits: daily(10) });
    const unlimited = await createKey({ credits: daily(10) });
    const deleted = await createKey({ credits: daily(10) });
    await ok('keys.updateKey', { keyId: stopped.keyId, credits: { refill: null } });
    await ok('keys.updateKey', { keyId: unlimited.keyId, credits: null });
    await ok('keys.deleteKey', { keyId: deleted.keyId });
    clock.advance(dayMs);
    await sweepAll('refill');
    expect(await storedBalance(stopped.keyId)).toBe(1);
    expect(await ok('keys.getKey', { keyId: unlimited.keyId })).not.toHaveProperty('credits');
    expect(await ok('keys.verifyKey', { key: deleted.key })).toEqual({ valid: false, code: 'NOT_FOUND' });
  });

  test('returns for how long the first refill has been due, and 0 when none is', async () => {
    const told: [string, number][] = [];
    const observe = observing({
      due: (queue, lateMs) => told.push([queue, lateMs]),
    });
    const watched = await openStore({ ...testSettings, url: testRedisUrl(), nowMs: () => clock.now, observe });
    const { workspaceId } = await createWorkspace();
    const apiId = await watched.apis.create(workspaceId, 'late', cliActor);
    const refilled = { remaining: 1, refill: { interval: 'daily' as const, amount: 5 } };
    const created = await watched.keys.create(
      workspaceId,
      { apiId, keys: [...newKeys(1, refilled), ...newKeys(1)], mayCreatePermissions: false },
      cliActor,
    );
    await watched.sweep.refill(workspaceId);
    await watched.sweep.purge(workspaceId);
    const keyId = 'created' in created ? created.created[1]! : '';
    await watched.keys.delete(workspaceId, { keyId, permanent: false }, cliActor);
    const deletedAt = clock.now;
    clock.now = Math.max(nextMidnight(clock.now), deletedAt + testSettings.keyRetentionMs) + 7000;
    await watched.sweep.purge(workspaceId);
    await watched.sweep.refill(workspaceId);
    await watched.sweep.refill(workspaceId);
    const purgeLate = clock.now - deletedAt - testSettings.keyRetentionMs;
    expect(told).toEqual([
      ['refill', 0],
      ['purge', 0],
      ['purge', purgeLate],
      ['refill', clock.now - nextMidnight(deletedAt)],
      ['refill', 0],
    ]);
    await watched.close();
  });

  test('in steps of two hundred keys', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'many refills' });
    await sweepAll('refill');
    await createKeys(apiId, 450, daily(10));
    clock.advance(dayMs);
    // The keys of the tests above are due as well, in some order.
    const others = (await redis.zcard(`tg:{${tollgate.workspaceId}}:refill`)) - 450;
    const steps: number[] = [];
    const count = async () => steps.push(await refilled(apiId));
    const taken = await sweepAll('refill', count);
    expect(taken).toBe(Math.floor((450 + others) / 200) + 1);
    expect(steps.at(-1)).toBe(450);
    for (const [index, total] of steps.entries()) expect(total - (steps[index - 1] ?? 0)).toBeLessThanOrEqual(200);
  });

  async function refilled(apiId: string) {
    let after: string | undefined;
    let count = 0;
    do {
      const page = (await past.keys.list(tollgate.workspaceId, { apiId, after, count: 100 }))!;
      count += page.items.filter(({ credits }) => credits?.remaining === 10).length;
      after = page.next;
    } while (after);
    return count;
  }
});

describe('deleted keys', { timeout: 120_000 }, () => {
  const imported = async (apiId: string, key: string) => {
    const { migrated } = await ok('keys.migrateKeys', { migrationId: 'again', apiId, keys: [{ hash: hashOf(key) }] });
    return migrated.length === 1;
  };

  test('prevent an import of their hash for the retention, and are then removed', async () => {
    const { apiId, keyId, key } = await createKey();
    await ok('keys.deleteKey', { keyId });
    clock.advance(testSettings.keyRetentionMs - 1);
    await sweepAll('purge');
    expect(await imported(apiId, key)).toBe(false);
    clock.advance(1);
    await sweepAll('purge');
    expect(await imported(apiId, key)).toBe(true);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
    // A new key has the same secret now. The purge of the old key does not remove it.
    clock.advance(testSettings.keyRetentionMs);
    await sweepAll('purge');
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
  });

  test('a permanent deletion leaves nothing to wait for', async () => {
    const { apiId, keyId, key } = await createKey();
    await ok('keys.deleteKey', { keyId, permanent: true });
    expect(await imported(apiId, key)).toBe(true);
  });

  test('are removed in steps of two hundred', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'many deleted' });
    await createKeys(apiId, 250);
    for (const keys = [...(await listIds(apiId))]; keys.length > 0; ) {
      await ok('keys.deleteKey', { keyId: keys.pop()! });
    }
    clock.advance(testSettings.keyRetentionMs);
    const before = await redis.dbsize();
    const sizes: number[] = [];
    expect(await sweepAll('purge', async () => sizes.push(await redis.dbsize()))).toBe(2);
    expect(sizes[0]).toBe(before - 200);
    // The last 50 keys, the queue and the list of deleted keys.
    expect(sizes[1]).toBe(before - 250 - 2);
  });

  async function listIds(apiId: string) {
    const ids: string[] = [];
    let after: string | undefined;
    do {
      const page = (await past.keys.list(tollgate.workspaceId, { apiId, after, count: 100 }))!;
      ids.push(...page.items.map(({ keyId }) => keyId));
      after = page.next;
    } while (after);
    return ids;
  }
});

// The timeouts are for tests that hang. A test that times out continues to run during the next ones, so each test that
// counts records has a workspace of its own.
describe('deleted APIs', { timeout: 120_000 }, () => {
  const sizeOf = async (workspaceId: string) => (await redis.keys(`tg:{${workspaceId}}*`)).length;

  /** All records in Redis by name, each with its value as text. */
  async function contents() {
    const all = new Map<string, { value: string; expires: boolean }>();
    for (const name of await namesIn(redis)) {
      const [value, ttl] = await Promise.all([redis.dumpBuffer(name), redis.pttl(name)]);
      all.set(name.toString('latin1'), { value: value!.toString('base64'), expires: ttl > 0 });
    }
    return all;
  }

  test('leave only history that expires, and touch nothing else', async () => {
    const { workspaceId, of: did } = await tollgate.openWorkspace();
    // An identity that is kept, with a key of another API.
    const api = await did('apis.createApi', { name: 'stays' });
    const other = await did('keys.createKey', { ...api, externalId: 'survivor', credits: { remaining: 5 } });
    await did('keys.verifyKey', { key: other.key });
    const before = await contents();

    const { apiId } = await did('apis.createApi', { name: 'goes' });
    const { keyId, key } = await did('keys.createKey', {
      apiId,
      externalId: 'survivor',
      name: 'all of it',
      meta: { a: 1 },
      credits: { remaining: 100, refill: { interval: 'daily', amount: 5 } },
      ratelimits: [{ name: 'requests', limit: 10, duration: hourMs, autoApply: true }],
    });
    const deletedBefore = await did('keys.createKey', { apiId, credits: { remaining: 1 } });
    await did('keys.createKey', { apiId, externalId: 'survivor' });
    for (let hour = 0; hour < 3; hour++) {
      const ratelimits = [{ name: 'for this call', limit: 5, duration: hourMs }];
      const answer = await did('keys.verifyKey', { key, ratelimits, tags: ['a', 'b'] });
      expect(answer).toMatchObject({ valid: true });
      clock.advance(hourMs);
    }
    await did('keys.updateKey', { keyId, ratelimits: null });
    await did('keys.deleteKey', { keyId: deletedBefore.keyId });
    await did('apis.deleteApi', { apiId });
    clock.advance(testSettings.keyRetentionMs);
    await sweepAll('refill', undefined, workspaceId);
    await sweepAll('purge', undefined, workspaceId);

    const after = await contents();
    const workspace = `tg:{${workspaceId}}`;
    // Its sequence, its audit stream (of limited length), what is to be rolled up at the end of the day, and the time
    // of its root key's last use have changed; and a server says every two seconds that it is there.
    const movesOn = (name: string) =>
      [workspace, `${workspace}:audit`, `${workspace}:rollup`, 'tg:servers'].includes(name) || name.includes(':rk:');
    const changed = [...after].filter(([name, { value }]) => value !== before.get(name)?.value && !movesOn(name));
    expect(changed.filter(([, { expires }]) => !expires).map(([name]) => name)).toEqual([]);
    expect([...before.keys()].filter((name) => !after.has(name))).toEqual([]);
    expect(await did('keys.getKey', { keyId: other.keyId })).toMatchObject({ identity: { externalId: 'survivor' } });
  });

  test('notes of deleted keys are removed when their history has expired', async () => {
    const apiId = (await createKey()).apiId;
    const lists = [`uz:${apiId.slice(-8)}`, 'ui:often'].map((name) => `tg:{${tollgate.workspaceId}}:${name}`);
    const deleted = async () => {
      const { keyId } = await createKey({ apiId, externalId: 'often' });
      await ok('keys.deleteKey', { keyId });
      return keyId.slice(4);
    };
    const early = await deleted();
    for (const list of lists) expect(await redis.zrange(list, '0', '-1')).toEqual([early]);
    clock.advance(testSettings.usageRetentionMs + 33 * dayMs);
    const late = await deleted();
    for (const list of lists) {
      expect(await redis.zrange(list, '0', '-1')).toEqual([late]);
      expect(await redis.pttl(list)).toBeGreaterThan(testSettings.usageRetentionMs);
    }
  });

  test('are deleted at once with twenty thousand keys, which are then removed in steps of two hundred', async () => {
    const count = 20_000;
    const { workspaceId, rootKey } = await createWorkspace();
    const { apiId } = (await call('apis.createApi', { name: 'large' }, rootKey)).data;
    const { key } = (await call('keys.createKey', { apiId }, rootKey)).data;
    await createKeys(apiId, count - 1, {}, workspaceId);
    await call('keys.verifyKey', { key }, rootKey);
    const held = await sizeOf(workspaceId);

    await call('apis.deleteApi', { apiId }, rootKey);
    // The list of APIs had one entry. The API is in the list and the queue of deleted ones, and no key was changed.
    expect(await sizeOf(workspaceId)).toBe(held - 1 + 2);
    expect((await call('keys.verifyKey', { key }, rootKey)).data).toEqual({ valid: false, code: 'NOT_FOUND' });
    clock.advance(testSettings.keyRetentionMs);

    let size = await sizeOf(workspaceId);
    let largest = 0;
    const eachStep = async () => {
      const now = await sizeOf(workspaceId);
      largest = Math.max(largest, size - now);
      size = now;
    };
    // The last step finds nothing.
    expect(await sweepAll('purge', eachStep, workspaceId)).toBe(count / 200 + 1);
    // One of the steps removes the lists as well.
    expect(largest).toBeLessThanOrEqual(200 + 3);
    expect(held - size).toBeGreaterThanOrEqual(count);
  });

  test('no step is shorter because another workspace reads its holds between them', async () => {
    const { key, keyId } = await createKey();
    for (let made = 0; made < 400; made++) await ok('keys.verifyKey', { key, hold: { ttl: hourMs } });
    const { workspaceId, rootKey } = await createWorkspace();
    const { apiId } = (await call('apis.createApi', { name: 'quiet' }, rootKey)).data;
    await createKeys(apiId, 1000, {}, workspaceId);
    await call('apis.deleteApi', { apiId, permanent: true }, rootKey);
    const readHolds = async () => {
      for (let times = 0; times < 10; times++) await ok('keys.listHolds', { keyId, limit: 100 });
    };
    await readHolds();
    // The last step finds nothing.
    expect(await sweepAll('purge', readHolds, workspaceId)).toBe(1000 / 200 + 1);
  });

  test('several at once, also empty ones', async () => {
    const { workspaceId, rootKey } = await createWorkspace();
    const apiIds: string[] = [];
    for (const keys of [0, 3, 0, 250]) {
      const { apiId } = (await call('apis.createApi', { name: 'one of several' }, rootKey)).data;
      if (keys > 0) await createKeys(apiId, keys, {}, workspaceId);
      apiIds.push(apiId);
    }
    const before = await sizeOf(workspaceId);
    for (const apiId of apiIds) await call('apis.deleteApi', { apiId, permanent: true }, rootKey);
    await sweepAll('purge', undefined, workspaceId);
    // Records and lists of keys; records of the APIs, and their list.
    expect(before - (await sizeOf(workspaceId))).toBe(253 + 2 + 4 + 1);
  });

  test('two servers that sweep concurrently do not disturb each other', async () => {
    const { workspaceId, rootKey } = await createWorkspace();
    const apiOf = async (name: string) => (await call('apis.createApi', { name }, rootKey)).data.apiId;
    const credits = { remaining: 1, refill: { interval: 'daily' as const, amount: 10 } };
    const { keyId } = (await call('keys.createKey', { apiId: await apiOf('stays'), credits }, rootKey)).data;
    const apiId = await apiOf('swept twice');
    await createKeys(apiId, 1000, {}, workspaceId);
    await call('apis.deleteApi', { apiId, permanent: true }, rootKey);
    clock.advance(dayMs);
    const before = await sizeOf(workspaceId);
    const second = await openStore({ ...testSettings, url: testRedisUrl(), nowMs: () => clock.now });
    const all = async (store: Store) => {
      while (await store.sweep.purge(workspaceId));
      while (await store.sweep.refill(workspaceId));
    };
    await Promise.all([all(second), all(tollgate.store)]);
    await second.close();
    // The keys, their list, and the list of deleted APIs.
    expect(before - (await sizeOf(workspaceId))).toBe(1002);
    expect((await past.keys.find(workspaceId, keyId))?.key.credits?.remaining).toBe(10);
  });
});

describe('the loop', () => {
  const log = pino({ level: 'silent' });
  const waiting = { interval: 1, timeout: 5000 };

  test('sweeps every workspace, again and again, until it is stopped', async () => {
    const theirs = await createWorkspace();
    const keys: { keyId: string; key: string }[] = [];
    for (const rootKey of [tollgate.rootKey, theirs.rootKey]) {
      const { apiId } = (await call('apis.createApi', { name: 'swept' }, rootKey)).data;
      const credits = { remaining: 1, refill: { interval: 'daily' as const, amount: 10 } };
      keys.push((await call('keys.createKey', { apiId, credits }, rootKey)).data);
    }
    const workspaceIds = [tollgate.workspaceId, theirs.workspaceId];
    const balances = () =>
      Promise.all(
        keys.map(
          async ({ keyId }, index) => (await past.keys.find(workspaceIds[index]!, keyId))?.key.credits?.remaining,
        ),
      );

    const sweeper = startSweeper(tollgate.store, { intervalMs: 1, log });
    for (let day = 0; day < 2; day++) {
      for (const [index, { key }] of keys.entries()) {
        await call('keys.verifyKey', { key }, [tollgate.rootKey, theirs.rootKey][index]!);
      }
      clock.advance(dayMs);
      await vi.waitFor(async () => expect(await balances()).toEqual([10, 10]), waiting);
    }
    await sweeper.stop();
    for (const [index, { key }] of keys.entries()) {
      await call('keys.verifyKey', { key }, [tollgate.rootKey, theirs.rootKey][index]!);
    }
    clock.advance(dayMs);
    const rounds = startSweeper(tollgate.store, { intervalMs: 1_000_000, log });
    await rounds.stop();
    expect(await balances()).toEqual([9, 9]);
  });

  test('is stopped between two steps, with any amount of work left', async () => {
    let steps = 0;
    const endless = async () => ++steps > 0;
    const sweep = {
      holds: endless,
      refill: endless,
      purge: endless,
      ended: endless,
      rollUp: endless,
      count: async () => 0,
    };
    const sweeper = startSweeper({ workspaces: tollgate.store.workspaces, sweep }, { intervalMs: 1, log });
    await vi.waitUntil(() => steps > 3, waiting);
    await sweeper.stop();
    const taken = steps;
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(steps).toBe(taken);
  });

  test('a failure is logged, and neither ends it nor delays other workspaces', async () => {
    await createWorkspace();
    const broken = [tollgate.workspaceId, (await createWorkspace()).workspaceId];
    const errors: unknown[] = [];
    const swept = new Map<string, number>();
    const sweeper = startSweeper(
      {
        workspaces: tollgate.store.workspaces,
        sweep: {
          refill: async (workspaceId) => {
            swept.set(workspaceId, (swept.get(workspaceId) ?? 0) + 1);
            if (broken.includes(workspaceId)) throw new Error('a broken record');
            return false;
          },
          holds: tollgate.store.sweep.holds,
          purge: tollgate.store.sweep.purge,
          ended: tollgate.store.sweep.ended,
          rollUp: tollgate.store.sweep.rollUp,
          count: tollgate.store.sweep.count,
        },
      },
      {
        intervalMs: 1,
        log: pino({ level: 'error' }, { write: (line: string) => errors.push(JSON.parse(line)) }),
      },
    );
    const { length } = await tollgate.store.workspaces.list();
    await vi.waitFor(() => {
      expect(swept.size).toBe(length);
      expect(Math.min(...swept.values())).toBeGreaterThanOrEqual(3);
    }, waiting);
    await sweeper.stop();
    // One line for each sweep, with the first workspace that failed.
    const line = { msg: expect.stringContaining(broken[0]!), err: { message: 'a broken record' }, workspaces: 2 };
    expect(errors[0]).toMatchObject(line);
    expect(errors.length).toBeLessThanOrEqual(Math.max(...swept.values()));
  });
});
