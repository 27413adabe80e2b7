// Plans in decisions: which limits, permissions and roles apply, and what stays counted.

import { describe, expect, test } from 'vitest';
import { digestOf } from '../../src/domain/keyString.ts';
import { workspaceKey } from '../../src/redis/names.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';
import { redisOfFile } from '../support/ofFile.ts';
import { random, seed } from '../support/random.ts';

const h = harness(undefined, { leaseMs: 0 });
const { call, ok, clock, createKey } = h;
const elsewhere = harness(undefined, { leaseMs: 0, nowMs: () => clock.now });
const redis = await redisOfFile();

let made = 0;
const newName = () => `decided.${++made}`;
const minute = 60_000;
const requests = { name: 'requests', limit: 10, duration: hourMs, autoApply: true };
const tokens = { name: 'tokens', limit: 1000, period: 'month' as const };
const jobs = { name: 'jobs', limit: 2, duration: minute, type: 'concurrency' as const };

async function planWith(fields: object = {}) {
  const planId = newName();
  await ok('plans.createPlan', { planId, ...fields });
  return planId;
}
const limitedTo = (limit: number, more: object = {}) => planWith({ ratelimits: [{ ...requests, limit, ...more }] });
async function identityWith(fields: object = {}) {
  const externalId = newName();
  const { identityId } = await ok('identities.createIdentity', { externalId, ...fields });
  return { externalId, identityId };
}
const verify = (key: string, extras: object = {}) => ok('keys.verifyKey', { key, ...extras } as never);
const states = async (key: string, extras: object = {}) => (await verify(key, extras)).ratelimits ?? [];
const spend = (key: string, cost: number, name = 'requests') => states(key, { ratelimits: [{ name, cost }] });
const updateKey = (keyId: string, fields: object) => ok('keys.updateKey', { keyId, ...fields } as never);
const updatePlan = (planId: string, fields: object) => ok('plans.updatePlan', { planId, ...fields } as never);

describe('which limits apply', () => {
  test('an own limit of a key replaces that of its plan; without it, that of the plan goes on', async () => {
    const planId = await planWith({ ratelimits: [requests, { ...requests, name: 'others' }] });
    const { key, keyId } = await createKey({ planId });
    expect(await spend(key, 4)).toMatchObject([
      { name: 'requests', remaining: 6 },
      { name: 'others', remaining: 9 },
    ]);
    await updateKey(keyId, { ratelimit: { ...requests, limit: 50 } });
    expect(await states(key)).toMatchObject([
      { name: 'requests', limit: 50, remaining: 45 },
      { name: 'others', remaining: 8 },
    ]);
    // Only its own are in its record.
    expect((await ok('keys.getKey', { keyId })).ratelimits).toMatchObject([{ name: 'requests', limit: 50 }]);
    await updateKey(keyId, { ratelimits: [] });
    expect(await states(key)).toMatchObject([
      { name: 'requests', limit: 10, remaining: 4 },
      { name: 'others', remaining: 7 },
    ]);
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('ratelimits.0');
    // The own limit had the count of the same name and duration.
    await updateKey(keyId, { ratelimit: { ...requests, duration: minute, limit: 5 } });
    expect(await states(key)).toMatchObject([{ limit: 5, remaining: 4 }, {}]);
    await updateKey(keyId, { ratelimit: { name: 'requests', limit: null } });
    expect(await states(key)).toMatchObject([{ limit: 10, remaining: 3 }, {}]);
  });

  test('of an identity likewise, whose keys share them', async () => {
    const planId = await limitedTo(10);
    const { externalId } = await identityWith({ planId });
    const [first, second] = [await createKey({ externalId }), await createKey({ externalId })];
    await spend(first.key, 4);
    expect(await states(second.key)).toMatchObject([{ limit: 10, remaining: 5 }]);
    const change = (fields: object) => ok('identities.updateIdentity', { identity: externalId, ...fields } as never);
    await change({ ratelimit: { ...requests, limit: 50 } });
    expect(await states(first.key)).toMatchObject([{ limit: 50, remaining: 44 }]);
    expect(await ok('identities.getIdentity', { identity: externalId })).toMatchObject({
      planId,
      ratelimits: [{ limit: 50 }],
    });
    await change({ ratelimits: [] });
    expect(await states(second.key)).toMatchObject([{ limit: 10, remaining: 3 }]);
    expect(await ok('identities.getIdentity', { identity: externalId })).toMatchObject({ ratelimits: [] });
    await change({ planId: null });
    expect(await verify(first.key)).not.toHaveProperty('ratelimits.0');
    expect(await verify(first.key)).not.toHaveProperty('plan');
    await change({ planId });
    expect(await states(first.key)).toMatchObject([{ limit: 10, remaining: 2 }]);
  });

  test("that of the key before that of its identity, each from its plan or its owner's own", async () => {
    const [ofKey, ofIdentity] = [
      await planWith({ ratelimits: [requests], meta: { of: 'key' }, permissions: ['key.read'] }),
      await planWith({
        ratelimits: [
          { ...requests, limit: 20 },
          { ...requests, name: 'shared', limit: 30 },
        ],
        meta: { of: 'identity' },
        permissions: ['identity.read'],
      }),
    ];
    const { externalId } = await identityWith({ planId: ofIdentity });
    const { key, keyId } = await createKey({ externalId, planId: ofKey });
    const both = await verify(key, { permissions: 'key.read AND identity.read' });
    expect(both).toMatchObject({
      valid: true,
      plan: { planId: ofKey, meta: { of: 'key' } },
      ratelimits: [{ limit: 10 }, { name: 'shared', limit: 30 }],
    });
    expect([...both.permissions!].sort()).toEqual(['identity.read', 'key.read']);
    await updateKey(keyId, { planId: null });
    expect(await verify(key)).toMatchObject({
      plan: { planId: ofIdentity, meta: { of: 'identity' } },
      permissions: ['identity.read'],
      ratelimits: [
        { limit: 20, remaining: 19 },
        { name: 'shared', remaining: 28 },
      ],
    });
    // The same plan for both.
    await updateKey(keyId, { planId: ofIdentity });
    expect(await states(key)).toMatchObject([{ limit: 20 }, { name: 'shared', limit: 30, remaining: 29 }]);
    await updatePlan(ofIdentity, { ratelimits: [{ ...requests, limit: 5 }] });
    expect(await states(key)).toMatchObject([{ limit: 5 }]);
    expect(await states(key)).toHaveLength(1);
  });

  test('a quota and a concurrency limit', async () => {
    const planId = await planWith({ ratelimits: [jobs, tokens] });
    const { key, keyId } = await createKey({ planId });
    const take = () =>
      verify(key, { ratelimits: [{ name: 'jobs' }, { name: 'tokens', cost: 100 }], hold: { ttl: minute } });
    const [first] = [await take(), await take()];
    expect(await take()).toMatchObject({ code: 'RATE_LIMITED' });
    // A plan that is changed while holds are open.
    await updatePlan(planId, {
      ratelimits: [
        { ...jobs, limit: 3 },
        { ...tokens, limit: 5000 },
      ],
    });
    expect(await take()).toMatchObject({ valid: true });
    expect(await take()).toMatchObject({ code: 'RATE_LIMITED' });
    await ok('keys.settleHold', { holdId: first!.hold!.id, ratelimits: [{ name: 'tokens', cost: 10 }] });
    expect(await take()).toMatchObject({ valid: true, ratelimits: [{ remaining: 0 }, { remaining: 4690 }] });
    // Without the limits, the holds can still be ended.
    await updatePlan(planId, { ratelimits: [] });
    const holds = await ok('keys.listHolds', { keyId });
    expect(holds).toHaveLength(3);
    for (const [at, { id: holdId }] of holds.entries()) {
      const ended = await call(at === 0 ? 'keys.releaseHold' : 'keys.settleHold', { holdId });
      expect(ended.status).toBe(200);
    }
    await updatePlan(planId, { ratelimits: [jobs, tokens] });
    expect(await take()).toMatchObject({ valid: true, ratelimits: [{ remaining: 1 }, {}] });
  });

  test('a temporary own limit replaces that of the plan until it ends', async () => {
    const planId = await limitedTo(10);
    const { externalId } = await identityWith({ planId });
    const keys = [await createKey({ planId }), await createKey({ externalId })];
    for (const [at, { key, keyId }] of keys.entries()) {
      const until = clock.now + minute;
      const set = (ratelimit: object) =>
        at === 0
          ? updateKey(keyId, { ratelimit })
          : ok('identities.updateIdentity', { identity: externalId, ratelimit } as never);
      await spend(key, 4);
      await set({ ...requests, limit: 100, until });
      expect(await states(key)).toMatchObject([{ limit: 100, remaining: 95, until }]);
      // The plan is changed meanwhile.
      await updatePlan(planId, { ratelimits: [{ ...requests, limit: 20 }] });
      expect(await states(key)).toMatchObject([{ limit: 100, remaining: 94, until }]);
      clock.advance(minute);
      expect(await states(key)).toMatchObject([{ limit: 20, remaining: 13 }]);
      // Of another duration, and ended before a change of the owner.
      await set({ ...requests, limit: 100, duration: 2 * minute, until: clock.now + minute });
      expect(await states(key)).toMatchObject([{ limit: 100, remaining: 99 }]);
      clock.advance(minute);
      await set({ ...requests, name: 'others' });
      expect(await states(key)).toMatchObject([{ name: 'others' }, { name: 'requests', limit: 20, remaining: 12 }]);
      await updatePlan(planId, { ratelimits: [requests] });
    }
  });

  test('a rerolled key has the plan, also when a temporary limit ended', async () => {
    const planId = await limitedTo(10);
    const { keyId, key } = await createKey({ planId });
    await spend(key, 4);
    await updateKey(keyId, { ratelimit: { ...requests, limit: 100, until: clock.now + minute } });
    clock.advance(minute);
    const rerolled = await ok('keys.rerollKey', { keyId, expiration: hourMs });
    expect(await verify(rerolled.key)).toMatchObject({ plan: { planId }, ratelimits: [{ limit: 10, remaining: 9 }] });
    expect(await states(key)).toMatchObject([{ limit: 10, remaining: 5 }]);
    expect(await ok('keys.getKey', { keyId: rerolled.keyId })).toMatchObject({ planId });
    await updatePlan(planId, { ratelimits: [{ ...requests, limit: 20 }] });
    expect(await states(rerolled.key)).toMatchObject([{ limit: 20, remaining: 18 }]);
    expect((await ok('keys.listKeys', { planId })).map(({ keyId }) => keyId).sort()).toEqual(
      [keyId, rerolled.keyId].sort(),
    );
  });

  test('a change of the plan keeps what was counted, an unused key too', async () => {
    const [free, pro, none] = [await limitedTo(10), await limitedTo(100), await planWith()];
    const { key, keyId } = await createKey({ planId: free });
    await spend(key, 10);
    expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED' });
    await updateKey(keyId, { planId: pro });
    expect(await states(key)).toMatchObject([{ limit: 100, remaining: 89 }]);
    await updateKey(keyId, { planId: none });
    expect(await verify(key)).toMatchObject({ valid: true, plan: { planId: none } });
    await updateKey(keyId, { planId: free });
    expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED', ratelimits: [{ remaining: 0 }] });
    clock.advance(2 * hourMs);
    expect(await states(key)).toMatchObject([{ remaining: 9 }]);
  });
});

test('permissions and roles are added up, on every server, and not part of the key', async () => {
  const [roleOfKey, roleOfPlan] = [newName(), newName()];
  await ok('permissions.createRole', { name: roleOfKey, permissions: ['role.own'] });
  await ok('permissions.createRole', { name: roleOfPlan, permissions: ['role.plan', 'shared.slug'] });
  const planId = await planWith({ permissions: ['plan.read', 'shared.slug'], roles: [roleOfPlan, roleOfKey] });
  const { key, keyId } = await createKey({ planId, permissions: ['own.read', 'shared.slug'], roles: [roleOfKey] });
  const all = ['own.read', 'plan.read', 'role.own', 'role.plan', 'shared.slug'];
  for (const server of [h, elsewhere]) {
    const { data } = await server.call('keys.verifyKey', { key, permissions: all.join(' AND ') }, h.rootKey);
    expect([...data.permissions!].sort()).toEqual(all);
    expect([...data.roles!].sort()).toEqual([roleOfKey, roleOfPlan].sort());
  }
  const record = await ok('keys.getKey', { keyId });
  expect([...(record.permissions as string[])].sort()).toEqual(['own.read', 'role.own', 'shared.slug']);
  expect(record.roles).toEqual([roleOfKey]);
  await updateKey(keyId, { planId: null });
  for (const server of [h, elsewhere]) {
    const { data } = await server.call('keys.verifyKey', { key, permissions: 'plan.read' }, h.rootKey);
    expect(data).toMatchObject({ valid: false, code: 'INSUFFICIENT_PERMISSIONS' });
    expect(data).not.toHaveProperty('plan');
  }
});

test('what is remembered of an owner ends with a change of its plan, of the plans, or of itself', async () => {
  const of = (limit: number, slug: string) => planWith({ ratelimits: [{ ...requests, limit }], permissions: [slug] });
  const [first, second, third] = [
    await of(100, 'first.read'),
    await of(200, 'second.read'),
    await of(300, 'third.read'),
  ];
  const { externalId } = await identityWith({ planId: first });
  const keys = [await createKey({ planId: first }), await createKey({ externalId })];
  const isOf = async (limit: number, slug: string) => {
    for (const { key } of keys) {
      // The first one merges, the second one remembers, and the third one knows.
      for (let again = 0; again < 3; again++) {
        const [state] = await states(key, { permissions: slug });
        expect(state).toMatchObject({ limit });
      }
    }
  };
  await isOf(100, 'first.read');
  await ok('plans.deletePlan', { planId: first, replaceWith: second });
  await isOf(200, 'second.read');
  await updateKey(keys[0]!.keyId, { planId: third });
  await ok('identities.updateIdentity', { identity: externalId, planId: third });
  await isOf(300, 'third.read');
  await updatePlan(third, { permissions: ['fourth.read'] });
  await isOf(300, 'fourth.read');
  for (const { key } of keys) {
    expect(await verify(key, { permissions: 'third.read' })).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
  }
});

test('the credits of the identity are in it, beside a plan', async () => {
  const planId = await planWith({ meta: { seats: 5 } });
  const { externalId } = await identityWith({ planId, credits: { remaining: 9 } });
  const { key } = await createKey({ externalId });
  const { identity, plan, credits } = await verify(key);
  expect({ credits, ofIdentity: identity!.credits, plan }).toEqual({
    credits: 8,
    ofIdentity: 8,
    plan: { planId, meta: { seats: 5 } },
  });
});

test('explainKey says of each limit from which plan it is, and changes nothing', async () => {
  const [ofKey, ofIdentity] = [
    await planWith({ ratelimits: [requests, { ...requests, name: 'key plan' }], permissions: ['plan.read'] }),
    await planWith({ ratelimits: [{ ...requests, name: 'identity plan' }] }),
  ];
  const { externalId } = await identityWith({
    planId: ofIdentity,
    ratelimits: [{ ...requests, name: 'identity own' }],
  });
  const { key, keyId } = await createKey({ externalId, planId: ofKey, ratelimits: [requests] });
  const explain = async () => {
    const { rules, valid } = await ok('keys.explainKey', { keyId, permissions: 'plan.read' });
    const { ratelimits = [] } = rules.find(({ rule }) => rule === 'ratelimits')!;
    return [valid, ...ratelimits.map(({ name, of, planId, remaining }) => [name, of, planId, remaining])];
  };
  const before = [
    true,
    ['requests', 'key', undefined, 9],
    ['key plan', 'key', ofKey, 9],
    ['identity own', 'identity', undefined, 9],
    ['identity plan', 'identity', ofIdentity, 9],
  ];
  // Before the first verification, and after a change of the plan, which no verification has merged.
  expect(await explain()).toEqual(before);
  await verify(key);
  await updatePlan(ofKey, { ratelimits: [{ ...requests, name: 'key plan', limit: 5 }] });
  const record = `${workspaceKey(h.workspaceId)}:k:`;
  const state = () => redis.hgetBuffer(Buffer.concat([Buffer.from(record), digestOf(key)]) as never, 'state');
  const stored = await state();
  expect((await explain())[2]).toEqual(['key plan', 'key', ofKey, 3]);
  expect(await state()).toEqual(stored);
  expect((await states(key))[1]).toMatchObject({ name: 'key plan', limit: 5, remaining: 3 });
});

test('explainKey has the plan of a key at once, also before the first verification', async () => {
  const [former, present] = [await planWith({ permissions: ['plan.read'] }), await planWith({})];
  const { externalId, identityId } = await identityWith({ planId: former });
  const ofKey = await createKey({ planId: former });
  const ofIdentity = await createKey({ externalId });
  const codeOf = async (key: string) => (await ok('keys.explainKey', { key, permissions: 'plan.read' })).code;
  // The clock stands, so both changes get the versions that the dry runs had.
  expect(await codeOf(ofKey.key)).toBe('VALID');
  await ok('keys.updateKey', { keyId: ofKey.keyId, planId: present });
  expect(await codeOf(ofKey.key)).toBe('INSUFFICIENT_PERMISSIONS');
  expect(await codeOf(ofIdentity.key)).toBe('VALID');
  await ok('identities.updateIdentity', { identity: identityId, planId: present });
  expect(await codeOf(ofIdentity.key)).toBe('INSUFFICIENT_PERMISSIONS');
});

describe('deleted and restored', () => {
  test.each([true, false])('a key, whose plan was deleted meanwhile: %s', async (isGone) => {
    const planId = await planWith({ ratelimits: [requests], permissions: ['plan.read'] });
    const { key, keyId } = await createKey({ planId, ratelimits: [{ ...requests, name: 'own' }] });
    for (let times = 0; times < 3; times++) await verify(key);
    await ok('keys.deleteKey', { keyId });
    if (isGone) await ok('plans.deletePlan', { planId });
    else await updatePlan(planId, { ratelimits: [{ ...requests, limit: 50 }] });
    await ok('keys.restoreKey', { keyId });
    for (const { call } of [h, elsewhere, h]) {
      const { data } = await call('keys.verifyKey', { key, permissions: 'plan.read' }, h.rootKey);
      expect(data.code).toBe(isGone ? 'INSUFFICIENT_PERMISSIONS' : 'VALID');
      expect(data.plan?.planId).toBe(isGone ? undefined : planId);
    }
    const limits = await states(key);
    expect(limits.map(({ name }) => name)).toEqual(isGone ? ['own'] : ['own', 'requests']);
    if (!isGone) expect(limits[1]).toMatchObject({ limit: 50, remaining: 50 - 7 });
    expect((await ok('keys.getKey', { keyId })).planId).toBe(isGone ? undefined : planId);
    // One of the same name is another one.
    if (isGone) {
      await ok('plans.createPlan', { planId, ratelimits: [{ ...requests, limit: 77 }] });
      expect(await states(key)).toHaveLength(1);
      await ok('plans.deletePlan', { planId });
    }
  });

  test.each([
    [true, true],
    [true, false],
    [false, true],
    [false, false],
  ])(
    'an identity, whose plan was deleted meanwhile: %s; its key was verified meanwhile: %s',
    async (isGone, isUsed) => {
      const planId = await planWith({ ratelimits: [requests], meta: { a: 1 }, permissions: ['plan.read'] });
      const { externalId, identityId } = await identityWith({ planId, ratelimits: [{ ...requests, name: 'own' }] });
      // With permissions of its own, so that its snapshot depends on the same versions without the plan.
      const { key } = await createKey({ externalId, permissions: ['own.read'] });
      for (let times = 0; times < 3; times++) await verify(key);
      await ok('identities.deleteIdentity', { identity: externalId });
      if (isUsed) {
        const without = await verify(key);
        expect(without).not.toHaveProperty('plan');
        expect(without).not.toHaveProperty('ratelimits.0');
      }
      if (isGone) await ok('plans.deletePlan', { planId });
      else await updatePlan(planId, { ratelimits: [{ ...requests, limit: 50 }] });
      await ok('identities.restoreIdentity', { identityId });
      for (const { call } of [h, elsewhere, h]) {
        const { data } = await call('keys.verifyKey', { key, permissions: 'plan.read' }, h.rootKey);
        expect(data.code).toBe(isGone ? 'INSUFFICIENT_PERMISSIONS' : 'VALID');
        expect(data.plan?.planId).toBe(isGone ? undefined : planId);
      }
      const { ratelimits = [], identity } = await verify(key);
      expect(ratelimits.map(({ name }) => name)).toEqual(isGone ? ['own'] : ['own', 'requests']);
      expect(identity!.ratelimits!.map(({ name }) => name)).toEqual(isGone ? ['own'] : ['own', 'requests']);
      expect((await ok('identities.getIdentity', { identity: externalId })).planId).toBe(isGone ? undefined : planId);
      expect(await ok('identities.listIdentities', { planId })).toHaveLength(isGone ? 0 : 1);
    },
  );

  /** Gives a key or an identity a plan; `change` changes its fields. */
  async function ownerWith(isKey: boolean, planId: string) {
    const { externalId, identityId } = await identityWith(isKey ? {} : { planId });
    const { key, keyId } = await createKey({ externalId, ...(isKey && { planId }) });
    return {
      key,
      keyId,
      change: (fields: object) =>
        isKey
          ? updateKey(keyId, fields)
          : ok('identities.updateIdentity', { identity: externalId, ...fields } as never),
      remove: () =>
        isKey ? ok('keys.deleteKey', { keyId }) : ok('identities.deleteIdentity', { identity: externalId }),
      restore: () => (isKey ? ok('keys.restoreKey', { keyId }) : ok('identities.restoreIdentity', { identityId })),
      planNow: async (deleted: boolean) => {
        if (!isKey) return (await ok('identities.listIdentities', { deleted, search: externalId }))[0]?.planId;
        return (await ok('keys.listKeys', { deleted, search: keyId }))[0]?.planId;
      },
    };
  }

  describe.each([
    ['a key', true],
    ['an identity', false],
  ])('%s', (_, isKey) => {
    test.each([hourMs, minute])(
      'whose temporary limit in place of that of the plan has ended; its duration: %d',
      async (duration) => {
        const planId = await planWith({ ratelimits: [requests, tokens] });
        const { key, change, remove, restore } = await ownerWith(isKey, planId);
        await spend(key, 4);
        const until = clock.now + minute;
        await change({ ratelimit: { ...requests, limit: 100, duration, until } });
        await spend(key, 2);
        clock.advance(minute);
        await remove();
        await restore();
        const spent = duration === hourMs ? 6 : 4;
        expect(await states(key)).toMatchObject([{ name: 'requests', limit: 10, remaining: 10 - spent - 1 }]);
        // A later change of the plan still applies.
        await updatePlan(planId, { ratelimits: [{ ...requests, limit: 20 }] });
        expect(await states(key)).toMatchObject([{ limit: 20, remaining: 20 - spent - 2 }]);
      },
    );

    test('without its plan: counts and slots of its limits stay for the next plan', async () => {
      const [planId, next] = [
        await planWith({ ratelimits: [requests, jobs] }),
        await planWith({ ratelimits: [jobs, requests] }),
      ];
      const { key, change, remove, restore } = await ownerWith(isKey, planId);
      const take = () =>
        verify(key, { ratelimits: [{ name: 'requests', cost: 0 }, { name: 'jobs' }], hold: { ttl: hourMs } });
      await spend(key, 4);
      const { hold } = await take();
      await remove();
      await ok('plans.deletePlan', { planId });
      await restore();
      expect(await verify(key)).not.toHaveProperty('ratelimits.0');
      await change({ planId: next });
      expect(await states(key)).toMatchObject([{ name: 'requests', remaining: 5 }]);
      expect(await take()).toMatchObject({ valid: true });
      expect(await take()).toMatchObject({ code: 'RATE_LIMITED' });
      await ok('keys.releaseHold', { holdId: hold!.id });
      expect(await take()).toMatchObject({ valid: true });
    });

    test('is restored without another plan of the same name', async () => {
      const planId = await planWith({ ratelimits: [requests], permissions: ['plan.read'] });
      const { key, change, remove, restore, planNow } = await ownerWith(isKey, planId);
      await spend(key, 4);
      await remove();
      expect(await planNow(true)).toBe(planId);
      await ok('plans.deletePlan', { planId });
      await ok('plans.createPlan', { planId, ratelimits: [{ ...requests, limit: 50 }], permissions: ['other.read'] });
      expect(await planNow(true)).toBeUndefined();
      expect(await ok('keys.listKeys', { deleted: true, planId })).toEqual([]);
      expect(await ok('identities.listIdentities', { deleted: true, planId })).toEqual([]);
      await restore();
      expect(await planNow(false)).toBeUndefined();
      const without = await verify(key, { permissions: 'other.read' });
      expect(without.code).toBe('INSUFFICIENT_PERMISSIONS');
      expect(without).not.toHaveProperty('plan');
      expect(await verify(key)).not.toHaveProperty('ratelimits.0');
      // It can get the other one, and is then deleted and restored with it.
      await change({ planId });
      const owners = () => ok(isKey ? 'keys.listKeys' : 'identities.listIdentities', { planId });
      expect(await owners()).toHaveLength(1);
      await remove();
      await restore();
      expect(await owners()).toHaveLength(1);
      expect(await states(key, { permissions: 'other.read' })).toMatchObject([{ limit: 50, remaining: 45 }]);
      expect(await planNow(false)).toBe(planId);
    });
  });

  test('a key that an earlier commit deleted has the plan of its planId', async () => {
    const planId = await limitedTo(10);
    const { key, keyId } = await createKey({ planId });
    await spend(key, 4);
    await ok('keys.deleteKey', { keyId });
    const record = Buffer.concat([Buffer.from(`${workspaceKey(h.workspaceId)}:k:`), digestOf(key)]);
    expect(await redis.hdel(record, 'formerPlan')).toBe(1);
    expect(await ok('keys.listKeys', { deleted: true, planId })).toMatchObject([{ keyId, planId }]);
    await ok('keys.restoreKey', { keyId });
    expect(await states(key)).toMatchObject([{ limit: 10, remaining: 5 }]);
  });

  test('an API, whose keys have a plan that was replaced meanwhile', async () => {
    const [planId, replaceWith] = [await limitedTo(10), await limitedTo(20)];
    const { key, apiId } = await createKey({ planId });
    await spend(key, 4);
    await ok('apis.deleteApi', { apiId });
    expect((await call('plans.deletePlan', { planId })).status).toBe(412);
    await ok('plans.deletePlan', { planId, replaceWith });
    await ok('apis.restoreApi', { apiId });
    expect(await verify(key)).toMatchObject({ plan: { planId: replaceWith }, ratelimits: [{ remaining: 15 }] });
    // A deleted one that nobody restores is swept.
    await ok('apis.deleteApi', { apiId });
    clock.advance(31 * dayMs);
    while (await h.store.sweep.purge(h.workspaceId));
    expect(await ok('plans.getPlan', { planId: replaceWith })).toMatchObject({ keyCount: 0 });
  });
});

test('lists of keys and identities by plan', async () => {
  const [planId, other] = [await planWith(), await planWith()];
  const { apiId, keyId: first } = await createKey({ planId });
  const { keyId: second } = await ok('keys.createKey', { apiId, planId });
  await ok('keys.createKey', { apiId, planId: other });
  const { externalId } = await identityWith({ planId });
  await ok('keys.createKey', { apiId, externalId });
  const keysOf = async (filter: object) =>
    (await ok('keys.listKeys', filter as never)).map(({ keyId }) => keyId).sort();
  expect(await keysOf({ planId })).toEqual([first, second].sort());
  expect(await keysOf({ planId, apiId, limit: 1 })).toHaveLength(1);
  expect(await keysOf({ planId: 'no.such.plan' })).toEqual([]);
  expect(await ok('identities.listIdentities', { planId })).toMatchObject([{ externalId, planId }]);
  expect(await ok('identities.listIdentities', { planId: other })).toEqual([]);
  await updateKey(first, { planId: other });
  expect(await keysOf({ planId })).toEqual([second]);
  await ok('keys.deleteKey', { keyId: second });
  expect(await keysOf({ planId })).toEqual([]);
  // A deleted key keeps its plan, unless that is deleted, too.
  expect(await keysOf({ planId, deleted: true })).toEqual([second]);
  await ok('identities.updateIdentity', { identity: externalId, planId: null });
  await ok('plans.deletePlan', { planId });
  expect(await keysOf({ planId, deleted: true })).toEqual([]);
  expect((await call('keys.listKeys', { planId: 'a b' })).status).toBe(400);
});

describe('the largest', () => {
  const many = (count: number, name: string) =>
    Array.from({ length: count }, (_, at) => ({ ...requests, limit: 1000, name: `${name} ${at}` }));

  test('25 own limits and 25 of a plan, of key and identity, with 50 in the request', async () => {
    const meta = { text: 'x'.repeat(10_200) };
    const [ofKey, ofIdentity] = [
      await planWith({ ratelimits: many(25, 'key plan'), meta }),
      await planWith({ ratelimits: many(25, 'identity plan'), meta }),
    ];
    const { externalId } = await identityWith({ planId: ofIdentity, ratelimits: many(25, 'identity own'), meta });
    const { key } = await createKey({ externalId, planId: ofKey, ratelimits: many(25, 'key own'), meta });
    const adHoc = Array.from({ length: 50 }, (_, at) => ({ name: `ad hoc ${at}`, limit: 5, duration: minute }));
    for (const server of [h, h, elsewhere]) {
      const { data } = await server.call('keys.verifyKey', { key, ratelimits: adHoc }, h.rootKey);
      expect(data).toMatchObject({ valid: true, plan: { planId: ofKey, meta } });
      expect(data.ratelimits).toHaveLength(150);
    }
    await updatePlan(ofKey, { ratelimits: many(25, 'key own') });
    await updatePlan(ofIdentity, { ratelimits: many(25, 'another') });
    const { ratelimits } = await verify(key);
    expect(ratelimits).toHaveLength(75);
    await updatePlan(ofIdentity, { ratelimits: many(25, 'identity plan') });
    const kept = (await states(key)).find(({ name }) => name === 'identity plan 3');
    expect(kept).toMatchObject({ remaining: 1000 - 4 });
  });

  test('a call of Redis merges the limits of few owners, also of new ones', async () => {
    const planId = await planWith({ ratelimits: many(25, 'plan') });
    const { apiId } = await createKey();
    const keys: string[] = [];
    for (let at = 0; at < 60; at++) keys.push((await ok('keys.createKey', { apiId, planId })).key);
    const callsOf = async (plan: object) => {
      await updatePlan(planId, plan);
      await redis.config('RESETSTAT');
      await Promise.all(keys.map((key) => verify(key)));
      return Number(/cmdstat_fcall:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1]);
    };
    // Merging 25 limits takes some hundred microseconds, and longer calls block all others.
    expect(await callsOf({})).toBeGreaterThan(9);
    expect(await callsOf({ ratelimits: many(25, 'other') })).toBeGreaterThan(19);
  });

  test('a batch with many keys of one plan that was changed', async () => {
    const planId = await planWith({ ratelimits: many(25, 'plan') });
    const { apiId } = await createKey();
    const keys: string[] = [];
    for (let at = 0; at < 60; at++) keys.push((await ok('keys.createKey', { apiId, planId })).key);
    for (let round = 1; round <= 3; round++) {
      await updatePlan(planId, { ratelimits: many(25, 'plan').map((limit) => ({ ...limit, limit: 1000 * round })) });
      const verified = await Promise.all(keys.map((key) => verify(key)));
      for (const { valid, ratelimits } of verified) {
        expect([valid, ratelimits!.length]).toEqual([true, 25]);
        expect(ratelimits![24]).toMatchObject({ limit: 1000 * round, remaining: 1000 * round - round });
      }
    }
  });
});

describe('a broken record of a plan that was changed: an error, or an answer, and no charge after an error', () => {
  const garbage = Buffer.from(`\xff\xfe\x00\x01${'\x80'.repeat(40)}`, 'latin1');
  const values = [garbage, Buffer.from(''), Buffer.from('9007199254740990'), Buffer.from('\0\0\0\x05\x02abc')];
  // Not `meta`: that of a key, too, is returned as it is stored.
  const fields = ['limits', 'version', 'direct', 'roles', 'id16', 'created'];

  test.each(['key', 'identity'])('of a %s', async (of) => {
    const planId = await planWith({ ratelimits: [requests, jobs], permissions: ['plan.read'], meta: { a: 1 } });
    const { externalId } = await identityWith({ ...(of === 'identity' && { planId }), credits: { remaining: 100 } });
    const { key, keyId } = await createKey({
      externalId,
      ...(of === 'key' && { planId }),
      credits: { remaining: 100 },
      ratelimits: [{ ...requests, name: 'own', limit: 1000 }],
    });
    const neighbour = await createKey();
    const record = `${workspaceKey(h.workspaceId)}:pl:${planId}`;
    const breaks: [string, () => Promise<unknown>][] = [
      ['a string', () => redis.set(record, 'garbage')],
      ['a list', () => redis.rpush(record, 'garbage')],
      ...fields.flatMap((field) =>
        values.map((value): [string, () => Promise<unknown>] => [
          `${field} ${value.toString('latin1').slice(0, 8)}`,
          () => redis.hset(record, field, value),
        ]),
      ),
      ...fields.map((field): [string, () => Promise<unknown>] => [`no ${field}`, () => redis.hdel(record, field)]),
    ];
    const failures: string[] = [];
    for (const [at, [how, apply]] of breaks.entries()) {
      // Ends the hold of the round before.
      await verify(key);
      await updatePlan(planId, { meta: { at } });
      const dump = (await redis.dumpBuffer(record))!;
      if (how.startsWith('a ')) await redis.del(record);
      await apply();
      const stored = async () => {
        const { credits, lastUsedAt } = await ok('keys.getKey', { keyId });
        return [credits, lastUsedAt, (await ok('identities.getIdentity', { identity: externalId })).credits];
      };
      const before = await stored().catch(() => undefined);
      clock.advance(1);
      const ask = (extras: object) => call('keys.verifyKey', { key, ...extras } as never);
      const [plain, held, permitted, other] = await Promise.all([
        ask({}),
        ask({ ratelimits: [{ name: 'own', cost: 2 }], hold: { ttl: 1000 } }),
        ask({ permissions: 'plan.read' }),
        call('keys.verifyKey', { key: neighbour.key }),
      ]);
      const statuses = [plain, held, permitted].map(({ status }) => status);
      if (other.status !== 200) failures.push(`${how}: ${other.status} of a neighbour`);
      for (const { status, error } of [plain, held, permitted])
        if (status !== 200 && (status !== 500 || !error?.detail)) failures.push(`${how}: ${status}`);
      const isRefused = statuses.every((status) => status === 500);
      if (!isRefused && statuses.includes(500)) failures.push(`${how}: ${statuses}`);
      if (isRefused && before && JSON.stringify(await stored()) !== JSON.stringify(before))
        failures.push(`${how}: charged`);
      // Reads and changes answer, too.
      for (const [name, input] of [
        ['keys.explainKey', { keyId }],
        ['plans.getPlan', { planId }],
        ['plans.listPlans', {}],
      ] as const) {
        const { status, error } = await call(name, input as never);
        if (status !== 200 && !error?.detail) failures.push(`${how}: ${name} ${status}`);
      }
      await redis.del(record);
      await redis.restore(record, 0, dump);
      await ok('keys.updateKey', { keyId, credits: { remaining: 100 } });
      if ((await call('keys.verifyKey', { key })).status !== 200) failures.push(`${how}: an error afterwards`);
      clock.advance(3 * hourMs);
    }
    expect(failures).toEqual([]);
  });
});

describe('random histories, against a plain model', () => {
  // Quotas, whose counts are exact.
  const periods = ['month', 'year'] as const;
  const names = ['first', 'second', 'third'];
  interface Limit {
    limit: number;
    period: (typeof periods)[number];
    until?: number;
    former?: Omit<Limit, 'until' | 'former'> | undefined;
  }
  type Limits = Map<string, Limit>;
  interface Owner {
    own: Limits;
    plan: string | undefined;
    counts: Map<string, number>;
  }

  function replaceEnded(own: Limits) {
    for (const [name, { until, former }] of own) {
      if (until === undefined || clock.now < until) continue;
      if (former) own.set(name, former);
      else own.delete(name);
    }
  }
  function inForce({ own, plan }: Owner, plans: Map<string, Limits>): Limits {
    replaceEnded(own);
    const limits = new Map(own);
    for (const [name, limit] of (plan && plans.get(plan)) || []) if (!limits.has(name)) limits.set(name, limit);
    return limits;
  }

  test.each(Array.from({ length: 8 }, (_, at) => seed + at))('seed %i', async (seed) => {
    clock.now = Math.ceil(clock.now / (32 * dayMs)) * 32 * dayMs;
    const pick = random(seed);
    const oneOf = <Item>(items: readonly Item[]) => items[pick(0, items.length - 1)]!;
    const someLimit = () => ({ limit: pick(5, 60), period: oneOf(periods) });
    const someLimits = (): Limits => new Map(names.filter(() => pick(0, 1) === 1).map((name) => [name, someLimit()]));
    const asGiven = (limits: Limits) =>
      [...limits].map(([name, { limit, period }]) => ({ name, limit, period, autoApply: true, until: null }));
    const plansGiven = (limits: Limits) => asGiven(limits).map(({ until: _, ...limit }) => limit);

    const plans = new Map<string, Limits>();
    const newPlan = async () => {
      const [planId, limits] = [newName(), someLimits()];
      await ok('plans.createPlan', { planId, ratelimits: plansGiven(limits) });
      plans.set(planId, limits);
    };
    for (let at = 0; at < 3; at++) await newPlan();
    const newOwner = (): Owner => ({ own: new Map(), plan: undefined, counts: new Map() });
    const { externalId } = await identityWith();
    const identity = newOwner();
    const keys = [await createKey({ externalId }), await createKey({ externalId })].map((key) => ({
      ...key,
      ...newOwner(),
    }));
    const log: string[] = [];

    async function verifyOne() {
      const key = oneOf(keys);
      const [ofKey, ofIdentity] = [inForce(key, plans), inForce(identity, plans)];
      for (const name of ofKey.keys()) ofIdentity.delete(name);
      const all = [
        ...[...ofKey].map((of) => [key, ...of] as const),
        ...[...ofIdentity].map((of) => [identity, ...of] as const),
      ];
      const named = all.length > 0 && pick(0, 1) === 1 ? oneOf(all)[1] : undefined;
      const cost = pick(0, 4);
      const figures = all.map(([owner, name, { limit, period }]) => {
        const counter = `${name} ${period}`;
        const used = owner.counts.get(counter) ?? 0;
        return { owner, counter, name, limit, used, cost: name === named ? cost : 1 };
      });
      const valid = figures.every(({ used, cost, limit }) => used + cost <= limit);
      if (valid) for (const { owner, counter, used, cost } of figures) owner.counts.set(counter, used + cost);
      const expected = figures.map(({ name, limit, used, cost }) => [
        name,
        limit,
        Math.max(0, limit - used - (valid ? cost : 0)),
      ]);
      const { call } = oneOf([h, elsewhere]);
      const extras = named === undefined ? {} : { ratelimits: [{ name: named, cost }] };
      const { data } = await call('keys.verifyKey', { key: key.key, ...extras }, h.rootKey);
      const got = (data.ratelimits ?? []).map(({ name, limit, remaining }) => [name, limit, remaining]);
      const planId = [key.plan, identity.plan].find((id) => id !== undefined);
      log.push(`verify ${JSON.stringify(extras)}`);
      const sorted = (rows: unknown[][]) => rows.map((row) => row.join(' ')).sort();
      expect([data.valid, data.plan?.planId, sorted(got)], log.slice(-12).join('\n')).toEqual([
        valid,
        planId,
        sorted(expected),
      ]);
    }

    async function changeOwner() {
      const at = pick(0, keys.length);
      const owner: Owner = keys[at] ?? identity;
      const fields: { planId?: string | null; ratelimits?: object[]; ratelimit?: object } = {};
      replaceEnded(owner.own);
      if (pick(0, 1) === 1) {
        fields.planId = pick(0, 2) === 0 ? null : oneOf([...plans.keys()]);
        owner.plan = fields.planId ?? undefined;
      }
      const what = pick(0, 3);
      const name = oneOf(names);
      const before = owner.own.get(name);
      if (what === 0) {
        owner.own = someLimits();
        fields.ratelimits = asGiven(owner.own);
      } else if (what === 1) {
        owner.own.delete(name);
        fields.ratelimit = { name, limit: null };
      } else if (what === 2) {
        const limit = someLimit();
        const until = pick(0, 1) === 1 ? clock.now + pick(1, 20) * 1000 : undefined;
        const { until: wasUntil, former: wasFormer, ...permanent } = before ?? { ...limit };
        const former = before && (wasUntil === undefined ? permanent : wasFormer);
        owner.own.set(name, { ...limit, ...(until !== undefined && { until, former }) });
        fields.ratelimit = { name, ...limit, type: 'quota', autoApply: true, until: until ?? null };
      }
      log.push(`${at} ${JSON.stringify(fields)}`);
      const id = keys[at] ? { keyId: keys[at]!.keyId } : { identity: externalId };
      const answer = await call(keys[at] ? 'keys.updateKey' : 'identities.updateIdentity', {
        ...id,
        ...fields,
      } as never);
      expect(answer.status, `${log.slice(-12).join('\n')}\n${answer.error?.detail}`).toBe(200);
    }

    async function changePlan() {
      const planId = oneOf([...plans.keys()]);
      const kind = pick(0, 9);
      if (kind === 0) {
        await newPlan();
        const replaceWith = oneOf([...plans.keys()].filter((id) => id !== planId));
        log.push(`delete ${planId} ${replaceWith}`);
        await ok('plans.deletePlan', { planId, replaceWith });
        plans.delete(planId);
        for (const owner of [...keys, identity]) if (owner.plan === planId) owner.plan = replaceWith;
        return;
      }
      const limits = someLimits();
      plans.set(planId, limits);
      log.push(`plan ${planId} ${JSON.stringify([...limits])}`);
      await ok('plans.updatePlan', { planId, ratelimits: plansGiven(limits) } as never);
    }

    for (let step = 0; step < 200; step++) {
      const kind = pick(0, 9);
      if (kind < 5) await verifyOne();
      else if (kind < 7) await changeOwner();
      else if (kind < 9) await changePlan();
      else clock.advance(pick(1, 20) * 1000);
    }
  });
});
