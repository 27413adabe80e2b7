// The roll-up of usage: days are packed and read without a loss, and any number of sweepers may roll up the same logs.

import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { rollupQueueKey, tagUsageKey, workspaceKey } from '../../src/redis/names.ts';
import { countPlaces } from '../../src/scripts/layout.ts';
import { openStore } from '../../src/store.ts';
import { packDays, readDays, readDaysHead, rollUp } from '../../src/usage/days.ts';
import { dayMs, harness, hourMs, testSettings } from '../support/harness.ts';
import { monitorOf } from '../support/monitor.ts';
import { testRedisUrl } from '../support/redis.ts';
import { keyLogOf } from '../support/usage.ts';

const tollgate = harness();
const { ok, clock, createKey } = tollgate;
let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(async () => void (await redis.quit()));

const counts = fc.array(fc.oneof(fc.constant(0), fc.nat(300), fc.maxSafeNat()), {
  minLength: countPlaces,
  maxLength: countPlaces,
});
const add = (all: number[][]) => all.reduce((sums, each) => sums.map((sum, index) => sum + each[index]!));

test('packed days are read again, to the last number', () => {
  const hours = fc.uniqueArray(fc.tuple(fc.nat(23), counts), {
    minLength: 1,
    maxLength: 24,
    selector: ([hour]) => hour,
  });
  const dayOf = fc.record({
    externalId: fc.constantFrom('', 'a', 'b'.repeat(255), '\u{1f511}'),
    sums: counts,
    hours: fc.option(hours),
  });
  fc.assert(
    fc.property(fc.array(dayOf, { maxLength: 5 }), fc.nat(65_534), fc.nat(65_535), (made, rewrites, week) => {
      const days = made.map(({ externalId, sums, hours }, index) => ({
        day: 20_000 + index,
        externalId,
        sums: hours ? add(hours.map(([, each]) => each)) : sums,
        hours: hours ? new Map(hours.toSorted(([a], [b]) => a - b)) : undefined,
      }));
      // Sums beyond what a number holds exactly do not occur: usage has 7 bytes.
      fc.pre(days.every(({ sums }) => sums.every(Number.isSafeInteger)));
      const packed = packDays({ rewrites, week }, days);
      expect(readDaysHead(packed)).toEqual({ rewrites, week });
      expect(readDays(packed)).toEqual(days);
    }),
  );
});

test('the hours before a day are taken from a log, in steps if they are of many days and identities', () => {
  const of = (hours: number[]) => keyLogOf('ws_1', 'key_1', hours).log;
  const rules = { beforeDay: 101, hoursFrom: 99, from: 90, week: 14 };
  const log = of([24 * 98 + 1, 24 * 100 + 2, 24 * 100 + 2, 24 * 101, 24 * 100 + 3]);
  const first = rollUp({ days: Buffer.alloc(0), log }, rules)!;
  // Hours of the present day stay, also before one that was counted late.
  expect(first.kept).toEqual(of([24 * 101]));
  expect(first.isComplete).toBe(true);
  const days = readDays(first.days);
  expect(days.map(({ day, sums, hours }) => [day, sums[0], hours && [...hours.keys()]])).toEqual([
    [98, 3, undefined],
    [100, 9, [2, 3]],
  ]);
  // Nothing changes when it is rolled up again, until a day is too old for its hours, or at all.
  expect(rollUp({ days: first.days, log: first.kept }, rules)).toBeUndefined();
  const late = Buffer.concat([first.kept, of([24 * 100 + 4])]);
  const rest = { beforeDay: 102, hoursFrom: 101, from: 100 };
  const later = rollUp({ days: first.days, log: late }, { ...rules, ...rest })!;
  expect(later.kept).toHaveLength(0);
  // An hour that is counted late joins the sum of its day.
  expect(readDays(later.days).map(({ day, sums, hours }) => [day, sums[0], hours?.size])).toEqual([
    [100, 12, undefined],
    [101, 3, 1],
  ]);

  const step = rollUp({ days: Buffer.alloc(0), log }, rules, 1)!;
  expect(step).toMatchObject({ isComplete: false, addedCount: 1, kept: log.subarray(of([0]).length) });
  const second = rollUp({ days: step.days, log: step.kept }, rules, 1)!;
  expect(second).toMatchObject({ isComplete: true, kept: first.kept });
  expect(readDays(second.days)).toEqual(days);
});

test('a key with very many identities on a day is rolled up in steps, each once', () => {
  const entryOf = (externalId: string) => {
    const entry = Buffer.alloc(10 + externalId.length);
    entry.writeUInt32BE(2400, 0);
    entry[4] = 1;
    entry.writeUInt32BE(1, 5);
    entry[9] = externalId.length;
    entry.write(externalId, 10);
    return entry;
  };
  const names = Array.from({ length: 3000 }, (_, at) => `customer.${at % 2500}`);
  let stored: { days: Buffer; log: Buffer } = { days: Buffer.alloc(0), log: Buffer.concat(names.map(entryOf)) };
  const rules = { beforeDay: 101, hoursFrom: 94, from: 10, week: 14 };
  for (let isComplete = false; !isComplete; ) {
    const rolled = rollUp(stored, rules, 400)!;
    stored = { days: rolled.days, log: rolled.kept };
    ({ isComplete } = rolled);
  }
  expect(stored.log).toHaveLength(0);
  const counted = new Map(readDays(stored.days).map(({ externalId, sums }) => [externalId, sums[0]]));
  expect(counted.size).toBe(2500);
  for (const [at, name] of names.entries()) expect(counted.get(name), name).toBe(at % 2500 < 500 ? 2 : 1);
});

test('several sweepers at once, beside verifications: every count is kept, and once', async () => {
  const others = await Promise.all(
    [0, 1, 2].map(() => openStore({ ...testSettings, url: testRedisUrl(), nowMs: () => clock.now })),
  );
  const sweepers = [tollgate.store, ...others];
  const { apiId } = await ok('apis.createApi', { name: 'swept' });
  const keys: Awaited<ReturnType<typeof createKey>>[] = [];
  // A workspace's requests wait for each other only for a second.
  while (keys.length < 150)
    keys.push(...(await Promise.all(Array.from({ length: 10 }, () => createKey({ apiId, externalId: 'customer' })))));
  const start = clock.now;
  let sent = 0;
  for (let day = 0; day < 12; day++) {
    const busy = keys.map(async ({ key }, index) => {
      if (index % (day + 1) > 2) return;
      sent++;
      await ok('keys.verifyKey', { key });
    });
    await Promise.all([...busy, ...sweepers.map(({ sweep }) => sweep.rollUp(tollgate.workspaceId))]);
    clock.advance(day % 3 === 0 ? dayMs : 5 * hourMs);
    if (day % 2 === 0) {
      await Promise.all(
        sweepers.map(async ({ sweep }) => {
          while (await sweep.rollUp(tollgate.workspaceId));
        }),
      );
    }
    for (const groupBy of [['keyId'], ['externalId']] as const) {
      const query = { apiId, start, granularity: 'total' as const, groupBy: [...groupBy] };
      const rows = await ok('analytics.getVerifications', query);
      expect(rows.reduce((sum, { count }) => sum + count, 0)).toBe(sent);
    }
  }
  await Promise.all(others.map((store) => store.close()));
});

test('the list of a day is kept as long as its hours, then the weeks name its keys; those of a deleted API go at once', async () => {
  const { apiId, key } = await createKey();
  const listsOf = async (id: string) =>
    (await redis.keys(`${workspaceKey(tollgate.workspaceId)}:u[xw]:${id.slice(-8)}:*`)).map(
      (name) => name.split(':')[2],
    );
  const sweep = async () => {
    while (await tollgate.store.sweep.rollUp(tollgate.workspaceId));
  };
  await ok('keys.verifyKey', { key });
  await sweep();
  expect(await listsOf(apiId)).toEqual(['ux']);
  const usedAt = clock.now;
  // An hour and ten minutes after the end of the day.
  clock.now = Math.ceil(usedAt / dayMs) * dayMs + hourMs + 600_000 - 1;
  await sweep();
  expect(await listsOf(apiId)).toEqual(['ux']);
  clock.advance(1);
  await sweep();
  expect((await listsOf(apiId)).sort()).toEqual(['uw', 'ux']);
  clock.now = (Math.floor(usedAt / dayMs) + testSettings.usageHourlyDays + 1) * dayMs - 1;
  await sweep();
  expect((await listsOf(apiId)).sort()).toEqual(['uw', 'ux']);
  clock.advance(1);
  await sweep();
  expect(await listsOf(apiId)).toEqual(['uw']);
  const query = { of: 'keys' as const, apiId, start: usedAt };
  expect((await ok('analytics.getTop', query)).top).toMatchObject([{ count: 1 }]);

  const gone = await createKey();
  await ok('keys.verifyKey', { key: gone.key });
  await ok('apis.deleteApi', { apiId: gone.apiId, permanent: true });
  clock.advance(2 * dayMs);
  await sweep();
  expect(await listsOf(gone.apiId)).toEqual([]);
});

test('counts by tag and identifier are added up by day, and queries are exact meanwhile', async () => {
  const { apiId, key } = await createKey({ credits: { remaining: 100_000 } });
  const namespace = 'rolled up';
  const start = Math.floor(clock.now / dayMs) * dayMs;
  clock.now = start;
  const each = 300;
  for (let hour = 0; hour < 3; hour++) {
    for (let first = 0; first < each; first += 20) {
      const tags = Array.from({ length: 20 }, (_, index) => `tag ${first + index}`.padEnd(70, '.'));
      await ok('keys.verifyKey', { key, tags: tags.slice(0, 5), credits: { cost: 2 } });
      const checks = tags.map((identifier) => ({ namespace, identifier, limit: 2, duration: dayMs }));
      await ok('ratelimits.multiLimit', checks);
    }
    clock.advance(hourMs);
  }
  clock.now = start + (testSettings.usageHourlyDays + 1) * dayMs;
  const workspace = workspaceKey(tollgate.workspaceId);
  const record = `${workspace}:ut:${apiId.slice(-8)}:${start / dayMs}`;
  const before = await redis.hlen(record);
  const ask = async () => {
    const rows = await ok('analytics.getVerifications', { apiId, start, granularity: 'total', groupBy: ['tag'] });
    expect(rows).toHaveLength((each / 20) * 5);
    expect(rows.every(({ count, spentCredits }) => count === 3 && spentCredits === 6)).toBe(true);
    const { top } = await ok('analytics.getTop', { of: 'identifiers', namespace, start, limit: 100 });
    expect(top.every(({ count, refused }) => count === 3 && refused === 1)).toBe(true);
    expect(top).toHaveLength(100);
    const identifier = top[0]!.identifier!;
    const one = await ok('analytics.getRatelimits', { namespace, identifier, start, granularity: 'hour' });
    expect(one).toEqual([{ time: start, granularity: 'day', namespace, identifier, passed: 2, blocked: 1 }]);
  };
  let isRolling = true;
  const rolling = (async () => {
    while (await tollgate.store.sweep.rollUp(tollgate.workspaceId));
    isRolling = false;
  })();
  while (isRolling) await ask();
  await rolling;
  await ask();
  // One count and one of its credits for three of each, and the number of steps.
  expect(await redis.hlen(record)).toBe(before / 3 + 1);
  expect((await redis.hkeys(record)).filter((field) => /^s?\d/.test(field))).toEqual([]);
});

test('a query reads the keys that were used, and not those that are stored', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'large' });
  const stored = Array.from({ length: 3 }, () => createKey({ apiId }));
  const [first] = await Promise.all(stored);
  await ok('keys.verifyKey', { key: first!.key });
  // Lists of stored keys that no script can read: a query that read them would fail.
  await redis.set(`${workspaceKey(tollgate.workspaceId)}:uk:${(await stored[1]!).keyId.slice(4)}`, Buffer.alloc(5e6));
  for (const groupBy of ['keyId', 'externalId'] as const) {
    const rows = await ok('analytics.getVerifications', { apiId, groupBy: [groupBy] });
    expect(rows).toMatchObject([{ count: 1 }]);
  }
});

test('where a step continues is forgotten when another server ends it', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'tags' });
  const workspace = workspaceKey(tollgate.workspaceId);
  clock.now = Math.ceil(clock.now / dayMs) * dayMs;
  const today = clock.now / dayMs;
  // A day of more counts than a step moves, and a later day.
  const [day, nextDay] = [2, 1].map((days) => `${today - testSettings.usageHourlyDays - days}`);
  const recordOf = (of: string) => tagUsageKey(workspace, apiId, of);
  const countsOf = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, tag) => [`001${tag}`, 1]));
  const rollUp = () => tollgate.store.sweep.rollUp(tollgate.workspaceId);
  while (await rollUp());
  const add = async (of: string, count: number) => {
    await redis.hset(recordOf(of), countsOf(count));
    await redis.zadd(rollupQueueKey(workspace), of, `t${apiId.slice(-8)}:${of}`);
  };
  const cursors: [day: string, cursor: string][] = [];
  const stop = await monitorOf(testRedisUrl(), ([command, name = '', cursor]) => {
    if (command === 'hscan' && name.startsWith(`${workspace}:ut:`)) cursors.push([name.split(':').at(-1)!, cursor!]);
  });
  await add(day!, 1000);
  await rollUp();
  // Another server ends it, and counts of this day come late.
  await redis.del(recordOf(day!), rollupQueueKey(workspace));
  await add(nextDay!, 1000);
  await rollUp();
  await add(day!, 1000);
  await rollUp();
  await expect.poll(() => cursors).toEqual([day, nextDay, day].map((each) => [each, '0']));
  stop();
  while (await rollUp());
  expect((await redis.hkeys(recordOf(day!))).filter((field) => /^\d/.test(field))).toEqual([]);
});
