import { beforeEach, describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';
import { brokenCursors, readPages } from '../../support/lists.ts';

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

describe('permissions.listRoles: 200', () => {
  test('the list is empty at first', async () => {
    expect(await list()).toMatchObject({ status: 200, data: [], pagination: { hasMore: false } });
  });

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

  test('pages are in order of creation, for any page size', async () => {
    const names = await create(13);
    for (const limit of [1, 2, 5, 12, 13, 14, 100]) {
      const pages = await listAll({ limit });
      expect(pages.flat()).toEqual(names);
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
    const names = await create(20);
    const deleted: string[] = [];
    const created: string[] = [];
    const pages = await listAll({ limit: 4 }, async (page) => {
      // Some before the cursor, the one at the cursor, and some after it.
      for (const index of [page * 4 - 4, page * 4 - 1, page * 4 + 1]) {
        const role = names[index];
        if (!role) continue;
        await call('permissions.deleteRole', { role }, rootKey);
        deleted.push(role);
      }
      if (page <= 3) created.push(...(await create(2, `late ${page}`)));
    });
    const listed = pages.flat();
    expect(new Set(listed).size).toBe(listed.length);
    const stayed = names.filter((name) => !deleted.includes(name));
    expect(listed.filter((name) => stayed.includes(name))).toEqual(stayed);
    expect(listed.slice(-created.length)).toEqual(created);
    expect((await listAll()).flat()).toEqual([...stayed, ...created]);
  });

  test('lists this workspace only', async () => {
    await create(2);
    const { rootKey: elsewhere } = await createWorkspace();
    expect((await call('permissions.listRoles', {}, elsewhere)).data).toEqual([]);
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
  for (const search of ['', 'x'.repeat(256)]) expect((await list({ search })).status).toBe(400);
});

describe('permissions.listRoles: 400', () => {
  test('a cursor that is malformed or of another list', async () => {
    await create(3);
    const { data, pagination } = await list({ limit: 1 });
    for (const cursor of brokenCursors(pagination.cursor!, data[0]!.id)) {
      const answer = await list({ cursor });
      expect(answer, cursor).toMatchObject({ status: 400, code: 'invalid_input' });
      expect(answer.error.errors).toEqual([expect.objectContaining({ location: 'body.cursor' })]);
    }
    const ofPermissions = (await call('permissions.listPermissions', { limit: 1 }, rootKey)).pagination.cursor!;
    expect((await list({ cursor: ofPermissions })).status).toBe(400);
  });

  test.each([0, 101, -1, 1.5, Number.MAX_SAFE_INTEGER])('the page size %d', async (limit) => {
    const { status, error } = await list({ limit });
    expect(status).toBe(400);
    expect(error.errors).toEqual([expect.objectContaining({ location: 'body.limit' })]);
  });
});
