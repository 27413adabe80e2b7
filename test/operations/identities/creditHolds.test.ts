// Holds of keys whose identity has a balance: what they hold of it, and what comes back.

import { beforeEach, describe, expect, test } from 'vitest';
import { runCli } from '../../support/cli.ts';
import { dayMs, harness, type InputOf } from '../../support/harness.ts';
import { testRedisUrl } from '../../support/redis.ts';

const tollgate = harness();
const { clock, call, ok, createKey } = tollgate;

const startMs = clock.now;
const minute = 60_000;
let number = 0;
let identity = '';
beforeEach(() => {
  clock.now = startMs;
  number += 1;
  identity = `owner_${number}`;
});

const createIdentity = (credits?: InputOf<'identities.createIdentity'>['credits']) =>
  ok('identities.createIdentity', { externalId: identity, credits });
const keyOf = (remaining?: number, more: object = {}) =>
  createKey({ externalId: identity, ...(remaining !== undefined && { credits: { remaining } }), ...more });
const hold = async (key: string, cost: number, options: object = {}) => {
  const verified = await ok('keys.verifyKey', { key, credits: { cost }, hold: { ttl: minute, ...options } });
  expect(verified).toMatchObject({ valid: true });
  return verified.hold!.id;
};
const settle = (holdId: string, cost?: number) =>
  ok('keys.settleHold', { holdId, ...(cost !== undefined && { credits: { cost } }) });
const creditsOf = async () => (await ok('identities.getIdentity', { identity })).credits;
const ownOf = async (keyId: string) => (await ok('keys.getKey', { keyId })).credits;
const sweep = () => tollgate.store.sweep.holds(tollgate.workspaceId);

/** Keys with and without a balance of their own. */
describe.each([
  ['a key with a balance', 50],
  ['a key without a balance', undefined],
])('%s', (_what, own) => {
  /** What a response says of the key's balance (of the identity where the key has none), and of the identity. */
  const shown = (ofKey: number, shared: number) => ({
    credits: own === undefined ? shared : ofKey,
    identity: { credits: shared },
  });
  const expectLeft = async (keyId: string, ofKey: number, shared: number) => {
    expect(await creditsOf()).toEqual({ remaining: shared });
    expect(await ownOf(keyId)).toEqual(own === undefined ? undefined : { remaining: ofKey });
  };

  test('holds both balances; the rest comes back to both', async () => {
    await createIdentity({ remaining: 100 });
    const { key, keyId } = await keyOf(own);
    const id = await hold(key, 20);
    await expectLeft(keyId, 30, 80);
    expect(await ok('keys.listHolds', { keyId })).toMatchObject([{ id, credits: 20 }]);
    expect((await ok('keys.explainKey', { keyId })).holds).toMatchObject({ open: 1, credits: 20 });
    const first = await settle(id, 7);
    expect(first).toMatchObject(shown(43, 93));
    await expectLeft(keyId, 43, 93);
    expect(await settle(id, 7)).toEqual(first);
    expect((await call('keys.settleHold', { holdId: id, credits: { cost: 8 } })).status).toBe(409);
    await expectLeft(keyId, 43, 93);
  });

  test('a settlement without an amount charges what was held', async () => {
    await createIdentity({ remaining: 100 });
    const { key, keyId } = await keyOf(own);
    expect(await settle(await hold(key, 20))).toMatchObject(shown(30, 80));
    await expectLeft(keyId, 30, 80);
  });

  test('a settlement above the hold charges more of both, and leaves debts', async () => {
    await createIdentity({ remaining: 60 });
    const { key } = await keyOf(own);
    const settled = await settle(await hold(key, 20), 75);
    expect(settled).toMatchObject({
      credits: 0,
      debt: own === undefined ? 15 : 25,
      identity: { credits: 0, debt: 15 },
    });
    expect(await creditsOf()).toEqual({ remaining: 0, debt: 15 });
    for (const cost of [0, 1]) {
      const verified = await ok('keys.verifyKey', { key, credits: { cost } });
      expect(verified).toMatchObject({
        code: 'USAGE_EXCEEDED',
        debt: settled.debt,
        identity: { credits: 0, debt: 15 },
      });
    }
  });

  test('a release gives both back, and may be settled late', async () => {
    await createIdentity({ remaining: 100 });
    const { key, keyId } = await keyOf(own);
    const id = await hold(key, 20);
    for (const _time of [1, 2]) expect(await ok('keys.releaseHold', { holdId: id })).toMatchObject(shown(50, 100));
    await expectLeft(keyId, 50, 100);
    expect(await settle(id, 5)).toMatchObject({ ...shown(45, 95), late: true });
    await expectLeft(keyId, 45, 95);
  });

  test.each([
    ['release', 50, 100],
    ['charge', 30, 80],
  ])('at the expiry: %s', async (onExpiry, ofKey, shared) => {
    await createIdentity({ remaining: 100 });
    const { key, keyId } = await keyOf(own);
    const id = await hold(key, 20, { onExpiry });
    clock.advance(minute);
    await sweep();
    await expectLeft(keyId, ofKey, shared);
    if (onExpiry === 'charge') expect(await settle(id)).toMatchObject(shown(ofKey, shared));
  });

  test('a repeated request with an id of the caller charges nothing again', async () => {
    await createIdentity({ remaining: 100 });
    const { key, keyId } = await keyOf(own);
    const request = { key, credits: { cost: 20 }, hold: { ttl: minute, id: 'job-1' } };
    for (const _time of [1, 2]) expect(await ok('keys.verifyKey', request)).toMatchObject(shown(30, 80));
    await expectLeft(keyId, 30, 80);
    await ok('keys.extendHold', { holdId: `hold_${keyId.slice(4)}_job-1`, ttl: 2 * minute });
    clock.advance(minute);
    await sweep();
    await expectLeft(keyId, 30, 80);
  });

  test('credits are counted once as spent, when the hold is settled', async () => {
    await createIdentity({ remaining: 100 });
    const { key, keyId } = await keyOf(own);
    const spent = async () =>
      (
        await ok('analytics.getVerifications', {
          start: startMs - dayMs,
          end: startMs + dayMs,
          granularity: 'day',
          groupBy: [],
          keyId,
        })
      ).reduce((sum, { spentCredits }) => sum + spentCredits, 0);
    const id = await hold(key, 20);
    expect(await spent()).toBe(0);
    await settle(id, 7);
    expect(await spent()).toBe(7);
  });
});

test.each(['release', 'charge'])(
  'an export has what a hold gives back at its expiry, and no more: %s',
  async (onExpiry) => {
    await createIdentity({ remaining: 100 });
    const { key } = await keyOf();
    await hold(key, 9, { onExpiry });
    const { out } = await runCli(['export', '-', '--workspace', tollgate.workspaceId], { REDIS_URL: testRedisUrl() });
    const line = out.split('\n').find((each) => each.includes(`"${identity}"`) && each.includes('"kind":"identity"'))!;
    expect(JSON.parse(line)).toMatchObject({ credits: { remaining: onExpiry === 'release' ? 100 : 91 } });
  },
);

describe('what is changed meanwhile', () => {
  test.each([
    ['set', () => ok('identities.updateCredits', { identity, operation: 'set', value: 50 })],
    ['updateIdentity', () => ok('identities.updateIdentity', { identity, credits: { remaining: 50 } })],
    [
      'a decrement to 0, and an increment',
      async () => {
        await ok('identities.updateCredits', { identity, operation: 'decrement', value: 500 });
        await ok('identities.updateCredits', { identity, operation: 'increment', value: 50 });
      },
    ],
    [
      'removed and set again',
      async () => {
        await ok('identities.updateIdentity', { identity, credits: null });
        await ok('identities.updateIdentity', { identity, credits: { remaining: 50 } });
      },
    ],
  ])('%s: nothing comes back to another balance, and more is charged to it', async (_what, set) => {
    await createIdentity({ remaining: 30 });
    const { key, keyId } = await keyOf(100);
    const ids = [await hold(key, 10), await hold(key, 10), await hold(key, 10)];
    await set();
    expect(await creditsOf()).toEqual({ remaining: 50 });
    expect(await settle(ids[0]!, 4)).toMatchObject({ credits: 76, identity: { credits: 50 } });
    expect(await settle(ids[1]!, 15)).toMatchObject({ credits: 71, identity: { credits: 45 } });
    await ok('keys.releaseHold', { holdId: ids[2]! });
    expect([await ownOf(keyId), await creditsOf()]).toEqual([{ remaining: 81 }, { remaining: 45 }]);
  });

  test('a refill: nothing comes back, and more is charged to the new balance', async () => {
    await createIdentity({ remaining: 30, refill: { interval: 'daily', amount: 50 } });
    const { key } = await keyOf();
    const less = await hold(key, 10, { ttl: dayMs });
    const more = await hold(key, 10, { ttl: dayMs });
    clock.now = Math.ceil(startMs / dayMs) * dayMs;
    expect(await settle(less, 5)).toMatchObject({ identity: { credits: 50 } });
    expect(await settle(more, 15)).toMatchObject({ identity: { credits: 45 } });
  });

  test('increment and decrement keep the balance: the rest comes back', async () => {
    await createIdentity({ remaining: 30 });
    const { key } = await keyOf();
    const id = await hold(key, 10);
    await ok('identities.updateCredits', { identity, operation: 'increment', value: 7 });
    await ok('identities.updateCredits', { identity, operation: 'decrement', value: 2 });
    expect(await settle(id, 4)).toMatchObject({ identity: { credits: 31 } });
  });

  test('an identity that was deleted for good gets nothing back, and neither does another one of that name', async () => {
    await createIdentity({ remaining: 30 });
    const { key, keyId } = await keyOf(40);
    const ids = [await hold(key, 10), await hold(key, 10), await hold(key, 1)];
    await ok('identities.deleteIdentity', { identity, permanent: true });
    const settled = await settle(ids[0]!, 15);
    expect(settled).toMatchObject({ keyId, credits: 14 });
    expect(settled).not.toHaveProperty('identity');
    await createIdentity({ remaining: 7 });
    await ok('keys.releaseHold', { holdId: ids[1]! });
    await settle(ids[2]!, 3);
    expect([await ownOf(keyId), await creditsOf()]).toEqual([{ remaining: 22 }, { remaining: 7 }]);
  });

  test('a removed balance gets nothing back, and is charged nothing', async () => {
    await createIdentity({ remaining: 30 });
    const { key } = await keyOf();
    const id = await hold(key, 10);
    await ok('identities.updateIdentity', { identity, credits: null });
    const settled = await settle(id, 25);
    expect(settled).not.toHaveProperty('identity');
    expect(settled).not.toHaveProperty('credits');
    expect(await creditsOf()).toBeUndefined();
  });

  test('of a key that moved to another identity, what was held comes back to the former one', async () => {
    await createIdentity({ remaining: 30 });
    const { key, keyId } = await keyOf();
    const id = await hold(key, 10);
    await ok('keys.updateKey', { keyId, externalId: null });
    expect(await settle(id, 4)).toMatchObject({ credits: 26, identity: { credits: 26 } });
  });

  test('of a key that got a balance meanwhile, that is charged the actual amount', async () => {
    await createIdentity({ remaining: 30 });
    const { key, keyId } = await keyOf();
    const id = await hold(key, 10);
    await ok('keys.updateCredits', { keyId, operation: 'set', value: 20 });
    expect(await settle(id, 4)).toMatchObject({ credits: 16, identity: { credits: 26 } });
  });
});

describe('a key that is deleted', () => {
  const spendsNothing = async (remove: (keyId: string, apiId: string) => Promise<unknown>) => {
    await createIdentity({ remaining: 30 });
    const { key, keyId, apiId } = await keyOf();
    await hold(key, 10);
    await hold(key, 5, { onExpiry: 'charge' });
    await ok('keys.releaseHold', { holdId: await hold(key, 3) });
    expect(await creditsOf()).toEqual({ remaining: 15 });
    await remove(keyId, apiId);
    clock.advance(minute);
    await sweep();
    expect(await creditsOf()).toEqual({ remaining: 25 });
  };

  test('gives back at the expiry', () => spendsNothing((keyId) => ok('keys.deleteKey', { keyId })));
  test('for ever gives back at once', () => spendsNothing((keyId) => ok('keys.deleteKey', { keyId, permanent: true })));
  test('with its API gives back, also if its record is removed before', () =>
    spendsNothing(async (_keyId, apiId) => {
      await ok('apis.deleteApi', { apiId });
      while (await tollgate.store.sweep.purge(tollgate.workspaceId));
    }));
});
