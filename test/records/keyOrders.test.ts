// keys.listKeys by expiry: the same as sorting all keys, for any pages, filters and APIs, while keys change; and what a
// server does before the data has version 5.

import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { timeMax } from '../../src/domain/time.ts';
import type { NewKey } from '../../src/records/keys.ts';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { createExpired, dayMs, harness, type InputOf, type OutputOf } from '../support/harness.ts';
import { brokenCursors, readPages } from '../support/lists.ts';
import { random, seed } from '../support/random.ts';
import { testRedisUrl } from '../support/redis.ts';
import { thoroughTest } from '../support/testIf.ts';

const dataVersion = { current: 5, migration: undefined };
beforeEach(() => {
  dataVersion.current = 5;
});
const tollgate = harness(undefined, { dataVersion });
const { call, clock, openWorkspace } = tollgate;
const actor = { rootKeyId: 'root', operation: 'test', requestId: 'req' };
let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 10_000 });
});
afterAll(async () => void (await redis.quit()));

type Listed = OutputOf<'keys.listKeys'>[number];
type Query = InputOf<'keys.listKeys'>;
type KeyInput = Omit<InputOf<'keys.createKey'>, 'apiId'> & { apiId?: string };

const byId = (one: { keyId: string }, other: { keyId: string }) => (one.keyId < other.keyId ? -1 : 1);
const byExpiry = (one: Listed, other: Listed) => one.expires! - other.expires! || byId(one, other);
const idsOf = (keys: readonly { keyId: string }[]) => keys.map(({ keyId }) => keyId);

async function withApis(count: number) {
  const { workspaceId, rootKey, of } = await openWorkspace();
  const apis: string[] = [];
  for (let index = 0; index < count; index++) {
    apis.push((await of('apis.createApi', { name: `api ${index}` })).apiId);
  }
  const list = (query: Query) => call('keys.listKeys', query, rootKey);
  /** All keys of a list, in pages of `limit`. `between` runs after each page. */
  const all = async (query: Query, between?: (pages: number) => Promise<unknown>) =>
    (await readPages((at) => list({ limit: 100, ...query, ...at }), between)).flat();
  async function create(keys: readonly KeyInput[]): Promise<string[]> {
    const ids: string[] = [];
    for (const key of keys) {
      ids.push((await createExpired(of, { apiId: apis[0]!, ...key }, clock.now)).keyId);
      clock.advance(1);
    }
    return ids;
  }
  /** Keys as an import creates them. */
  async function load(apiId: string, keys: readonly Partial<NewKey>[]): Promise<string[]> {
    const ids: string[] = [];
    for (let at = 0; at < keys.length; at += 250) {
      const some = keys.slice(at, at + 250).map((key) => ({ digest: randomBytes(32), start: '', ...key }));
      const request = { apiId, keys: some, mayCreatePermissions: true };
      const created = await tollgate.store.keys.create(workspaceId, request, actor);
      if (!('created' in created)) throw new Error(created.refused);
      ids.push(...(created.created as string[]));
    }
    return ids;
  }
  const index = (apiId = apis[0]!) => `tg:{${workspaceId}}:ke:${apiId.slice(-8)}`;
  return { workspaceId, rootKey, of, apis, list, all, create, load, index };
}

describe('order and pages', () => {
  test.each(['asc', 'desc'] as const)(
    '%s: keys of several APIs, for any page size',
    { timeout: 60_000 },
    async (order) => {
      const { apis, create, all, list } = await withApis(4);
      const now = clock.now;
      const expiries = [undefined, 0, 0, 1, now - dayMs, now + 500, now + 500, now + 7, now + 500, timeMax, timeMax];
      await create(Array.from({ length: 44 }, (_, at) => ({ apiId: apis[at % 3]!, expires: expiries[(at * 7) % 11] })));
      const stored = (await all({})).filter(({ expires }) => expires !== undefined).sort(byExpiry);
      expect(stored).toHaveLength(40);
      for (const apiId of [undefined, apis[0]!, apis[3]!]) {
        for (const [expiresBefore, expiresAfter] of [
          [0],
          [1],
          [2],
          [now + 500],
          [now + 501],
          [timeMax],
          [timeMax, 0],
          [now + 501, 1],
          [timeMax, now + 500],
          [now + 500, now + 500],
          [1, now],
        ] as const) {
          const expected = stored.filter(
            ({ expires = 0, ...key }) =>
              expires < expiresBefore! && expires >= (expiresAfter ?? 0) && (!apiId || key.apiId === apiId),
          );
          if (order === 'desc') expected.reverse();
          const query = { order, expiresBefore: expiresBefore!, expiresAfter, ...(apiId && { apiId }) };
          for (const limit of [1, 3, 100]) expect(await all({ ...query, limit })).toEqual(expected);
          const { hasMore, looked, total } = (await list({ ...query, limit: 2 })).pagination as Record<string, unknown>;
          const count = expected.length;
          // Of several APIs some keys are read ahead, but not examined.
          expect([hasMore, looked, total]).toEqual([count > 2, Math.min(2, count), count]);
        }
      }
    },
  );

  test('imported keys of two APIs with the same id and expiry are in order of the APIs', async () => {
    const { apis, load, all } = await withApis(3);
    const id16 = '1111111XYZabcdef';
    const kept = (apiId: string, number: number) => `key_${id16.slice(0, 15)}${number}${apiId.slice(-8)}`;
    for (const apiId of apis) {
      await load(
        apiId,
        [1, 2, 3].map((number) => ({ keptId: kept(apiId, number), expires: 77 })),
      );
    }
    const expected = [1, 2, 3].flatMap((number) => apis.map((apiId) => kept(apiId, number)).sort());
    for (const limit of [1, 2, 4, 9, 100]) {
      expect(idsOf(await all({ expiresBefore: 78, limit }))).toEqual(expected);
      expect(idsOf(await all({ expiresBefore: 78, limit, order: 'desc' }))).toEqual(expected.toReversed());
    }
  });

  test.each(['asc', 'desc'] as const)(
    '%s: of very many keys that expire at the same time, the last of a page may be deleted or moved',
    { timeout: 30_000 },
    async (order) => {
      const { of, apis, load, all } = await withApis(1);
      const expires = clock.now + dayMs;
      const ids = await load(
        apis[0]!,
        Array.from({ length: 1000 }, () => ({ expires })),
      );
      const expected = order === 'asc' ? ids : ids.toReversed();
      const query = { expiresBefore: timeMax, order, limit: 90 };
      const listed = await all(query, async (page) => {
        const last = expected[Math.min(page * 90, expected.length) - 1]!;
        if (page % 3 === 0) await of('keys.deleteKey', { keyId: last });
        else await of('keys.updateKey', { keyId: last, expires: page % 3 === 1 ? null : expires - 1 });
      });
      // A key that moved to the front is listed again at the end of a list that ends there.
      const again = order === 'asc' ? [] : idsOf(listed).slice(1000);
      expect(idsOf(listed)).toEqual([...expected, ...again]);
      expect(again.length).toBe(order === 'asc' ? 0 : 4);
    },
  );

  test('a key whose expiry stays is listed once while others come, go and move', async () => {
    const { of, apis, all, create } = await withApis(2);
    const start = clock.now + dayMs;
    const ids = await create(
      Array.from({ length: 30 }, (_, number) => ({ apiId: apis[number % 2]!, expires: start + 10 * number })),
    );
    const moved = new Set<string>();
    const listed = await all({ expiresBefore: timeMax, limit: 4 }, async (page) => {
      for (const [number, expires] of [
        [page * 4 - 2, start + 9000],
        [page * 4 + 1, 5],
      ] as const) {
        if (!ids[number]) continue;
        await of('keys.updateKey', { keyId: ids[number]!, expires });
        moved.add(ids[number]!);
      }
      if (page < 9) await create([{ expires: start + page * 39 }, { apiId: apis[1]!, expires: start + page * 41 }]);
    });
    const stayed = ids.filter((id) => !moved.has(id));
    expect(stayed.length).toBeGreaterThan(12);
    expect(idsOf(listed).filter((id) => stayed.includes(id))).toEqual(stayed);
  });
});

describe('filters', () => {
  test(`any combination finds what a filter of all keys finds (seed ${seed})`, { timeout: 60_000 }, async () => {
    const pick = random(seed);
    const one = <Item>(...items: Item[]) => items[pick(0, items.length - 1)]!;
    const { apis, create, all, of } = await withApis(3);
    const now = clock.now;
    await create(
      Array.from({ length: 90 }, () => ({
        apiId: one(...apis),
        prefix: one('pay', 'map'),
        name: one(undefined, 'alpha', 'bet0', 'alphabet0'),
        externalId: one(undefined, 'ada', 'bob'),
        enabled: one(true, false),
        expires: one(undefined, now, now + pick(1, 9), now + pick(1, 9), now + 5000),
        credits: one(undefined, { remaining: 3 }, { remaining: 30 }),
        permissions: one(undefined, ['a.b'], ['c.d', 'a.b']),
      })).map((key) => JSON.parse(JSON.stringify(key)) as KeyInput),
    );
    for (const { keyId } of (await all({})).filter((_, at) => at % 9 === 0)) await of('keys.deleteKey', { keyId });
    for (const { keyId } of (await all({ deleted: true })).slice(0, 5)) await of('keys.restoreKey', { keyId });
    const stored = (await all({})).filter(({ expires }) => expires !== undefined).sort(byExpiry);
    for (let round = 0; round < 120; round++) {
      const query = JSON.parse(
        JSON.stringify({
          apiId: one(undefined, undefined, ...apis),
          search: one(undefined, undefined, 'ALPHA', 'bet0'),
          start: one(undefined, undefined, 'pay', 'pay_', 'm', 'nothing'),
          externalId: one(undefined, undefined, 'ada', 'nobody'),
          enabled: one(undefined, true, false),
          expiresBefore: one(now + 1, now + 5, now + 6000),
          expiresAfter: one(undefined, undefined, now, now + 3),
          creditsBelow: one(undefined, undefined, 10),
          permission: one(undefined, undefined, 'c.d', 'unknown'),
          order: one('asc', 'desc'),
          limit: one(1, 7, 100),
        }),
      ) as Query;
      const { apiId, search, start, externalId, enabled, creditsBelow, permission, order } = query;
      const { expiresBefore, expiresAfter = 0 } = query;
      const expected = stored.filter(
        (key) =>
          key.expires! < expiresBefore! &&
          key.expires! >= expiresAfter &&
          (!apiId || key.apiId === apiId) &&
          (!search || key.name?.includes(search.toLowerCase())) &&
          (!start || key.start.startsWith(start)) &&
          (!externalId || key.externalId === externalId) &&
          (enabled === undefined || key.enabled === enabled) &&
          (!creditsBelow || (key.credits?.remaining ?? Number.POSITIVE_INFINITY) < creditsBelow) &&
          (!permission || (key.permissions as readonly string[] | undefined)?.includes(permission)),
      );
      if (order === 'desc') expected.reverse();
      expect(idsOf(await all(query)), JSON.stringify(query)).toEqual(idsOf(expected));
    }
  });

  thoroughTest(
    'more keys of an identity, and with the same start, than a request examines',
    { timeout: 120_000 },
    async () => {
      const { of, apis, load, all, list } = await withApis(2);
      const now = clock.now;
      const keys = Array.from({ length: 20_400 }, (_, at) => ({
        start: at % 10_200 === 5 ? 'other' : 'same_',
        externalId: at % 10_200 < 3 ? 'bob' : 'ada',
        enabled: at % 10_200 !== 10_100 && at % 10_200 !== 5,
        expires: now + 1_000_000 - at,
      }));
      const ids = [...(await load(apis[0]!, keys.slice(0, 10_200))), ...(await load(apis[1]!, keys.slice(10_200)))];
      const soonest = ids.toReversed();
      const query = { externalId: 'ada', start: 'same_xyz', expiresBefore: timeMax };
      const first = await list({ ...query, limit: 3 });
      expect(idsOf(first.data)).toEqual(soonest.slice(0, 3));
      expect(first.pagination).toMatchObject({ total: 20_400, hasMore: true });
      const bobs = [2, 1, 0, 10_202, 10_201, 10_200]
        .map((at) => ids[at]!)
        .sort((one, other) => ids.indexOf(other) - ids.indexOf(one));
      expect(idsOf(await all({ externalId: 'bob', expiresBefore: timeMax }))).toEqual(bobs);
      expect(idsOf(await all({ start: 'same_', enabled: false, expiresBefore: timeMax }))).toEqual([
        ids[20_300],
        ids[10_100],
      ]);
      expect(idsOf(await all({ externalId: 'ada', start: 'other', expiresBefore: timeMax }))).toEqual([
        ids[10_205],
        ids[5],
      ]);
      // The first three keys, which expire last, are not those of this identity.
      const last = await list({ ...query, order: 'desc', limit: 2 });
      expect(idsOf(last.data)).toEqual(ids.slice(3, 5));
      // A request examines 20,000 keys, and the next one continues.
      const none = await list({ externalId: 'ada', search: 'no such text', expiresBefore: timeMax });
      expect(none).toMatchObject({ data: [], pagination: { looked: 20_000, total: 20_400, hasMore: true } });
      expect(await all({ externalId: 'ada', search: 'no such text', expiresBefore: timeMax })).toEqual([]);
      // Keys of a deleted identity are not those of a new one with the same externalId.
      await of('identities.deleteIdentity', { identity: 'ada' });
      await of('identities.createIdentity', { externalId: 'ada' });
      expect(await all({ externalId: 'ada', expiresBefore: timeMax })).toEqual([]);
    },
  );

  test('deleted keys are in order of creation, and a search for an id finds it', async () => {
    const { of, create, all } = await withApis(1);
    const now = clock.now;
    const ids = await create([{ expires: now + 9 }, { expires: now + 5 }, {}, { expires: now + 3 }]);
    for (const keyId of ids.slice(0, 3)) await of('keys.deleteKey', { keyId });
    for (const limit of [1, 100]) {
      expect(idsOf(await all({ deleted: true, expiresBefore: timeMax, limit }))).toEqual([ids[0], ids[1]]);
    }
    expect(idsOf(await all({ search: ids[3]!, expiresBefore: timeMax }))).toEqual([ids[3]]);
    expect(await all({ search: ids[3]!, expiresBefore: now + 3 })).toEqual([]);
    await of('keys.restoreKey', { keyId: ids[0]! });
    expect(idsOf(await all({ expiresBefore: timeMax }))).toEqual([ids[3], ids[0]]);
  });
});

test('looked and total are of the keys that a start or an identity finds', async () => {
  const { create, list } = await withApis(1);
  await create([1, 5, 9, undefined].map((expires) => ({ prefix: 'pay', externalId: 'ada', expires })));
  await create([{ expires: 3 }]);
  for (const filter of [{ start: 'pay_' }, { externalId: 'ada' }, { start: 'pay', externalId: 'ada' }]) {
    const { data, pagination } = await list({ ...filter, expiresBefore: 9, limit: 1 });
    expect(data.map(({ expires }) => expires)).toEqual([1]);
    expect(pagination).toMatchObject({ hasMore: true, looked: 1, total: 2 });
  }
});

describe('an index that is out of date', () => {
  test('keys that are gone or have another expiry are left out', async () => {
    const { of, create, load, apis, list, all, index } = await withApis(1);
    const [first, second] = await create([{ expires: 500 }, { expires: 900 }, {}]);
    const [gone] = await load(apis[0]!, [{ expires: 700, externalId: 'ada' }]);
    const members = await redis.zrangeBuffer(index(), '0', '-1');
    await of('keys.deleteKey', { keyId: gone! });
    // As if the key that is gone, the second one with an expiry that it had, and a member that is no key were left.
    await redis.zadd(index(), 700, members[1]!, 100, members[2]!, 200, Buffer.alloc(12, 9));
    const query = { expiresBefore: 1000 };
    expect(idsOf(await all(query))).toEqual([first]);
    expect(idsOf(await all({ ...query, limit: 1 }))).toEqual([first]);
    expect((await list(query)).pagination).toEqual({ hasMore: false, looked: 4, total: 4 });
    await of('keys.updateKey', { keyId: second!, expires: 800 });
    expect(idsOf(await all(query))).toEqual([first, second]);
  });
});

describe('data of version 4', () => {
  test('lists are in order of creation without the index, and continue so after the migration', async () => {
    const { apis, create, all, list, index } = await withApis(2);
    const ids = await create([
      { expires: 900 },
      {},
      { expires: 500 },
      { expires: 700 },
      { apiId: apis[1]!, expires: 1 },
    ]);
    const created = [ids[0], ids[2], ids[3], ids[4]];
    const soonest = [ids[4], ids[2], ids[3], ids[0]];
    const stored = await redis.zrangeBuffer(index(), '0', '-1', 'WITHSCORES');
    await redis.del(index());
    dataVersion.current = 4;
    const query = { expiresBefore: 1000 };
    for (const limit of [1, 2, 100]) expect(idsOf(await all({ ...query, limit }))).toEqual(created);
    expect((await list(query)).pagination).toEqual({ hasMore: false, looked: 5, total: 5 });
    const before = await list({ ...query, limit: 1 });

    for (let at = 0; at < stored.length; at += 2) await redis.zadd(index(), String(stored[at + 1]), stored[at]!);
    dataVersion.current = 5;
    expect(idsOf(await all(query))).toEqual(soonest);
    const { cursor } = before.pagination;
    expect(idsOf([...before.data, ...(await list({ ...query, cursor: cursor! })).data])).toEqual(created);

    // A server that has not learned of the migration yet gets a cursor of one that has.
    const migrated = await list({ ...query, limit: 1 });
    dataVersion.current = 4;
    const rest = await list({ ...query, cursor: migrated.pagination.cursor! });
    expect(idsOf([...migrated.data, ...rest.data])).toEqual(soonest);
  });
});

describe('refusals', () => {
  test('400 for malformed cursors, and for those of another order or filter', async () => {
    const { create, list } = await withApis(1);
    const ids = await create([{ expires: 1 }, { expires: 2 }, { expires: 3 }]);
    const query = { expiresBefore: 9 };
    const cursor = (await list({ ...query, limit: 1 })).pagination.cursor!;
    const name = Buffer.from(cursor, 'base64url').toString().split(' ')[0]!;
    const withId = (id: string, list = name) => Buffer.from(`${list} ${id}`).toString('base64url');
    expect(withId(`1_${ids[0]}`)).toBe(cursor);
    const broken = ['_', '-1_', '01_', '1.5_', 'x_', '1__', '10000000000000_', '1_1_'].map(
      (head) => `${head}${ids[0]}`,
    );
    for (const wrong of [...brokenCursors(cursor, `1_${ids[0]}x`), ...broken.map((id) => withId(id)), withId('1_')]) {
      expect((await list({ ...query, cursor: wrong })).status, wrong).toBe(400);
    }
    for (const other of [{ expiresBefore: 8 }, { ...query, order: 'desc' as const }, { ...query, deleted: true }, {}]) {
      expect((await list({ ...other, cursor })).status, JSON.stringify(other)).toBe(400);
    }
    // The name of a list can be computed, but a list by creation has no place with an expiry.
    const listed = Buffer.from((await list({ limit: 1 })).pagination.cursor!, 'base64url')
      .toString()
      .split(' ')[0]!;
    expect((await list({ cursor: withId(ids[0]!, listed) })).status).toBe(200);
    expect((await list({ cursor: withId(`1_${ids[0]}`, listed) })).status).toBe(400);
    // The place need not be that of a key.
    expect(idsOf((await list({ ...query, cursor: withId(`9999999999999_${ids[0]}`) })).data)).toEqual([]);
    expect(idsOf((await list({ ...query, cursor: withId(`2_key_${'1'.repeat(24)}`) })).data)).toEqual(ids.slice(1));
  });

  test('a root key of one API lists its keys only', async () => {
    const { apis, create, workspaceId } = await withApis(2);
    const ids = await create([{ expires: 5 }, { apiId: apis[1]!, expires: 4 }, { expires: 3 }]);
    const grants = [`api.${apis[0]}.read_api`, `api.${apis[0]}.read_key`];
    const rootKey = await tollgate.createRootKey(grants, workspaceId);
    const read = (apiId?: string) => call('keys.listKeys', { expiresBefore: 9, ...(apiId && { apiId }) }, rootKey);
    expect((await read()).status).toBe(403);
    expect((await read(apis[1])).status).toBe(403);
    expect(idsOf((await read(apis[0])).data)).toEqual([ids[2], ids[0]]);
  });
});
