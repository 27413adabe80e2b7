// Holds of a key that take as many bytes as they may: a bound, and every script in short steps.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { digestOf } from '../../../src/domain/keyString.ts';
import { connect, type RedisClient } from '../../../src/redis/connection.ts';
import { keyRecordKey, workspaceKey } from '../../../src/redis/names.ts';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import { testRedisUrl } from '../../support/redis.ts';
import { storedHolds } from '../../support/storedHolds.ts';

const tollgate = harness();
const { clock, call, ok, createKey } = tollgate;
let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(() => redis.disconnect());

const startMs = clock.now;
beforeEach(() => {
  clock.now = startMs;
});

/** The hold of a verification with these limits takes nearly 4 KB. */
const longNames = Array.from({ length: 50 }, (_, index) => ({
  name: `${index}`.padEnd(60, 'x'),
  limit: 1_000_000,
  duration: hourMs,
  cost: 1,
}));
const verify = (key: string, extras: object = {}) =>
  call('keys.verifyKey', { key, hold: { ttl: hourMs }, ...extras } as InputOf<'keys.verifyKey'>);
const recordOf = (key: string) => keyRecordKey(workspaceKey(tollgate.workspaceId), digestOf(key));

/** Makes holds until the key has as many bytes as it may. Returns their ids. */
async function fill(key: string, extras: object = {}) {
  const ids: string[] = [];
  for (;;) {
    const made = await Promise.all(Array.from({ length: 20 }, () => verify(key, { ratelimits: longNames, ...extras })));
    for (const { data } of made) if (data) ids.push(data.hold!.id);
    const refused = made.find(({ status }) => status !== 200);
    if (refused) return { ids, refused };
  }
}

test('the open holds of a key have a megabyte at most', async () => {
  const { key, keyId } = await createKey({ credits: { remaining: 1000 } });
  const { ids, refused } = await fill(key);
  const detail = 'The key has 10000 open holds, or open holds of 1024 KB, the maximum. Nothing was charged.';
  expect(refused).toMatchObject({
    status: 412,
    error: { type: expect.stringContaining('precondition_failed'), detail },
  });
  expect(await ok('keys.getKey', { keyId })).toMatchObject({ credits: { remaining: 1000 - ids.length } });
  const { openBytes, bytes, stated } = await storedHolds(redis, recordOf(key));
  expect(bytes).toBeGreaterThanOrEqual(1024 * 1024);
  expect(bytes).toBeLessThan(1024 * 1024 + 4096);
  expect(stated).toEqual({ openBytes, bytes });
  // A verification without a hold, and one with a small hold, which has no room either.
  expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
  expect(await verify(key)).toMatchObject({ status: 412 });
  await ok('keys.settleHold', { holdId: ids[0]! });
  expect(await verify(key)).toMatchObject({ status: 200 });
});

/** A key of a customer with credits, two limits of each, and slots: what a hold of it repeats. */
async function createUsual(externalId: string) {
  const limit = { limit: 1e6, duration: hourMs, autoApply: true };
  const ratelimits = [{ name: `requests of ${externalId}`, ...limit }];
  await ok('identities.createIdentity', { externalId, ratelimits, credits: { remaining: 1e9 } });
  const own = ['requests', 'tokens_per_minute'].map((name) => ({ name, ...limit }));
  return createKey({ externalId, credits: { remaining: 1e9 }, ratelimits: own });
}
const slots = { name: 'concurrent_jobs', limit: 10_000, duration: dayMs, type: 'concurrency' as const };

test.each([
  ['of two limits, and credits of a key and its identity', {}, 64 + 16],
  ['with a tag as well', { tags: ['model.large'] }, 64 + 40],
  ['with an id of 8 characters', { hold: { ttl: hourMs, id: 'job-1234' } }, 64 + 40],
  ['with a slot', { ratelimits: [{ name: slots.name }] }, 64 + 27],
])('10,000 usual holds %s fit, by their bytes', async (what, extras, most) => {
  const { key, keyId } = await createUsual(what.replaceAll(/\W+/g, '-'));
  await ok('keys.updateKey', { keyId, ratelimits: [...(await ok('keys.getKey', { keyId })).ratelimits!, slots] });
  const verifyOne = (number: number) => {
    const { hold } = extras as { hold?: { ttl: number; id: string } };
    const id = hold && { hold: { ...hold, id: `job-${1000 + number}` } };
    return verify(key, { credits: { cost: 5 }, ...extras, ...id });
  };
  for (let number = 0; number < 40; number++) await verifyOne(number);
  const before = await storedHolds(redis, recordOf(key));
  expect(before).toMatchObject({ isSummed: true, count: 40 });
  for (let number = 40; number < 140; number++) expect(await verifyOne(number)).toMatchObject({ status: 200 });
  const { openBytes, count } = await storedHolds(redis, recordOf(key));
  expect(count).toBe(140);
  const each = (openBytes - before.openBytes) / 100;
  expect(each).toBeLessThanOrEqual(most);
  expect(10_000 * each).toBeLessThan(1024 * 1024);
});

test('holds that name texts, and those whose texts have no room, end with what they held', async () => {
  const externalId = 'a-customer_1.of-2';
  const { key, keyId } = await createUsual(externalId);
  const own = (await ok('keys.getKey', { keyId })).ratelimits!;
  const spent = async () => {
    const { credits, ratelimits, identity } = await ok('keys.verifyKey', {
      key,
      credits: { cost: 0 },
      ratelimits: own.map(({ name }) => ({ name, cost: 0 })),
    });
    const used = ratelimits!.map(({ limit, remaining }) => limit - remaining);
    return { credits: 1e9 - credits!, shared: 1e9 - identity!.credits!, used };
  };
  const nothing = await spent();
  // Names that contain each other, more than have room; and units that need more bytes.
  const limitsOf = (number: number) => [
    { name: 'requests', cost: number },
    { name: `requests${number}`.padEnd(10 + number, 's'), cost: 1, limit: 1e12, duration: hourMs },
    { name: 'wide', cost: 2 ** 33, limit: 1e12, duration: hourMs },
  ];
  const made = [];
  for (let number = 0; number < 90; number++) {
    const input = { credits: { cost: number }, ratelimits: limitsOf(number), tags: [`tag${number}`] };
    const verified = await verify(key, { ...input, hold: { ttl: hourMs - number, id: `job${number}` } });
    expect(verified.error).toBeUndefined();
    made.push(verified.data.hold!.id);
  }
  expect(await storedHolds(redis, recordOf(key))).toMatchObject({ isSummed: true, count: 90 });
  const held = (number: number) => [
    ...limitsOf(number).map(({ name, cost }) => ({ name, cost })),
    { name: 'tokens_per_minute', cost: 1 },
    { name: `requests of ${externalId}`, cost: 1 },
  ];
  const { holds } = await ok('keys.explainKey', { keyId });
  expect(holds).toMatchObject({ open: 90, credits: (89 * 90) / 2 });
  expect(holds!.ratelimits).toContainEqual({ name: 'wide', cost: 90 * 2 ** 33 });
  expect(holds!.ratelimits).toHaveLength(90 + 4);
  // Released and settled late, settled as held, settled for other amounts, extended and repeated.
  for (const [number, holdId] of made.entries()) {
    if (number % 3 === 0) await ok('keys.releaseHold', { holdId });
    if (number % 3 === 1) await ok('keys.extendHold', { holdId, ttl: hourMs });
    if (number % 3 === 2) {
      const settled = await ok('keys.settleHold', { holdId });
      const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1);
      expect([...settled.ratelimits].sort(byName)).toEqual(held(number).sort(byName));
      await ok('keys.settleHold', { holdId, credits: { cost: number } });
    } else {
      const settled = await ok('keys.settleHold', {
        holdId,
        credits: { cost: 1 },
        ratelimits: [{ name: 'wide', cost: 0 }],
      });
      expect(settled.late).toBe(number % 3 === 0);
    }
  }
  const credits = made.reduce((sum, _, number) => sum + (number % 3 === 2 ? number : 1), 0);
  // Each of these calls charges the limit of the identity, too.
  const used = [(89 * 90) / 2, 90, 91].map((units, at) => units + nothing.used[at]!);
  expect(await spent()).toEqual({ credits, shared: credits, used });
});

test('holds that were given back take no room of new ones, and have a megabyte at most', async () => {
  const { key } = await createKey({});
  for (let round = 0; round < 2; round++) {
    const { ids } = await fill(key);
    await Promise.all(ids.map((holdId) => ok('keys.releaseHold', { holdId })));
    const { openBytes, bytes, stated } = await storedHolds(redis, recordOf(key));
    expect(openBytes).toBe(0);
    expect(bytes).toBeLessThan(1024 * 1024 + 4096);
    expect(stated).toEqual({ openBytes, bytes });
    if (round === 0) expect(await ok('keys.settleHold', { holdId: ids[9]! })).toMatchObject({ late: true });
  }
});

test('a hold writes a small head and a small bucket, whatever the key has', async () => {
  const { key } = await createKey({});
  for (let count = 0; count < 60; count++) await verify(key, { ratelimits: longNames });
  for (let count = 0; count < 300; count++) await verify(key);
  const { head, buckets } = await storedHolds(redis, recordOf(key));
  // With texts of 1 KB at most.
  expect(head).toBeLessThan(100 + 1024);
  expect(Math.max(...buckets)).toBeLessThan(16 * 1024);
  const few = buckets.filter((bytes) => bytes < 8 * 1024);
  expect(few.length / buckets.length).toBeGreaterThan(0.9);
});

describe('a key with a megabyte of holds', () => {
  let made = 0;
  let externalId: string;
  let key: string;
  let keyId: string;
  let ids: string[];
  beforeEach(async () => {
    externalId = `customer${++made}`;
    await ok('identities.createIdentity', { externalId });
    await ok('identities.updateCredits', { identity: externalId, operation: 'set', value: 1_000_000 });
    const ratelimits = [{ name: 'of a day', limit: 1_000_000, duration: dayMs }];
    ({ key, keyId } = await createKey({ externalId, credits: { remaining: 1_000_000 }, ratelimits }));
    const limits = [{ name: 'of a day', cost: 7 }, ...longNames.slice(1)];
    ({ ids } = await fill(key, { ratelimits: limits, credits: { cost: 3 } }));
  });
  const balance = async () => (await ok('identities.getIdentity', { identity: externalId })).credits!.remaining;

  test('is explained with all that they hold', async () => {
    for (const input of [{ key }, { keyId }]) {
      const { holds } = await ok('keys.explainKey', input);
      expect(holds).toMatchObject({ open: ids.length, credits: 3 * ids.length });
      const of = (name: string) => holds!.ratelimits.find((limit) => limit.name === name)?.cost;
      expect([of('of a day'), of(longNames[1]!.name)]).toEqual([7 * ids.length, ids.length]);
      expect(holds!.ratelimits).toHaveLength(50);
    }
  });

  test('is exported as if they had expired', async () => {
    await ok('keys.verifyKey', { key, ratelimits: [{ name: 'of a day', cost: 5 }] });
    const { apiId } = await ok('keys.getKey', { keyId });
    const page = (await tollgate.store.keys.export(tollgate.workspaceId, { apiId, count: 100 }))!;
    const exported = page.items.find((item) => item.keyId === keyId)!;
    expect(exported.credits).toMatchObject({ remaining: 999_999 });
    expect([...exported.used].map(([index, slices]) => [index, slices.map(([, units]) => units)])).toEqual([[0, [5]]]);
  });

  test('is deleted for good in steps, and its hash is free at once', async () => {
    expect(await balance()).toBe(1_000_000 - 3 * ids.length);
    const { apiId } = await ok('keys.getKey', { keyId });
    await ok('keys.deleteKey', { keyId, permanent: true });
    expect(await call('keys.verifyKey', { key })).toMatchObject({ data: { code: 'NOT_FOUND' } });
    expect(await call('keys.settleHold', { holdId: ids[0]! })).toMatchObject({ status: 404 });
    expect(await redis.exists(recordOf(key))).toBe(0);
    const before = await balance();
    expect(before).toBeLessThan(1_000_000);
    const hash = digestOf(key).toString('base64');
    const migrated = await ok('keys.migrateKeys', { migrationId: 'from_elsewhere', apiId, keys: [{ hash }] });
    expect(migrated).toMatchObject({ migrated: [{ hash }], failed: [] });
    let steps = 0;
    while (await tollgate.store.sweep.purge(tollgate.workspaceId)) steps++;
    expect(steps).toBeGreaterThan(5);
    expect(await balance()).toBe(1_000_000);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'VALID' });
  });

  test('is removed in steps when its API was deleted', async () => {
    const { apiId } = await ok('keys.getKey', { keyId });
    const { name } = await ok('apis.getApi', { apiId });
    await ok('apis.deleteApi', { apiId, confirm: name, permanent: true });
    let steps = 0;
    while (await tollgate.store.sweep.purge(tollgate.workspaceId)) steps++;
    expect(steps).toBeGreaterThan(5);
    expect(await balance()).toBe(1_000_000);
  });

  test('gives all back at their expiry, in steps', async () => {
    clock.advance(hourMs);
    let steps = 0;
    while (await tollgate.store.sweep.holds(tollgate.workspaceId)) steps++;
    expect(steps).toBeGreaterThan(5);
    expect(await balance()).toBe(1_000_000);
    const { openBytes, stated, bytes } = await storedHolds(redis, recordOf(key));
    expect([openBytes, stated]).toEqual([0, { openBytes, bytes }]);
  });
});
