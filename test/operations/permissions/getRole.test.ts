import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createWorkspace } = harness();

test('permissions.getRole: returns it by its id and by its name, with its permissions in order', async () => {
  const permissions = ['c.read', 'a.read', 'b.read'];
  const { roleId } = await ok('permissions.createRole', { name: 'Editor', description: 'Edits', permissions });
  const expected = {
    id: roleId,
    name: 'Editor',
    description: 'Edits',
    permissions: await Promise.all(permissions.map((permission) => ok('permissions.getPermission', { permission }))),
  };
  for (const role of [roleId, 'Editor']) expect(await ok('permissions.getRole', { role })).toEqual(expected);
});

test('permissions.getRole: a name that looks like an id names the role that has it, unless an id does', async () => {
  const first = await ok('permissions.createRole', { name: 'First' });
  const like = await ok('permissions.createRole', { name: 'role_1111111111111111' });
  await ok('permissions.createRole', { name: first.roleId });
  expect((await ok('permissions.getRole', { role: 'role_1111111111111111' })).id).toBe(like.roleId);
  expect((await ok('permissions.getRole', { role: first.roleId })).name).toBe('First');
});

describe('permissions.getRole: 404', () => {
  test.each(['unknown', 'role_unknown', 'role_1111111111111112', 'editor', 'Editor '])('for %j', async (role) => {
    expect(await call('permissions.getRole', { role })).toMatchObject({ status: 404, code: 'role_not_found' });
  });

  test('for a deleted one, also by its id when a new one has its name', async () => {
    const { roleId } = await ok('permissions.createRole', { name: 'gone', permissions: ['g.read'] });
    await ok('permissions.deleteRole', { role: 'gone' });
    expect(await call('permissions.getRole', { role: 'gone' })).toMatchObject({ status: 404 });
    await ok('permissions.createRole', { name: 'gone' });
    expect(await call('permissions.getRole', { role: roleId })).toMatchObject({ status: 404 });
    expect((await ok('permissions.getRole', { role: 'gone' })).permissions).toEqual([]);
  });

  test('for a permission’s id, and for another workspace’s', async () => {
    const { roleId } = await ok('permissions.createRole', { name: 'here', permissions: ['h.read'] });
    const { id } = await ok('permissions.getPermission', { permission: 'h.read' });
    const { rootKey } = await createWorkspace();
    expect((await call('permissions.getRole', { role: id })).status).toBe(404);
    for (const role of [roleId, 'here']) {
      expect((await call('permissions.getRole', { role }, rootKey)).status).toBe(404);
    }
  });
});
