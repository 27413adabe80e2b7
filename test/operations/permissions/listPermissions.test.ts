import { beforeEach, describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';
import { brokenCursors, readPages } from '../../support/lists.ts';

const { call, createWorkspace, clock } = harness();

let rootKey: string;
beforeEach(async () => {
  ({ rootKey } = await createWorkspace());
});

/** Slugs of `count` permissions, in order of creation, created in several milliseconds. */
async function create(count: number, prefix = 'slug') {
  const slugs: string[] = [];
  for (let index = 0; index < count; index++) {
    const slug = `${prefix}.${String(count - index).padStart(3, '0')}`;
    await call('permissions.createPermission', { name: `Name ${slug}`, slug }, rootKey);
    slugs.push(slug);
    if (index % 3 === 2) clock.advance(1);
  }
  return slugs;
}

const list = (input: InputOf<'permissions.listPermissions'> = {}) =>
  call('permissions.listPermissions', input, rootKey);

const listAll = async (
  input: InputOf<'permissions.listPermissions'> = {},
  between?: (pages: number) => Promise<unknown>,
) => (await readPages((at) => list({ ...input, ...at }), between)).map((page) => page.map(({ slug }) => slug));

describe('permissions.listPermissions: 200', () => {
  test('the list is empty at first', async () => {
    expect(await list()).toMatchObject({ status: 200, data: [], pagination: { hasMore: false } });
  });

  test('permissions are as getPermission returns them', async () => {
    await create(3);
    const { data } = await list();
    expect(data).toHaveLength(3);
    for (const permission of data) {
      const { data: found } = await call('permissions.getPermission', { permission: permission.id }, rootKey);
      expect(permission).toEqual(found);
    }
  });

  test('lists permissions that were created with a key or a role', async () => {
    const { apiId } = (await call('apis.createApi', { name: 'api' }, rootKey)).data;
    await call('keys.createKey', { apiId, permissions: ['with.key', 'with.key.too'] }, rootKey);
    await call('permissions.createRole', { name: 'role', permissions: ['with.role'] }, rootKey);
    expect(await listAll()).toEqual([['with.key', 'with.key.too', 'with.role']]);
  });

  test('pages are in order of creation, for any page size', async () => {
    const slugs = await create(13);
    for (const limit of [1, 2, 5, 12, 13, 14, 100]) {
      const pages = await listAll({ limit });
      expect(pages.flat()).toEqual(slugs);
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
    const slugs = await create(20);
    const deleted: string[] = [];
    const created: string[] = [];
    const pages = await listAll({ limit: 4 }, async (page) => {
      // Some before the cursor, the one at the cursor, and some after it.
      for (const index of [page * 4 - 4, page * 4 - 1, page * 4 + 1]) {
        const permission = slugs[index];
        if (!permission) continue;
        await call('permissions.deletePermission', { permission }, rootKey);
        deleted.push(permission);
      }
      if (page <= 3) created.push(...(await create(2, `late.${page}`)));
    });
    const listed = pages.flat();
    expect(new Set(listed).size).toBe(listed.length);
    const stayed = slugs.filter((slug) => !deleted.includes(slug));
    expect(listed.filter((slug) => stayed.includes(slug))).toEqual(stayed);
    expect(listed.slice(-created.length)).toEqual(created);
    expect((await listAll()).flat()).toEqual([...stayed, ...created]);
  });

  test('lists this workspace only', async () => {
    await create(2);
    const { rootKey: elsewhere } = await createWorkspace();
    expect((await call('permissions.listPermissions', {}, elsewhere)).data).toEqual([]);
  });
});

describe('permissions.listPermissions: search', () => {
  beforeEach(async () => {
    for (const [name, slug, description] of [
      ['Read documents', 'documents.read', undefined],
      ['Write DOCUMENTS', 'docs.write', undefined],
      ['Élan', 'billing.read', 'Sees the documents of a bill'],
      ['100% [a-z]+ \\', 'regex.like', undefined],
    ] as const) {
      await call('permissions.createPermission', { name, slug, ...(description && { description }) }, rootKey);
    }
  });

  test.each([
    ['documents', ['documents.read', 'docs.write', 'billing.read']],
    ['DOCUMENTS.R', ['documents.read']],
    ['élAN', ['billing.read']],
    ['sees the', ['billing.read']],
    ['[a-z]+ \\', ['regex.like']],
    ['%', ['regex.like']],
    ['perm_', ['documents.read', 'docs.write', 'billing.read', 'regex.like']],
    ['.*', []],
    ['nowhere', []],
  ])('%s', async (search, slugs) => {
    expect((await listAll({ search })).flat()).toEqual(slugs);
    expect((await listAll({ search, limit: 1 })).flat()).toEqual(slugs);
  });

  test('by an id finds the permission', async () => {
    const { data } = await call('permissions.getPermission', { permission: 'docs.write' }, rootKey);
    expect((await listAll({ search: data.id.toUpperCase() })).flat()).toEqual(['docs.write']);
  });

  test('has pages like the whole list', async () => {
    await create(9, 'many');
    const pages = await listAll({ search: 'many.', limit: 4 });
    expect(pages.map((page) => page.length)).toEqual([4, 4, 1]);
  });

  test('accepts 1 to 255 characters', async () => {
    expect((await list({ search: 'x'.repeat(255) })).status).toBe(200);
    for (const search of ['', 'x'.repeat(256)]) expect((await list({ search })).status).toBe(400);
  });
});

describe('permissions.listPermissions: 400', () => {
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
