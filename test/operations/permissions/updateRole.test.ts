import { describe, expect, test } from 'vitest';
import { cacheOn, harness } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const app = harness();
const { call, ok, createKey } = app;
const elsewhere = harness();

let made = 0;
/** A role that no other test uses. */
async function newRole() {
  const name = `role ${++made}`;
  const permissions = [`documents${made}.read`];
  const { roleId } = await ok('permissions.createRole', { name, description: 'Before.', permissions });
  return { roleId, name, permissions };
}

describe('permissions.updateRole: 200', () => {
  test('a new name reaches keys and plans from the next verification on, also cached keys', async () => {
    const { roleId, name, permissions } = await newRole();
    const planId = `plan.${made}`;
    await ok('plans.createPlan', { planId, roles: [name] });
    const keys = [await createKey({ roles: [name] }), await createKey({ planId })];
    for (const { key } of keys) await cacheOn([app, elsewhere], key, app.rootKey);
    const role = { id: roleId, name: `renamed ${made}`, description: 'Before.' };
    expect(await ok('permissions.updateRole', { role: name, name: role.name })).toEqual(role);
    for (const { key } of keys)
      for (const server of [app, elsewhere])
        expect((await server.call('keys.verifyKey', { key }, app.rootKey)).data).toMatchObject({
          valid: true,
          roles: [role.name],
          permissions,
        });
    expect((await ok('keys.getKey', { keyId: keys[0]!.keyId })).roles).toEqual([role.name]);
    expect((await ok('plans.getPlan', { planId })).roles).toEqual([role.name]);
    expect(await ok('permissions.getRole', { role: role.name })).toMatchObject(role);
    expect(await ok('keys.listKeys', { role: role.name })).toMatchObject([{ keyId: keys[0]!.keyId }]);
    expect(await call('permissions.getRole', { role: name })).toMatchObject({ status: 404 });
    // Another role may have the former name.
    await ok('permissions.createRole', { name });
  });

  test('changes only what is sent; null and an empty text remove the description', async () => {
    const { roleId: id, name } = await newRole();
    const update = (changes: object) => ok('permissions.updateRole', { role: id, ...changes });
    expect(await update({})).toEqual({ id, name, description: 'Before.' });
    expect(await update({ description: 'After.', name })).toEqual({ id, name, description: 'After.' });
    expect(await update({ description: null })).toEqual({ id, name });
    await update({ description: 'After.' });
    expect(await update({ description: '' })).toEqual({ id, name });
  });

  test('the audit log has what changed', async () => {
    const { roleId, name } = await newRole();
    await ok('permissions.updateRole', { role: name, name: `${name} renamed`, description: 'After.' });
    const [event] = await ok('audit.listEvents', { order: 'desc', limit: 1 });
    expect(event).toMatchObject({
      operation: 'permissions.updateRole',
      resource: { type: 'role', id: roleId },
      changes: [
        { field: 'name', before: name, after: `${name} renamed` },
        { field: 'description', before: 'Before.', after: 'After.' },
      ],
    });
  });
});

describe('permissions.updateRole: refused', () => {
  test('409 for the name of another role: nothing changes', async () => {
    const first = await newRole();
    const second = await newRole();
    const changes = { role: second.name, name: first.name, description: 'changed' };
    expect(await call('permissions.updateRole', changes)).toMatchObject({ status: 409, code: 'role_already_exists' });
    expect(await ok('permissions.getRole', { role: second.roleId })).toMatchObject({
      name: second.name,
      description: 'Before.',
    });
  });

  test.each<[string, object]>([
    ['name', { name: '' }],
    ['name', { name: 'n'.repeat(101) }],
    ['name', { name: null }],
    ['description', { description: 1 }],
    ['permissions', { permissions: [] }],
  ])('400 for %s: %j', async (field, changes) => {
    const { name } = await newRole();
    const answer = await call('permissions.updateRole', { role: name, ...changes } as never);
    expect(answer).toMatchObject(invalidAt(`body.${field}`));
  });

  test('404 for one that is deleted or that never was', async () => {
    const { roleId, name } = await newRole();
    await ok('permissions.deleteRole', { role: name });
    for (const role of [roleId, name, 'never made'])
      expect(await call('permissions.updateRole', { role, description: 'd' })).toMatchObject({
        status: 404,
        code: 'role_not_found',
      });
  });
});
