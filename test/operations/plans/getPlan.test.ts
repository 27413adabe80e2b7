import { expect, test } from 'vitest';
import { harness, hourMs } from '../../support/harness.ts';

const { call, ok, clock, createKey, createWorkspace } = harness();

let made = 0;
const newName = () => `read.${++made}`;

test('plans.getPlan: 200 with the numbers of keys and identities that have it, without deleted ones', async () => {
  const planId = newName();
  await ok('plans.createPlan', { planId });
  const counts = async () => {
    const { keyCount, identityCount } = await ok('plans.getPlan', { planId });
    return [keyCount, identityCount];
  };
  const externalId = newName();
  const { identityId } = await ok('identities.createIdentity', { externalId, planId });
  // Of its identity only.
  await createKey({ externalId });
  const { apiId, keyId } = await createKey({ planId });
  expect(await counts()).toEqual([1, 1]);
  const { keyId: rerolled } = await ok('keys.rerollKey', { keyId, expiration: hourMs });
  await ok('keys.createKey', { apiId, planId });
  expect(await counts()).toEqual([3, 1]);
  await ok('keys.deleteKey', { keyId: rerolled });
  await ok('identities.deleteIdentity', { identity: externalId });
  expect(await counts()).toEqual([2, 0]);
  await ok('keys.restoreKey', { keyId: rerolled });
  await ok('identities.restoreIdentity', { identityId });
  expect(await counts()).toEqual([3, 1]);
  await ok('keys.deleteKey', { keyId: rerolled, permanent: true });
  await ok('identities.updateIdentity', { identity: externalId, planId: null });
  await ok('keys.updateKey', { keyId, planId: null });
  expect(await counts()).toEqual([1, 0]);
});

test('plans.getPlan: 200 without what was deleted: permissions and roles', async () => {
  const [planId, role, slug] = [newName(), newName(), newName()];
  await ok('permissions.createRole', { name: role, permissions: [] });
  await ok('plans.createPlan', { planId, permissions: [slug, 'kept.one'], roles: [role] });
  const { key } = await createKey({ planId });
  expect(await ok('keys.verifyKey', { key })).toMatchObject({ permissions: [slug, 'kept.one'], roles: [role] });
  await ok('permissions.deletePermission', { permission: slug });
  await ok('permissions.deleteRole', { role });
  expect(await ok('plans.getPlan', { planId })).toMatchObject({ permissions: ['kept.one'], roles: [] });
  const verified = await ok('keys.verifyKey', { key, permissions: 'kept.one' });
  expect(verified).toMatchObject({ valid: true, permissions: ['kept.one'] });
  expect(verified).not.toHaveProperty('roles');
  expect(await ok('keys.verifyKey', { key, permissions: slug })).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
});

test('plans.getPlan: 200 as it is stored, with updatedAt after a change', async () => {
  const planId = newName();
  await ok('plans.createPlan', { planId });
  const created = clock.now;
  expect(await ok('plans.getPlan', { planId })).not.toHaveProperty('updatedAt');
  clock.advance(5000);
  const updated = await ok('plans.updatePlan', { planId, meta: { a: 1 } });
  expect(updated).toMatchObject({ createdAt: created, updatedAt: clock.now, meta: { a: 1 } });
  expect(await ok('plans.getPlan', { planId })).toEqual(updated);
});

test('plans.getPlan: 400, 403 and 404, also for a plan of another workspace', async () => {
  const planId = newName();
  await ok('plans.createPlan', { planId });
  expect((await call('plans.getPlan', { planId: 'a b' })).status).toBe(400);
  expect((await call('plans.getPlan', { planId }, ['plan.*.update_plan'])).status).toBe(403);
  expect((await call('plans.getPlan', { planId }, ['plan.*.read_plan'])).status).toBe(200);
  const { rootKey } = await createWorkspace();
  const refused = await call('plans.getPlan', { planId }, rootKey);
  expect(refused).toMatchObject({ status: 404, code: 'plan_not_found' });
  expect(refused.error.detail).toContain(`"${planId}"`);
  expect((await call('plans.getPlan', { planId: planId.toUpperCase() })).status).toBe(404);
});
