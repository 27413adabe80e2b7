import { describe, expect, test } from 'vitest';
import { cacheOn, harness } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const app = harness();
const { call, ok, createKey, createWorkspace } = app;
const elsewhere = harness();

let made = 0;
/** A role that no other test uses, and a key with it that both servers have cached. */
async function newRole(permissions: string[]) {
  const name = `role ${++made}`;
  const { roleId } = await ok('permissions.createRole', { name, permissions });
  const { key, keyId } = await createKey({ roles: [name] });
  await cacheOn([app, elsewhere], key, app.rootKey);
  return { roleId, name, key, keyId };
}

const slugs = (permissions: { slug: string }[]) => permissions.map(({ slug }) => slug);
const slugsOf = async (role: string) => slugs((await ok('permissions.getRole', { role })).permissions);

describe('permissions.setRolePermissions: 200', () => {
  test('replaces the permissions and returns them all', async () => {
    const { roleId } = await newRole(['a.read', 'b.read']);
    const { permissionId } = await ok('permissions.createPermission', { name: 'C', slug: 'c.read', description: 'd' });
    const data = await ok('permissions.setRolePermissions', { roleId, permissions: ['c.read', 'b.read'] });
    expect(data).toEqual([
      { id: permissionId, name: 'C', slug: 'c.read', description: 'd' },
      await ok('permissions.getPermission', { permission: 'b.read' }),
    ]);
    expect((await ok('permissions.getRole', { role: roleId })).permissions).toEqual(data);
  });

  test('applies from the next verification on, for cached keys, on every server', async () => {
    const { roleId, key, keyId } = await newRole(['a.read']);
    await ok('permissions.setRolePermissions', { roleId, permissions: ['b.read', 'c.*'] });
    for (const server of [app, elsewhere]) {
      const verify = async (permissions: string) =>
        (await server.call('keys.verifyKey', { key, permissions }, app.rootKey)).data;
      expect(await verify('a.read')).toMatchObject({ valid: false, permissions: ['b.read', 'c.*'] });
      expect(await verify('b.read AND c.read.own')).toMatchObject({ valid: true, permissions: ['b.read', 'c.*'] });
    }
    expect((await ok('keys.getKey', { keyId })).permissions).toEqual(['b.read', 'c.*']);
  });

  test('an empty list removes all, and the key keeps the role', async () => {
    const { roleId, name, key } = await newRole(['a.read']);
    expect(await ok('permissions.setRolePermissions', { roleId, permissions: [] })).toEqual([]);
    const answer = await ok('keys.verifyKey', { key, permissions: 'a.read' });
    expect(answer).toMatchObject({ valid: false, code: 'INSUFFICIENT_PERMISSIONS', roles: [name] });
    expect(answer).not.toHaveProperty('permissions');
    await ok('permissions.setRolePermissions', { roleId, permissions: ['a.read'] });
    expect(await ok('keys.verifyKey', { key, permissions: 'a.read' })).toMatchObject({ valid: true });
  });

  test('creates permissions that do not exist; duplicates count once', async () => {
    const { roleId } = await newRole([]);
    const permissions = [`new.${made}`, 'a.read', `new.${made}`, 'a.read'];
    expect(slugs(await ok('permissions.setRolePermissions', { roleId, permissions }))).toEqual(permissions.slice(0, 2));
    expect(await ok('permissions.listPermissions', { search: `new.${made}` })).toHaveLength(1);
  });

  test('accepts the role’s name in place of its id', async () => {
    const { name } = await newRole([]);
    await ok('permissions.setRolePermissions', { roleId: name, permissions: ['a.read'] });
    expect(await slugsOf(name)).toEqual(['a.read']);
  });

  test('1000 permissions, and not one more', async () => {
    const { roleId, key } = await newRole(['a.read']);
    const permissions = Array.from({ length: 1000 }, (_, index) => `many.${index}`);
    expect(slugs(await ok('permissions.setRolePermissions', { roleId, permissions }))).toEqual(permissions);
    expect(await ok('keys.verifyKey', { key, permissions: 'many.999' })).toMatchObject({ valid: true });
    const answer = await call('permissions.setRolePermissions', { roleId, permissions: [...permissions, 'one.more'] });
    expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    expect((await call('permissions.getPermission', { permission: 'one.more' })).status).toBe(404);
    expect(await slugsOf(roleId)).toEqual(permissions);
  });
});

describe('permissions.setRolePermissions: 400', () => {
  test.each<[string, object]>([
    ['permissions', {}],
    ['permissions', { permissions: null }],
    ['permissions[0]', { permissions: ['ab'] }],
    ['permissions[1]', { permissions: ['fine.one', 'not fine'] }],
    ['roleId', { roleId: '', permissions: [] }],
  ])('names the field %s: %j', async (field, input) => {
    const { roleId } = await newRole(['a.read']);
    expect(await call('permissions.setRolePermissions', { roleId, ...input } as never)).toMatchObject(
      invalidAt(`body.${field}`),
    );
    expect(await slugsOf(roleId)).toEqual(['a.read']);
  });
});

describe('permissions.setRolePermissions: 403', () => {
  test.each(['add_permission_to_role', 'remove_permission_from_role'])('without %s', async (lacking) => {
    const { roleId } = await newRole(['a.read']);
    const grants = ['add_permission_to_role', 'remove_permission_from_role', 'create_permission']
      .filter((action) => action !== lacking)
      .map((action) => `rbac.*.${action}`);
    const { status, error } = await call('permissions.setRolePermissions', { roleId, permissions: [] }, grants);
    expect(status).toBe(403);
    expect(error.detail).toContain(`rbac.*.${lacking}`);
    expect(await slugsOf(roleId)).toEqual(['a.read']);
  });

  test('with one that does not exist, without create_permission: nothing changes', async () => {
    const { roleId, key } = await newRole(['a.read']);
    await ok('permissions.createPermission', { name: 'n', slug: `exists.${made}` });
    const grants = ['rbac.*.add_permission_to_role', 'rbac.*.remove_permission_from_role'];
    const set = (...permissions: string[]) => call('permissions.setRolePermissions', { roleId, permissions }, grants);
    const { status, error } = await set(`exists.${made}`, `missing.${made}`);
    expect(status).toBe(403);
    expect(error.detail).toContain('rbac.*.create_permission');
    expect(await slugsOf(roleId)).toEqual(['a.read']);
    expect((await call('permissions.getPermission', { permission: `missing.${made}` })).status).toBe(404);
    expect((await ok('keys.verifyKey', { key })).permissions).toEqual(['a.read']);
    expect((await set(`exists.${made}`)).status).toBe(200);
  });
});

describe('permissions.setRolePermissions: 404', () => {
  test('for a role that is unknown, deleted or of another workspace; no permission is created', async () => {
    const { roleId } = await newRole([]);
    const deleted = await newRole([]);
    await ok('permissions.deleteRole', { role: deleted.roleId });
    const { rootKey } = await createWorkspace();
    for (const [wrong, as] of [
      ['role_unknown', undefined],
      [deleted.roleId, undefined],
      [deleted.name, undefined],
      [roleId, rootKey],
    ] as const) {
      const answer = await call('permissions.setRolePermissions', { roleId: wrong, permissions: ['never.made'] }, as);
      expect(answer).toMatchObject({ status: 404, code: 'role_not_found' });
      expect((await call('permissions.getPermission', { permission: 'never.made' }, as)).status).toBe(404);
    }
  });
});
