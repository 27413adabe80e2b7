import { beforeAll, describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createKey, clock } = harness();

beforeAll(async () => {
  await ok('permissions.createRole', { name: 'reader', permissions: ['documents.read', 'bills.read'] });
  await ok('permissions.createRole', { name: 'writer', permissions: ['documents.write', 'documents.read'] });
  await ok('permissions.createRole', { name: 'auditor' });
});

const names = (roles: { name: string }[]) => roles.map(({ name }) => name);
const verify = (key: string, permissions?: string) =>
  ok('keys.verifyKey', { key, ...(permissions !== undefined && { permissions }) });

describe('200', () => {
  test('answers the roles that are left, in the order they were given', async () => {
    const { keyId } = await createKey({ roles: ['writer', 'auditor', 'reader'] });
    const data = await ok('keys.removeRoles', { keyId, roles: ['auditor', 'auditor'] });
    expect(data).toEqual(await Promise.all(['writer', 'reader'].map((role) => ok('permissions.getRole', { role }))));
    expect((await ok('keys.getKey', { keyId })).roles).toEqual(['writer', 'reader']);
  });

  test('counts from the next verification on, also of a key that was seen before', async () => {
    const { keyId, key } = await createKey({ roles: ['reader', 'writer'] });
    for (let times = 0; times < 2; times++) {
      expect(await verify(key, 'documents.write AND bills.read')).toMatchObject({ valid: true });
    }
    await ok('keys.removeRoles', { keyId, roles: ['reader'] });
    expect(await verify(key, 'bills.read')).toMatchObject({
      valid: false,
      roles: ['writer'],
      permissions: ['documents.write', 'documents.read'],
    });
    expect(await verify(key, 'documents.read')).toMatchObject({ valid: true });
    expect(await ok('keys.removeRoles', { keyId, roles: ['writer'] })).toEqual([]);
    expect(await verify(key)).toEqual({ valid: true, code: 'VALID', keyId, enabled: true });
  });

  test('what the key has by itself stays', async () => {
    const { keyId, key } = await createKey({ roles: ['reader'], permissions: ['bills.read'] });
    await ok('keys.removeRoles', { keyId, roles: ['reader'] });
    expect(await verify(key, 'bills.read')).toMatchObject({ valid: true, permissions: ['bills.read'] });
  });

  test('one that the key does not have is ignored', async () => {
    const { keyId } = await createKey({ roles: ['reader'] });
    expect(names(await ok('keys.removeRoles', { keyId, roles: ['writer'] }))).toEqual(['reader']);
    expect(names(await ok('keys.removeRoles', { keyId, roles: ['writer', 'reader'] }))).toEqual([]);
  });

  test('other keys keep it', async () => {
    const [first, second] = [await createKey({ roles: ['reader'] }), await createKey({ roles: ['reader'] })];
    await ok('keys.removeRoles', { keyId: first.keyId, roles: ['reader'] });
    expect(await verify(second.key, 'bills.read')).toMatchObject({ valid: true, roles: ['reader'] });
  });
});

describe('404', () => {
  test('role_not_found for one that the workspace does not know: nothing changes', async () => {
    await ok('permissions.createRole', { name: 'gone' });
    const { keyId } = await createKey({ roles: ['gone', 'reader'] });
    await ok('permissions.deleteRole', { role: 'gone' });
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    for (const unknown of ['gone', 'nobody', 'READER']) {
      const answer = await call('keys.removeRoles', { keyId, roles: ['reader', unknown] });
      expect(answer).toMatchObject({ status: 404, code: 'role_not_found' });
      expect(answer.error.detail).toContain(unknown);
      expect(await ok('keys.getKey', { keyId })).toEqual(before);
    }
  });

  test('key_not_found for a key that is unknown or deleted', async () => {
    const { keyId } = await createKey({ roles: ['reader'] });
    await ok('keys.deleteKey', { keyId });
    for (const gone of ['key_unknown', keyId]) {
      const answer = await call('keys.removeRoles', { keyId: gone, roles: ['reader'] });
      expect(answer).toMatchObject({ status: 404, code: 'key_not_found' });
    }
  });
});

test.each([[[]], [['']], [null]])('400 for %j', async (roles) => {
  const { keyId } = await createKey({ roles: ['reader'] });
  const answer = await call('keys.removeRoles', { keyId, roles } as never);
  expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
  expect((await ok('keys.getKey', { keyId })).roles).toEqual(['reader']);
});

describe('403', () => {
  test.each(['api.*.update_key', 'rbac.*.remove_role_from_key'])('without %s', async (lacking) => {
    const { keyId } = await createKey({ roles: ['reader'] });
    const all = ['api.*.update_key', 'rbac.*.add_role_to_key', 'rbac.*.remove_role_from_key'];
    const grants = all.filter((grant) => grant !== lacking);
    const { status, error } = await call('keys.removeRoles', { keyId, roles: ['reader'] }, grants);
    expect(status).toBe(403);
    expect(error.detail).toContain(lacking);
    expect((await ok('keys.getKey', { keyId })).roles).toEqual(['reader']);
  });

  test('nothing else is needed', async () => {
    const { keyId, apiId } = await createKey({ roles: ['reader'] });
    const grants = [`api.${apiId}.update_key`, 'rbac.*.remove_role_from_key'];
    expect((await call('keys.removeRoles', { keyId, roles: ['reader'] }, grants)).status).toBe(200);
  });
});
