import { describe, expect, test } from 'vitest';
import type { OperationName } from '../../../src/operations/index.ts';
import { harness, hourMs } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';
import { storedLimit } from '../../support/limits.ts';

const app = harness();
const { call, ok, clock, createKey } = app;
const old = harness(undefined, { dataVersion: { current: 7, migration: undefined } });

let made = 0;
const newId = () => `plan.${++made}`;
const requests = { name: 'requests', limit: 10, duration: hourMs, autoApply: true };
const tokens = { name: 'tokens', limit: 1000, period: 'month' as const };
const jobs = { name: 'jobs', limit: 3, duration: 60_000, type: 'concurrency' as const };
const limitsNamed = (count: number, name = 'limit') =>
  Array.from({ length: count }, (_, at) => ({ ...requests, name: `${name}${at}` }));

describe('plans.createPlan: 200', () => {
  test('with limits of every type, permissions, roles and metadata', async () => {
    await ok('permissions.createRole', { name: 'plan.reader', permissions: ['docs.read'] });
    const planId = newId();
    const given = { ratelimits: [requests, tokens, jobs], permissions: ['docs.write'], roles: ['plan.reader'] };
    expect(await ok('plans.createPlan', { planId, ...given, meta: { seats: 5 } })).toEqual({ planId });
    expect(await ok('plans.getPlan', { planId })).toEqual({
      planId,
      ...given,
      ratelimits: [
        storedLimit(requests),
        storedLimit({ ...tokens, type: 'quota', anchor: 0, duration: 31 * 24 * hourMs }),
        storedLimit(jobs),
      ],
      meta: { seats: 5 },
      createdAt: clock.now,
      keyCount: 0,
      identityCount: 0,
    });
  });

  test('with nothing but its planId, of any length and all characters', async () => {
    for (const planId of ['a', 'A', '-', '.', '..', '__proto__', 'constructor', `Az09_.-${'x'.repeat(57)}`]) {
      expect(await ok('plans.createPlan', { planId })).toEqual({ planId });
      const { ratelimits, permissions, roles } = await ok('plans.getPlan', { planId });
      expect({ ratelimits, permissions, roles }).toEqual({ ratelimits: [], permissions: [], roles: [] });
      const { key } = await createKey({ planId });
      expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true, plan: { planId } });
      await ok('plans.deletePlan', { planId, replaceWith: (await ok('plans.createPlan', { planId: newId() })).planId });
    }
  });

  test('25 limits, and permissions and roles that are named twice count once', async () => {
    await ok('permissions.createRole', { name: 'plan.twice', permissions: [] });
    const planId = newId();
    const lists = { permissions: ['a.b', 'a.b'], roles: ['plan.twice', 'plan.twice'] };
    await ok('plans.createPlan', { planId, ratelimits: limitsNamed(25), ...lists });
    const plan = await ok('plans.getPlan', { planId });
    expect(plan.ratelimits).toHaveLength(25);
    expect(plan).toMatchObject({ permissions: ['a.b'], roles: ['plan.twice'] });
  });
});

describe('plans.createPlan: 400', () => {
  const rows: [location: string, fields: object][] = [
    ['body.planId', { planId: '' }],
    ['body.planId', { planId: 'x'.repeat(65) }],
    ...[' ', 'a b', 'a:b', 'a{b}', 'a*', 'ä', 'a\n', 'a\0', '../a', 'a/b'].map((planId): [string, object] => [
      'body.planId',
      { planId },
    ]),
    ['body.planId', { planId: 7 }],
    ['body.ratelimits', { ratelimits: limitsNamed(26) }],
    ['body.ratelimits[1].name', { ratelimits: [requests, requests] }],
    ['body.ratelimits[1].until', { ratelimits: [requests, { ...requests, name: 'abc', until: 1_900_000_000_000 }] }],
    ['body.ratelimits[0].duration', { ratelimits: [{ ...tokens, duration: hourMs }] }],
    ['body.ratelimits[0].duration', { ratelimits: [{ name: 'abc', limit: 1 }] }],
    ['body.ratelimits[0].period', { ratelimits: [{ name: 'abc', limit: 1, type: 'quota' }] }],
    ['body.ratelimits[0].period', { ratelimits: [{ ...requests, type: 'window', period: 'day' }] }],
    ['body.ratelimits[0].limit', { ratelimits: [{ ...jobs, limit: 10_001 }] }],
    ['body.ratelimits[0].duration', { ratelimits: [{ ...jobs, duration: 24 * hourMs + 1 }] }],
    ['body.permissions[0]', { permissions: ['a b'] }],
    ['body.roles[0]', { roles: [''] }],
    ['body.meta', { meta: [] }],
    ['body.meta', { meta: { text: 'x'.repeat(10_240) } }],
    ['body.credits', { credits: { remaining: 1 } }],
  ];
  test.each(rows)('%s of %j', async (location, fields) => {
    const planId = newId();
    expect(await call('plans.createPlan', { planId, ...fields } as never)).toMatchObject(invalidAt(location));
    expect((await call('plans.getPlan', { planId })).status).toBe(404);
  });
});

test('plans.createPlan: 403 without the grant, or for permissions without those of adding and creating them', async () => {
  const planId = newId();
  expect((await call('plans.createPlan', { planId }, ['plan.*.update_plan'])).status).toBe(403);
  const grants = ['plan.*.create_plan'];
  const permissions = ['plan.unknown'];
  const refused = await call('plans.createPlan', { planId, permissions }, grants);
  expect([refused.status, refused.error.detail]).toEqual([403, 'The root key lacks rbac.*.add_permission_to_role.']);
  const mayAdd = [...grants, 'rbac.*.add_permission_to_role'];
  expect((await call('plans.createPlan', { planId, permissions }, mayAdd)).status).toBe(403);
  expect((await call('plans.createPlan', { planId }, grants)).status).toBe(200);
});

test('plans.createPlan: 404 for an unknown role by its name; 409 for a planId that is taken', async () => {
  const planId = newId();
  const refused = await call('plans.createPlan', { planId, permissions: ['not.created'], roles: ['no such role'] });
  expect(refused).toMatchObject({ status: 404, code: 'role_not_found' });
  expect(refused.error.detail).toContain('"no such role"');
  expect(await ok('permissions.listPermissions', { search: 'not.created' })).toEqual([]);
  await ok('plans.createPlan', { planId, meta: { a: 1 } });
  expect(await call('plans.createPlan', { planId })).toMatchObject({ status: 409, code: 'plan_already_exists' });
  expect(await ok('plans.getPlan', { planId })).toMatchObject({ meta: { a: 1 } });
});

describe('a plan that does not exist is 404 with its name', () => {
  const planId = 'no.such.plan';
  const rows: [OperationName, (of: { apiId: string; keyId: string; externalId: string }) => object][] = [
    ['keys.createKey', ({ apiId }) => ({ apiId, planId })],
    ['keys.updateKey', ({ keyId }) => ({ keyId, name: 'changed', planId })],
    [
      'keys.migrateKeys',
      ({ apiId }) => ({
        migrationId: 'moved',
        apiId,
        keys: [{ hash: Buffer.alloc(32, 5).toString('base64'), planId }],
      }),
    ],
    ['identities.createIdentity', () => ({ externalId: 'not.created', planId })],
    ['identities.updateIdentity', ({ externalId }) => ({ identity: externalId, meta: { a: 1 }, planId })],
    ['plans.getPlan', () => ({ planId })],
    ['plans.updatePlan', () => ({ planId, meta: { a: 1 } })],
    ['plans.deletePlan', () => ({ planId })],
    ['plans.deletePlan', () => ({ planId: 'used.plan', replaceWith: planId })],
  ];
  test.each(rows)('%s', async (name, inputOf) => {
    await call('plans.createPlan', { planId: 'used.plan' });
    const externalId = `user.${++made}`;
    await ok('identities.createIdentity', { externalId });
    const of = { ...(await createKey({ planId: 'used.plan' })), externalId };
    const before = await Promise.all([
      ok('keys.getKey', { keyId: of.keyId }),
      ok('identities.getIdentity', { identity: externalId }),
      ok('plans.listPlans', {}),
    ]);
    const refused = await call(name, inputOf(of) as never);
    expect(refused).toMatchObject({ status: 404, code: 'plan_not_found' });
    expect(refused.error.detail).toContain(`"${planId}"`);
    expect(
      await Promise.all([
        ok('keys.getKey', { keyId: of.keyId }),
        ok('identities.getIdentity', { identity: externalId }),
        ok('plans.listPlans', {}),
      ]),
    ).toEqual(before);
    expect((await call('identities.getIdentity', { identity: 'not.created' })).status).toBe(404);
  });
});

describe('an owner with a plan has at most 25 limits of its own', () => {
  const own = limitsNamed(26, 'own');
  const planOf25 = async () =>
    (await ok('plans.createPlan', { planId: newId(), ratelimits: limitsNamed(25, 'plan') })).planId;
  const refusal = { status: 412, code: 'precondition_failed' };

  test('of a key', async () => {
    const planId = await planOf25();
    const { apiId, keyId, key } = await createKey({ ratelimits: own });
    expect(await call('keys.createKey', { apiId, planId, ratelimits: own })).toMatchObject(refusal);
    expect(await call('keys.updateKey', { keyId, planId })).toMatchObject(refusal);
    expect(await ok('keys.verifyKey', { key })).not.toHaveProperty('plan');
    await ok('keys.updateKey', { keyId, planId, ratelimits: own.slice(1) });
    expect((await ok('keys.verifyKey', { key })).ratelimits).toHaveLength(50);
    expect(await call('keys.updateKey', { keyId, ratelimits: own })).toMatchObject(refusal);
    const more = await call('keys.updateKey', { keyId, ratelimit: own[0]! });
    expect(more).toMatchObject(refusal);
    expect(more.error.detail).toContain('25');
    // One that replaces another is no more.
    await ok('keys.updateKey', { keyId, ratelimit: { ...own[1]!, limit: 99 } });
    await ok('keys.updateKey', { keyId, planId: null, ratelimits: own });
    expect((await ok('keys.verifyKey', { key })).ratelimits).toHaveLength(26);
  });

  test('of an identity', async () => {
    const planId = await planOf25();
    const externalId = `user.${++made}`;
    expect(await call('identities.createIdentity', { externalId, planId, ratelimits: own })).toMatchObject(refusal);
    await ok('identities.createIdentity', { externalId, ratelimits: own });
    const { key } = await createKey({ externalId });
    const change = (fields: object) => call('identities.updateIdentity', { identity: externalId, ...fields } as never);
    expect(await change({ planId })).toMatchObject(refusal);
    expect(await change({ planId, ratelimits: own.slice(1) })).toMatchObject({ status: 200 });
    expect(await change({ ratelimits: own })).toMatchObject(refusal);
    expect(await change({ ratelimit: own[0]! })).toMatchObject(refusal);
    expect((await ok('keys.verifyKey', { key })).ratelimits).toHaveLength(50);
  });
});

test('everything about plans is 412 before version 8 of the stored data, and nothing changes', async () => {
  const planId = newId();
  await ok('plans.createPlan', { planId });
  const { apiId, keyId } = await createKey();
  const externalId = `user.${++made}`;
  await ok('identities.createIdentity', { externalId });
  const tried: [OperationName, object][] = [
    ['plans.createPlan', { planId: newId() }],
    ['plans.updatePlan', { planId, meta: { a: 1 } }],
    ['keys.createKey', { apiId, planId }],
    ['keys.updateKey', { keyId, name: 'changed', planId }],
    [
      'keys.migrateKeys',
      { migrationId: 'moved', apiId, keys: [{ hash: Buffer.alloc(32, 5).toString('base64'), planId }] },
    ],
    ['identities.createIdentity', { externalId: 'not.created', planId }],
    ['identities.updateIdentity', { identity: externalId, planId }],
  ];
  const before = await ok('keys.getKey', { keyId });
  for (const [name, input] of tried) {
    const refused = await old.call(name, input as never, app.rootKey);
    expect([name, refused.status, refused.code]).toEqual([name, 412, 'precondition_failed']);
    expect(refused.error.detail).toContain('version 8 of the stored data');
  }
  expect(await ok('keys.getKey', { keyId })).toEqual(before);
  // A console that sends null for none is not refused.
  expect((await old.call('keys.updateKey', { keyId, planId: null }, app.rootKey)).status).toBe(200);
});
