import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createKey, clock } = harness();

const slugs = (permissions: { slug: string }[]) => permissions.map(({ slug }) => slug);
const verify = (key: string, permissions?: string) =>
  ok('keys.verifyKey', { key, ...(permissions !== undefined && { permissions }) });

describe('200', () => {
  test('answers all direct permissions, the new ones last', async () => {
    const description = 'All';
    const { permissionId } = await ok('permissions.createPermission', { name: 'C', slug: 'c.read', description });
    const { keyId } = await createKey({ permissions: ['a.read'] });
    const data = await ok('keys.addPermissions', { keyId, permissions: ['c.read', 'b.read'] });
    expect(data).toEqual([
      await ok('permissions.getPermission', { permission: 'a.read' }),
      { id: permissionId, name: 'C', slug: 'c.read', description },
      { id: expect.stringMatching(/^perm_/), name: 'b.read', slug: 'b.read' },
    ]);
    expect((await ok('keys.getKey', { keyId })).permissions).toEqual(['a.read', 'c.read', 'b.read']);
  });

  test('counts from the next verification on, also of a key that was seen before', async () => {
    const { keyId, key } = await createKey();
    for (let times = 0; times < 2; times++) {
      expect(await verify(key, 'a.read')).toMatchObject({ valid: false, code: 'INSUFFICIENT_PERMISSIONS' });
    }
    await ok('keys.addPermissions', { keyId, permissions: ['a.*'] });
    expect(await verify(key, 'a.read.own')).toMatchObject({ valid: true, permissions: ['a.*'] });
    expect(await verify(key, 'a')).toMatchObject({ valid: false });
  });

  test('one the key has, or one named twice, is there once', async () => {
    const { keyId } = await createKey({ permissions: ['a.read', 'b.read'] });
    const data = await ok('keys.addPermissions', { keyId, permissions: ['b.read', 'new.once', 'new.once', 'a.read'] });
    expect(slugs(data)).toEqual(['a.read', 'b.read', 'new.once']);
    expect(await ok('permissions.listPermissions', { search: 'new.once' })).toHaveLength(1);
  });

  test('one that a role of the key has becomes its own: it stays when the role goes', async () => {
    await ok('permissions.createRole', { name: 'reader', permissions: ['a.read', 'x.read'] });
    const { keyId, key } = await createKey({ roles: ['reader'] });
    expect(slugs(await ok('keys.addPermissions', { keyId, permissions: ['a.read'] }))).toEqual(['a.read']);
    expect((await verify(key)).permissions).toEqual(['a.read', 'x.read']);
    await ok('keys.removeRoles', { keyId, roles: ['reader'] });
    expect((await verify(key)).permissions).toEqual(['a.read']);
  });

  test('sets updatedAt and touches nothing else', async () => {
    const { keyId } = await createKey({ name: 'n', meta: { a: 1 }, credits: { remaining: 3 }, externalId: 'alice' });
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    await ok('keys.addPermissions', { keyId, permissions: ['a.read'] });
    expect(await ok('keys.getKey', { keyId })).toEqual({ ...before, permissions: ['a.read'], updatedAt: clock.now });
  });
});

describe('a key has at most 1000', () => {
  const many = (count: number, prefix: string) => Array.from({ length: count }, (_, index) => `${prefix}.${index}`);

  test('400 for one more, and nothing is changed', async () => {
    const { keyId, key } = await createKey({ permissions: many(999, 'many') });
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    // Of these one is new to the key and exists, one is new to the workspace.
    await ok('permissions.createPermission', { name: 'n', slug: 'exists' });
    const answer = await call('keys.addPermissions', { keyId, permissions: ['many.0', 'exists', 'not.yet'] });
    expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(answer.error.errors).toEqual([expect.objectContaining({ location: 'body.permissions' })]);
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
    expect((await call('permissions.getPermission', { permission: 'not.yet' })).status).toBe(404);
    expect(await verify(key, 'exists')).toMatchObject({ valid: false });

    expect(await ok('keys.addPermissions', { keyId, permissions: ['many.0', 'exists', 'many.1'] })).toHaveLength(1000);
    expect(await verify(key, 'exists AND many.998')).toMatchObject({ valid: true });
    expect(await ok('keys.addPermissions', { keyId, permissions: ['exists'] })).toHaveLength(1000);
    expect((await call('keys.addPermissions', { keyId, permissions: ['not.yet'] })).status).toBe(400);
  });

  test('those that were deleted do not count', async () => {
    const { keyId } = await createKey({ permissions: many(1000, 'gone') });
    await ok('permissions.deletePermission', { permission: 'gone.500' });
    const data = await ok('keys.addPermissions', { keyId, permissions: ['instead'] });
    expect(slugs(data)).toEqual([...many(1000, 'gone').filter((slug) => slug !== 'gone.500'), 'instead']);
  });

  test('those of its roles do not count', async () => {
    await ok('permissions.createRole', { name: 'thousand', permissions: many(1000, 'role') });
    const { keyId, key } = await createKey({ roles: ['thousand'] });
    expect(await ok('keys.addPermissions', { keyId, permissions: many(1000, 'own') })).toHaveLength(1000);
    expect((await verify(key, 'own.999 AND role.999')).permissions).toHaveLength(2000);
  });

  test.each(['keys.createKey', 'keys.updateKey', 'keys.setPermissions', 'keys.migrateKeys'] as const)(
    '400 for 1001 by %s, and none is made',
    async (operation) => {
      const { apiId, keyId } = await createKey({ permissions: ['a.read'] });
      const permissions = many(1001, operation);
      const hash = Buffer.alloc(32, operation).toString('base64');
      const input = {
        'keys.createKey': { apiId, permissions },
        'keys.updateKey': { keyId, permissions },
        'keys.setPermissions': { keyId, permissions },
        'keys.migrateKeys': { apiId, migrationId: 'migration', keys: [{ hash, permissions }] },
      }[operation];
      expect(await call(operation, input as never)).toMatchObject({ status: 400, code: 'invalid_input' });
      expect(await ok('permissions.listPermissions', { search: operation })).toEqual([]);
      expect(await ok('apis.listKeys', { apiId })).toEqual([await ok('keys.getKey', { keyId })]);
      expect((await ok('keys.getKey', { keyId })).permissions).toEqual(['a.read']);
    },
  );
});

describe('400', () => {
  test.each([[[]], [['ab']], [['fine.one', 'not fine']], [null], ['a.read']])('for %j', async (permissions) => {
    const { keyId } = await createKey();
    const answer = await call('keys.addPermissions', { keyId, permissions } as never);
    expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('permissions');
  });
});

describe('403', () => {
  test.each(['api.*.update_key', 'rbac.*.add_permission_to_key'])('without %s', async (lacking) => {
    const { keyId } = await createKey();
    const grants = ['api.*.update_key', 'rbac.*.add_permission_to_key', 'rbac.*.create_permission'];
    const others = grants.filter((grant) => grant !== lacking);
    const { status, error } = await call('keys.addPermissions', { keyId, permissions: ['no.way'] }, others);
    expect(status).toBe(403);
    expect(error.detail).toContain(lacking);
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('permissions');
    expect((await call('permissions.getPermission', { permission: 'no.way' })).status).toBe(404);
  });

  test('update_key for another API; for this one it is enough', async () => {
    const { keyId, apiId } = await createKey();
    const { apiId: other } = await ok('apis.createApi', { name: 'other' });
    await ok('permissions.createPermission', { name: 'n', slug: 'scoped.read' });
    const add = (api: string) =>
      call('keys.addPermissions', { keyId, permissions: ['scoped.read'] }, [
        `api.${api}.update_key`,
        'rbac.*.add_permission_to_key',
      ]);
    const refused = await add(other);
    expect(refused.status).toBe(403);
    expect(refused.error.detail).toContain(`api.${apiId}.update_key`);
    expect((await add(apiId)).status).toBe(200);
  });

  test('with one that does not exist, without create_permission: nothing changes', async () => {
    const { keyId } = await createKey({ permissions: ['a.read'] });
    await ok('permissions.createPermission', { name: 'n', slug: 'b.exists' });
    const grants = ['api.*.update_key', 'rbac.*.add_permission_to_key'];
    const permissions = ['b.exists', 'b.missing'];
    const { status, error } = await call('keys.addPermissions', { keyId, permissions }, grants);
    expect(status).toBe(403);
    expect(error.detail).toContain('rbac.*.create_permission');
    const key = await ok('keys.getKey', { keyId });
    expect(key.permissions).toEqual(['a.read']);
    expect(key).not.toHaveProperty('updatedAt');
    expect((await call('permissions.getPermission', { permission: 'b.missing' })).status).toBe(404);
  });
});

test('404 for a key that is unknown or deleted; no permission is made', async () => {
  const { keyId } = await createKey();
  await ok('keys.deleteKey', { keyId });
  for (const gone of ['key_unknown', keyId]) {
    const answer = await call('keys.addPermissions', { keyId: gone, permissions: ['never.made'] });
    expect(answer).toMatchObject({ status: 404, code: 'key_not_found' });
  }
  expect((await call('permissions.getPermission', { permission: 'never.made' })).status).toBe(404);
});
