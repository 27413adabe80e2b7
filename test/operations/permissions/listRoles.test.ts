import { beforeEach, describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';
import { readPages, testList } from '../../support/lists.ts';

const { call, createWorkspace, clock } = harness();

let rootKey: string;
beforeEach(async () => {
  ({ rootKey } = await createWorkspace());
});

/** Names of `count` roles, in order of creation, created in several milliseconds. */
async function create(count: number, prefix = 'role') {
  const names: string[] = [];
  for (let index = 0; index < count; index++) {
    const name = `${prefix} ${String(count - index).padStart(3, '0')}`;
    await call('permissions.createRole', { name, permissions: [`p.${index % 2}`] }, rootKey);
    names.push(name);
    if (index % 3 === 2) clock.advance(1);
  }
  return names;
}

const list = (input: InputOf<'permissions.listRoles'> = {}) => call('permissions.listRoles', input, rootKey);

const listAll = async (input: InputOf<'permissions.listRoles'> = {}, between?: (pages: number) => Promise<unknown>) =>
  (await readPages((at) => list({ ...input, ...at }), between)).map((page) => page.map(({ name }) => name));

testList('permissions.listRoles', {
  list,
  textOf: ({ name }) => name,
  create,
  delete: (role) => call('permissions.deleteRole', { role }, rootKey),
  listElsewhere: async () => call('permissions.listRoles', {}, (await createWorkspace()).rootKey),
  cursorOfAnother: async () => (await call('permissions.listPermissions', { limit: 1 }, rootKey)).pagination.cursor!,
});

describe('permissions.listRoles: 200', () => {
  test('roles are as getRole returns them, with their permissions', async () => {
    await create(3);
    await call('permissions.createRole', { name: 'described', description: 'In words' }, rootKey);
    await call('permissions.deletePermission', { permission: 'p.1' }, rootKey);
    const { data } = await list();
    expect(data.map(({ permissions }) => permissions.map(({ slug }) => slug))).toEqual([['p.0'], [], ['p.0'], []]);
    for (const role of data) {
      expect(role).toEqual((await call('permissions.getRole', { role: role.id }, rootKey)).data);
    }
  });

  test('a page of roles that have 1000 permissions each', async () => {
    const permissions = Array.from({ length: 1000 }, (_, index) => `many.${index}`);
    for (const name of ['a', 'b', 'c']) await call('permissions.createRole', { name, permissions }, rootKey);
    const { data } = await list();
    for (const role of data) expect(role.permissions.map(({ slug }) => slug)).toEqual(permissions);
  });
});

test('permissions.listRoles: search finds a text in id, name or description in any case, page by page', async () => {
  await call('permissions.createRole', { name: 'Editor', permissions: ['documents.write'] }, rootKey);
  await call('permissions.createRole', { name: 'Reader', description: 'Not an EDITOR. 100% [a-z]+' }, rootKey);
  await call('permissions.createRole', { name: 'Über' }, rootKey);
  const { id } = (await call('permissions.getRole', { role: 'Über' }, rootKey)).data;
  for (const [search, names] of [
    ['editor', ['Editor', 'Reader']],
    ['eDiT', ['Editor', 'Reader']],
    ['über', ['Über']],
    ['[a-z]+', ['Reader']],
    [id.toUpperCase(), ['Über']],
    ['role_', ['Editor', 'Reader', 'Über']],
    ['documents', []],
    ['.', ['Reader']],
  ] as const) {
    expect((await listAll({ search })).flat(), search).toEqual(names);
    expect((await listAll({ search, limit: 1 })).flat(), search).toEqual(names);
  }
});
