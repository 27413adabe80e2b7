import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createKey, clock } = harness();

const slugs = (permissions: { slug: string }[]) => permissions.map(({ slug }) => slug);
const verify = (key: string, permissions?: string) =>
  ok('keys.verifyKey', { key, ...(permissions !== undefined && { permissions }) });

describe('200', () => {
  test('answers what is left, in the order it was given', async () => {
    const { keyId } = await createKey({ permissions: ['a.read', 'b.read', 'c.read', 'd.read'] });
    const data = await ok('keys.removePermissions', { keyId, permissions: ['c.read', 'a.read', 'c.read'] });
    expect(data).toEqual([
      await ok('permissions.getPermission', { permission: 'b.read' }),
      await ok('permissions.getPermission', { permission: 'd.read' }),
    ]);
    expect((await ok('keys.getKey', { keyId })).permissions).toEqual(['b.read', 'd.read']);
  });

  test('counts from the next verification on, also of a key that was seen before', async () => {
    const { keyId, key } = await createKey({ permissions: ['a.read', 'b.*'] });
    for (let times = 0; times < 2; times++) expect(await verify(key, 'a.read AND b.x')).toMatchObject({ valid: true });
    await ok('keys.removePermissions', { keyId, permissions: ['b.*'] });
    expect(await verify(key, 'b.x')).toMatchObject({ valid: false, permissions: ['a.read'] });
    expect(await ok('keys.removePermissions', { keyId, permissions: ['a.read'] })).toEqual([]);
    expect(await verify(key)).toEqual({ valid: true, code: 'VALID', keyId, enabled: true });
  });

  test('one that the key does not have is ignored', async () => {
    await ok('permissions.createPermission', { name: 'n', slug: 'known.elsewhere' });
    const { keyId } = await createKey({ permissions: ['a.read'] });
    expect(slugs(await ok('keys.removePermissions', { keyId, permissions: ['known.elsewhere'] }))).toEqual(['a.read']);
    expect(slugs(await ok('keys.removePermissions', { keyId, permissions: ['known.elsewhere', 'a.read'] }))).toEqual(
      [],
    );
  });

  test('one that only a role of the key has stays', async () => {
    await ok('permissions.createRole', { name: 'reader', permissions: ['r.read'] });
    const { keyId, key } = await createKey({ roles: ['reader'], permissions: ['r.read', 'own.read'] });
    expect(slugs(await ok('keys.removePermissions', { keyId, permissions: ['r.read'] }))).toEqual(['own.read']);
    expect(await verify(key, 'r.read')).toMatchObject({ valid: true, permissions: ['own.read', 'r.read'] });
  });

  test('a wildcard does not take away what it covers, nor the other way round', async () => {
    const { keyId, key } = await createKey({ permissions: ['w.*', 'w.read'] });
    await ok('keys.removePermissions', { keyId, permissions: ['w.read'] });
    expect(await verify(key, 'w.read')).toMatchObject({ valid: true, permissions: ['w.*'] });
    await ok('keys.addPermissions', { keyId, permissions: ['w.read'] });
    await ok('keys.removePermissions', { keyId, permissions: ['w.*'] });
    expect(await verify(key, 'w.read')).toMatchObject({ valid: true, permissions: ['w.read'] });
    expect(await verify(key, 'w.write')).toMatchObject({ valid: false });
  });

  test('other keys keep it, and so does the workspace', async () => {
    const first = await createKey({ permissions: ['a.read'] });
    const second = await createKey({ permissions: ['a.read'] });
    await ok('keys.removePermissions', { keyId: first.keyId, permissions: ['a.read'] });
    expect(await verify(second.key, 'a.read')).toMatchObject({ valid: true });
    expect((await call('permissions.getPermission', { permission: 'a.read' })).status).toBe(200);
  });

  test('1000 at once', async () => {
    const permissions = Array.from({ length: 1000 }, (_, index) => `many.${index}`);
    const { keyId } = await createKey({ permissions });
    const some = permissions.filter((_, index) => index % 2 === 0);
    expect(slugs(await ok('keys.removePermissions', { keyId, permissions: some }))).toEqual(
      permissions.filter((_, index) => index % 2 === 1),
    );
    expect(await ok('keys.removePermissions', { keyId, permissions })).toEqual([]);
  });
});

describe('404', () => {
  test('permission_not_found for one that the workspace does not know: nothing changes', async () => {
    const { keyId } = await createKey({ permissions: ['a.read', 'gone.read'] });
    await ok('permissions.deletePermission', { permission: 'gone.read' });
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    for (const unknown of ['gone.read', 'never.was', 'A.read']) {
      const answer = await call('keys.removePermissions', { keyId, permissions: ['a.read', unknown] });
      expect(answer).toMatchObject({ status: 404, code: 'permission_not_found' });
      expect(answer.error.detail).toContain(unknown);
      expect(await ok('keys.getKey', { keyId })).toEqual(before);
    }
  });

  test('key_not_found for a key that is unknown or deleted', async () => {
    const { keyId } = await createKey({ permissions: ['a.read'] });
    await ok('keys.deleteKey', { keyId });
    for (const gone of ['key_unknown', keyId]) {
      const answer = await call('keys.removePermissions', { keyId: gone, permissions: ['a.read'] });
      expect(answer).toMatchObject({ status: 404, code: 'key_not_found' });
    }
  });
});

test.each([[[]], [['ab']], [null]])('400 for %j', async (permissions) => {
  const { keyId } = await createKey({ permissions: ['a.read'] });
  const answer = await call('keys.removePermissions', { keyId, permissions } as never);
  expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
  expect((await ok('keys.getKey', { keyId })).permissions).toEqual(['a.read']);
});

describe('403', () => {
  test.each(['api.*.update_key', 'rbac.*.remove_permission_from_key'])('without %s', async (lacking) => {
    const { keyId } = await createKey({ permissions: ['a.read'] });
    const all = ['api.*.update_key', 'rbac.*.remove_permission_from_key', 'rbac.*.add_permission_to_key'];
    const grants = all.filter((grant) => grant !== lacking);
    const { status, error } = await call('keys.removePermissions', { keyId, permissions: ['a.read'] }, grants);
    expect(status).toBe(403);
    expect(error.detail).toContain(lacking);
    expect((await ok('keys.getKey', { keyId })).permissions).toEqual(['a.read']);
  });

  test('nothing else is needed', async () => {
    const { keyId, apiId } = await createKey({ permissions: ['a.read'] });
    const grants = [`api.${apiId}.update_key`, 'rbac.*.remove_permission_from_key'];
    expect((await call('keys.removePermissions', { keyId, permissions: ['a.read'] }, grants)).status).toBe(200);
  });
});
