import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { connect } from '../../../src/redis/connection.ts';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import { startFaults } from '../../support/keyspace.ts';
import { brokenCursors, readPages } from '../../support/lists.ts';
import { observing } from '../../support/observer.ts';
import { random, seed } from '../../support/random.ts';
import { testRedisUrl } from '../../support/redis.ts';
import { thoroughTest, volumeTest } from '../../support/testIf.ts';

/** Runs of the script that searches keys. */
let searchRuns = 0;
const observe = observing({
  ran(script) {
    if (script === 'keys/search') searchRuns++;
  },
});
const tollgate = harness(undefined, { observe });
const { call, clock, createWorkspace } = tollgate;
const actor = { rootKeyId: 'root', operation: 'test', requestId: 'req' };
const mayCreate = { mayCreatePermissions: true };

type KeyInput = Omit<InputOf<'keys.createKey'>, 'apiId'>;

/** A workspace with this many APIs. */
async function withApis(count = 1) {
  const { workspaceId, rootKey } = await createWorkspace();
  const apis: string[] = [];
  for (let index = 0; index < count; index++) {
    apis.push((await call('apis.createApi', { name: `api ${index}` }, rootKey)).data.apiId);
  }
  /** Returns the ids of new keys, each a millisecond after the one before. */
  async function create(...keys: (KeyInput & { apiId?: string })[]): Promise<string[]> {
    const ids: string[] = [];
    for (const key of keys) {
      const { status, data, error } = await call('keys.createKey', { apiId: apis[0]!, ...key }, rootKey);
      if (status !== 200) throw new Error(error.detail);
      ids.push(data.keyId);
      clock.advance(1);
    }
    return ids;
  }
  const list = (input: InputOf<'keys.listKeys'> = {}) => call('keys.listKeys', input, rootKey);
  const found = async (input: InputOf<'keys.listKeys'> = {}) => {
    const { status, data, error } = await list(input);
    if (status !== 200) throw new Error(error.detail);
    return data.map(({ keyId }) => keyId);
  };
  return { workspaceId, rootKey, apis, create, list, found };
}

/** This many keys, which take turns in some APIs. */
const takingTurns = (apis: readonly string[], count: number) =>
  Array.from({ length: count }, (_, index) => ({ apiId: apis[(index * index) % apis.length]! }));

describe('keys.listKeys: order and pages', () => {
  test('a workspace without APIs, and one without keys, have an empty list', async () => {
    for (const count of [0, 2]) {
      const { list } = await withApis(count);
      expect(await list()).toMatchObject({ data: [], pagination: { hasMore: false, looked: 0, total: 0 } });
    }
  });

  test('keys are as getKey returns them', async () => {
    const { rootKey, create, list } = await withApis();
    const input = { prefix: 'pk', name: 'all', externalId: 'ada', meta: { b: 1 }, credits: { remaining: 7 } };
    const [keyId] = await create({ ...input, ratelimits: [{ name: 'requests', limit: 3, duration: 1000 }] });
    expect((await list()).data).toEqual([(await call('keys.getKey', { keyId: keyId! }, rootKey)).data]);
  });

  test.each(['asc', 'desc'] as const)(
    '%s: keys of all APIs are in order of creation, for any page size',
    async (order) => {
      const { apis, create, list } = await withApis(4);
      const ids = await create(...takingTurns(apis, 23));
      const expected = order === 'asc' ? ids : ids.toReversed();
      for (const limit of [1, 4, 22, 23, 100]) {
        const pages = await readPages((at) => list({ order, limit, ...at }));
        expect(
          pages.flat().map(({ keyId }) => keyId),
          `limit ${limit}`,
        ).toEqual(expected);
        expect(pages[0]).toHaveLength(Math.min(limit, 23));
      }
      const inApi = ids.filter((id) => id.endsWith(apis[1]!.slice(-8)));
      const pages = await readPages((at) => list({ order, apiId: apis[1]!, limit: 2, ...at }));
      expect(pages.flat().map(({ keyId }) => keyId)).toEqual(order === 'asc' ? inApi : inApi.toReversed());
    },
  );

  test.each(['asc', 'desc'] as const)('%s: a key that stays is listed once while others come and go', async (order) => {
    const { rootKey, apis, create, list } = await withApis(3);
    const ids = await create(...takingTurns(apis, 20));
    const ordered = order === 'asc' ? ids : ids.toReversed();
    const gone: string[] = [];
    const pages = await readPages(
      (at) => list({ order, limit: 4, ...at }),
      async (page) => {
        for (const keyId of [ordered[page * 4 - 1], ordered[page * 4 + 1]]) {
          if (!keyId || page > 3) continue;
          await call('keys.deleteKey', { keyId }, rootKey);
          gone.push(keyId);
        }
        if (page < 3) await create(...takingTurns(apis, 2));
      },
    );
    const listed = pages.flat().map(({ keyId }) => keyId);
    expect(new Set(listed).size).toBe(listed.length);
    const stayed = ordered.filter((id) => !gone.includes(id));
    expect(listed.filter((id) => stayed.includes(id))).toEqual(stayed);
  });

  test('keys of other workspaces and of deleted APIs are not listed', async () => {
    await (await withApis()).create({});
    const { rootKey, apis, create, found } = await withApis(2);
    const [kept] = await create({ apiId: apis[0]! }, { apiId: apis[1]! });
    await call('apis.deleteApi', { apiId: apis[1]! }, rootKey);
    expect(await found()).toEqual([kept]);
  });

  volumeTest(
    'a search examines a bounded number of keys, reports it, and continues there',
    { timeout: 60_000 },
    async () => {
      const { rootKey, apis, list, create } = await withApis(2);
      const migrate = (apiId: string, count: number) => {
        const keys = Array.from({ length: count }, () => ({ hash: hash(), name: 'other' }));
        return call('keys.migrateKeys', { migrationId: 'many', apiId, keys }, rootKey);
      };
      for (let index = 0; index < 21; index++) await migrate(apis[index % 2]!, 1000);
      const [last] = await create({ name: 'wanted' });
      const first = await list({ search: 'WANTED' });
      expect(first).toMatchObject({ data: [], pagination: { hasMore: true, looked: 20_000, total: 21_001 } });
      const { data, pagination } = await list({ search: 'WANTED', cursor: first.pagination.cursor! });
      expect(data).toMatchObject([{ keyId: last }]);
      expect(pagination).toEqual({ hasMore: false, looked: 1001, total: 21_001 });
      // Keys are found at once by their start.
      const [started] = await create({ prefix: 'begins' });
      expect(await list({ start: 'begins_' })).toMatchObject({
        data: [{ keyId: started }],
        pagination: { hasMore: false, looked: 1, total: 21_002 },
      });
    },
  );
  thoroughTest('of very many keys with the same start, a request examines as many', { timeout: 60_000 }, async () => {
    const { workspaceId, apis, list, create } = await withApis();
    for (let batch = 0; batch < 46; batch++) {
      const keys = Array.from({ length: 500 }, () => ({ digest: randomBytes(32), start: 'same_1234', byteLength: 16 }));
      await tollgate.store.keys.create(workspaceId, { apiId: apis[0]!, keys, ...mayCreate }, actor);
    }
    const [wanted] = await create({ prefix: 'same', name: 'wanted' });
    const first = await list({ start: 'same', search: 'wanted' });
    expect(first).toMatchObject({ data: [], pagination: { hasMore: true, total: 23_001 } });
    expect((first.pagination as { looked?: number }).looked).toBeLessThan(21_500);
    const second = await list({ start: 'same', search: 'wanted', cursor: first.pagination.cursor! });
    expect(second).toMatchObject({ data: [{ keyId: wanted }], pagination: { hasMore: false } });
  });
});

let hashes = 0;
const hash = () => Buffer.from(`${++hashes}`.padStart(32)).toString('base64');

describe('keys.listKeys: filters', () => {
  test.each<[string, string[]]>([
    ['LAPTOP', ['name']],
    ['ada', ['name', 'externalId']],
    ['“Ünïcode”', ['unicode']],
    ['"plan":"pro"', ['meta']],
    ['A@B.example', ['meta']],
    ['%d.*[', ['pattern']],
    ['back\\\\slash', ['meta']],
    ['pay_', ['prefix']],
    ['\u0001', []],
    ['nothing has this', []],
  ])('a search for %j finds keys by name, start, externalId and metadata', async (search, expected) => {
    const { create, found } = await withApis();
    const keys: Record<string, KeyInput> = {
      name: { name: "Ada's laptop" },
      externalId: { externalId: 'org_Ada.1' },
      unicode: { name: '“Ünïcode”' },
      meta: { meta: { plan: 'pro', email: 'a@b.example', path: 'back\\slash' } },
      pattern: { name: 'a %d.*[ b' },
      prefix: { prefix: 'pay' },
      none: {},
    };
    const ids = await create(...Object.values(keys));
    const names = Object.keys(keys);
    expect((await found({ search })).map((id) => names[ids.indexOf(id)])).toEqual(expected);
  });

  test('a search finds no key by the externalId of an identity that was deleted', async () => {
    const { rootKey, create, found } = await withApis();
    await create({ externalId: 'leaver' });
    await call('identities.deleteIdentity', { identity: 'leaver' }, rootKey);
    expect(await found({ search: 'leaver' })).toEqual([]);
  });

  test('a search for an id finds that key at once, if the other filters match it', async () => {
    const { apis, create, list, found } = await withApis(2);
    const ids = await create({ apiId: apis[0]! }, { apiId: apis[1]!, enabled: false }, { meta: { of: 'other' } });
    for (const order of ['asc', 'desc'] as const) {
      const { data, pagination } = await list({ search: ids[1]!, order });
      expect(data.map(({ keyId }) => keyId)).toEqual([ids[1]]);
      expect(pagination).toMatchObject({ hasMore: false, looked: 1 });
    }
    expect(await found({ search: ids[1]!, apiId: apis[1]! })).toEqual([ids[1]]);
    expect(await found({ search: ids[1]!, apiId: apis[0]! })).toEqual([]);
    expect(await found({ search: ids[1]!, enabled: true })).toEqual([]);
    expect(await found({ search: ids[1]!, externalId: 'nobody' })).toEqual([]);
    expect(await found({ search: `key_${'1'.repeat(24)}` })).toEqual([]);
    // A part of an id is searched like any text.
    expect(await found({ search: ids[1]!.slice(0, 20) })).toContain(ids[1]);
  });

  test('start finds keys whose string begins with it, also when it is longer than what is stored', async () => {
    const { rootKey, apis, found } = await withApis(3);
    const made = [];
    for (const apiId of [...apis, ...apis]) {
      made.push((await call('keys.createKey', { apiId, prefix: 'pay' }, rootKey)).data);
      clock.advance(1);
    }
    for (const { keyId, key } of made) {
      expect(await found({ start: key.slice(0, 8) })).toEqual([keyId]);
      expect(await found({ start: key.slice(0, 12), order: 'desc' })).toEqual([keyId]);
    }
    expect(await found({ start: 'pay' })).toEqual(made.map(({ keyId }) => keyId));
    expect(await found({ start: 'pay_', enabled: false })).toEqual([]);
    expect(await found({ start: 'map_' })).toEqual([]);
    await call('keys.migrateKeys', { migrationId: 'imported', apiId: apis[0]!, keys: [{ hash: hash() }] }, rootKey);
    expect(await found({ start: 'x' })).toEqual([]);
  });

  test('start finds keys of any API, in order and in pages, however they were created, deleted and restored', async () => {
    const h = await withApis(2);
    const { rootKey, apis, list } = h;
    const starts = new Map<string, string>();
    const add = async (apiId: string, keys: { start: string }[]) => {
      const digests = keys.map((key) => ({ ...key, digest: randomBytes(32) }));
      const created = await tollgate.store.keys.create(h.workspaceId, { apiId, keys: digests, ...mayCreate }, actor);
      if (!('created' in created)) throw new Error(created.refused);
      for (const [index, id] of created.created.entries()) starts.set(id!, keys[index]!.start);
      clock.advance(1);
      return created.created as string[];
    };
    const numbered = (count: number) => Array.from({ length: count }, (_, index) => ({ start: `pay_${1000 + index}` }));
    // More than a leaf, and some whose stored start is shorter than what is asked for.
    await add(apis[0]!, numbered(300));
    await add(apis[1]!, [...numbered(60), { start: 'pay_1' }, { start: 'p' }, { start: '' }, { start: 'map_1001' }]);
    const made = [...starts.keys()];
    const rerolled = (await call('keys.rerollKey', { keyId: made[1]!, expiration: 1 }, rootKey)).data;
    starts.set(rerolled.keyId, rerolled.key.slice(0, 4));

    const expectFound = async (start: string, deleted: ReadonlySet<string>) => {
      for (const isDeleted of [false, true]) {
        const expected = [...starts]
          .filter(([id, stored]) => stored !== '' && deleted.has(id) === isDeleted && agree(stored, start))
          .map(([id]) => id)
          .sort();
        for (const order of ['asc', 'desc'] as const) {
          const pages = await readPages((at) => list({ start, order, limit: 100, deleted: isDeleted, ...at }));
          const ids = pages.flat().map(({ keyId }) => keyId);
          expect(ids, `${start} ${order}`).toEqual(order === 'asc' ? expected : expected.toReversed());
        }
      }
    };
    const agree = (one: string, other: string) => one.startsWith(other) || other.startsWith(one);
    const queries = ['pay_1001', 'pay_1001AB', 'pay_12', 'p', 'map', rerolled.key.slice(0, 4)];
    for (const start of queries) await expectFound(start, new Set());

    const gone = made.filter((_, index) => index % 5 === 0);
    for (const keyId of gone) await call('keys.deleteKey', { keyId }, rootKey);
    for (const start of queries) await expectFound(start, new Set(gone));
    const back = gone.filter((_, index) => index % 2 === 0);
    for (const keyId of back) await call('keys.restoreKey', { keyId }, rootKey);
    const rest = new Set(gone.filter((id) => !back.includes(id)));
    for (const start of queries) await expectFound(start, rest);
    for (const keyId of made.filter((_, index) => index % 5 === 1)) {
      await call('keys.deleteKey', { keyId, permanent: true }, rootKey);
      starts.delete(keyId);
    }
    for (const start of queries) await expectFound(start, rest);
    const redis = await connect(testRedisUrl(), { commandTimeoutMs: 10_000 });
    expect(await startFaults(redis, h.workspaceId).finally(() => redis.quit())).toEqual([]);
  });

  thoroughTest('start with other filters, and when very many keys match', { timeout: 60_000 }, async () => {
    const h = await withApis(1);
    for (let from = 0; from < 9000; from += 1000) {
      const keys = Array.from({ length: 1000 }, (_, index) => ({
        start: 'same_',
        digest: randomBytes(32),
        enabled: (from + index) % 4500 !== 7,
        externalId: (from + index) % 4500 < 8 ? 'ada' : undefined,
      }));
      await tollgate.store.keys.create(h.workspaceId, { apiId: h.apis[0]!, keys, ...mayCreate }, actor);
    }
    const all = await readPages((at) => h.list({ start: 'same_abcd', limit: 100, ...at }));
    expect(new Set(all.flat().map(({ keyId }) => keyId)).size).toBe(9000);
    expect(await h.found({ start: 'same_', enabled: false })).toHaveLength(2);
    expect(await h.found({ start: 'same_abcd', externalId: 'ada', order: 'desc' })).toHaveLength(16);
    expect(await h.found({ start: 'same_abcd', externalId: 'ada', enabled: false })).toHaveLength(2);
    const [other] = await h.create({ prefix: 'other', enabled: false });
    expect(await h.found({ start: 'other_', enabled: false })).toEqual([other]);
    expect(await h.found({ start: 'other_', enabled: true })).toEqual([]);
    expect(await h.found({ start: 'other_', permission: 'no.such' })).toEqual([]);
  });

  test('enabled, expiresBefore and creditsBelow', async () => {
    const { create, found } = await withApis();
    const now = clock.now;
    const [plain, off, soon, late, poor, rich] = await create(
      {},
      { enabled: false },
      { expires: now + 1000 },
      { expires: now + 2000 },
      { credits: { remaining: 4 } },
      { credits: { remaining: 5, refill: { interval: 'daily', amount: 2 } } },
    );
    expect(await found({ enabled: false })).toEqual([off]);
    expect(await found({ enabled: true })).toEqual([plain, soon, late, poor, rich]);
    expect(await found({ expiresBefore: now + 2000 })).toEqual([soon]);
    expect(await found({ expiresBefore: now + 2001 })).toEqual([soon, late]);
    expect(await found({ expiresBefore: now + 2001, expiresAfter: now + 1000 })).toEqual([soon, late]);
    expect(await found({ expiresBefore: now + 2001, expiresAfter: now + 1001 })).toEqual([late]);
    expect(await found({ creditsBelow: 5 })).toEqual([poor]);
    expect(await found({ creditsBelow: 0 })).toEqual([]);
    clock.advance(dayMs);
    // A refill that is due and not yet stored.
    expect(await found({ creditsBelow: 3 })).toEqual([rich]);
    expect(await found({ creditsBelow: 5, enabled: true, expiresBefore: 1 })).toEqual([]);
  });

  test('unusedSince: created before, and no VALID verification since', async () => {
    const { rootKey, apis, found } = await withApis();
    const [never, used, refused] = await Promise.all(
      [{}, {}, { enabled: false }].map(
        async (key) => (await call('keys.createKey', { apiId: apis[0]!, ...key }, rootKey)).data,
      ),
    );
    clock.advance(1000);
    for (const { key } of [used!, refused!]) await call('keys.verifyKey', { key }, rootKey);
    const since = clock.now;
    clock.advance(1000);
    const late = (await call('keys.createKey', { apiId: apis[0]! }, rootKey)).data;
    expect((await found({ unusedSince: since })).sort()).toEqual([never!.keyId, refused!.keyId].sort());
    expect((await found({ unusedSince: since + 1 })).sort()).toEqual(
      [never, used, refused].map((key) => key!.keyId).sort(),
    );
    expect(await found({ unusedSince: clock.now })).not.toContain(late.keyId);
    expect(await found({ unusedSince: clock.now + 1 })).toContain(late.keyId);
    // After the clock stepped back, the id of a key has a later time than its creation.
    clock.advance(-1000);
    const early = (await call('keys.createKey', { apiId: apis[0]! }, rootKey)).data;
    expect(await found({ unusedSince: since + 1 })).toContain(early.keyId);
    clock.advance(1000);
  });

  test('rerolledInUse: rerolled, enabled, not expired, and used since', async () => {
    const { rootKey, apis, found } = await withApis();
    const make = async () => (await call('keys.createKey', { apiId: apis[0]! }, rootKey)).data;
    const [never, before, since, expired] = [await make(), await make(), await make(), await make()];
    const use = ({ key }: { key: string }) => call('keys.verifyKey', { key }, rootKey);
    await Promise.all([before, since, expired].map(use));
    const rotated = [before, since, expired, never];
    const successors: { keyId: string; key: string }[] = [];
    for (const { keyId } of rotated) {
      const expiration = keyId === expired.keyId ? 5000 : hourMs;
      successors.push((await call('keys.rerollKey', { keyId, expiration }, rootKey)).data);
    }
    expect(await found({ rerolledInUse: true })).toEqual([]);
    clock.advance(1000);
    await Promise.all([since, expired, ...successors].map(use));
    expect(await found({ rerolledInUse: true })).toEqual([since.keyId, expired.keyId]);
    clock.advance(4000);
    expect(await found({ rerolledInUse: true })).toEqual([since.keyId]);
    const others = [never, before, expired, ...successors].map(({ keyId }) => keyId);
    expect((await found({ rerolledInUse: false })).sort()).toEqual(others.sort());
    await call('keys.updateKey', { keyId: since.keyId, enabled: false }, rootKey);
    expect(await found({ rerolledInUse: true })).toEqual([]);
    expect(await found({ rerolledInUse: false })).toContain(since.keyId);
  });

  test('permission: of the key or one of its roles; role: by name', async () => {
    const { rootKey, create, found } = await withApis();
    await call('permissions.createRole', { name: 'reader', permissions: ['documents.read'] }, rootKey);
    await call('permissions.createRole', { name: 'other', permissions: ['documents.read.all'] }, rootKey);
    const [direct, byRole, wildcard] = await create(
      { permissions: ['a.b', 'documents.read'] },
      { roles: ['other', 'reader'] },
      { permissions: ['documents.*'] },
      { roles: ['other'] },
      {},
    );
    expect(await found({ permission: 'documents.read' })).toEqual([direct, byRole]);
    expect(await found({ permission: 'documents.*' })).toEqual([wildcard]);
    expect(await found({ permission: 'documents.read', role: 'reader' })).toEqual([byRole]);
    expect(await found({ role: 'reader' })).toEqual([byRole]);
    expect(await found({ role: 'Reader' })).toEqual([]);
    expect(await found({ permission: 'unknown.slug' })).toEqual([]);
    await call('permissions.deleteRole', { role: 'reader' }, rootKey);
    expect(await found({ permission: 'documents.read' })).toEqual([direct]);
  });

  test.each(['asc', 'desc'] as const)('externalId, %s: the keys of an identity in all APIs or one', async (order) => {
    const { rootKey, apis, create, list, found } = await withApis(3);
    const theirs = await create(...takingTurns(apis, 11).map((key) => ({ ...key, externalId: 'ada' })));
    await create(...takingTurns(apis, 5).map((key) => ({ ...key, externalId: 'ada.b' })), {});
    const expected = order === 'asc' ? theirs : theirs.toReversed();
    for (const limit of [1, 3, 100]) {
      const pages = await readPages((at) => list({ externalId: 'ada', order, limit, ...at }));
      expect(pages.flat().map(({ keyId }) => keyId)).toEqual(expected);
    }
    expect((await list({ externalId: 'ada' })).pagination).toEqual({ hasMore: false, looked: 11, total: 11 });
    const apiId = apis[1]!;
    expect(await found({ externalId: 'ada', order, apiId })).toEqual(
      expected.filter((id) => id.endsWith(apiId.slice(-8))),
    );
    expect(await found({ externalId: 'nobody' })).toEqual([]);
    await call('keys.updateKey', { keyId: theirs[0]!, externalId: null }, rootKey);
    expect(await found({ externalId: 'ada', order })).toEqual(expected.filter((id) => id !== theirs[0]));
  });

  test.each(['asc', 'desc'] as const)('planId, %s: the keys of a plan in all APIs or one', async (order) => {
    const { rootKey, apis, create, list, found } = await withApis(3);
    for (const planId of ['pro', 'pro.b']) await call('plans.createPlan', { planId }, rootKey);
    const theirs = await create(...takingTurns(apis, 11).map((key) => ({ ...key, planId: 'pro' })));
    // Others that a request would have to pass.
    await create(...takingTurns(apis, 25).map((key, at) => (at % 5 === 0 ? { ...key, planId: 'pro.b' } : key)));
    await call('identities.createIdentity', { externalId: 'ada', planId: 'pro' }, rootKey);
    await create({ externalId: 'ada' }, { externalId: 'ada' });
    const expected = order === 'asc' ? theirs : theirs.toReversed();
    for (const limit of [1, 3, 100]) {
      const pages = await readPages((at) => list({ planId: 'pro', order, limit, ...at }));
      expect(pages.flat().map(({ keyId }) => keyId)).toEqual(expected);
    }
    expect((await list({ planId: 'pro', order })).pagination).toEqual({ hasMore: false, looked: 11, total: 11 });
    const [apiId, keyId] = [apis[1]!, theirs[4]!];
    expect(await found({ planId: 'pro', order, apiId })).toEqual(expected.filter((id) => id.endsWith(apiId.slice(-8))));
    expect(await found({ planId: 'Pro' })).toEqual([]);
    expect(await found({ planId: 'pro', order, search: keyId })).toEqual([keyId]);
    expect(await found({ planId: 'pro', externalId: 'ada' })).toEqual([]);
    await call('keys.updateKey', { keyId, externalId: 'ada' }, rootKey);
    expect(await found({ planId: 'pro', externalId: 'ada' })).toEqual([keyId]);
    await call('keys.updateKey', { keyId: theirs[0]!, planId: null }, rootKey);
    await call('keys.deleteKey', { keyId: theirs[1]! }, rootKey);
    expect(await found({ planId: 'pro', order })).toEqual(expected.filter((id) => !theirs.slice(0, 2).includes(id)));
    expect(await found({ planId: 'pro', deleted: true })).toEqual([theirs[1]]);
    await call('apis.deleteApi', { apiId: apis[0]! }, rootKey);
    expect(await found({ planId: 'pro', order })).toEqual(
      expected.filter((id) => !theirs.slice(0, 2).includes(id) && !id.endsWith(apis[0]!.slice(-8))),
    );
  });

  test(`any combination of filters finds what a filter of all keys finds (seed ${seed})`, async () => {
    const pick = random(seed);
    const { rootKey, apis, create, list } = await withApis(3);
    for (const planId of ['free', 'pro']) await call('plans.createPlan', { planId }, rootKey);
    const one = <Item>(...items: Item[]) => items[pick(0, items.length - 1)]!;
    const keys = Array.from({ length: 60 }, () => ({
      apiId: one(...apis),
      name: one(undefined, 'alpha', 'bet0', 'alphabet0'),
      externalId: one(undefined, 'ada', 'bob'),
      planId: one(undefined, 'free', 'pro'),
      enabled: one(undefined, false),
      expires: one(undefined, clock.now + 1000, clock.now + 5000),
      credits: one(undefined, { remaining: 3 }, { remaining: 30 }),
      permissions: one(undefined, ['a.b'], ['c.d', 'a.b']),
    }));
    const ids = await create(...(JSON.parse(JSON.stringify(keys)) as KeyInput[]));
    for (let round = 0; round < 60; round++) {
      const apiId = one(undefined, undefined, ...apis);
      // No start of a key and no id has a 0.
      const search = one(undefined, 'ALPHA', 'bet0');
      const externalId = one(undefined, undefined, 'ada');
      const planId = one(undefined, undefined, 'pro');
      const enabled = one(undefined, true, false);
      const expiresBefore = one(undefined, undefined, clock.now + 3000);
      const creditsBelow = one(undefined, undefined, 10);
      const permission = one(undefined, undefined, 'c.d');
      const order = one('asc' as const, 'desc' as const);
      const filter = { apiId, search, externalId, planId, enabled, expiresBefore, creditsBelow, permission };
      const input = JSON.parse(JSON.stringify({ ...filter, order, limit: one(1, 7, 100) }));
      const expected = ids.filter((_, index) => {
        const key = keys[index]!;
        return (
          (apiId === undefined || key.apiId === apiId) &&
          (search === undefined || key.name?.includes(search.toLowerCase())) &&
          (externalId === undefined || key.externalId === externalId) &&
          (planId === undefined || key.planId === planId) &&
          (enabled === undefined || (key.enabled ?? true) === enabled) &&
          (expiresBefore === undefined || (key.expires ?? Number.POSITIVE_INFINITY) < expiresBefore) &&
          (creditsBelow === undefined || (key.credits?.remaining ?? Number.POSITIVE_INFINITY) < creditsBelow) &&
          (permission === undefined || key.permissions?.includes(permission))
        );
      });
      const pages = await readPages((at) => list({ ...input, ...at }));
      expect(
        pages.flat().map(({ keyId }) => keyId),
        JSON.stringify(input),
      ).toEqual(order === 'asc' ? expected : expected.toReversed());
    }
  });
});

describe('keys.listKeys: deleted keys', () => {
  test('are listed on request only, with the time until which they can be restored', async () => {
    const { rootKey, apis, create, list, found } = await withApis(2);
    const ids = await create(
      ...takingTurns(apis, 6).map((key, index) => ({ ...key, name: `key ${index}`, externalId: 'ada' })),
    );
    const deletedAt = clock.now;
    for (const keyId of [ids[1]!, ids[2]!, ids[5]!]) await call('keys.deleteKey', { keyId }, rootKey);
    await call('keys.deleteKey', { keyId: ids[4]!, permanent: true }, rootKey);
    expect(await found()).toEqual([ids[0], ids[3]]);
    const { data, pagination } = await list({ deleted: true });
    expect(data).toMatchObject(
      [1, 2, 5].map((index) => ({
        keyId: ids[index],
        name: `key ${index}`,
        externalId: 'ada',
        restorableUntil: deletedAt + 30 * dayMs,
      })),
    );
    expect(pagination).toEqual({ hasMore: false, looked: 3, total: 3 });
    expect(await found({ deleted: true, order: 'desc' })).toEqual([ids[5], ids[2], ids[1]]);
    expect(await found({ deleted: true, externalId: 'ada', search: 'KEY 2' })).toEqual([ids[2]]);
    expect(await found({ deleted: true, search: ids[5]! })).toEqual([ids[5]]);
    expect(await found({ deleted: true, externalId: 'bob' })).toEqual([]);
    expect(await found({ deleted: false })).toEqual([ids[0], ids[3]]);
  });
});

describe('keys.listKeys: refusals', () => {
  test('400 for a malformed cursor, and one of other filters or another order', async () => {
    const { create, list } = await withApis();
    const ids = await create({}, {}, {});
    const cursor = (await list({ limit: 1, enabled: true })).pagination.cursor!;
    for (const wrong of brokenCursors(cursor, ids[0]!)) {
      expect((await list({ enabled: true, cursor: wrong })).status, wrong).toBe(400);
    }
    for (const input of [
      {},
      { enabled: false },
      { enabled: true, order: 'desc' as const },
      { enabled: true, search: 'a' },
    ]) {
      expect((await list({ ...input, cursor })).status, JSON.stringify(input)).toBe(400);
    }
    // Another page size is the same list.
    expect((await list({ enabled: true, limit: 2, cursor })).data.map(({ keyId }) => keyId)).toEqual(ids.slice(1));
  });

  test.each<[string, object]>([
    ['limit', { limit: 0 }],
    ['limit', { limit: 101 }],
    ['order', { order: 'newest' }],
    ['search', { search: '' }],
    ['search', { search: 'x'.repeat(256) }],
    ['start', { start: '' }],
    ['start', { start: 'a b' }],
    ['start', { start: 'x'.repeat(65) }],
    ['enabled', { enabled: null }],
    ['expiresBefore', { expiresBefore: -1 }],
    ['expiresAfter', { expiresBefore: 1, expiresAfter: -1 }],
    ['expiresAfter', { expiresAfter: 1 }],
    ['unusedSince', { unusedSince: 4_102_444_800_001 }],
    ['creditsBelow', { creditsBelow: 1.5 }],
    ['permission', { permission: 'a b' }],
    ['role', { role: '' }],
    ['externalId', { externalId: 'a b' }],
    ['deleted', { deleted: 'yes' }],
    ['apiId', { apiId: '*' }],
  ])('400 for a wrong %s: %j', async (field, input) => {
    const { status, error } = await call('keys.listKeys', input as never);
    expect(status).toBe(400);
    expect(new Set(error.errors.map(({ location }) => location))).toEqual(new Set([`body.${field}`]));
  });

  volumeTest('400 without apiId in a workspace of more than 1000 APIs', { timeout: 60_000 }, async () => {
    const { apis, create, list } = await withApis(1001);
    const [keyId] = await create({});
    expect(await list()).toMatchObject({ status: 400, error: { errors: [{ location: 'body.apiId' }] } });
    expect((await list({ apiId: apis[0]! })).data).toMatchObject([{ keyId }]);
    expect((await list({ search: keyId! })).data).toMatchObject([{ keyId }]);
  });

  test('403 for all APIs with grants for one', async () => {
    const apiId = (await call('apis.createApi', { name: 'granted' })).data.apiId;
    const grants = [`api.${apiId}.read_api`, `api.${apiId}.read_key`];
    expect((await call('keys.listKeys', {}, grants)).status).toBe(403);
    expect((await call('keys.listKeys', { apiId }, grants)).status).toBe(200);
  });
});

volumeTest(
  'a long text to search for reads less at a time, as Lua compares all of it at each of its first letters',
  async () => {
    const { rootKey, create } = await withApis();
    await create(...Array.from({ length: 60 }, () => ({ meta: { text: '0'.repeat(8_000) } })));
    const runsOf = async (search: string) => {
      const before = searchRuns;
      expect(await call('keys.listKeys', { search }, rootKey)).toMatchObject({ status: 200, data: [] });
      return searchRuns - before;
    };
    // No random id has a 0.
    const short = await runsOf('01');
    expect(await runsOf(`${'0'.repeat(254)}1`)).toBeGreaterThan(2 * short);
  },
);
