// When a lease ends: what it repeats is what Redis would decide at that time. The clocks of the server and of Redis are
// the same, and the test sets them.

import { describe, expect, test } from 'vitest';
import { heldServers, newName } from './heldServers.ts';

const held = heldServers(1);
const { first, clock, createKey } = held;
const { ok, counts } = first;

/** A limit of five in a second, by a key and by an identifier: whether a request passes, and the limit's `reset`. */
const fives: Record<string, () => Promise<() => Promise<{ passed: boolean; reset: number }>>> = {
  async 'a key'() {
    const { key } = await createKey({ ratelimits: [{ name: 'five', limit: 5, duration: 1000, autoApply: true }] });
    return async () => {
      const { valid, ratelimits } = await ok('keys.verifyKey', { key });
      return { passed: valid, reset: ratelimits![0]!.reset };
    };
  },
  async 'an ad hoc limit'() {
    const { key } = await createKey();
    const ratelimits = [{ name: 'five', limit: 5, duration: 1000 }];
    return async () => {
      const { valid, ratelimits: results } = await ok('keys.verifyKey', { key, ratelimits });
      return { passed: valid, reset: results![0]!.reset };
    };
  },
  async 'an identity'() {
    const externalId = newName();
    const ratelimits = [{ name: 'five', limit: 5, duration: 1000, autoApply: true }];
    await ok('identities.createIdentity', { externalId, ratelimits });
    const { key } = await createKey({ externalId });
    return async () => {
      const { valid, ratelimits: results } = await ok('keys.verifyKey', { key });
      return { passed: valid, reset: results![0]!.reset };
    };
  },
  async 'an identifier'() {
    const check = { namespace: 'ends', identifier: newName(), limit: 5, duration: 1000 };
    return async () => {
      const { success, reset } = await ok('ratelimits.limit', check);
      return { passed: success, reset };
    };
  },
};

describe('a refusal by a limit', () => {
  test.each(Object.entries(fives))('of %s is repeated until the limit has room, and no longer', async (_what, make) => {
    const request = await make();
    for (let times = 0; times < 5; times++) expect((await request()).passed).toBe(true);
    // A lease would last longer than the refusal.
    clock.advance(900);
    const { reset } = await request();
    expect(reset).toBe(clock.now + 100 + 1);
    for (let times = 0; times < 5; times++) await request();
    expect(counts.decided).toBeGreaterThan(0);
    clock.set(reset - 1);
    expect(await request()).toEqual({ passed: false, reset });
    clock.set(reset);
    expect((await request()).passed).toBe(true);
  });
});

test('what expired is not counted by another limit, while a lease is not settled and Redis has nothing left', async () => {
  const of = { namespace: 'ends', identifier: newName(), duration: 2000 };
  const check = async (limit: number, cost: number) => {
    const { success, remaining } = await ok('ratelimits.limit', { ...of, limit, cost });
    return [success, remaining];
  };
  const slice = Math.floor(of.duration / 64);
  const start = (Math.floor(clock.now / slice) + 1) * slice;
  for (const [slices, cost] of [
    [0, 40],
    [3, 30],
  ] as const) {
    clock.set(start + slices * slice);
    await check(200, cost);
  }
  clock.set(start + 32 * slice);
  const times = await held.untilGranted(first, async () => (await check(200, 1))[0] === true);
  const units = counts.granted.at(-1)!;
  clock.set(start + 2200);
  expect(await check(times + units + 1, 1)).toEqual([true, units]);
});

describe('on a server whose monotonic clock is 1 % slow', () => {
  const slow = heldServers(1, {}, { speed: 0.991 });

  test('a lease of a key ends before the key expires', async () => {
    const expires = slow.clock.now + 250;
    const { key } = await slow.createKey({ expires });
    const verify = async () => (await slow.first.ok('keys.verifyKey', { key })).code;
    await slow.untilGranted(slow.first, async () => (await verify()) === 'VALID');
    slow.clock.set(expires - 10);
    const before = slow.first.counts.decided;
    expect(await verify()).toBe('VALID');
    expect(slow.first.counts.decided).toBe(before + 1);
    slow.clock.set(expires);
    expect(await verify()).toBe('EXPIRED');
  });
});
