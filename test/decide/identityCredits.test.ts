// The balance of an identity, charged by several keys and servers at once: exactly as many verifications are VALID as
// it has credits. With leases no server has credits of it in advance.

import { describe, expect, test } from 'vitest';
import { harness } from '../support/harness.ts';
import { heldServers, newName } from './leases/heldServers.ts';

const first = harness(undefined, { leaseMs: 0 });
const second = harness(undefined, { leaseMs: 0, nowMs: () => first.clock.now });
const leased = heldServers(2);

type Call = (typeof first)['call'];
const unleased = {
  createKey: first.createKey,
  calls: [first.call, ((name, input) => second.call(name, input, first.rootKey)) as Call],
};

describe.each([
  ['without leases', unleased],
  ['with leases', { createKey: leased.createKey, calls: leased.servers.map(({ call }) => call as Call) }],
])('%s', (_what, { createKey, calls }) => {
  test.each([0, 1, 7, 40])(
    'of %i credits exactly as many are VALID, from four keys and two servers',
    async (credits) => {
      const externalId = newName();
      const [call] = calls as [Call];
      await call('identities.createIdentity', { externalId, credits: { remaining: credits } });
      const own = [undefined, undefined, { remaining: 1000 }, { remaining: 5 }];
      const keys = await Promise.all(own.map((each) => createKey({ externalId, ...(each && { credits: each }) })));
      const codes = await Promise.all(
        Array.from({ length: 120 }, async (_, index) => {
          const { data } = await calls[index % 2]!('keys.verifyKey', { key: keys[(index >> 1) % 4]!.key });
          return data.code;
        }),
      );
      expect(codes.filter((code) => code === 'VALID')).toHaveLength(credits);
      expect(new Set(codes)).toEqual(new Set(credits > 0 ? ['VALID', 'USAGE_EXCEEDED'] : ['USAGE_EXCEEDED']));
      expect((await call('identities.getIdentity', { identity: externalId })).data.credits).toEqual({ remaining: 0 });
    },
  );

  test('holds, settlements and verifications of several keys at once add up', async () => {
    const externalId = newName();
    const [call] = calls as [Call];
    await call('identities.createIdentity', { externalId, credits: { remaining: 300 } });
    const keys = await Promise.all([1, 2, 3].map(() => createKey({ externalId })));
    let spent = 0;
    const work = async (index: number) => {
      const send = calls[index % 2]!;
      const { key } = keys[index % 3]!;
      const verified = await send('keys.verifyKey', { key, credits: { cost: 10 }, hold: { ttl: 60_000 } });
      if (!verified.data.hold) return;
      const cost = index % 14;
      const settled = await calls[(index + 1) % 2]!('keys.settleHold', {
        holdId: verified.data.hold.id,
        credits: { cost },
      });
      expect(settled.status).toBe(200);
      spent += cost;
    };
    await Promise.all(Array.from({ length: 80 }, (_, index) => work(index)));
    const { credits } = (await call('identities.getIdentity', { identity: externalId })).data;
    expect(credits!.remaining - (credits!.debt ?? 0)).toBe(300 - spent);
    expect(spent).toBeGreaterThan(100);
  });
});

describe('leases', () => {
  const limit = { name: 'requests', limit: 100_000, duration: 60_000, autoApply: true };

  test('of a key end when its identity gets a balance, and there are none while it has one', async () => {
    const externalId = newName();
    const [one, two] = leased.servers as [(typeof leased.servers)[0], (typeof leased.servers)[0]];
    await one.ok('identities.createIdentity', { externalId });
    const { key } = await leased.createKey({ externalId, ratelimits: [limit] });
    const valid = async () => (await one.ok('keys.verifyKey', { key })).valid;
    await leased.untilGranted(one, valid);
    const before = one.counts.decided;
    expect(await valid()).toBe(true);
    expect(one.counts.decided).toBe(before + 1);

    await two.ok('identities.updateCredits', { identity: externalId, operation: 'set', value: 30 });
    const granted = one.counts.granted.length;
    const decided = one.counts.decided;
    for (let left = 29; left >= 0; left--)
      expect(await one.ok('keys.verifyKey', { key })).toMatchObject({ valid: true, identity: { credits: left } });
    for (let times = 0; times < 10; times++)
      expect((await one.ok('keys.verifyKey', { key })).code).toBe('USAGE_EXCEEDED');
    expect([one.counts.granted.length, one.counts.decided]).toEqual([granted, decided]);

    await two.ok('identities.updateIdentity', { identity: externalId, credits: null });
    leased.clock.advance(2000);
    await leased.untilGranted(one, valid);
  });

  test('of a key end when it moves to an identity with a balance', async () => {
    const externalId = newName();
    const [one, two] = leased.servers as [(typeof leased.servers)[0], (typeof leased.servers)[0]];
    await one.ok('identities.createIdentity', { externalId, credits: { remaining: 3 } });
    const { key, keyId } = await leased.createKey({ credits: { remaining: 100_000 } });
    const verify = () => one.ok('keys.verifyKey', { key });
    await leased.untilGranted(one, async () => (await verify()).valid);
    await two.ok('keys.updateKey', { keyId, externalId });
    expect((await Promise.all(Array.from({ length: 10 }, verify))).filter(({ valid }) => valid)).toHaveLength(3);
  });
});
