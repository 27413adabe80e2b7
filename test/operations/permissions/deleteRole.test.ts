import { describe, expect, test } from 'vitest';
import { cacheOn, harness, type InputOf } from '../../support/harness.ts';

const app = harness();
const { ok, createKey } = app;
const elsewhere = harness();

let made = 0;
/** A role with one permission, which no other test uses. */
async function newRole() {
  const [name, slug] = [`role ${++made}`, `documents${made}.read`];
  const { roleId } = await ok('permissions.createRole', { name, permissions: [slug] });
  return { roleId, name, slug };
}

const verify = (key: string, permissions?: string) =>
  ok('keys.verifyKey', { key, ...(permissions !== undefined && { permissions }) });

/** A key whose snapshot both servers have cached. */
async function seenKey(input: Omit<InputOf<'keys.createKey'>, 'apiId'>) {
  const created = await createKey(input);
  await cacheOn([app, elsewhere], created.key, app.rootKey);
  return created;
}

describe('permissions.deleteRole: 200', () => {
  test('is removed from every key from the next verification on, also from cached keys', async () => {
    const { name, slug } = await newRole();
    const { keyId, key } = await seenKey({ roles: [name], permissions: ['own.read'] });
    expect(await verify(key, slug)).toMatchObject({ valid: true, roles: [name], permissions: ['own.read', slug] });
    await ok('permissions.deleteRole', { role: name });
    const after = { valid: false, code: 'INSUFFICIENT_PERMISSIONS', permissions: ['own.read'] };
    for (const server of [app, elsewhere]) {
      const { data } = await server.call('keys.verifyKey', { key, permissions: slug }, app.rootKey);
      expect(data).toMatchObject(after);
      expect(data).not.toHaveProperty('roles');
    }
    const record = await ok('keys.getKey', { keyId });
    expect(record.permissions).toEqual(['own.read']);
    expect(record).not.toHaveProperty('roles');
  });

  test('a key whose last role is deleted has no roles', async () => {
    const { name } = await newRole();
    const { keyId, key } = await seenKey({ roles: [name] });
    await ok('permissions.deleteRole', { role: name });
    expect(await verify(key)).toEqual({ valid: true, code: 'VALID', keyId, enabled: true });
  });

  test('permissions of other roles and of the key itself stay', async () => {
    const { name, slug } = await newRole();
    const other = `other of ${name}`;
    await ok('permissions.createRole', { name: other, permissions: [slug] });
    const twice = await seenKey({ roles: [name, other] });
    const direct = await seenKey({ roles: [name], permissions: [slug] });
    await ok('permissions.deleteRole', { role: name });
    expect(await verify(twice.key, slug)).toMatchObject({ valid: true, roles: [other], permissions: [slug] });
    expect(await verify(direct.key, slug)).toMatchObject({ valid: true, permissions: [slug] });
  });

  test('a new role with its name is not given to the old keys', async () => {
    const { roleId, name, slug } = await newRole();
    const { keyId, key } = await seenKey({ roles: [name] });
    await ok('permissions.deleteRole', { role: name });
    const again = await ok('permissions.createRole', { name, permissions: [slug] });
    expect(again.roleId).not.toBe(roleId);
    const answer = await verify(key, slug);
    expect(answer).toMatchObject({ valid: false, code: 'INSUFFICIENT_PERMISSIONS' });
    expect(answer).not.toHaveProperty('roles');
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('roles');
    // When it is given to the key again, it counts again.
    expect(await ok('keys.addRoles', { keyId, roles: [name] })).toMatchObject([{ id: again.roleId }]);
    expect(await verify(key, slug)).toMatchObject({ valid: true, roles: [name] });
  });
});
