import { beforeEach, describe, expect, test, vi } from 'vitest';
import { refusalRowsKey, refusalsOfDayKey, workspaceKey } from '../../../src/redis/names.ts';
import { tooMuch } from '../../../src/usage/query.ts';
import { openRefusals } from '../../../src/usage/refusals.ts';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import { outcomeExamples } from '../../support/keyExamples.ts';
import { observing } from '../../support/observer.ts';
import { ownRedis } from '../../support/ownRedis.ts';

// A Redis of its own: the library counts the refusals of one minute, which other tests with other clocks would end.
const server = ownRedis();

const app = harness(() => server.url, { leaseMs: 0 });
const leasing = harness(() => server.url, { leaseMs: 2000, leaseAfter: 2, leaseNowMs: () => performance.now() });
/** With leases that age as the clock of the test does. */
let decidedByLeases = 0;
const observe = observing({ decided: () => decidedByLeases++ });
const aging = harness(() => server.url, { leaseMs: 2000, leaseAfter: 2, observe });
/** 64 KB of rows an hour. */
const small = harness(() => server.url, { leaseMs: 0, refusalBytesMax: 65_536 });
const { clock, ok, call, createKey, createRootKey, createWorkspace } = app;
const startMs = clock.now;
const minuteMs = 60_000;
let days = 0;
// Each test has a day of its own, so that no list is shared.
beforeEach(() => {
  clock.now = startMs + ++days * 3 * dayMs;
});

type Query = InputOf<'analytics.listRefusals'>;
/** Creates keys a few at a time: of many management requests of a workspace at once, some are refused. */
async function createKeys(where: Pick<typeof app, 'createKey'>, count: number, input: Parameters<typeof createKey>[0]) {
  const keys: Awaited<ReturnType<typeof createKey>>[] = [];
  while (keys.length < count) {
    const some = Array.from({ length: Math.min(8, count - keys.length) }, () => where.createKey(input));
    keys.push(...(await Promise.all(some)));
  }
  return keys;
}
const list = (input: Query = {}) => ok('analytics.listRefusals', input);
/** Of each hour with refusals, latest first: all that match, and those with a row. */
const countedOf = async (input: Query = {}, { call } = app) =>
  (await call('analytics.listRefusals', input)).pagination.counted!.map(({ refused, listed }) => [refused, listed]);
const verify = (key: string, extras: object = {}) => ok('keys.verifyKey', { key, ...extras });
const requests = { name: 'requests', limit: 1, duration: hourMs, autoApply: true };

describe('analytics.listRefusals: rows', () => {
  test.each(Object.entries(outcomeExamples).filter(([outcome]) => outcome !== 'VALID'))(
    'of %s',
    async (outcome, example) => {
      const { key, keyId, apiId } = await createKey({ externalId: 'ada', ...example.key });
      await verify(key, { ...example.request, tags: ['eu', 'a "tag"\n\0'] });
      expect(await list({ keyId })).toEqual([
        {
          time: clock.now,
          outcome,
          keyId,
          apiId,
          externalId: 'ada',
          ...(outcome === 'INSUFFICIENT_PERMISSIONS' && { permissions: example.request!.permissions }),
          ...(outcome === 'RATE_LIMITED' && {
            ratelimit: 'limited',
            limit: 1,
            duration: hourMs,
            cost: 2,
            remaining: 1,
          }),
          ...(outcome === 'USAGE_EXCEEDED' && { cost: 1, remaining: 0 }),
          tags: ['eu', 'a "tag"\n\0'],
          source: 'redis',
          count: 1,
        },
      ]);
    },
  );

  test('name the first limit that is exceeded: of the key, the identity or the request', async () => {
    await ok('identities.createIdentity', { externalId: 'shared', ratelimits: [{ ...requests, name: 'of identity' }] });
    const { key, keyId } = await createKey({
      externalId: 'shared',
      ratelimits: [
        { ...requests, name: 'roomy', limit: 99 },
        { ...requests, name: 'of key', limit: 2 },
      ],
    });
    const own = [{ name: 'of request', limit: 1, duration: hourMs, cost: 2 }];
    await verify(key, { ratelimits: own });
    await verify(key);
    await verify(key);
    await verify(key, { ratelimits: [{ name: 'of key', cost: 3 }] });
    const rows = await list({ keyId });
    const named = (ratelimit: string, limit: number) => ({ ratelimit, limit, duration: hourMs });
    expect(rows).toMatchObject([named('of key', 2), named('of identity', 1), named('of request', 1)]);
  });

  test('are newest first, filtered, and those of 24 hours, also of the day before', async () => {
    clock.now = Math.floor(clock.now / dayMs) * dayMs - hourMs;
    const one = await createKey({ enabled: false, externalId: 'one' });
    const two = await createKey({ expires: 0, apiId: one.apiId });
    const other = await createKey({ enabled: false });
    const first = clock.now;
    await verify(one.key);
    clock.advance(2 * hourMs);
    await verify(two.key);
    await verify(other.key);
    const keysOf = async (input: InputOf<'analytics.listRefusals'>) => (await list(input)).map(({ keyId }) => keyId);
    expect(await keysOf({})).toEqual([other.keyId, two.keyId, one.keyId]);
    expect(await keysOf({ apiId: one.apiId })).toEqual([two.keyId, one.keyId]);
    expect(await keysOf({ externalId: 'one' })).toEqual([one.keyId]);
    expect(await keysOf({ outcome: 'EXPIRED' })).toEqual([two.keyId]);
    expect(await keysOf({ limit: 2 })).toEqual([other.keyId, two.keyId]);
    expect(await keysOf({ start: first + 1 })).toEqual([other.keyId, two.keyId]);
    expect(await keysOf({ end: first + 1 })).toEqual([one.keyId]);
    expect(await keysOf({ keyId: 'key_none' })).toEqual([]);
    clock.now = first + dayMs - 1;
    expect(await keysOf({ keyId: one.keyId })).toEqual([one.keyId]);
    clock.now = first + dayMs;
    expect(await keysOf({ keyId: one.keyId })).toEqual([]);
    await ok('apis.deleteApi', { apiId: other.apiId });
    expect(await keysOf({})).toEqual([two.keyId]);
  });

  test('VALID, NOT_FOUND and errors have none, and an explanation adds none', async () => {
    const { key, keyId } = await createKey({ enabled: false });
    const open = await createKey();
    await verify(open.key);
    await verify('unknown');
    await call('keys.verifyKey', { key: open.key, ratelimits: [{ name: 'nonexistent' }] });
    await ok('keys.explainKey', { key });
    expect(await list({ keyId })).toEqual([]);
    expect(await list({ keyId: open.keyId })).toEqual([]);
  });

  test('many tags are cut to 256 bytes as JSON', async () => {
    const { key, keyId } = await createKey({ enabled: false });
    await verify(key, { tags: ['a'.repeat(150), 'b'.repeat(99), 'c'] });
    await verify(key, { tags: ['a'.repeat(150), 'b'.repeat(100), 'c'] });
    await verify(key, { tags: ['\0'.repeat(50)] });
    const rows = await list({ keyId });
    expect(rows.map(({ tags }) => tags?.length)).toEqual([undefined, 1, 2]);
  });

  test('a caller gets the APIs of its grants, and no other workspace', async () => {
    const mine = await createKey({ enabled: false });
    const theirs = await createKey({ enabled: false });
    for (const { key } of [mine, theirs]) await verify(key);
    const rootKey = await createRootKey([`api.${mine.apiId}.read_analytics`]);
    const as = async (input: object, who: string) =>
      (await call('analytics.listRefusals', input, who)).data.map(({ keyId }) => keyId);
    expect(await as({}, rootKey)).toEqual([mine.keyId]);
    expect(await as({ apiId: theirs.apiId }, rootKey)).toEqual([]);
    expect(await as({}, (await createWorkspace()).rootKey)).toEqual([]);
  });
});

describe('analytics.listRefusals: a flood', () => {
  test('of one key has few rows, which have the number of refusals', async () => {
    const { key, keyId } = await createKey({ enabled: false });
    for (let round = 0; round < 10; round++) await Promise.all(Array.from({ length: 100 }, () => verify(key)));
    const counts = (await list({ keyId })).map(({ count }) => count);
    expect(counts.reverse()).toEqual([1, 1, 1, 1, 4, 8, 16, 32, 64, 128, 256]);
    // The 1024th would be the next. Another minute begins anew.
    clock.advance(minuteMs);
    await verify(key);
    expect((await list({ keyId, limit: 1 }))[0]).toMatchObject({ count: 1, time: clock.now });
  });

  test.each([
    ['decided by Redis', app],
    ['with leases', leasing],
  ])('on many keys hides no customer who is refused once meanwhile, %s', async (_title, where) => {
    const { ok, createKey } = where;
    // Leases are settled by the clock of the process, so that some of their decisions are a second before this.
    where.clock.now += hourMs / 2;
    const { apiId } = await ok('apis.createApi', { name: 'storm' });
    const storm = await createKeys(where, 600, { apiId });
    const customers = await Promise.all(
      Array.from({ length: 20 }, (_, number) => createKey({ externalId: `customer_${number}` })),
    );
    const refuse = ({ key }: { key: string }) =>
      ok('keys.verifyKey', { key, permissions: 'documents.read' }) as Promise<unknown>;
    for (const customer of customers) {
      await Promise.all(storm.slice(0, 300).map(refuse));
      await refuse(customer);
      await Promise.all(storm.slice(300).map(refuse));
    }
    const found = await Promise.all(customers.map(({ keyId }) => ok('analytics.listRefusals', { keyId })));
    expect(found.filter((rows) => rows.length === 1)).toHaveLength(20);
    await where.store.decide.leasing.leases.recall();
    const { pagination } = await where.call('analytics.listRefusals', { apiId });
    expect(pagination.counted).toMatchObject([{ refused: 12_000 }]);
    expect(pagination.counted![0]!.listed).toBeGreaterThan(1000);
  });

  test('of one outcome does not hide another one of the same key', async () => {
    const { key, keyId } = await createKey({ ratelimits: [requests] });
    for (let times = 0; times < 50; times++) await verify(key);
    await verify(key, { permissions: 'a.b' });
    expect((await list({ keyId, limit: 1 }))[0]).toMatchObject({ outcome: 'INSUFFICIENT_PERMISSIONS', count: 1 });
    expect(await countedOf({ keyId, outcome: 'RATE_LIMITED' })).toEqual([[49, 32]]);
    expect(await countedOf({ keyId })).toEqual([[50, 33]]);
  });

  test('by leases that are settled in the next hour is counted in the hour in which it was', async () => {
    // No leases are granted in the first seconds of a connection.
    const warm = await aging.createKey();
    const isLeased = async () => {
      await aging.ok('keys.verifyKey', { key: warm.key });
      return decidedByLeases > 0;
    };
    await vi.waitUntil(isLeased, { timeout: 10_000, interval: 10 });
    // A lease that ends with the hour is not shorter than 4 ms.
    aging.clock.now = startMs + 100 * dayMs - 10;
    const { key, keyId } = await aging.createKey({ enabled: false });
    const before = decidedByLeases;
    for (let times = 0; times < 20; times++) await aging.ok('keys.verifyKey', { key });
    expect(decidedByLeases - before).toBeGreaterThan(9);
    const refusedAt = aging.clock.now;
    aging.clock.advance(11);
    await aging.store.decide.leasing.leases.recall();
    const { data, pagination } = await aging.call('analytics.listRefusals', { keyId });
    expect(new Set(data.map(({ time }) => time))).toEqual(new Set([refusedAt]));
    expect(data.find(({ source }) => source === 'lease')?.count).toBeGreaterThan(9);
    const hourBefore = refusedAt - (refusedAt % hourMs);
    expect(pagination.counted).toMatchObject([{ time: hourBefore, refused: 20 }]);
  });

  test('by leases has rows with their counts, without the limit', async () => {
    const { key, keyId } = await leasing.createKey({ ratelimits: [requests], externalId: 'leased' });
    let leased = 0;
    await expect
      .poll(
        async () => {
          await leasing.ok('keys.verifyKey', { key, tags: ['eu'] });
          await leasing.store.decide.leasing.leases.recall();
          const rows = await leasing.ok('analytics.listRefusals', { keyId, limit: 1000 });
          for (let times = 0; times < 5; times++) await leasing.ok('keys.verifyKey', { key, tags: ['eu'] });
          leased = rows.filter(({ source }) => source === 'lease').reduce((sum, { count }) => sum + count, 0);
          return leased;
        },
        { timeout: 10_000, interval: 10 },
      )
      .toBeGreaterThan(3);
    const row = (await leasing.ok('analytics.listRefusals', { keyId })).find(({ source }) => source === 'lease');
    expect(row).toMatchObject({ outcome: 'RATE_LIMITED', externalId: 'leased', tags: ['eu'] });
    expect(row).not.toHaveProperty('ratelimit');
  });
});

describe('analytics.listRefusals: the bytes of an hour', () => {
  const { createKey, call } = small;
  const refuse = async ({ key }: { key: string }) => {
    await small.ok('keys.verifyKey', { key });
  };
  const refused = ({ keyId }: { keyId: string }) => small.ok('analytics.listRefusals', { keyId });
  const keysOf = async (count: number) => {
    const { apiId } = await small.ok('apis.createApi', { name: 'many' });
    return createKeys(small, count, { apiId, enabled: false });
  };
  const counted = (input: Query) => countedOf(input, small);
  let hour = Math.floor(startMs / hourMs);
  // Each test has hours of its own. The share of the first refusals of an hour is 32 KB at its beginning, 437 rows.
  beforeEach(() => {
    hour += 200;
    small.clock.now = hour * hourMs;
  });

  test('further refusals leave room for the first of a minute, and these for the first of an hour', async () => {
    const keys = await keysOf(100);
    const { apiId } = keys[0]!;
    const rowsOf = async () => (await small.ok('analytics.listRefusals', { apiId, limit: 1000 })).length;
    for (let times = 0; times < 4; times++) await Promise.all(keys.map(refuse));
    // The share of further refusals is 8 KB, 110 rows, of which the first ones took 100.
    expect(await rowsOf()).toBe(110);
    expect(await counted({ apiId })).toEqual([[400, 110]]);
    for (let minute = 1; minute <= 3; minute++) {
      small.clock.advance(minuteMs);
      await Promise.all(keys.map(refuse));
    }
    // That of first refusals in a minute is 16 KB, and 5 % more after three minutes.
    expect(await rowsOf()).toBe(230);
    expect(await counted({ apiId })).toEqual([[700, 230]]);
    const [late] = await keysOf(1);
    await refuse(late!);
    expect(await refused(late!)).toMatchObject([{ count: 1, time: small.clock.now }]);
  });

  test('a storm on all keys leaves room for the rest of the hour, and what has no row is counted', async () => {
    const keys = await keysOf(500);
    const { apiId } = keys[0]!;
    await Promise.all(keys.map(refuse));
    expect(await counted({ apiId })).toEqual([[500, 437]]);
    const listed = new Set(
      (await small.ok('analytics.listRefusals', { apiId, limit: 1000 })).map(({ keyId }) => keyId),
    );
    const without = keys.find(({ keyId }) => !listed.has(keyId))!;
    expect(await refused(without)).toEqual([]);
    expect(await counted({ keyId: without.keyId })).toEqual([[1, 0]]);
    const [later, next] = await keysOf(2);
    small.clock.advance(hourMs / 2);
    await refuse(later!);
    expect(await refused(later!)).toHaveLength(1);
    small.clock.advance(hourMs / 2);
    for (const key of [next!, without]) await refuse(key);
    expect(await refused(next!)).toHaveLength(1);
    expect(await counted({ keyId: without.keyId })).toEqual([
      [1, 1],
      [1, 0],
    ]);
  });

  test('no row is longer than 1.4 KB, so a tenant cannot exceed them by much', async () => {
    const { key, keyId } = await createKey({
      externalId: 'a'.repeat(255),
      ratelimits: [{ name: '\u{1f600}'.repeat(128), limit: 1, duration: hourMs, autoApply: true }],
    });
    const tags = ['\0'.repeat(40), 'a'];
    const permissions = Array.from({ length: 80 }, () => 'a:a.a*a').join(' OR ');
    for (let times = 0; times < 2; times++) await small.ok('keys.verifyKey', { key, tags });
    await small.ok('keys.verifyKey', { key, tags, permissions });
    expect(await refused({ keyId })).toHaveLength(2);
    const bytes = await server.redis.strlen(refusalRowsKey(workspaceKey(small.workspaceId), hour));
    expect(bytes).toBeLessThan(2 * 1400);
  });

  test('at the edge of a minute, a key has a row on both sides', async () => {
    const [key] = await keysOf(1);
    small.clock.advance(minuteMs - 1);
    for (let times = 0; times < 9; times++) await refuse(key!);
    small.clock.advance(1);
    await refuse(key!);
    const times = (await refused(key!)).map(({ time, count }) => [time % minuteMs, count]);
    expect(times).toEqual([[0, 1], ...[4, 1, 1, 1, 1].map((count) => [minuteMs - 1, count])]);
  });

  test('when the clock is set back by an hour and forward again, every refusal is counted in its hour', async () => {
    const [key] = await keysOf(1);
    for (const step of [0, -hourMs, 2 * hourMs, -hourMs]) {
      small.clock.advance(step);
      await refuse(key!);
    }
    expect((await refused(key!)).map(({ time }) => time / hourMs - hour)).toEqual([1, 0, 0, -1]);
    expect(await counted({ keyId: key!.keyId })).toEqual([
      [1, 1],
      [2, 2],
      [1, 1],
    ]);
  });

  test('a hostile number of keys in one workspace takes no rows of another one', async () => {
    const { workspaceId: _id, rootKey } = await small.createWorkspace();
    const other = (await call('apis.createApi', { name: 'other' }, rootKey)).data;
    const created = await call('keys.createKey', { apiId: other.apiId, enabled: false }, rootKey);
    await Promise.all((await keysOf(600)).map(refuse));
    await call('keys.verifyKey', { key: created.data.key }, rootKey);
    expect((await call('analytics.listRefusals', {}, rootKey)).data).toHaveLength(1);
  });
});

describe('analytics.listRefusals: pages', () => {
  test('reach every row once, newest first, and count each hour', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'pages' });
    const keys = await Promise.all(Array.from({ length: 7 }, () => createKey({ apiId, enabled: false })));
    for (let hour = 0; hour < 4; hour++) {
      if (hour !== 2) for (const { key } of keys) await verify(key);
      clock.advance(hourMs);
    }
    const all = await list({ apiId });
    expect(all).toHaveLength(21);
    const found: typeof all = [];
    const hours = new Map<number, unknown>();
    let cursor: string | undefined;
    let pages = 0;
    do {
      const { data, pagination } = await call('analytics.listRefusals', { apiId, limit: 5, ...(cursor && { cursor }) });
      expect(data).toHaveLength(pagination.hasMore ? 5 : 1);
      found.push(...data);
      for (const { time, ...counts } of pagination.counted!) hours.set(time, counts);
      cursor = pagination.cursor;
      // Newer refusals are not on a later page.
      await verify(keys[0]!.key);
      pages++;
    } while (cursor);
    expect(found).toEqual(all);
    expect([...hours.values()]).toEqual(Array.from({ length: 3 }, () => ({ refused: 7, listed: 7 })));
    expect(pages).toBe(5);
  });

  test('a cursor is of its query', async () => {
    const { key, apiId } = await createKey({ enabled: false });
    for (let times = 0; times < 2; times++) await verify(key);
    const { cursor } = (await call('analytics.listRefusals', { apiId, limit: 1 })).pagination;
    expect(await call('analytics.listRefusals', { apiId, limit: 2, cursor })).toMatchObject({ status: 200 });
    for (const input of [
      { limit: 1, cursor },
      { apiId, cursor: `${cursor}a` },
    ])
      expect(await call('analytics.listRefusals', input)).toMatchObject({ status: 400 });
  });
});

describe('analytics.listRefusals: what is gone', () => {
  test('refusals of a deleted key, of a deleted customer, and of a deleted API', async () => {
    const { key, keyId, apiId } = await createKey({ enabled: false, externalId: 'leaving' });
    await verify(key);
    await ok('identities.deleteIdentity', { identity: 'leaving' });
    await verify(key);
    expect(await list({ externalId: 'leaving' })).toMatchObject([{ keyId, count: 1 }]);
    expect(await countedOf({ externalId: 'leaving' })).toEqual([[1, 1]]);
    await ok('keys.deleteKey', { keyId, permanent: true });
    expect(await list({ keyId })).toHaveLength(2);
    expect(await countedOf({ keyId })).toEqual([[2, 2]]);
    expect(await countedOf({ externalId: 'leaving' })).toEqual([[1, 1]]);
    await ok('apis.deleteApi', { apiId });
    expect(await list({ keyId })).toEqual([]);
    expect(await countedOf({ keyId })).toEqual([]);
  });

  test('rows of an earlier version, which are in lists by day, are listed and counted with the others', async () => {
    const { key, keyId, apiId } = await createKey({ enabled: false });
    await verify(key);
    const workspace = workspaceKey(app.workspaceId);
    const hour = Math.floor(clock.now / hourMs);
    const row = await server.redis.getrangeBuffer(refusalRowsKey(workspace, hour), 0, -1);
    // Without its length, and without the fields that are new.
    const old = row.subarray(2, row.length - 16);
    await server.redis.del(refusalRowsKey(workspace, hour));
    await server.redis.rpush(refusalsOfDayKey(workspace, Math.floor(clock.now / dayMs)), old);
    clock.advance(1);
    await verify(key);
    const rows = await list({ keyId });
    expect(rows.map(({ time }) => time)).toEqual([clock.now, clock.now - 1]);
    expect(rows[1]).toEqual({ ...rows[0], time: clock.now - 1 });
    expect(await countedOf({ apiId })).toEqual([[2, 2]]);
  });

  test('hours that are no longer kept, which the answer says', async () => {
    const { key, keyId } = await createKey({ enabled: false });
    await verify(key);
    clock.advance(dayMs + hourMs);
    const { data, pagination } = await call('analytics.listRefusals', { keyId });
    expect([data, pagination.counted, pagination.since]).toEqual([[], [], clock.now - dayMs + 1]);
  });

  test('counts that are too many to be read at once: rows are listed, and not taken for all', async () => {
    const { key, keyId } = await createKey({ enabled: false });
    await verify(key);
    const { list } = openRefusals(
      { redis: server.redis, currentMs: async () => clock.now, refusalHours: 24 } as never,
      {
        verifications: () => Promise.reject(tooMuch()),
      },
    );
    const query = { apiIds: true as const, keyId, start: 0, end: clock.now + 1, limit: 5 };
    const { items, counted } = await list(app.workspaceId, query);
    expect(items).toMatchObject([{ keyId }]);
    expect(counted.find(({ listed }) => listed > 0)).toEqual({ time: expect.any(Number), listed: 1 });
  });
});

describe('analytics.listRefusals: plans', () => {
  test('planId is the plan that the key has now, or else the identity of the row', async () => {
    const { rootKey, of } = await app.openWorkspace();
    const { apiId } = await of('apis.createApi', { name: 'planned' });
    const refusedBy = async (input: object) => {
      const { key, keyId } = await of('keys.createKey', { apiId, enabled: false, ...input });
      await of('keys.verifyKey', { key });
      return keyId;
    };
    const plansOf = async (...keyIds: string[]) => {
      const rows = await of('analytics.listRefusals', {});
      return keyIds.map((keyId) => rows.find((row) => row.keyId === keyId)!.planId);
    };
    const plain = await refusedBy({ externalId: 'ada' });
    expect((await of('analytics.listRefusals', {}))[0]).not.toHaveProperty('planId');
    for (const planId of ['free', 'pro', 'key']) await of('plans.createPlan', { planId });
    expect(await plansOf(plain)).toEqual([undefined]);
    await of('identities.updateIdentity', { identity: 'ada', planId: 'free' });
    const [own, both, alone] = [
      await refusedBy({ planId: 'key' }),
      await refusedBy({ planId: 'key', externalId: 'ada' }),
      await refusedBy({}),
    ];
    expect(await plansOf(plain, own, both, alone)).toEqual(['free', 'key', 'key', undefined]);
    await of('identities.updateIdentity', { identity: 'ada', planId: 'pro' });
    await of('keys.updateKey', { keyId: own, planId: null });
    await of('keys.deleteKey', { keyId: both });
    expect(await plansOf(plain, own, both, alone)).toEqual(['pro', undefined, 'pro', undefined]);
    await of('plans.deletePlan', { planId: 'pro', replaceWith: 'free' });
    await of('identities.deleteIdentity', { identity: 'ada' });
    expect(await plansOf(plain, own, both, alone)).toEqual([undefined, undefined, undefined, undefined]);
    // Rows of other workspaces have the plans of their own.
    const other = await app.openWorkspace();
    await other.of('plans.createPlan', { planId: 'free' });
    expect(await other.of('analytics.listRefusals', {})).toEqual([]);
    expect((await call('analytics.listRefusals', { limit: 1000 }, rootKey)).data.length).toBe(4);
  });

  test('each row of a long page has its plan', async () => {
    const { of } = await app.openWorkspace();
    const { apiId } = await of('apis.createApi', { name: 'many' });
    for (const planId of ['plan.0', 'plan.1', 'plan.2']) await of('plans.createPlan', { planId });
    const keys = Array.from({ length: 260 }, (_, at) => ({ at, planId: `plan.${at % 3}` }));
    for (const { at, planId } of keys.slice(0, 130))
      await of('identities.createIdentity', { externalId: `c${at}`, planId });
    const expected = new Map<string, string>();
    for (const { at, planId } of keys) {
      const input = at < 130 ? { externalId: `c${at}` } : { planId };
      const { key, keyId } = await of('keys.createKey', { apiId, enabled: false, ...input });
      // Two rows of each key, so that a page is read in several steps.
      for (let times = 0; times < 2; times++) await of('keys.verifyKey', { key });
      expected.set(keyId, planId);
    }
    const rows = await of('analytics.listRefusals', { limit: 1000 });
    expect(rows.length).toBe(520);
    expect(rows.filter(({ keyId, planId }) => expected.get(keyId) !== planId)).toEqual([]);
  });
});

describe('analytics.listRefusals: the query of a request', () => {
  test.each([
    ['a.b', 'a.b'],
    ['a AND b OR c', 'a AND b OR c'],
    ['a and (b or c) and d', 'a AND (b OR c) AND d'],
    ['(a or b) and (c or (d and e))', '(a OR b) AND (c OR d AND e)'],
    ['1 OR 2 AND 3', '1 OR 2 AND 3'],
  ])('%s', async (permissions, noted) => {
    const { key, keyId } = await createKey();
    await verify(key, { permissions });
    const [row] = await list({ keyId });
    expect(row).toMatchObject({ permissions: noted });
    expect(row).not.toHaveProperty('permissionsCut');
    // It asks for the same.
    const [asked, again] = [permissions, noted].map((text) => ok('keys.explainKey', { keyId, permissions: text }));
    expect((await again)!.rules).toEqual((await asked)!.rules);
  });

  test('of a long one the beginning, and that it is not all', async () => {
    const slugs = Array.from({ length: 90 }, (_, number) => `s.${number}`);
    const { key, keyId } = await createKey();
    await verify(key, { permissions: slugs.join(' OR ') });
    await verify(key, { permissions: slugs.join(' AND ') });
    await verify(key, { permissions: 'a'.repeat(256) });
    const rows = await list({ keyId });
    expect(rows.map(({ permissions }) => permissions)).toEqual(
      ['a'.repeat(256), slugs.join(' AND '), slugs.join(' OR ')].map((text) => text.slice(0, 256)),
    );
    expect(rows.map(({ permissionsCut }) => permissionsCut)).toEqual([undefined, true, true]);
  });
});

test.each<[string, object, string]>([
  ['an outcome that refuses nothing', { outcome: 'VALID' }, 'body.outcome'],
  ['a limit of 1001', { limit: 1001 }, 'body.limit'],
  ['a malformed keyId', { keyId: 'a b' }, 'body.keyId'],
])('400 for %s', async (_title, input, location) => {
  const answer = await call('analytics.listRefusals', input as never);
  expect(answer).toMatchObject({ status: 400, error: { errors: [{ location }] } });
});
