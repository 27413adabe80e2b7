// Creating permissions and roles. test/operations/recordOperations.test.ts has what they share with identities.

import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const { call, ok, createKey } = harness();

const get = (permission: string) => ok('permissions.getPermission', { permission });

describe('permissions.createPermission: 200', () => {
  test('returns an id that reads the same fields', async () => {
    const given = { name: 'Read documents', slug: 'read.documents', description: 'All of them.' };
    const { permissionId, ...rest } = await ok('permissions.createPermission', given);
    expect(permissionId).toMatch(/^perm_[1-9A-HJ-NP-Za-km-z]{16,}$/);
    expect(rest).toEqual({});
    expect(await get(permissionId)).toEqual({ id: permissionId, ...given });
  });

  test('one created without a description has none', async () => {
    const { permissionId } = await ok('permissions.createPermission', { name: 'Plain', slug: 'plain' });
    expect(await get(permissionId)).toEqual({ id: permissionId, name: 'Plain', slug: 'plain' });
  });

  test('one that was created with a key has its slug as its name, and cannot be created again', async () => {
    await createKey({ permissions: ['made.by.key'] });
    const expected = { id: expect.stringMatching(/^perm_/), name: 'made.by.key', slug: 'made.by.key' };
    expect(await get('made.by.key')).toEqual(expected);
    const answer = await call('permissions.createPermission', { name: 'n', slug: 'made.by.key' });
    expect(answer).toMatchObject({ status: 409, code: 'permission_already_exists' });
  });

  test.each(['abc', 's'.repeat(100), 'a:b.c-d_e.*', '***', '123', '...'])('accepts the slug %s', async (slug) => {
    await ok('permissions.createPermission', { name: 'n', slug });
    expect((await get(slug)).slug).toBe(slug);
  });

  test.each(['x', '😀'.repeat(512), '"\\\0\u2028 é', ' '])('accepts any name: %j', async (name) => {
    const slug = `named.${Buffer.from(name.slice(0, 4)).toString('hex')}`;
    await ok('permissions.createPermission', { name, slug, description: name });
    expect(await get(slug)).toMatchObject({ name, description: name });
  });

  test('a caller without create_permission can give it to a key', async () => {
    const { permissionId } = await ok('permissions.createPermission', { name: 'Made first', slug: 'made.first' });
    const { keyId } = await createKey();
    const grants = ['api.*.update_key', 'rbac.*.add_permission_to_key'];
    const { data } = await call('keys.addPermissions', { keyId, permissions: ['made.first'] }, grants);
    expect(data).toEqual([{ id: permissionId, name: 'Made first', slug: 'made.first' }]);
  });
});

describe('permissions.createPermission: 400', () => {
  test.each<[string, object]>([
    ['slug', { name: 'n', slug: 'ab' }],
    ['slug', { name: 'n', slug: 's'.repeat(101) }],
    ['slug', { name: 'n', slug: 'a b' }],
    ['slug', { name: 'n', slug: 'a/b' }],
    ['slug', { name: 'n', slug: 'äbc' }],
    ['slug', { name: 'n', slug: 'abc\n' }],
    ['slug', { name: 'n' }],
    ['name', { name: '', slug: 'abcd' }],
    ['name', { name: '😀'.repeat(513), slug: 'abcd' }],
    ['name', { slug: 'abcd' }],
    ['description', { name: 'n', slug: 'abcd', description: null }],
  ])('names the field %s: %j', async (field, input) => {
    expect(await call('permissions.createPermission', input as never)).toMatchObject(invalidAt(`body.${field}`));
  });
});

const getRole = (role: string) => ok('permissions.getRole', { role });
const slugsOf = async (role: string) => (await getRole(role)).permissions.map(({ slug }) => slug);

/** Checks that neither the role nor the permission in the request was created. */
async function expectNothing(name: string, slug: string) {
  expect((await call('permissions.getRole', { role: name })).status).toBe(404);
  expect((await call('permissions.getPermission', { permission: slug })).status).toBe(404);
  expect(await ok('permissions.listPermissions', { search: slug })).toEqual([]);
}

describe('permissions.createRole: 200', () => {
  test('returns an id that reads the same fields', async () => {
    const { permissionId } = await ok('permissions.createPermission', { name: 'Read', slug: 'documents.read' });
    const { roleId, ...rest } = await ok('permissions.createRole', {
      name: 'Editor of documents',
      description: 'Reads and writes.',
      permissions: ['documents.read', 'documents.write'],
    });
    expect(roleId).toMatch(/^role_[1-9A-HJ-NP-Za-km-z]{16,}$/);
    expect(rest).toEqual({});
    expect(await getRole(roleId)).toEqual({
      id: roleId,
      name: 'Editor of documents',
      description: 'Reads and writes.',
      permissions: [
        { id: permissionId, name: 'Read', slug: 'documents.read' },
        { id: expect.stringMatching(/^perm_/), name: 'documents.write', slug: 'documents.write' },
      ],
    });
  });

  test('one with only a name has no description and no permissions', async () => {
    const { roleId } = await ok('permissions.createRole', { name: 'plain' });
    expect(await getRole('plain')).toEqual({ id: roleId, name: 'plain', permissions: [] });
  });

  test.each(['x', '😀'.repeat(100), '"\\\0\u2028 é', ' ', 'a,b', '17'])('accepts any name: %j', async (name) => {
    await ok('permissions.createRole', { name });
    expect((await getRole(name)).name).toBe(name);
    const { key } = await createKey({ roles: [name] });
    expect((await ok('keys.verifyKey', { key })).roles).toEqual([name]);
  });

  test('duplicate permissions count once, in the order given', async () => {
    await ok('permissions.createRole', { name: 'twice', permissions: ['t.b', 't.a', 't.b', 't.c', 't.a'] });
    expect(await slugsOf('twice')).toEqual(['t.b', 't.a', 't.c']);
    expect(await ok('permissions.listPermissions', { search: 't.b' })).toHaveLength(1);
  });

  test('accepts 1000 permissions, which count for a key of the role, and refuses 1001', async () => {
    const permissions = Array.from({ length: 1000 }, (_, index) => `many.${index}`);
    await ok('permissions.createRole', { name: 'many', permissions });
    expect(await slugsOf('many')).toEqual(permissions);
    const { key } = await createKey({ roles: ['many'] });
    expect(await ok('keys.verifyKey', { key, permissions: 'many.0 AND many.999' })).toMatchObject({ valid: true });
    const answer = await call('permissions.createRole', {
      name: 'too many',
      permissions: [...permissions, 'one.more'],
    });
    expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    await expectNothing('too many', 'one.more');
  });
});

describe('permissions.createRole: 400', () => {
  test.each<[string, object]>([
    ['name', { name: '' }],
    ['name', { name: '😀'.repeat(101) }],
    ['name', {}],
    ['description', { name: 'n', description: 'd'.repeat(513) }],
    ['description', { name: 'n', description: null }],
    ['permissions', { name: 'n', permissions: null }],
    ['permissions[1]', { name: 'n', permissions: ['fine.one', 'ab'] }],
    ['permissions[0]', { name: 'n', permissions: ['not fine'] }],
  ])('names the field %s: %j', async (field, input) => {
    expect(await call('permissions.createRole', input as never)).toMatchObject(invalidAt(`body.${field}`));
    await expectNothing('n', 'fine.one');
  });
});

test('permissions.createRole: 409 for a name that exists; nothing changes and no permission is created', async () => {
  const { roleId } = await ok('permissions.createRole', { name: 'taken', description: 'First', permissions: ['r.a'] });
  const before = await getRole(roleId);
  const again = { name: 'taken', description: 'Second', permissions: ['r.new'] };
  const answer = await call('permissions.createRole', again);
  expect(answer).toMatchObject({ status: 409, code: 'role_already_exists' });
  expect(await getRole('taken')).toEqual(before);
  expect((await call('permissions.getPermission', { permission: 'r.new' })).status).toBe(404);
  expect(await ok('permissions.listRoles', { search: 'taken' })).toHaveLength(1);
});

describe('permissions.createRole: 403', () => {
  test('with a permission that does not exist but without create_permission', async () => {
    await ok('permissions.createPermission', { name: 'n', slug: 'exists.already' });
    const grants = ['rbac.*.create_role', 'rbac.*.add_permission_to_role'];
    const permissions = ['exists.already', 'no.such'];
    const { status, error } = await call('permissions.createRole', { name: 'no', permissions }, grants);
    expect(status).toBe(403);
    expect(error.detail).toContain('rbac.*.create_permission');
    expect(error.detail).toContain('no.such');
    await expectNothing('no', 'no.such');
    const { status: allowed } = await call(
      'permissions.createRole',
      { name: 'yes', permissions: ['exists.already'] },
      grants,
    );
    expect(allowed).toBe(200);
  });
});
