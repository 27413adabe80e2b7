import { beforeEach, describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';
import { readPages, testList } from '../../support/lists.ts';

const { call, createWorkspace, clock } = harness();

let rootKey: string;
beforeEach(async () => {
  ({ rootKey } = await createWorkspace());
});

/** externalIds of `count` identities, in order of creation, created in several milliseconds. */
async function create(count: number, prefix = 'user') {
  const externalIds: string[] = [];
  for (let index = 0; index < count; index++) {
    const externalId = `${prefix}.${String(count - index).padStart(3, '0')}`;
    await call('identities.createIdentity', { externalId, meta: { index } }, rootKey);
    externalIds.push(externalId);
    if (index % 3 === 2) clock.advance(1);
  }
  return externalIds;
}

const list = (input: InputOf<'identities.listIdentities'> = {}) => call('identities.listIdentities', input, rootKey);

const listAll = async (
  input: InputOf<'identities.listIdentities'> = {},
  between?: (pages: number) => Promise<unknown>,
) =>
  (await readPages((at) => list({ ...input, ...at }), between)).map((page) => page.map(({ externalId }) => externalId));

testList('identities.listIdentities', {
  list,
  textOf: ({ externalId }) => externalId,
  create,
  delete: (identity) => call('identities.deleteIdentity', { identity }, rootKey),
  listElsewhere: async () => call('identities.listIdentities', {}, (await createWorkspace()).rootKey),
  async cursorOfAnother() {
    for (const name of ['a', 'b']) await call('permissions.createRole', { name }, rootKey);
    return (await call('permissions.listRoles', { limit: 1 }, rootKey)).pagination.cursor!;
  },
});

describe('identities.listIdentities: 200', () => {
  test('identities are as getIdentity returns them, also those created with a key', async () => {
    await create(2);
    const ratelimits = [{ name: 'requests', limit: 5, duration: 1000 }];
    await call('identities.createIdentity', { externalId: 'limited', ratelimits }, rootKey);
    const { apiId } = (await call('apis.createApi', { name: 'api' }, rootKey)).data;
    await call('keys.createKey', { apiId, externalId: 'with-key' }, rootKey);
    const { data } = await list();
    expect(data.map(({ externalId }) => externalId)).toEqual(['user.002', 'user.001', 'limited', 'with-key']);
    for (const identity of data) {
      expect(identity).toEqual((await call('identities.getIdentity', { identity: identity.id }, rootKey)).data);
    }
  });

  test('a changed identity keeps its place; one created again is last', async () => {
    await create(3);
    await call('identities.updateIdentity', { identity: 'user.003', meta: { changed: true } }, rootKey);
    await call('identities.deleteIdentity', { identity: 'user.002' }, rootKey);
    await call('identities.createIdentity', { externalId: 'user.002' }, rootKey);
    expect(await listAll()).toEqual([['user.003', 'user.001', 'user.002']]);
  });
});

describe('identities.listIdentities: search', () => {
  beforeEach(async () => {
    for (const externalId of ['Alice', 'bob', 'alice-2', 'org_7.alice', 'a.c', 'abc']) {
      await call('identities.createIdentity', { externalId, meta: { name: 'Zoe' } }, rootKey);
    }
  });

  test.each([
    ['alice', ['Alice', 'alice-2', 'org_7.alice']],
    ['ALICE', ['Alice', 'alice-2', 'org_7.alice']],
    ['7.AL', ['org_7.alice']],
    ['a.c', ['a.c']],
    ['-', ['alice-2']],
    ['%', []],
    ['.*', []],
    ['zoe', []],
    ['nobody at all', []],
    ['é', []],
  ])('%s', async (search, externalIds) => {
    expect((await listAll({ search })).flat()).toEqual(externalIds);
    expect((await listAll({ search, limit: 1 })).flat()).toEqual(externalIds);
  });

  test('by an id or a part of it finds the identity', async () => {
    const { data } = await call('identities.getIdentity', { identity: 'bob' }, rootKey);
    expect((await listAll({ search: data.id })).flat()).toEqual(['bob']);
    expect((await listAll({ search: data.id.slice(4).toUpperCase() })).flat()).toEqual(['bob']);
    expect((await listAll({ search: 'id_' })).flat()).toHaveLength(6);
  });

  test('continues over pages while others are created and deleted', async () => {
    await create(8);
    const pages = await listAll({ search: 'USER', limit: 3 }, async (page) => {
      if (page === 1) await call('identities.deleteIdentity', { identity: 'user.006' }, rootKey);
      if (page === 1) await call('identities.createIdentity', { externalId: 'user.new' }, rootKey);
    });
    expect(pages.flat().join(' ')).toBe(
      'user.008 user.007 user.006 user.005 user.004 user.003 user.002 user.001 user.new',
    );
  });
});

describe('identities.listIdentities: creditsBelow', () => {
  test('those with a balance below the number, which a refill or a verification changes', async () => {
    const balances = { poor: 3, rich: 30, spent: 0, none: undefined };
    for (const [externalId, remaining] of Object.entries(balances))
      await call(
        'identities.createIdentity',
        { externalId, ...(remaining !== undefined && { credits: { remaining } }) },
        rootKey,
      );
    const refill = { interval: 'daily' as const, amount: 20 };
    const refilled = { externalId: 'refilled', credits: { remaining: 1, refill } };
    await call('identities.createIdentity', refilled, rootKey);
    const found = (creditsBelow: number, search?: string) =>
      listAll({ creditsBelow, limit: 1, ...(search && { search }) }).then((pages) => pages.flat());
    expect(await found(0)).toEqual([]);
    expect(await found(3)).toEqual(['spent', 'refilled']);
    expect(await found(30)).toEqual(['poor', 'spent', 'refilled']);
    expect(await found(31)).toEqual(['poor', 'rich', 'spent', 'refilled']);
    expect(await found(31, 'poo')).toEqual(['poor']);
    clock.advance(86_400_000);
    expect(await found(3)).toEqual(['spent']);
    const { status, error } = await call('identities.listIdentities', { creditsBelow: -1 }, rootKey);
    expect([status, error?.errors?.[0]?.location]).toEqual([400, 'body.creditsBelow']);
  });

  test('a search of more identities than a step reads goes on in the next', async () => {
    await create(45);
    await call('identities.createIdentity', { externalId: 'last', credits: { remaining: 1 } }, rootKey);
    expect((await listAll({ creditsBelow: 2 })).flat()).toEqual(['last']);
  });
});

describe('identities.listIdentities: planId', () => {
  test('those with the plan, in order of creation, with the other filters, while others come and go', async () => {
    for (const planId of ['pro', 'free']) await call('plans.createPlan', { planId }, rootKey);
    const all = await create(24);
    const theirs = all.filter((_, at) => at % 3 === 0);
    const setPlan = (identity: string, planId: string | null) =>
      call('identities.updateIdentity', { identity, planId }, rootKey);
    // In another order than that of their creation.
    for (const identity of theirs.toReversed()) await setPlan(identity, 'pro');
    await setPlan(all[1]!, 'free');
    for (const limit of [1, 3, 100]) expect((await listAll({ planId: 'pro', limit })).flat()).toEqual(theirs);
    const fields = (await list({ planId: 'pro', limit: 1 })).data[0];
    expect(fields).toEqual((await call('identities.getIdentity', { identity: theirs[0]! }, rootKey)).data);
    expect((await listAll({ planId: 'pro', search: 'USER.00' })).flat()).toEqual(
      theirs.filter((name) => name.startsWith('user.00')),
    );
    const credits = { remaining: 5 };
    await call('identities.updateIdentity', { identity: theirs[2]!, credits }, rootKey);
    await call('identities.updateIdentity', { identity: all[1]!, credits }, rootKey);
    expect((await listAll({ planId: 'pro', creditsBelow: 6 })).flat()).toEqual([theirs[2]]);
    for (const planId of ['Pro', 'unknown']) expect(await listAll({ planId })).toEqual([[]]);
    const pages = await listAll({ planId: 'pro', limit: 2 }, async (page) => {
      if (page !== 1) return;
      await setPlan(theirs[1]!, null);
      await call('identities.deleteIdentity', { identity: theirs[3]! }, rootKey);
      await setPlan(all.at(-1)!, 'pro');
    });
    expect(pages.flat()).toEqual([...theirs.filter((name) => name !== theirs[3]), all.at(-1)]);
    expect((await listAll({ planId: 'pro', deleted: true })).flat()).toEqual([theirs[3]]);
  });

  test('a page examines no others', async () => {
    await call('plans.createPlan', { planId: 'pro' }, rootKey);
    await create(30);
    await call('identities.createIdentity', { externalId: 'last', planId: 'pro' }, rootKey);
    const page = await list({ planId: 'pro', limit: 1 });
    expect([page.data.map(({ externalId }) => externalId), page.pagination]).toEqual([['last'], { hasMore: false }]);
  });
});
