import { beforeAll, describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createKey, clock } = harness();

beforeAll(async () => {
  await ok('permissions.createRole', { name: 'reader', permissions: ['documents.read'] });
  await ok('permissions.createRole', { name: 'writer', permissions: ['documents.write'] });
  await ok('permissions.createRole', { name: 'auditor', permissions: ['audit.*'] });
});

const verify = (key: string, permissions?: string) =>
  ok('keys.verifyKey', { key, ...(permissions !== undefined && { permissions }) });

describe('200', () => {
  test('replaces them and answers them all, in the order given', async () => {
    const { keyId } = await createKey({ roles: ['reader', 'writer'] });
    const data = await ok('keys.setRoles', { keyId, roles: ['auditor', 'writer', 'auditor'] });
    expect(data).toEqual(await Promise.all(['auditor', 'writer'].map((role) => ok('permissions.getRole', { role }))));
    expect((await ok('keys.getKey', { keyId })).roles).toEqual(['auditor', 'writer']);
  });

  test('counts from the next verification on, also of a key that was seen before', async () => {
    const { keyId, key } = await createKey({ roles: ['reader'] });
    for (let times = 0; times < 2; times++) expect(await verify(key, 'documents.read')).toMatchObject({ valid: true });
    await ok('keys.setRoles', { keyId, roles: ['auditor'] });
    expect(await verify(key, 'documents.read')).toMatchObject({ valid: false, roles: ['auditor'] });
    expect(await verify(key, 'audit.read')).toMatchObject({ valid: true, permissions: ['audit.*'] });
  });

  test('an empty list takes all away and leaves the permissions of its own', async () => {
    const { keyId, key } = await createKey({ roles: ['reader', 'writer'], permissions: ['own.read'] });
    expect(await ok('keys.setRoles', { keyId, roles: [] })).toEqual([]);
    const answer = await verify(key, 'own.read');
    expect(answer).toMatchObject({ valid: true, permissions: ['own.read'] });
    expect(answer).not.toHaveProperty('roles');
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('roles');
  });

  test('at the same time as others leaves one of the lists whole', async () => {
    const { keyId } = await createKey();
    const lists = [['reader', 'writer'], ['auditor', 'reader'], ['writer']];
    await Promise.all(lists.map((roles) => ok('keys.setRoles', { keyId, roles })));
    expect(lists).toContainEqual((await ok('keys.getKey', { keyId })).roles);
  });
});

describe('404', () => {
  test('role_not_found for one that does not exist, which is never made; nothing changes', async () => {
    const { keyId } = await createKey({ roles: ['reader'] });
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    const answer = await call('keys.setRoles', { keyId, roles: ['writer', 'nobody'] });
    expect(answer).toMatchObject({ status: 404, code: 'role_not_found' });
    expect(answer.error.detail).toContain('nobody');
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
    expect((await call('permissions.getRole', { role: 'nobody' })).status).toBe(404);
  });

  test('key_not_found for a key that is unknown or deleted', async () => {
    const { keyId } = await createKey();
    await ok('keys.deleteKey', { keyId });
    for (const gone of ['key_unknown', keyId]) {
      const answer = await call('keys.setRoles', { keyId: gone, roles: [] });
      expect(answer).toMatchObject({ status: 404, code: 'key_not_found' });
    }
  });
});

test.each([[['']], [['r'.repeat(101)]], [null], [undefined]])('400 for %j', async (roles) => {
  const { keyId } = await createKey({ roles: ['reader'] });
  expect(await call('keys.setRoles', { keyId, roles } as never)).toMatchObject({ status: 400, code: 'invalid_input' });
  expect((await ok('keys.getKey', { keyId })).roles).toEqual(['reader']);
});

describe('403', () => {
  const needed = ['api.*.update_key', 'rbac.*.add_role_to_key', 'rbac.*.remove_role_from_key'];

  test.each(needed)('without %s, whatever the list', async (lacking) => {
    const { keyId } = await createKey({ roles: ['reader'] });
    const grants = needed.filter((grant) => grant !== lacking);
    for (const roles of [[], ['reader'], ['reader', 'writer']]) {
      const { status, error } = await call('keys.setRoles', { keyId, roles }, grants);
      expect(status).toBe(403);
      expect(error.detail).toContain(lacking);
    }
    expect((await ok('keys.getKey', { keyId })).roles).toEqual(['reader']);
  });

  test('nothing else is needed', async () => {
    const { keyId } = await createKey({ roles: ['reader'] });
    expect((await call('keys.setRoles', { keyId, roles: ['writer'] }, needed)).status).toBe(200);
  });
});
