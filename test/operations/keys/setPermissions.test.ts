import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createKey, clock } = harness();

const slugs = (permissions: { slug: string }[]) => permissions.map(({ slug }) => slug);
const verify = (key: string, permissions?: string) =>
  ok('keys.verifyKey', { key, ...(permissions !== undefined && { permissions }) });

describe('200', () => {
  test('replaces them and answers them all, in the order given', async () => {
    const { permissionId: id } = await ok('permissions.createPermission', { name: 'D', slug: 'd.read' });
    const { keyId } = await createKey({ permissions: ['a.read', 'b.read'] });
    const data = await ok('keys.setPermissions', { keyId, permissions: ['d.read', 'new.read', 'b.read', 'd.read'] });
    expect(data).toEqual([
      { id, name: 'D', slug: 'd.read' },
      { id: expect.stringMatching(/^perm_/), name: 'new.read', slug: 'new.read' },
      await ok('permissions.getPermission', { permission: 'b.read' }),
    ]);
    expect((await ok('keys.getKey', { keyId })).permissions).toEqual(['d.read', 'new.read', 'b.read']);
  });

  test('counts from the next verification on, also of a key that was seen before', async () => {
    const { keyId, key } = await createKey({ permissions: ['a.read'] });
    for (let times = 0; times < 2; times++) expect(await verify(key, 'a.read')).toMatchObject({ valid: true });
    await ok('keys.setPermissions', { keyId, permissions: ['b.*'] });
    expect(await verify(key, 'a.read')).toMatchObject({ valid: false, permissions: ['b.*'] });
    expect(await verify(key, 'b.read')).toMatchObject({ valid: true });
  });

  test('an empty list takes all away, but for those of roles', async () => {
    await ok('permissions.createRole', { name: 'reader', permissions: ['r.read'] });
    const { keyId, key } = await createKey({ permissions: ['a.read', 'r.read'], roles: ['reader'] });
    expect(await ok('keys.setPermissions', { keyId, permissions: [] })).toEqual([]);
    expect(await verify(key, 'r.read')).toMatchObject({ valid: true, permissions: ['r.read'] });
    await ok('keys.setRoles', { keyId, roles: [] });
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('permissions');
    expect(await verify(key)).toEqual({ valid: true, code: 'VALID', keyId, enabled: true });
  });

  test('replaces 1000 by 1000 others', async () => {
    const many = (prefix: string) => Array.from({ length: 1000 }, (_, index) => `${prefix}.${index}`);
    const { keyId, key } = await createKey({ permissions: many('old') });
    expect(slugs(await ok('keys.setPermissions', { keyId, permissions: many('new') }))).toEqual(many('new'));
    expect(await verify(key, 'new.999')).toMatchObject({ valid: true });
    expect(await verify(key, 'old.0 OR old.999')).toMatchObject({ valid: false });
  });

  test('at the same time as others leaves one of the lists whole', async () => {
    const { keyId } = await createKey();
    const lists = ['x', 'y', 'z'].map((name) => [`${name}.1`, `${name}.2`, `${name}.3`]);
    await Promise.all(lists.map((permissions) => ok('keys.setPermissions', { keyId, permissions })));
    expect(lists).toContainEqual((await ok('keys.getKey', { keyId })).permissions);
  });
});

describe('400', () => {
  test.each([[['ab']], [['fine.one', 'not fine']], [null], [undefined]])('for %j', async (permissions) => {
    const { keyId } = await createKey({ permissions: ['a.read'] });
    const answer = await call('keys.setPermissions', { keyId, permissions } as never);
    expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    expect((await ok('keys.getKey', { keyId })).permissions).toEqual(['a.read']);
  });
});

describe('403', () => {
  const needed = ['api.*.update_key', 'rbac.*.add_permission_to_key', 'rbac.*.remove_permission_from_key'];

  test.each(needed)('without %s, whatever the list', async (lacking) => {
    const { keyId } = await createKey({ permissions: ['a.read'] });
    const grants = needed.filter((grant) => grant !== lacking);
    for (const permissions of [[], ['a.read'], ['a.read', 'b.read']]) {
      const { status, error } = await call('keys.setPermissions', { keyId, permissions }, grants);
      expect(status).toBe(403);
      expect(error.detail).toContain(lacking);
    }
    expect((await ok('keys.getKey', { keyId })).permissions).toEqual(['a.read']);
  });

  test('with one that does not exist, without create_permission: nothing changes', async () => {
    const { keyId } = await createKey({ permissions: ['a.read'] });
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    const { status, error } = await call('keys.setPermissions', { keyId, permissions: ['a.read', 'missing'] }, needed);
    expect(status).toBe(403);
    expect(error.detail).toContain('rbac.*.create_permission');
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
    expect((await call('permissions.getPermission', { permission: 'missing' })).status).toBe(404);
    expect((await call('keys.setPermissions', { keyId, permissions: ['a.read'] }, needed)).status).toBe(200);
  });
});

test('404 for a key that is unknown or deleted; no permission is made', async () => {
  const { keyId } = await createKey();
  await ok('keys.deleteKey', { keyId });
  for (const gone of ['key_unknown', keyId]) {
    const answer = await call('keys.setPermissions', { keyId: gone, permissions: ['never.made'] });
    expect(answer).toMatchObject({ status: 404, code: 'key_not_found' });
  }
  expect((await call('permissions.getPermission', { permission: 'never.made' })).status).toBe(404);
});
