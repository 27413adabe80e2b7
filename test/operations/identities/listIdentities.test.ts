import { beforeEach, describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';
import { brokenCursors, readPages } from '../../support/lists.ts';

const { call, createWorkspace, createRootKey, clock } = harness();

let rootKey: string;
let workspaceId: string;
beforeEach(async () => {
  ({ rootKey, workspaceId } = await createWorkspace());
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

describe('identities.listIdentities: 200', () => {
  test('the list is empty at first', async () => {
    expect(await list()).toMatchObject({ status: 200, data: [], pagination: { hasMore: false } });
  });

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

  test('pages are in order of creation, for any page size', async () => {
    const externalIds = await create(13);
    for (const limit of [1, 2, 5, 12, 13, 14, 100]) {
      const pages = await listAll({ limit });
      expect(pages.flat()).toEqual(externalIds);
      expect(pages.map((page) => page.length)).toEqual(
        Array.from({ length: Math.ceil(13 / limit) }, (_, index) => Math.min(limit, 13 - index * limit)),
      );
    }
  });

  test('the default page size is 100', async () => {
    await create(101);
    expect((await listAll()).map((page) => page.length)).toEqual([100, 1]);
  });

  test('every item that exists throughout is listed exactly once while others are created and deleted', async () => {
    const externalIds = await create(20);
    const deleted: string[] = [];
    const created: string[] = [];
    const pages = await listAll({ limit: 4 }, async (page) => {
      // Some before the cursor, the one at the cursor, and some after it.
      for (const index of [page * 4 - 4, page * 4 - 1, page * 4 + 1]) {
        const identity = externalIds[index];
        if (!identity) continue;
        await call('identities.deleteIdentity', { identity }, rootKey);
        deleted.push(identity);
      }
      if (page <= 3) created.push(...(await create(2, `late.${page}`)));
    });
    const listed = pages.flat();
    expect(new Set(listed).size).toBe(listed.length);
    const stayed = externalIds.filter((externalId) => !deleted.includes(externalId));
    expect(listed.filter((externalId) => stayed.includes(externalId))).toEqual(stayed);
    expect(listed.slice(-created.length)).toEqual(created);
    expect((await listAll()).flat()).toEqual([...stayed, ...created]);
  });

  test('a changed identity keeps its place; one created again is last', async () => {
    await create(3);
    await call('identities.updateIdentity', { identity: 'user.003', meta: { changed: true } }, rootKey);
    await call('identities.deleteIdentity', { identity: 'user.002' }, rootKey);
    await call('identities.createIdentity', { externalId: 'user.002' }, rootKey);
    expect(await listAll()).toEqual([['user.003', 'user.001', 'user.002']]);
  });

  test('lists this workspace only', async () => {
    await create(2);
    const { rootKey: elsewhere } = await createWorkspace();
    expect((await call('identities.listIdentities', {}, elsewhere)).data).toEqual([]);
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

  test('accepts 1 to 255 characters', async () => {
    expect((await list({ search: 'x'.repeat(255) })).status).toBe(200);
    for (const search of ['', 'x'.repeat(256)]) expect((await list({ search })).status).toBe(400);
  });
});

describe('identities.listIdentities: 400', () => {
  test('a cursor that is malformed or of another list', async () => {
    await create(3);
    const { data, pagination } = await list({ limit: 1 });
    for (const cursor of brokenCursors(pagination.cursor!, data[0]!.id)) {
      const answer = await list({ cursor });
      expect(answer, cursor).toMatchObject({ status: 400, code: 'invalid_input' });
      expect(answer.error.errors).toEqual([expect.objectContaining({ location: 'body.cursor' })]);
    }
    for (const name of ['a', 'b']) await call('permissions.createRole', { name }, rootKey);
    const ofRoles = (await call('permissions.listRoles', { limit: 1 }, rootKey)).pagination.cursor!;
    expect((await list({ cursor: ofRoles })).status).toBe(400);
  });

  test.each([0, 101, -1, 1.5, Number.MAX_SAFE_INTEGER])('the page size %d', async (limit) => {
    const { status, error } = await list({ limit });
    expect(status).toBe(400);
    expect(error.errors).toEqual([expect.objectContaining({ location: 'body.limit' })]);
  });
});

test('identities.listIdentities: 403 for a grant that names an identity', async () => {
  await create(1);
  const id = (await list()).data[0]!.id;
  const scoped = await createRootKey([`identity.${id}.read_identity`], workspaceId);
  const { status, error } = await call('identities.listIdentities', {}, scoped);
  expect(status).toBe(403);
  expect(error.detail).toContain('identity.*.read_identity');
  const all = await createRootKey(['identity.*.read_identity'], workspaceId);
  expect((await call('identities.listIdentities', {}, all)).data).toHaveLength(1);
});
