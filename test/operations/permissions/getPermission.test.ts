import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createKey, createWorkspace } = harness();

test('permissions.getPermission: returns it by its id and by its slug', async () => {
  const given = { name: 'Read', slug: 'documents.read', description: 'All' };
  const { permissionId } = await ok('permissions.createPermission', given);
  const expected = { id: permissionId, ...given };
  expect(await ok('permissions.getPermission', { permission: permissionId })).toEqual(expected);
  expect(await ok('permissions.getPermission', { permission: 'documents.read' })).toEqual(expected);
});

test('permissions.getPermission: one that was created with a key has its slug as its name', async () => {
  await createKey({ permissions: ['made.by.key'] });
  expect(await ok('permissions.getPermission', { permission: 'made.by.key' })).toEqual({
    id: expect.stringMatching(/^perm_/),
    name: 'made.by.key',
    slug: 'made.by.key',
  });
});

test('permissions.getPermission: a slug that looks like an id names the permission that has it, unless an id does', async () => {
  const first = await ok('permissions.createPermission', { name: 'First', slug: 'first' });
  await ok('permissions.createPermission', { name: 'Looks like one', slug: 'perm_1111111111111111' });
  await ok('permissions.createPermission', { name: 'Looks like the first', slug: first.permissionId });
  const named = async (permission: string) => (await ok('permissions.getPermission', { permission })).name;
  expect(await named('perm_1111111111111111')).toBe('Looks like one');
  expect(await named(first.permissionId)).toBe('First');
});

describe('permissions.getPermission: 404', () => {
  test.each(['unknown', 'perm_unknown', 'perm_1111111111111112', 'DOCUMENTS.READ', 'documents.*'])(
    'for %s',
    async (permission) => {
      const answer = await call('permissions.getPermission', { permission });
      expect(answer).toMatchObject({ status: 404, code: 'permission_not_found' });
    },
  );

  test('for a deleted one, also by its id when a new one has its slug', async () => {
    const { permissionId } = await ok('permissions.createPermission', { name: 'n', slug: 'gone' });
    await ok('permissions.deletePermission', { permission: 'gone' });
    expect(await call('permissions.getPermission', { permission: 'gone' })).toMatchObject({ status: 404 });
    const again = await ok('permissions.createPermission', { name: 'again', slug: 'gone' });
    expect(again.permissionId).not.toBe(permissionId);
    expect(await call('permissions.getPermission', { permission: permissionId })).toMatchObject({ status: 404 });
    expect(await ok('permissions.getPermission', { permission: 'gone' })).toMatchObject({ name: 'again' });
  });

  test('for a role’s id, and for another workspace’s', async () => {
    const { permissionId } = await ok('permissions.createPermission', { name: 'n', slug: 'here' });
    const { roleId } = await ok('permissions.createRole', { name: 'role' });
    const { rootKey } = await createWorkspace();
    for (const [permission, as] of [
      [roleId, undefined],
      [permissionId, rootKey],
      ['here', rootKey],
    ] as const) {
      expect(await call('permissions.getPermission', { permission }, as)).toMatchObject({ status: 404 });
    }
  });
});
