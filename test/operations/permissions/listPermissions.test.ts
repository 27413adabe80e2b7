import { beforeEach, describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';
import { readPages, testList } from '../../support/lists.ts';

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

testList('permissions.listPermissions', {
  list,
  textOf: ({ slug }) => slug,
  create,
  delete: (permission) => call('permissions.deletePermission', { permission }, rootKey),
  listElsewhere: async () => call('permissions.listPermissions', {}, (await createWorkspace()).rootKey),
  async cursorOfAnother() {
    for (const name of ['a', 'b']) await call('permissions.createRole', { name }, rootKey);
    return (await call('permissions.listRoles', { limit: 1 }, rootKey)).pagination.cursor!;
  },
});

describe('permissions.listPermissions: 200', () => {
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
});
