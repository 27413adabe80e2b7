import { expect, test, vi } from 'vitest';
import { Changes } from '../../../src/decide/leases/changes.ts';
import { cacheOn, harness, hourMs } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';

const app = harness();
const { call, ok, createKey, openWorkspace } = app;
const other = harness(undefined, { nowMs: () => app.clock.now });

let made = 0;
const newName = () => `gone.${++made}`;
const requests = { name: 'requests', limit: 10, duration: hourMs, autoApply: true };
async function planWith(fields: object = {}) {
  const planId = newName();
  await ok('plans.createPlan', { planId, ...fields });
  return planId;
}
const remaining = async (key: string) => (await ok('keys.verifyKey', { key })).ratelimits?.[0]?.remaining;

test('plans.deletePlan: 200 for one that nobody has; its planId may be used again', async () => {
  const planId = await planWith({ ratelimits: [requests], meta: { a: 1 } });
  expect(await ok('plans.deletePlan', { planId })).toEqual({});
  expect((await call('plans.getPlan', { planId })).status).toBe(404);
  expect((await call('plans.deletePlan', { planId })).status).toBe(404);
  await ok('plans.createPlan', { planId });
  expect(await ok('plans.getPlan', { planId })).toMatchObject({ ratelimits: [] });
  expect(await ok('plans.getPlan', { planId })).not.toHaveProperty('meta');
});

test('plans.deletePlan: 412 while it is used, with the numbers; then nothing changes', async () => {
  const planId = await planWith({ ratelimits: [requests] });
  const { apiId, key, keyId } = await createKey({ planId });
  await ok('keys.createKey', { apiId, planId });
  const externalId = newName();
  await ok('identities.createIdentity', { externalId, planId });
  const refused = await call('plans.deletePlan', { planId });
  expect(refused).toMatchObject({ status: 412, code: 'precondition_failed' });
  expect(refused.error.detail).toMatch(/keys: 2, identities: 1/);
  expect(await ok('keys.verifyKey', { key })).toMatchObject({ plan: { planId }, ratelimits: [{ remaining: 9 }] });
  expect(await ok('keys.getKey', { keyId })).toMatchObject({ planId });
  for (const { keyId } of await ok('keys.listKeys', { planId })) await ok('keys.deleteKey', { keyId });
  expect((await call('plans.deletePlan', { planId })).error.detail).toMatch(/keys: 0, identities: 1/);
  await ok('identities.updateIdentity', { identity: externalId, planId: null });
  await ok('plans.deletePlan', { planId });
});

test('plans.deletePlan: 400 for itself as its replacement, 403 without the grant', async () => {
  const planId = await planWith();
  expect(await call('plans.deletePlan', { planId, replaceWith: planId })).toMatchObject(
    onlyInvalidAt('body.replaceWith'),
  );
  expect(await call('plans.deletePlan', { planId, replaceWith: 'a b' })).toMatchObject(
    onlyInvalidAt('body.replaceWith'),
  );
  expect((await call('plans.deletePlan', { planId }, ['plan.*.update_plan'])).status).toBe(403);
  expect((await call('plans.deletePlan', { planId }, ['plan.*.delete_plan'])).status).toBe(200);
});

test('plans.deletePlan: 200 with replaceWith, which keeps counts, on every server', async () => {
  const [planId, replaceWith] = [
    await planWith({ ratelimits: [requests], permissions: ['old.read'], meta: { tier: 'old' } }),
    await planWith({ ratelimits: [{ ...requests, limit: 100 }], permissions: ['new.read'], meta: { tier: 'new' } }),
  ];
  const externalId = newName();
  await ok('identities.createIdentity', { externalId, planId });
  const { key: ofIdentity } = await createKey({ externalId });
  const { key, keyId } = await createKey({ planId });
  for (const each of [key, ofIdentity]) {
    await cacheOn([app, other], each, app.rootKey);
    expect(await remaining(each)).toBe(5);
  }
  await ok('plans.deletePlan', { planId, replaceWith });
  for (const each of [key, ofIdentity]) {
    for (const server of [app, other]) {
      const { data } = await server.call('keys.verifyKey', { key: each }, app.rootKey);
      expect(data).toMatchObject({
        valid: true,
        plan: { planId: replaceWith, meta: { tier: 'new' } },
        permissions: ['new.read'],
        ratelimits: [{ name: 'requests', limit: 100, remaining: server === app ? 94 : 93 }],
      });
    }
  }
  expect(await ok('keys.getKey', { keyId })).toMatchObject({ planId: replaceWith });
  expect(await ok('identities.getIdentity', { identity: externalId })).toMatchObject({ planId: replaceWith });
  expect(await ok('plans.getPlan', { planId: replaceWith })).toMatchObject({ keyCount: 1, identityCount: 1 });
  expect((await call('plans.getPlan', { planId })).status).toBe(404);
});

test('plans.deletePlan: 200 with replaceWith for 250 keys and 250 identities, in steps', async () => {
  const { of, rootKey, workspaceId } = await openWorkspace();
  await of('plans.createPlan', { planId: 'old', ratelimits: [requests] });
  await of('plans.createPlan', { planId: 'new', ratelimits: [{ ...requests, limit: 20 }] });
  const { apiId } = await of('apis.createApi', { name: 'many' });
  const keys = Array.from({ length: 250 }, (_, at) => ({
    hash: Buffer.alloc(32, at + 1)
      .fill(7, 1)
      .toString('base64'),
    planId: 'old',
  }));
  await of('keys.migrateKeys', { migrationId: 'many', apiId, keys });
  for (let at = 0; at < 250; at++) await of('identities.createIdentity', { externalId: `user.${at}`, planId: 'old' });
  expect(await of('plans.getPlan', { planId: 'old' })).toMatchObject({ keyCount: 250, identityCount: 250 });
  expect((await call('plans.deletePlan', { planId: 'old', replaceWith: 'none' }, rootKey)).status).toBe(404);
  const changed = vi.spyOn(Changes.prototype, 'changed');
  await of('plans.deletePlan', { planId: 'old', replaceWith: 'new' });
  // Each step waits for the leases of all servers.
  expect(changed.mock.calls.filter(([of]) => of === workspaceId).length).toBe(5);
  changed.mockRestore();
  expect(await of('plans.listPlans', {})).toMatchObject([{ planId: 'new', keyCount: 250, identityCount: 250 }]);
  const { planId, id } = await of('identities.getIdentity', { identity: 'user.249' });
  expect([planId, id.startsWith('id_')]).toEqual(['new', true]);
  // Each identity's limits are merged when one of its keys is verified.
  const { key } = await of('keys.createKey', { apiId, externalId: 'user.0' });
  expect(await of('keys.verifyKey', { key })).toMatchObject({ ratelimits: [{ limit: 20, remaining: 19 }] });
});

test('plans.deletePlan while keys and identities get it: none refers to a plan that is gone', async () => {
  for (let round = 0; round < 6; round++) {
    const [planId, replaceWith] = [await planWith({ ratelimits: [requests] }), await planWith()];
    const { apiId, keyId } = await createKey();
    const isReplaced = round % 2 === 0;
    let isOver = false;
    const tried: { status: number; code?: string | undefined }[] = [];
    const created: string[] = [];
    const creating = Array.from({ length: 8 }, async (_, at) => {
      while (!isOver) {
        const externalId = newName();
        const answer =
          at % 3 === 0
            ? await call('keys.createKey', { apiId, planId })
            : at % 3 === 1
              ? await call('identities.createIdentity', { externalId, planId })
              : await call('keys.updateKey', { keyId, planId });
        tried.push(answer);
        const { data } = answer;
        if (data && 'keyId' in data) created.push(data.keyId as string);
      }
    });
    await new Promise((done) => setTimeout(done, 40));
    const refused = await call('plans.deletePlan', { planId, ...(isReplaced && { replaceWith }) });
    await new Promise((done) => setTimeout(done, 20));
    isOver = true;
    await Promise.all(creating);
    expect(refused.status).toBe(isReplaced ? 200 : 412);
    const others = tried.filter(({ status, code }) => status !== 200 && code !== 'plan_not_found');
    expect(others).toEqual([]);
    for (const keyId of created)
      expect((await ok('keys.getKey', { keyId })).planId).toBe(isReplaced ? replaceWith : planId);
    const left = await ok('plans.getPlan', { planId: isReplaced ? replaceWith : planId });
    expect(left.keyCount).toBe(created.length + 1);
    expect((await ok('keys.listKeys', { planId: left.planId, limit: 100 })).length).toBe(Math.min(100, left.keyCount));
  }
});
