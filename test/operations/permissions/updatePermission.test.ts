import { describe, expect, test } from 'vitest';
import { cacheOn, harness } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const app = harness();
const { call, ok, createKey } = app;
const elsewhere = harness();

let made = 0;
/** A permission that no other test uses, and a slug for it that none has. */
async function newPermission() {
  const slug = `documents${++made}.read`;
  const { permissionId } = await ok('permissions.createPermission', { name: 'Read', slug, description: 'Before.' });
  return { permissionId, slug, renamed: `files${made}.read` };
}

const onBoth = async (key: string, permissions: string) => {
  const answers = [];
  for (const server of [app, elsewhere])
    answers.push((await server.call('keys.verifyKey', { key, permissions }, app.rootKey)).data);
  expect(answers[1]).toEqual(answers[0]);
  return answers[0]!;
};

describe('permissions.updatePermission: 200', () => {
  test('a new slug reaches keys, roles and plans from the next verification on, also cached keys', async () => {
    const { permissionId, slug, renamed } = await newPermission();
    const [role, planId] = [`role ${slug}`, `plan.${made}`];
    await ok('permissions.createRole', { name: role, permissions: [slug] });
    await ok('plans.createPlan', { planId, permissions: [slug] });
    const keys = [
      await createKey({ permissions: [slug] }),
      await createKey({ roles: [role] }),
      await createKey({ planId }),
    ];
    for (const { key } of keys) {
      await cacheOn([app, elsewhere], key, app.rootKey);
      expect(await onBoth(key, slug)).toMatchObject({ valid: true, permissions: [slug] });
      expect(await onBoth(key, renamed)).toMatchObject({ valid: false });
    }
    const permission = { id: permissionId, name: 'Read', slug: renamed, description: 'Before.' };
    expect(await ok('permissions.updatePermission', { permission: slug, slug: renamed })).toEqual(permission);
    for (const { key, keyId } of keys) {
      expect(await onBoth(key, renamed)).toMatchObject({ valid: true, permissions: [renamed] });
      expect(await onBoth(key, slug)).toMatchObject({ valid: false, code: 'INSUFFICIENT_PERMISSIONS' });
      if (key === keys[0]!.key) expect((await ok('keys.getKey', { keyId })).permissions).toEqual([renamed]);
    }
    expect((await ok('permissions.getRole', { role })).permissions).toEqual([permission]);
    expect((await ok('plans.getPlan', { planId })).permissions).toEqual([renamed]);
    expect(await ok('permissions.listPermissions', { search: renamed })).toEqual([permission]);
    expect(await call('permissions.getPermission', { permission: slug })).toMatchObject({ status: 404 });
  });

  test('the former slug can be used again, for another permission', async () => {
    const { permissionId, slug, renamed } = await newPermission();
    const { key } = await createKey({ permissions: [slug] });
    await ok('permissions.updatePermission', { permission: permissionId, slug: renamed });
    const { permissionId: second } = await ok('permissions.createPermission', { name: 'Again', slug });
    expect(second).not.toBe(permissionId);
    expect(await onBoth(key, slug)).toMatchObject({ valid: false, permissions: [renamed] });
    // And the other way round: deleting one does not delete the other.
    await ok('permissions.deletePermission', { permission: slug });
    expect(await onBoth(key, renamed)).toMatchObject({ valid: true });
  });

  test('a slug that becomes a wildcard covers others', async () => {
    const { slug, renamed } = await newPermission();
    const { key } = await createKey({ permissions: [slug] });
    await ok('permissions.updatePermission', { permission: slug, slug: renamed.replace('.read', '.*') });
    expect(await onBoth(key, renamed)).toMatchObject({ valid: true });
  });

  test('changes only what is sent; null and an empty text remove the description', async () => {
    const { permissionId, slug } = await newPermission();
    const update = (changes: object) => ok('permissions.updatePermission', { permission: slug, ...changes });
    const plain = { id: permissionId, slug, name: 'Read' };
    expect(await update({})).toEqual({ ...plain, description: 'Before.' });
    expect(await update({ name: 'Renamed' })).toEqual({ ...plain, name: 'Renamed', description: 'Before.' });
    expect(await update({ name: 'Read', description: null })).toEqual(plain);
    expect(await update({ description: 'After.' })).toEqual({ ...plain, description: 'After.' });
    expect(await update({ description: '' })).toEqual(plain);
    // Its own slug is no conflict.
    expect(await update({ slug })).toEqual(plain);
  });

  test('the audit log has what changed', async () => {
    const { permissionId, slug, renamed } = await newPermission();
    await ok('permissions.updatePermission', { permission: slug, slug: renamed, name: 'Read', description: null });
    const [event] = await ok('audit.listEvents', { order: 'desc', limit: 1 });
    expect(event).toMatchObject({
      operation: 'permissions.updatePermission',
      resource: { type: 'permission', id: permissionId },
      changes: [
        { field: 'slug', before: slug, after: renamed },
        { field: 'description', before: 'Before.' },
      ],
    });
  });
});

describe('permissions.updatePermission: refused', () => {
  test('409 for the slug of another permission: nothing changes', async () => {
    const first = await newPermission();
    const second = await newPermission();
    const changes = { permission: second.slug, slug: first.slug, name: 'changed' };
    const answer = await call('permissions.updatePermission', changes);
    expect(answer).toMatchObject({ status: 409, code: 'permission_already_exists' });
    expect(await ok('permissions.getPermission', { permission: second.permissionId })).toMatchObject({
      slug: second.slug,
      name: 'Read',
    });
  });

  test.each<[string, object]>([
    ['slug', { slug: 'ab' }],
    ['slug', { slug: 's'.repeat(101) }],
    ['slug', { slug: 'a b' }],
    ['slug', { slug: null }],
    ['name', { name: '' }],
    ['name', { name: null }],
    ['description', { description: 'd'.repeat(513) }],
    ['other', { other: 1 }],
  ])('400 for %s: %j', async (field, changes) => {
    const { slug } = await newPermission();
    const answer = await call('permissions.updatePermission', { permission: slug, ...changes } as never);
    expect(answer).toMatchObject(invalidAt(`body.${field}`));
  });

  test('404 for one that is deleted or that never was', async () => {
    const { permissionId, slug } = await newPermission();
    await ok('permissions.deletePermission', { permission: slug });
    for (const permission of [permissionId, slug, 'never.made'])
      expect(await call('permissions.updatePermission', { permission, name: 'n' })).toMatchObject({
        status: 404,
        code: 'permission_not_found',
      });
  });
});
