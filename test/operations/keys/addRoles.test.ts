import { beforeAll, describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createKey, clock } = harness();

beforeAll(async () => {
  await ok('permissions.createRole', { name: 'reader', permissions: ['documents.read', 'bills.read'] });
  await ok('permissions.createRole', { name: 'writer', permissions: ['documents.write', 'documents.read'] });
  await ok('permissions.createRole', { name: 'all', permissions: ['everything.*'] });
});

const names = (roles: { name: string }[]) => roles.map(({ name }) => name);
const verify = (key: string, permissions?: string) =>
  ok('keys.verifyKey', { key, ...(permissions !== undefined && { permissions }) });

describe('200', () => {
  test('answers all roles of the key with their permissions, the new ones last', async () => {
    const { keyId } = await createKey({ roles: ['writer'] });
    const data = await ok('keys.addRoles', { keyId, roles: ['all', 'reader'] });
    expect(data).toEqual(
      await Promise.all(['writer', 'all', 'reader'].map((role) => ok('permissions.getRole', { role }))),
    );
    expect((await ok('keys.getKey', { keyId })).roles).toEqual(['writer', 'all', 'reader']);
  });

  test('counts from the next verification on, also of a key that was seen before', async () => {
    const { keyId, key } = await createKey();
    for (let times = 0; times < 2; times++) expect(await verify(key, 'documents.read')).toMatchObject({ valid: false });
    await ok('keys.addRoles', { keyId, roles: ['reader'] });
    expect(await verify(key, 'documents.read')).toMatchObject({
      valid: true,
      roles: ['reader'],
      permissions: ['documents.read', 'bills.read'],
    });
    await ok('keys.addRoles', { keyId, roles: ['writer'] });
    expect(await verify(key, 'documents.write')).toMatchObject({
      valid: true,
      roles: ['reader', 'writer'],
      permissions: ['documents.read', 'bills.read', 'documents.write'],
    });
  });

  test('a wildcard of a role covers what is below it, and the query may mix roles and own permissions', async () => {
    const { keyId, key } = await createKey({ permissions: ['own.read'] });
    await ok('keys.addRoles', { keyId, roles: ['all', 'reader'] });
    for (const [query, valid] of [
      ['everything.read', true],
      ['everything.read.own', true],
      ['everything.*', true],
      ['everything', false],
      ['everythingelse.read', false],
      ['own.read AND bills.read AND everything.x', true],
      ['own.read AND documents.write', false],
      ['documents.write OR bills.read', true],
      ['roles.reader OR reader', false],
    ] as const) {
      expect(await verify(key, query), query).toMatchObject({ valid });
    }
  });

  test('one the key has, or one named twice, is there once', async () => {
    const { keyId } = await createKey({ roles: ['reader'] });
    const roles = await ok('keys.addRoles', { keyId, roles: ['writer', 'reader', 'writer'] });
    expect(names(roles)).toEqual(['reader', 'writer']);
  });

  test('sets updatedAt and touches nothing else', async () => {
    const { keyId } = await createKey({ name: 'n', permissions: ['documents.read'], externalId: 'alice' });
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    await ok('keys.addRoles', { keyId, roles: ['reader'] });
    const permissions = ['documents.read', 'bills.read'];
    expect(await ok('keys.getKey', { keyId })).toEqual({
      ...before,
      permissions,
      roles: ['reader'],
      updatedAt: clock.now,
    });
  });
});

describe('a key has at most 100', () => {
  const hundred = Array.from({ length: 100 }, (_, index) => `role ${index}`);
  beforeAll(async () => {
    for (const [index, name] of hundred.entries()) {
      await ok('permissions.createRole', { name, permissions: [`of.role.${index}`, 'of.all'] });
    }
  });

  test('which all count', async () => {
    const { keyId, key } = await createKey({ roles: hundred.slice(0, 40) });
    expect(names(await ok('keys.addRoles', { keyId, roles: hundred.slice(30) }))).toEqual(hundred);
    const answer = await verify(key, 'of.role.0 AND of.role.39 AND of.role.99');
    expect(answer).toMatchObject({ valid: true, roles: hundred });
    expect(answer.permissions).toHaveLength(101);
  });

  test('400 for one more, and nothing is changed', async () => {
    const { keyId, key } = await createKey({ roles: hundred });
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    const answer = await call('keys.addRoles', { keyId, roles: ['role 5', 'reader'] });
    expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(answer.error.errors).toEqual([expect.objectContaining({ location: 'body.roles' })]);
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
    expect(await verify(key, 'documents.read')).toMatchObject({ valid: false });
    expect(await ok('keys.addRoles', { keyId, roles: ['role 5'] })).toHaveLength(100);
  });

  test('one that was deleted does not count', async () => {
    await ok('permissions.createRole', { name: 'short-lived' });
    const { keyId } = await createKey({ roles: [...hundred.slice(1), 'short-lived'] });
    expect((await call('keys.addRoles', { keyId, roles: ['reader'] })).status).toBe(400);
    await ok('permissions.deleteRole', { role: 'short-lived' });
    expect(names(await ok('keys.addRoles', { keyId, roles: ['reader'] }))).toEqual([...hundred.slice(1), 'reader']);
  });

  test.each(['keys.createKey', 'keys.updateKey', 'keys.setRoles', 'keys.migrateKeys'] as const)(
    '400 for 101 by %s',
    async (operation) => {
      const { apiId, keyId } = await createKey({ roles: ['reader'] });
      const roles = [...hundred, 'reader'];
      const hash = Buffer.alloc(32, operation).toString('base64');
      const input = {
        'keys.createKey': { apiId, roles },
        'keys.updateKey': { keyId, roles },
        'keys.setRoles': { keyId, roles },
        'keys.migrateKeys': { apiId, migrationId: 'migration', keys: [{ hash, roles }] },
      }[operation];
      expect(await call(operation, input as never)).toMatchObject({ status: 400, code: 'invalid_input' });
      const keys = await ok('apis.listKeys', { apiId });
      expect(keys.map(({ keyId, roles }) => ({ keyId, roles }))).toEqual([{ keyId, roles: ['reader'] }]);
    },
  );
});

describe('404', () => {
  test('role_not_found for one that does not exist, which is never made; nothing changes', async () => {
    await ok('permissions.createRole', { name: 'gone' });
    await ok('permissions.deleteRole', { role: 'gone' });
    const { keyId } = await createKey({ roles: ['writer'] });
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    for (const unknown of ['nobody', 'Reader', 'gone', (await ok('permissions.getRole', { role: 'reader' })).id]) {
      const answer = await call('keys.addRoles', { keyId, roles: ['reader', unknown] });
      expect(answer).toMatchObject({ status: 404, code: 'role_not_found' });
      expect(answer.error.detail).toContain(unknown);
    }
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
    expect((await call('permissions.getRole', { role: 'nobody' })).status).toBe(404);
  });

  test('key_not_found for a key that is unknown or deleted', async () => {
    const { keyId } = await createKey();
    await ok('keys.deleteKey', { keyId });
    for (const gone of ['key_unknown', keyId]) {
      const answer = await call('keys.addRoles', { keyId: gone, roles: ['reader'] });
      expect(answer).toMatchObject({ status: 404, code: 'key_not_found' });
    }
  });
});

test.each([[[]], [['']], [['r'.repeat(101)]], [null]])('400 for %j', async (roles) => {
  const { keyId } = await createKey();
  expect(await call('keys.addRoles', { keyId, roles } as never)).toMatchObject({ status: 400, code: 'invalid_input' });
});

describe('403', () => {
  test.each(['api.*.update_key', 'rbac.*.add_role_to_key'])('without %s', async (lacking) => {
    const { keyId } = await createKey();
    const all = ['api.*.update_key', 'rbac.*.add_role_to_key', 'rbac.*.remove_role_from_key'];
    const grants = all.filter((grant) => grant !== lacking);
    const { status, error } = await call('keys.addRoles', { keyId, roles: ['reader'] }, grants);
    expect(status).toBe(403);
    expect(error.detail).toContain(lacking);
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('roles');
  });

  test('nothing else is needed: update_key for its API and add_role_to_key', async () => {
    const { keyId, apiId } = await createKey();
    const grants = [`api.${apiId}.update_key`, 'rbac.*.add_role_to_key'];
    expect((await call('keys.addRoles', { keyId, roles: ['reader'] }, grants)).status).toBe(200);
    const other = await createKey();
    expect((await call('keys.addRoles', { keyId: other.keyId, roles: ['reader'] }, grants)).status).toBe(403);
  });
});
