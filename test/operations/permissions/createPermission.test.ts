import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createKey } = harness();

const get = (permission: string) => ok('permissions.getPermission', { permission });

describe('permissions.createPermission: 200', () => {
  test('returns an id that reads the same fields', async () => {
    const given = { name: 'Read documents', slug: 'documents.read', description: 'All of them.' };
    const { permissionId, ...rest } = await ok('permissions.createPermission', given);
    expect(permissionId).toMatch(/^perm_[1-9A-HJ-NP-Za-km-z]{16,}$/);
    expect(rest).toEqual({});
    expect(await get(permissionId)).toEqual({ id: permissionId, ...given });
  });

  test('one created without a description has none', async () => {
    const { permissionId } = await ok('permissions.createPermission', { name: 'Plain', slug: 'plain' });
    expect(await get(permissionId)).toEqual({ id: permissionId, name: 'Plain', slug: 'plain' });
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

  test('slugs are case-sensitive, and names need not be unique', async () => {
    const lower = await ok('permissions.createPermission', { name: 'Same', slug: 'case.read' });
    const upper = await ok('permissions.createPermission', { name: 'Same', slug: 'Case.read' });
    expect((await get('case.read')).id).toBe(lower.permissionId);
    expect((await get('Case.read')).id).toBe(upper.permissionId);
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
    const { status, code, error } = await call('permissions.createPermission', input as never);
    expect({ status, code }).toEqual({ status: 400, code: 'invalid_input' });
    expect(error.errors).toContainEqual(expect.objectContaining({ location: `body.${field}` }));
  });
});

describe('permissions.createPermission: 409', () => {
  test('for a slug that exists, and nothing changes', async () => {
    const before = { name: 'First', slug: 'taken', description: 'The first.' };
    const { permissionId } = await ok('permissions.createPermission', before);
    const answer = await call('permissions.createPermission', { name: 'Second', slug: 'taken' });
    expect(answer).toMatchObject({ status: 409, code: 'permission_already_exists' });
    expect(await get('taken')).toEqual({ id: permissionId, ...before });
    expect(await ok('permissions.listPermissions', { search: 'taken' })).toHaveLength(1);
  });

  test('for a slug that was created with a key', async () => {
    await createKey({ permissions: ['made.by.key'] });
    const answer = await call('permissions.createPermission', { name: 'n', slug: 'made.by.key' });
    expect(answer).toMatchObject({ status: 409, code: 'permission_already_exists' });
  });

  test('for all but one of concurrent calls with one slug', async () => {
    const answers = await Promise.all(
      Array.from({ length: 5 }, () => call('permissions.createPermission', { name: 'n', slug: 'raced' })),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409, 409]);
  });
});

test('permissions.createPermission: 403 names the missing grant, also for a slug that exists', async () => {
  await ok('permissions.createPermission', { name: 'n', slug: 'exists' });
  const input = { name: 'n', slug: 'exists' };
  const { status, error } = await call('permissions.createPermission', input, ['rbac.*.read_permission']);
  expect(status).toBe(403);
  expect(error.detail).toContain('rbac.*.create_permission');
});
