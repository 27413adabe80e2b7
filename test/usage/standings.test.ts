// Rankings of keys and identities, which read only what can be among the first, against sums of all keys over random
// histories.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { openStore, type Store } from '../../src/store.ts';
import { addUsage, Ranking } from '../../src/usage/ranking.ts';
import { dayMs, endAllLeases, harness, hourMs, testSettings } from '../support/harness.ts';
import { observing } from '../support/observer.ts';
import { random, seed } from '../support/random.ts';
import { testRedisUrl } from '../support/redis.ts';
import { thorough } from '../support/testIf.ts';

const tollgate = harness();
const { ok, call, clock, createKey } = tollgate;

/** Two servers. Each knows only what it has read itself. */
const servers: Store[] = [];
/** Scripts that read a list of all used keys. */
let lists = 0;
beforeAll(async () => {
  const observe = observing({
    ran(script) {
      if (script === 'analytics/used') lists++;
    },
  });
  for (let server = 0; server < 2; server++) {
    servers.push(await openStore({ ...testSettings, url: testRedisUrl(), nowMs: () => clock.now, observe }));
  }
});
afterAll(() => Promise.all(servers.map((store) => store.close())));

type Query = Parameters<Store['analytics']['top']>[1];

/** The ranking by the counts of all keys. */
async function byAllKeys({ analytics }: Store, { of, by, limit, ...query }: Query) {
  const ranking = new Ranking();
  const grouped = { key: of === 'keys', externalId: of === 'identities', tag: false };
  const all = { ...query, by: grouped, bucketOf: () => 0 };
  const counted = await analytics.verifications(tollgate.workspaceId, all, (usage) => addUsage(ranking, of, usage));
  return { counted, top: ranking.top(limit, by) };
}

/** Ranks by what the server knows. Returns whether it read all keys. */
async function rank(store: Store, query: Query) {
  // What a lease decided is counted when it ends.
  await endAllLeases();
  const before = lists;
  const ranked = await store.analytics.top(tollgate.workspaceId, query);
  return { ranked, wasPass: lists > before };
}

/** Creates keys, few at a time: a workspace's requests wait for each other only for a second. */
async function createKeys(count: number, fieldsOf: (index: number) => Parameters<typeof createKey>[0]) {
  const keys: Awaited<ReturnType<typeof createKey>>[] = [];
  while (keys.length < count) {
    const from = keys.length;
    keys.push(...(await Promise.all(Array.from({ length: 20 }, (_, index) => createKey(fieldsOf(from + index))))));
  }
  return keys;
}

const today = () => Math.floor(clock.now / dayMs);
const hourNow = () => Math.floor(clock.now / hourMs);
const periods = {
  day: () => ({ fromHour: hourNow() - 23, toHour: hourNow() + 1 }),
  month: () => ({ fromHour: 24 * (today() - 29), toHour: 24 * (today() + 1) }),
  // Its days are no longer kept by hour, so parts of days count whole.
  old: () => ({ fromHour: hourNow() - 24 * 20, toHour: hourNow() - 24 * 9 }),
  yesterday: () => ({ fromHour: 24 * (today() - 1), toHour: 24 * today() }),
};

test(`the first are those of all keys (seed ${seed})`, { timeout: 120_000 }, async () => {
  const pick = random(seed);
  const oneOf = <Item>(items: readonly Item[]) => items[pick(0, items.length - 1)]!;
  const apiIds = await Promise.all(
    ['first', 'second'].map(async (name) => (await ok('apis.createApi', { name })).apiId),
  );
  // More than a thousand, so that some have no bound of their own.
  const keys = await createKeys(1300, (index) => ({
    apiId: apiIds[index % 10 === 9 ? 1 : 0]!,
    ...(index % 3 > 0 && { externalId: `customer_${index % 150}` }),
    credits: { remaining: 1000 },
  }));
  // Keys with a small index are used more.
  const skewed = () => keys[Math.floor(keys.length * (pick(0, 999) / 1000) ** 4)]!;
  const verify = (key: string) =>
    ok('keys.verifyKey', {
      key,
      ...(pick(0, 4) === 0 && { permissions: 'not.held' }),
      credits: { cost: pick(0, 3) },
    });
  const verifySome = (count: number, next: () => { key: string }) =>
    Promise.all(Array.from({ length: count }, () => verify(next().key)));
  await Promise.all(keys.map(({ key }) => verify(key)));
  for (let day = 0; day < thorough(8, 4); day++) {
    await verifySome(500, skewed);
    clock.advance(pick(12, 30) * hourMs);
  }

  const changes = [
    () => verifySome(pick(1, 10), skewed),
    // One key becomes large, of which nothing was known before.
    () => (({ key }) => verifySome(pick(5, 20), () => ({ key })))(oneOf(keys)),
    () => ok('keys.updateKey', { keyId: skewed().keyId, externalId: `customer_${pick(0, 160)}` }),
    // Does nothing if it was deleted.
    () => call('identities.deleteIdentity', { identity: `customer_${pick(0, 160)}` }),
    async () => {
      const [deleted] = keys.splice(pick(0, 40), 1);
      await ok('keys.deleteKey', { keyId: deleted!.keyId });
    },
    () => clock.advance(pick(0, 3 * hourMs)),
    () => clock.advance(pick(0, 2) === 0 ? dayMs : -2 * hourMs),
    async () => {
      while (await tollgate.store.sweep.rollUp(tollgate.workspaceId));
    },
  ];
  let [rankings, passes] = [0, 0];
  for (let step = 0; step < thorough(60, 20); step++) {
    await oneOf(changes)();
    for (let times = 0; times < 4; times++) {
      const query: Query = {
        ...oneOf(Object.values(periods))(),
        apiIds: oneOf([true, true, [apiIds[0]!]]),
        of: oneOf(['keys', 'identities']),
        by: oneOf(['count', 'refused', 'spentCredits']),
        limit: pick(1, 8),
      };
      const store = oneOf(servers);
      const { ranked, wasPass } = await rank(store, query);
      expect(ranked, `step ${step}: ${JSON.stringify(query)}`).toEqual(await byAllKeys(store, query));
      rankings++;
      if (wasPass) passes++;
    }
  }
  expect(passes).toBeGreaterThan(0);
  expect(passes).toBeLessThan(rankings / 2);
});

test('keys behind the first thousand are found when those leave the period', { timeout: 60_000 }, async () => {
  const store = servers[0]!;
  clock.advance(100 * dayMs);
  const { apiId, key: last, keyId } = await createKey();
  const others = await createKeys(1000, () => ({ apiId }));
  await Promise.all([...others, ...others].map(({ key }) => ok('keys.verifyKey', { key })));
  clock.advance(hourMs);
  await ok('keys.verifyKey', { key: last });
  const query = { apiIds: [apiId], of: 'keys', by: 'count', limit: 1 } as const;
  const first = { ...query, ...periods.day() };
  expect((await rank(store, first)).ranked.top).toMatchObject([{ count: 2 }]);
  clock.advance(23 * hourMs);
  expect((await rank(store, { ...query, ...periods.day() })).ranked.top).toMatchObject([{ keyId, count: 1 }]);
  // What is known of a later period says nothing of this one.
  expect((await rank(store, first)).ranked.top).toMatchObject([{ count: 2 }]);
});

test('a key that had several identities counts once for each', { timeout: 60_000 }, async () => {
  const store = servers[0]!;
  clock.advance(100 * dayMs);
  const { apiId } = await ok('apis.createApi', { name: 'moving' });
  // More than one step reads.
  const moving = await createKeys(100, (index) => ({ apiId, externalId: `early_${index}` }));
  await Promise.all([...moving, ...moving].map(({ key }) => ok('keys.verifyKey', { key })));
  clock.advance(hourMs);
  const { keyId, key } = moving[0]!;
  await ok('keys.updateKey', { keyId, externalId: 'late' });
  await ok('keys.verifyKey', { key });
  const query = { apiIds: [apiId], of: 'identities', by: 'count', limit: 1 } as const;
  expect((await rank(store, { ...query, ...periods.day() })).ranked.top).toMatchObject([{ count: 2 }]);
  clock.advance(23 * hourMs);
  const { ranked, wasPass } = await rank(store, { ...query, ...periods.day() });
  expect(ranked.top).toMatchObject([{ externalId: 'late', count: 1 }]);
  expect(wasPass).toBe(false);
});

test('rankings that are asked for together need one pass', async () => {
  const store = servers[0]!;
  clock.advance(100 * dayMs);
  const { apiId, key } = await createKey({ externalId: 'customer' });
  await ok('keys.verifyKey', { key });
  const query = { ...periods.day(), apiIds: [apiId], by: 'count', limit: 10 } as const;
  await endAllLeases();
  const before = lists;
  const all = await Promise.all(
    (['keys', 'identities', 'keys'] as const).map((of) => store.analytics.top(tollgate.workspaceId, { ...query, of })),
  );
  expect(lists - before).toBe(1);
  expect(all.map(({ top }) => top[0]!.count)).toEqual([1, 1, 1]);
});

test('a month and the last days of the same number have bounds of their own', async () => {
  const store = servers[0]!;
  clock.advance(100 * dayMs);
  const { apiId, key } = await createKey({ externalId: 'customer' });
  await ok('keys.verifyKey', { key });
  clock.advance(10 * dayMs);
  await ok('keys.verifyKey', { key });
  const query = { apiIds: [apiId], of: 'identities', by: 'count', limit: 10 } as const;
  const last = { ...query, ...periods.month() };
  const month = { ...query, fromHour: 24 * (today() - 5), toHour: 24 * (today() + 25) };
  for (const isFirst of [true, false, false]) {
    expect(await rank(store, last)).toMatchObject({ ranked: { top: [{ count: 2 }] }, wasPass: isFirst });
    expect(await rank(store, month)).toMatchObject({ ranked: { top: [{ count: 1 }] }, wasPass: isFirst });
  }
});
