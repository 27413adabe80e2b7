import { describe, expect, test } from 'vitest';
import { cacheOn, harness, hourMs } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';
import { storedLimit } from '../../support/limits.ts';

const app = harness();
const { call, ok, clock, createKey } = app;
const elsewhere = harness(undefined, { nowMs: () => clock.now });

let made = 0;
const newName = () => `changed.${++made}`;
const requests = { name: 'requests', limit: 10, duration: hourMs, autoApply: true };
async function planWith(fields: object = {}) {
  const planId = newName();
  await ok('plans.createPlan', { planId, ...fields });
  return planId;
}
const update = (planId: string, fields: object) => ok('plans.updatePlan', { planId, ...fields });
const limitsOf = async (key: string, extras: object = {}) =>
  (await ok('keys.verifyKey', { key, ...extras } as never)).ratelimits;

describe('plans.updatePlan: 200', () => {
  test('only what is given; lists are replaced, null removes the metadata, limits keep their ids', async () => {
    await ok('permissions.createRole', { name: 'update.role', permissions: [] });
    const others = { permissions: ['a.b'], roles: ['update.role'], meta: { a: 1 } };
    const planId = await planWith({ ratelimits: [requests], ...others });
    const [before] = (await ok('plans.getPlan', { planId })).ratelimits;
    clock.advance(1);
    const jobs = { name: 'jobs', limit: 3, duration: 60_000, type: 'concurrency' as const };
    const changed = await update(planId, { ratelimits: [jobs, { ...requests, limit: 20 }] });
    expect(changed).toMatchObject({ ...others, updatedAt: clock.now });
    expect(changed.ratelimits).toEqual([storedLimit(jobs), { ...before, limit: 20 }]);
    expect(await update(planId, { permissions: [] })).toMatchObject({ ...others, permissions: [] });
    expect(await update(planId, { roles: [] })).toMatchObject({ permissions: [], roles: [], meta: { a: 1 } });
    expect(await update(planId, { meta: null })).not.toHaveProperty('meta');
    const emptied = await update(planId, { ratelimits: [] });
    expect(emptied.ratelimits).toEqual([]);
    expect(await ok('plans.getPlan', { planId })).toEqual(emptied);
  });

  test('a limit without a type keeps that of the plan, and a quota its period', async () => {
    const quota = { name: 'tokens', limit: 10, period: 'month', anchor: 5 * hourMs };
    const planId = await planWith({ ratelimits: [quota] });
    const { ratelimits } = await update(planId, {
      ratelimits: [{ name: 'tokens', limit: 20, duration: 31 * 24 * hourMs }],
    });
    expect(ratelimits).toMatchObject([{ type: 'quota', period: 'month', anchor: 5 * hourMs, limit: 20 }]);
    const refused = await call('plans.updatePlan', {
      planId,
      ratelimits: [{ name: 'tokens', limit: 20, type: 'window' }],
    } as never);
    expect(refused).toMatchObject(invalidAt('body.ratelimits[0].duration'));
  });

  test('from the answer on, on every server, for cached keys of the plan and of identities with it', async () => {
    const planId = await planWith({ ratelimits: [requests], permissions: ['a.read'], meta: { tier: 1 } });
    const externalId = newName();
    await ok('identities.createIdentity', { externalId, planId });
    const keys = [await createKey({ planId }), await createKey({ externalId }), await createKey({ externalId })];
    for (const { key } of keys) await cacheOn([app, elsewhere], key, app.rootKey);
    const { roleId } = await ok('permissions.createRole', { name: 'updated.role', permissions: ['b.read'] });
    await update(planId, { ratelimits: [{ ...requests, limit: 100 }], permissions: [], roles: ['updated.role'] });
    await update(planId, { meta: { tier: 2 } });
    const counted = new Map<number, number>();
    for (const [at, { key }] of keys.entries()) {
      for (const server of [elsewhere, app]) {
        // Both keys of the identity share its limit.
        const owner = Math.min(at, 1);
        counted.set(owner, (counted.get(owner) ?? (owner === 0 ? 4 : 8)) + 1);
        const { data } = await server.call('keys.verifyKey', { key, permissions: 'b.read' }, app.rootKey);
        expect(data).toMatchObject({
          valid: true,
          plan: { planId, meta: { tier: 2 } },
          permissions: ['b.read'],
          roles: ['updated.role'],
          ratelimits: [{ name: 'requests', limit: 100, remaining: 100 - counted.get(owner)! }],
        });
      }
    }
    // And of a role of the plan.
    await ok('permissions.setRolePermissions', { roleId, permissions: ['c.read'] });
    for (const server of [elsewhere, app]) {
      const { data } = await server.call('keys.verifyKey', { key: keys[0]!.key }, app.rootKey);
      expect(data.permissions).toEqual(['c.read']);
    }
  });

  test('counts stay, and another duration has a count of its own, to which the former one returns', async () => {
    const planId = await planWith({ ratelimits: [requests] });
    const { key } = await createKey({ planId });
    await limitsOf(key, { ratelimits: [{ name: 'requests', cost: 7 }] });
    await update(planId, { ratelimits: [{ ...requests, limit: 8 }] });
    expect(await limitsOf(key)).toMatchObject([{ limit: 8, remaining: 0 }]);
    await update(planId, { ratelimits: [{ ...requests, limit: 5 }] });
    expect(await limitsOf(key)).toMatchObject([{ exceeded: true, remaining: 0 }]);
    await update(planId, { ratelimits: [{ ...requests, duration: 2 * hourMs }] });
    expect(await limitsOf(key)).toMatchObject([{ remaining: 9, duration: 2 * hourMs }]);
    await update(planId, { ratelimits: [{ ...requests, period: 'month', duration: undefined }] });
    expect(await limitsOf(key)).toMatchObject([{ remaining: 9, type: 'quota' }]);
    await update(planId, { ratelimits: [] });
    expect(await limitsOf(key)).toBeUndefined();
    await update(planId, { ratelimits: [{ ...requests, type: 'window' }] });
    expect(await limitsOf(key)).toMatchObject([{ remaining: 1 }]);
    await update(planId, { ratelimits: [{ ...requests, period: 'month', duration: undefined }] });
    expect(await limitsOf(key)).toMatchObject([{ remaining: 8 }]);
  });

  test('changes nothing of a key that has an own limit of that name', async () => {
    const planId = await planWith({ ratelimits: [requests] });
    const { key } = await createKey({ planId, ratelimits: [{ ...requests, limit: 3 }] });
    await limitsOf(key);
    await update(planId, {
      ratelimits: [
        { ...requests, limit: 100 },
        { ...requests, name: 'others' },
      ],
    });
    expect(await limitsOf(key)).toMatchObject([
      { name: 'requests', limit: 3, remaining: 1 },
      { name: 'others', limit: 10, remaining: 9 },
    ]);
  });

  test('is an event of the audit log with what changed', async () => {
    const planId = await planWith({ ratelimits: [requests], meta: { a: 1 } });
    await update(planId, { ratelimits: [{ ...requests, limit: 20 }], meta: null });
    await ok('plans.deletePlan', { planId });
    const events = (await ok('audit.listEvents', { resource: { type: 'plan', id: planId } })) as unknown as {
      operation: string;
      changes: { field: string }[];
    }[];
    const summary = events.map(({ operation, changes }) => [operation, changes.map(({ field }) => field).sort()]);
    expect(summary).toEqual([
      ['plans.createPlan', ['meta', 'ratelimits']],
      ['plans.updatePlan', ['meta', 'ratelimits']],
      ['plans.deletePlan', ['ratelimits']],
    ]);
  });
});

describe('plans.updatePlan: refusals change nothing', () => {
  const limits26 = Array.from({ length: 26 }, (_, at) => ({ ...requests, name: `limit ${at}` }));
  const rows: [location: string, fields: object][] = [
    ['body.planId', { planId: 'a b' }],
    ['body.ratelimits', { ratelimits: limits26 }],
    ['body.ratelimits', { ratelimits: null }],
    ['body.ratelimits[0].until', { ratelimits: [{ ...requests, until: 1_900_000_000_000 }] }],
    ['body.ratelimits[1].name', { ratelimits: [requests, requests] }],
    ['body.ratelimits[0].duration', { ratelimits: [{ ...requests, period: 'day' }] }],
    ['body.ratelimits[0].limit', { ratelimits: [{ ...requests, type: 'concurrency', limit: 10_001 }] }],
    ['body.permissions[0]', { permissions: ['a b'] }],
    ['body.permissions', { permissions: null }],
    ['body.meta', { meta: { text: 'x'.repeat(10_240) } }],
    ['body.ratelimit', { ratelimit: requests }],
  ];
  test.each(rows)('400: %s of %j', async (location, fields) => {
    const planId = await planWith({ ratelimits: [requests], meta: { a: 1 } });
    const before = await ok('plans.getPlan', { planId });
    expect(await call('plans.updatePlan', { planId, ...fields } as never)).toMatchObject(invalidAt(location));
    expect(await ok('plans.getPlan', { planId })).toEqual(before);
  });

  test('403 without the grants, 404 for an unknown role', async () => {
    const planId = await planWith({ meta: { a: 1 } });
    const grants = ['plan.*.update_plan'];
    const before = await ok('plans.getPlan', { planId });
    expect((await call('plans.updatePlan', { planId }, ['plan.*.create_plan'])).status).toBe(403);
    const permissions = ['update.unknown'];
    const ofRoles = ['rbac.*.add_permission_to_role', 'rbac.*.remove_permission_from_role'];
    for (const others of [[], ofRoles.slice(0, 1), ofRoles.slice(1), ofRoles]) {
      const held = [...grants, ...others];
      expect((await call('plans.updatePlan', { planId, permissions, meta: null }, held)).status).toBe(403);
    }
    const refused = await call('plans.updatePlan', { planId, meta: null, roles: ['no such role'], permissions });
    expect(refused).toMatchObject({ status: 404, code: 'role_not_found' });
    expect(refused.error.detail).toContain('"no such role"');
    expect(await ok('plans.getPlan', { planId })).toEqual(before);
    expect(await ok('permissions.listPermissions', { search: 'update.unknown' })).toEqual([]);
    expect((await call('plans.updatePlan', { planId, meta: null }, grants)).status).toBe(200);
  });
});
