import { describe, expect, test } from 'vitest';
import { cacheOn, harness, type InputOf } from '../../support/harness.ts';

const app = harness();
const { ok, createKey } = app;
const elsewhere = harness();

let made = 0;
/** A slug that no other test uses. */
const fresh = () => `documents${++made}.read`;

const verify = (key: string, permissions?: string) =>
  ok('keys.verifyKey', { key, ...(permissions !== undefined && { permissions }) });

/** A key whose snapshot both servers have cached. */
async function seenKey(input: Omit<InputOf<'keys.createKey'>, 'apiId'>) {
  const created = await createKey(input);
  await cacheOn([app, elsewhere], created.key, app.rootKey);
  return created;
}

describe('permissions.deletePermission: 200', () => {
  test('is removed from every key from the next verification on, also from cached keys', async () => {
    const slug = fresh();
    const { keyId, key } = await seenKey({ permissions: ['other.read', slug] });
    expect(await verify(key, slug)).toMatchObject({ valid: true, permissions: ['other.read', slug] });
    await ok('permissions.deletePermission', { permission: slug });
    const after = { valid: false, code: 'INSUFFICIENT_PERMISSIONS', permissions: ['other.read'] };
    expect(await verify(key, slug)).toMatchObject(after);
    expect((await elsewhere.call('keys.verifyKey', { key, permissions: slug }, app.rootKey)).data).toMatchObject(after);
    expect((await verify(key)).permissions).toEqual(['other.read']);
    expect((await ok('keys.getKey', { keyId })).permissions).toEqual(['other.read']);
  });

  test('a key whose last permission is deleted has no permissions', async () => {
    const slug = fresh();
    const { keyId, key } = await seenKey({ permissions: [slug] });
    await ok('permissions.deletePermission', { permission: slug });
    expect(await verify(key)).toEqual({ valid: true, code: 'VALID', keyId, enabled: true });
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('permissions');
  });

  test('is removed from every role, and so from the role’s keys', async () => {
    const slug = fresh();
    const role = { name: `role ${slug}`, permissions: [slug, 'other.write'] };
    await ok('permissions.createRole', role);
    const { key } = await seenKey({ roles: [role.name] });
    expect(await verify(key, slug)).toMatchObject({ valid: true });
    await ok('permissions.deletePermission', { permission: slug });
    expect(await verify(key, slug)).toMatchObject({ valid: false, permissions: ['other.write'], roles: [role.name] });
    expect(await verify(key, 'other.write')).toMatchObject({ valid: true });
    const { permissions } = await ok('permissions.getRole', { role: role.name });
    expect(permissions.map((permission) => permission.slug)).toEqual(['other.write']);
  });

  test('a new permission with its slug is not given to the old keys and roles', async () => {
    const slug = fresh();
    const role = `role ${slug}`;
    await ok('permissions.createRole', { name: role, permissions: [slug] });
    const direct = await seenKey({ permissions: [slug] });
    const through = await seenKey({ roles: [role] });
    await ok('permissions.deletePermission', { permission: slug });
    await ok('permissions.createPermission', { name: 'again', slug });
    for (const { keyId, key } of [direct, through]) {
      expect(await verify(key, slug)).toMatchObject({ valid: false, code: 'INSUFFICIENT_PERMISSIONS' });
      expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('permissions');
    }
    expect((await ok('permissions.getRole', { role })).permissions).toEqual([]);
    // When it is given to the key again, it counts again, once.
    expect(await ok('keys.addPermissions', { keyId: direct.keyId, permissions: [slug] })).toHaveLength(1);
    expect(await verify(direct.key, slug)).toMatchObject({ valid: true, permissions: [slug] });
  });

  test('a deleted wildcard covers nothing', async () => {
    const slug = fresh();
    const wildcard = slug.replace('.read', '.*');
    const { key } = await seenKey({ permissions: [wildcard] });
    expect(await verify(key, slug)).toMatchObject({ valid: true });
    await ok('permissions.deletePermission', { permission: wildcard });
    expect(await verify(key, slug)).toMatchObject({ valid: false });
  });

  test('does not delete permissions with a similar slug, or those that it covers', async () => {
    const slug = fresh();
    const alike = [`${slug}.own`, slug.slice(0, -1), slug.toUpperCase(), slug.replace('.read', '.*')];
    const { key } = await seenKey({ permissions: [...alike, slug] });
    await ok('permissions.deletePermission', { permission: slug });
    expect((await verify(key)).permissions).toEqual(alike);
    expect(await verify(key, slug)).toMatchObject({ valid: true });
  });
});
