import { beforeEach, describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';
import { readPages, testList } from '../../support/lists.ts';

const { call, ok, createKey, clock } = harness();

const newApi = async () => (await ok('apis.createApi', { name: 'listed' })).apiId;

/** Ids of `count` keys, in order of creation, created in several milliseconds. */
async function createKeys(apiId: string, count: number, input: Omit<InputOf<'keys.createKey'>, 'apiId'> = {}) {
  const keyIds: string[] = [];
  for (let index = 0; index < count; index++) {
    keyIds.push((await createKey({ apiId, ...input })).keyId);
    if (index % 3 === 2) clock.advance(1);
  }
  return keyIds;
}

/** The ids of all pages. */
const listAll = async (input: InputOf<'apis.listKeys'>, between?: (page: number) => Promise<unknown>) =>
  (await readPages((at) => call('apis.listKeys', { ...input, ...at }), between)).map((page) =>
    page.map(({ keyId }) => keyId),
  );

let listed: string;
const keyIdOf = new Map<string, string>();
beforeEach(async () => {
  listed = await newApi();
});
const list = async (input: object = {}, apiId = listed) => {
  const answer = await call('apis.listKeys', { apiId, ...input });
  return { ...answer, data: answer.data?.map((key) => ({ ...key, id: key.keyId })) };
};

testList('apis.listKeys', {
  list,
  textOf: ({ name }) => name!,
  async create(count, prefix = 'key') {
    const names = Array.from({ length: count }, (_, index) => `${prefix} ${count - index}`);
    for (const [index, name] of names.entries()) {
      keyIdOf.set(name, (await createKey({ apiId: listed, name })).keyId);
      if (index % 3 === 2) clock.advance(1);
    }
    return names;
  },
  delete: (name) => ok('keys.deleteKey', { keyId: keyIdOf.get(name)!, permanent: name.endsWith('1') }),
  listElsewhere: async () => list({}, await newApi()),
  cursorOfAnother: async () => {
    await ok('rootKeys.createRootKey', { permissions: ['*'] });
    return (await call('rootKeys.listRootKeys', { limit: 1 })).pagination.cursor!;
  },
  hasNoSearch: true,
});

describe('apis.listKeys: 200', () => {
  test('keys are as getKey returns them', async () => {
    const apiId = await newApi();
    const { keyId, key } = await createKey({
      apiId,
      prefix: 'pk',
      name: 'all of it',
      externalId: 'user_1',
      meta: { b: 1, a: [null, 1.5, 'ü'] },
      expires: clock.now + 1000,
      credits: { remaining: 7, refill: { interval: 'monthly', amount: 9, refillDay: 31 } },
      ratelimits: [{ name: 'requests', limit: 3, duration: 1000, autoApply: true }],
      permissions: ['documents.read'],
    });
    await ok('keys.verifyKey', { key });
    await ok('keys.updateKey', { keyId, enabled: false });
    const plain = await createKey({ apiId });
    const data = await ok('apis.listKeys', { apiId });
    expect(data).toEqual([await ok('keys.getKey', { keyId }), await ok('keys.getKey', { keyId: plain.keyId })]);
    expect(data[1]).toEqual({
      keyId: plain.keyId,
      apiId,
      start: expect.stringMatching(/^.{4}$/),
      enabled: true,
      createdAt: clock.now,
    });
  });

  test('does not list keys of other APIs', async () => {
    const [apiId, other] = [await newApi(), await newApi()];
    const keyIds: string[] = [];
    for (let index = 0; index < 4; index++) {
      keyIds.push(...(await createKeys(apiId, 1, { externalId: 'shared' })));
      await createKeys(other, 1, { externalId: 'shared' });
    }
    expect((await listAll({ apiId, limit: 2 })).flat()).toEqual(keyIds);
    expect((await listAll({ apiId, limit: 2, externalId: 'shared' })).flat()).toEqual(keyIds);
  });

  test('lists disabled and expired keys', async () => {
    const apiId = await newApi();
    await createKey({ apiId, enabled: false });
    await createKey({ apiId, expires: 0 });
    expect(await ok('apis.listKeys', { apiId })).toMatchObject([{ enabled: false }, { expires: 0 }]);
  });

  test('balances include refills that no sweep has written yet', async () => {
    const apiId = await newApi();
    await createKey({ apiId, credits: { remaining: 1, refill: { interval: 'daily', amount: 10 } } });
    clock.advance(86_400_000);
    expect(await ok('apis.listKeys', { apiId })).toMatchObject([{ credits: { remaining: 10 } }]);
  });

  test('revalidateKeysCache and decrypt: false change nothing', async () => {
    const apiId = await newApi();
    const keyIds = await createKeys(apiId, 2);
    for (const revalidateKeysCache of [true, false]) {
      const data = await ok('apis.listKeys', { apiId, revalidateKeysCache, decrypt: false });
      expect(data.map(({ keyId }) => keyId)).toEqual(keyIds);
    }
  });
});

describe('apis.listKeys: 200, of one externalId', () => {
  test('lists only its keys, page by page', async () => {
    const apiId = await newApi();
    const alice = await createKeys(apiId, 5, { externalId: 'alice' });
    await createKeys(apiId, 3, { externalId: 'alice.b' });
    await createKeys(apiId, 3);
    alice.push(...(await createKeys(apiId, 2, { externalId: 'alice' })));
    const pages = await listAll({ apiId, externalId: 'alice', limit: 3 });
    expect(pages.map((page) => page.length)).toEqual([3, 3, 1]);
    expect(pages.flat()).toEqual(alice);
  });

  test.each(['nobody', 'Alice', 'alic', '*'.replace('*', 'a.e')])('an empty list for %s', async (externalId) => {
    const apiId = await newApi();
    await createKeys(apiId, 1, { externalId: 'alice' });
    const { status, data, pagination } = await call('apis.listKeys', { apiId, externalId });
    expect({ status, data, pagination }).toEqual({ status: 200, data: [], pagination: { hasMore: false } });
  });

  test('follows keys that are linked, unlinked and deleted', async () => {
    const apiId = await newApi();
    const [first, second, third] = (await createKeys(apiId, 3, { externalId: 'carol' })) as [string, string, string];
    const [late] = (await createKeys(apiId, 1)) as [string];
    await ok('keys.updateKey', { keyId: first, externalId: null });
    await ok('keys.deleteKey', { keyId: second });
    await ok('keys.updateKey', { keyId: late, externalId: 'carol' });
    expect((await listAll({ apiId, externalId: 'carol' })).flat()).toEqual([third, late]);
    expect((await listAll({ apiId, externalId: 'carol', limit: 1 })).flat()).toEqual([third, late]);
  });

  test('every key is listed exactly once while others are created and deleted', async () => {
    const apiId = await newApi();
    const keyIds = await createKeys(apiId, 8, { externalId: 'dave' });
    const pages = await listAll({ apiId, externalId: 'dave', limit: 2 }, async (page) => {
      if (page > 3) return;
      await ok('keys.deleteKey', { keyId: keyIds[page * 2 - 1]! });
      await createKeys(apiId, 1, { externalId: 'dave' });
    });
    const listed = pages.flat();
    expect(new Set(listed).size).toBe(listed.length);
    expect(listed.slice(0, 8)).toEqual(keyIds);
    expect(listed).toHaveLength(11);
  });
});

describe('apis.listKeys: 400', () => {
  test('a cursor of another API, or of other keys of the same', async () => {
    const [apiId, other] = [await newApi(), await newApi()];
    await createKeys(apiId, 3, { externalId: 'frank' });
    const all = (await call('apis.listKeys', { apiId, limit: 1 })).pagination.cursor!;
    const franks = (await call('apis.listKeys', { apiId, limit: 1, externalId: 'frank' })).pagination.cursor!;
    expect((await call('apis.listKeys', { apiId: other, cursor: all })).status).toBe(400);
    expect((await call('apis.listKeys', { apiId, externalId: 'frank', cursor: all })).status).toBe(400);
    expect((await call('apis.listKeys', { apiId, cursor: franks })).status).toBe(400);
    expect((await call('apis.listKeys', { apiId, cursor: '' })).data).toHaveLength(3);
  });

  test('decrypt: true', async () => {
    const answer = await call('apis.listKeys', { apiId: await newApi(), decrypt: true });
    expect(answer).toMatchObject(onlyInvalidAt('body.decrypt'));
  });

  test.each(['', 'a b', 'ä', 'a/b', 'a'.repeat(256)])('the externalId %j', async (externalId) => {
    expect((await call('apis.listKeys', { apiId: await newApi(), externalId })).status).toBe(400);
  });
});
