import fc from 'fast-check';
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs } from '../../support/harness.ts';

const app = harness();
const { clock, call, ok, createKey } = app;

const startMs = clock.now;
let apiId: string;
beforeAll(async () => {
  ({ apiId } = await ok('apis.createApi', { name: 'test' }));
});
beforeEach(() => {
  clock.now = startMs;
});

interface Made {
  keyId: string;
  key: string;
}
const daily = { interval: 'daily', amount: 50 } as const;
const newKey = (input: object = { credits: { remaining: 100 } }): Promise<Made> => createKey({ apiId, ...input });
const move = async (keyId: string, expiration = hourMs): Promise<Made> => {
  clock.advance(1);
  return ok('keys.rerollKey', { keyId, expiration, credits: 'move' });
};
const verify = (key: string, cost = 1, extras: object = {}) =>
  ok('keys.verifyKey', { key, credits: { cost }, ...extras });
const read = (keyId: string) => ok('keys.getKey', { keyId });
const held = (key: string, cost: number, extras: object = {}) =>
  verify(key, cost, { hold: { ttl: 60_000, ...extras } });
const remainingOf = async ({ keyId }: Made) => (await read(keyId)).credits?.remaining;

describe('keys.rerollKey with credits: move', () => {
  test('three rotations of a key with 100 credits spend exactly 100', async () => {
    const keys = [await newKey()];
    for (let n = 0; n < 3; n++) keys.push(await move(keys.at(-1)!.keyId));
    let spent = 0;
    for (let n = 0; n < 120; n++) {
      const { code, credits } = await verify(keys[n % 4]!.key);
      if (code === 'VALID') spent++;
      expect(credits).toBe(Math.max(0, 99 - n));
      expect(code).toBe(n < 100 ? 'VALID' : 'USAGE_EXCEEDED');
    }
    expect(spent).toBe(100);
    for (const { keyId } of keys) {
      const hours = { start: startMs - hourMs, end: startMs + hourMs, granularity: 'hour' } as const;
      const rows = await ok('analytics.getVerifications', { keyId, ...hours });
      expect(rows.map(({ outcome, count, spentCredits }) => [outcome, count, spentCredits])).toEqual([
        ['USAGE_EXCEEDED', 5, 0],
        ['VALID', 25, 25],
      ]);
    }
  });

  test('the old key names the key that pays, and has its balance without a refill', async () => {
    const old = await newKey({ credits: { remaining: 100, refill: daily } });
    const first = await move(old.keyId);
    await verify(old.key, 30);
    expect(await read(old.keyId)).toMatchObject({
      successor: first.keyId,
      drawsOn: first.keyId,
      credits: { remaining: 70 },
    });
    expect((await read(old.keyId)).credits).not.toHaveProperty('refill');
    expect(await read(first.keyId)).toMatchObject({
      drawnBy: [old.keyId],
      credits: { remaining: 70, refill: daily },
    });
    expect((await ok('keys.whoami', { key: old.key })).credits).toEqual({ remaining: 70 });
    const second = await move(first.keyId);
    expect(await read(old.keyId)).toMatchObject({ successor: first.keyId, drawsOn: second.keyId });
    expect(await read(first.keyId)).toMatchObject({ successor: second.keyId, drawsOn: second.keyId });
    expect(await read(first.keyId)).not.toHaveProperty('drawnBy');
    expect(await read(second.keyId)).toMatchObject({
      drawnBy: [first.keyId, old.keyId],
      credits: { remaining: 70, refill: daily },
    });
    const { rules } = await ok('keys.explainKey', { keyId: old.keyId });
    expect(rules.find(({ rule }) => rule === 'credits')).toMatchObject({ balance: 70, drawsOn: second.keyId });
  });

  test('a refill is applied once, whichever key is used first after it', async () => {
    const old = await newKey({ credits: { remaining: 5, refill: daily } });
    const made = await move(old.keyId, 10 * dayMs);
    for (const first of [old, made]) {
      clock.advance(dayMs);
      expect(await verify(first.key, 10)).toMatchObject({ credits: 40 });
      expect(await verify(old.key, 10)).toMatchObject({ credits: 30 });
      expect(await verify(made.key, 10)).toMatchObject({ credits: 20 });
    }
    clock.advance(dayMs);
    expect(await remainingOf(old)).toBe(50);
  });

  test('a key without credits is copied', async () => {
    const old = await newKey({});
    const made = await move(old.keyId);
    expect(await read(old.keyId)).not.toHaveProperty('drawsOn');
    expect(await read(made.keyId)).not.toHaveProperty('drawnBy');
    expect((await verify(old.key)).code).toBe('VALID');
  });

  test('an identity is charged, too', async () => {
    await ok('identities.createIdentity', { externalId: 'both', credits: { remaining: 30 } });
    const old = await newKey({ externalId: 'both', credits: { remaining: 20 } });
    const made = await move(old.keyId);
    expect(await verify(old.key, 5)).toMatchObject({ credits: 15, identity: { credits: 25 } });
    expect(await verify(made.key, 15)).toMatchObject({ credits: 0, identity: { credits: 10 } });
    expect((await verify(old.key, 1)).code).toBe('USAGE_EXCEEDED');
  });

  test('credits that are set, added or made unlimited at the successor are those of the old key', async () => {
    const old = await newKey();
    const made = await move(old.keyId);
    await ok('keys.updateCredits', { keyId: made.keyId, operation: 'increment', value: 11 });
    expect(await verify(old.key)).toMatchObject({ credits: 110 });
    await ok('keys.updateCredits', { keyId: made.keyId, operation: 'set', value: null });
    expect((await verify(old.key, 1000)).code).toBe('VALID');
    expect(await read(old.keyId)).not.toHaveProperty('credits');
    await ok('keys.updateKey', { keyId: made.keyId, credits: { remaining: 3 } });
    expect(await verify(old.key, 2)).toMatchObject({ code: 'VALID', credits: 1 });
    expect((await verify(old.key, 2)).code).toBe('USAGE_EXCEEDED');
  });

  test('changes of the credits of the old key are refused, and so is another rotation of it', async () => {
    const old = await newKey();
    const made = await move(old.keyId);
    const before = await read(old.keyId);
    const refused = [
      call('keys.updateCredits', { keyId: old.keyId, operation: 'set', value: 1 }),
      call('keys.updateCredits', { keyId: old.keyId, operation: 'increment', value: 1 }),
      call('keys.updateKey', { keyId: old.keyId, credits: null }),
      call('keys.updateKey', { keyId: old.keyId, credits: { remaining: 1 } }),
      call('keys.rerollKey', { keyId: old.keyId, expiration: 0 }),
      call('keys.rerollKey', { keyId: old.keyId, expiration: 0, credits: 'move' }),
    ];
    for (const { status, error } of await Promise.all(refused)) {
      expect([status, error.detail]).toEqual([
        412,
        `The credits of this key are those of ${made.keyId}, which replaced it: use that key here.`,
      ]);
    }
    expect(await read(old.keyId)).toEqual(before);
    await ok('keys.updateKey', { keyId: old.keyId, name: 'other' });
    expect(await verify(old.key)).toMatchObject({ credits: 99 });
  });

  test('a copy of a key that pays has its own balance', async () => {
    const old = await newKey();
    const made = await move(old.keyId);
    const copy = await ok('keys.rerollKey', { keyId: made.keyId, expiration: hourMs });
    await verify(copy.key, 60);
    expect(await verify(old.key, 10)).toMatchObject({ credits: 90 });
    expect(await verify(made.key, 10)).toMatchObject({ credits: 80 });
  });

  test('the successor may be disabled, expire or be deleted: the old key is charged until its record is removed', async () => {
    const old = await newKey();
    const made = await move(old.keyId);
    await ok('keys.updateKey', { keyId: made.keyId, enabled: false, expires: clock.now });
    expect(await verify(old.key, 10)).toMatchObject({ credits: 90 });
    await ok('keys.deleteKey', { keyId: made.keyId });
    expect(await verify(old.key, 10)).toMatchObject({ credits: 80 });
    await ok('keys.restoreKey', { keyId: made.keyId });
    expect(await remainingOf(made)).toBe(80);
    await ok('keys.deleteKey', { keyId: made.keyId, permanent: true });
    expect(await verify(old.key, 1)).toMatchObject({ code: 'USAGE_EXCEEDED', credits: 0 });
    expect((await verify(old.key, 0)).code).toBe('VALID');
    expect(await remainingOf(old)).toBe(0);
  });

  test.each([false, true])('nothing of a balance that was removed comes back; to one of its own: %s', async (own) => {
    const old = await newKey();
    await held(old.key, 5);
    await ok('keys.updateCredits', { keyId: old.keyId, operation: 'set', value: 100 });
    const { hold } = await held(old.key, 50);
    const made = await move(old.keyId);
    await ok('keys.deleteKey', { keyId: made.keyId, permanent: true });
    expect((await verify(old.key)).code).toBe('USAGE_EXCEEDED');
    const left = own ? 10 : 0;
    if (own) await ok('keys.updateCredits', { keyId: old.keyId, operation: 'increment', value: left });
    expect(await ok('keys.releaseHold', { holdId: hold!.id })).toMatchObject({ credits: left });
    expect(await remainingOf(old)).toBe(left);
  });

  test.each(['deleted', 'removed'])('with its successor %s the old key may get credits of its own', async (how) => {
    const old = await newKey();
    const made = await move(old.keyId);
    expect((await held(old.key, 5)).code).toBe('VALID');
    await ok('keys.deleteKey', { keyId: made.keyId, permanent: how === 'removed' });
    expect((await call('keys.rerollKey', { keyId: old.keyId, expiration: 0 })).status).toBe(412);
    const change = { keyId: old.keyId, operation: 'increment', value: 7 } as const;
    expect(await ok('keys.updateCredits', change)).toMatchObject({ remaining: 7 });
    expect(await read(old.keyId)).not.toHaveProperty('drawsOn');
    clock.advance(61_000);
    expect(await verify(old.key, 3)).toMatchObject({ credits: 4 });
    if (how === 'deleted') await ok('keys.restoreKey', { keyId: made.keyId });
    if (how === 'deleted') expect(await remainingOf(made)).toBe(95);
    const next = await move(old.keyId);
    expect(await verify(next.key, 2)).toMatchObject({ credits: 2 });
    expect(await verify(old.key, 2)).toMatchObject({ credits: 0 });
  });

  test('keys that have ended draw on nothing after the next rotation', async () => {
    const keys = [await newKey()];
    for (let n = 0; n < 20; n++) {
      keys.push(await move(keys.at(-1)!.keyId, 1000));
      clock.advance(1001);
    }
    await ok('keys.updateKey', { keyId: keys[3]!.keyId, expires: null });
    await ok('keys.updateKey', { keyId: keys[19]!.keyId, expires: null });
    expect(await verify(keys[3]!.key)).toMatchObject({ code: 'USAGE_EXCEEDED', credits: 0 });
    expect(await read(keys[3]!.keyId)).not.toHaveProperty('drawsOn');
    expect(await verify(keys[19]!.key, 5)).toMatchObject({ credits: 95 });
    expect(await remainingOf(keys[20]!)).toBe(95);
  });

  test('at most 16 keys draw on one balance', async () => {
    const keys = [await newKey()];
    for (let n = 0; n < 16; n++) keys.push(await move(keys.at(-1)!.keyId));
    const input = { keyId: keys[16]!.keyId, expiration: hourMs, credits: 'move' } as const;
    expect(await call('keys.rerollKey', input)).toMatchObject({
      status: 412,
      error: { detail: expect.stringContaining('Too many keys are charged to the credits of this key') },
    });
    await ok('keys.deleteKey', { keyId: keys[5]!.keyId });
    const last = await move(keys[16]!.keyId);
    for (const { key } of keys.filter((_, n) => n !== 5)) await verify(key);
    expect(await remainingOf(last)).toBe(84);
    await ok('keys.restoreKey', { keyId: keys[5]!.keyId });
    expect((await verify(keys[5]!.key)).code).toBe('USAGE_EXCEEDED');
  });
});

describe('holds of a key whose credits are moved', () => {
  const settle = (holdId: string, credits: number) => ok('keys.settleHold', { holdId, credits: { cost: credits } });

  test('that were open come back to where the balance is, at each end of a hold', async () => {
    const old = await newKey();
    const hold = async (extras: object = {}) => (await held(old.key, 10, extras)).hold!.id;
    const [settled, more, released, late] = [await hold(), await hold(), await hold(), await hold()];
    await hold({ onExpiry: 'charge' });
    const first = await move(old.keyId, 0);
    const second = await move(first.keyId, 0);
    expect(await remainingOf(second)).toBe(50);
    expect(await settle(settled, 4)).toMatchObject({ credits: 56 });
    expect(await settle(more, 70)).toMatchObject({ credits: 0, debt: 4 });
    await ok('keys.releaseHold', { holdId: released });
    expect(await remainingOf(second)).toBe(6);
    clock.advance(60_001);
    // The verification settles what has expired: one is given back, one charged.
    await verify(old.key);
    expect(await remainingOf(second)).toBe(16);
    expect(await settle(late, 5)).toMatchObject({ late: true, credits: 11 });
    expect(await remainingOf(second)).toBe(11);
    expect(await remainingOf(first)).toBe(11);
  });

  test('leave alone the balance of another key: the first hold of a key, right after one that draws was used', async () => {
    const old = await newKey();
    const made = await move(old.keyId);
    const other = await newKey({ credits: { remaining: 30 } });
    await verify(old.key);
    await held(other.key, 7);
    expect(await remainingOf(other)).toBe(23);
    expect(await remainingOf(made)).toBe(99);
    // The same key: it drew on another one before.
    await ok('keys.deleteKey', { keyId: made.keyId });
    await ok('keys.updateCredits', { keyId: old.keyId, operation: 'set', value: 50 });
    await held(old.key, 3);
    await ok('keys.restoreKey', { keyId: made.keyId });
    expect(await remainingOf(old)).toBe(47);
    expect(await remainingOf(made)).toBe(99);
  });

  test('are settled by the sweeper and by a verification of another key alike', async () => {
    const old = await newKey();
    const made = await move(old.keyId);
    await held(old.key, 10);
    await held(made.key, 20);
    expect(await remainingOf(made)).toBe(70);
    clock.advance(60_001);
    expect(await verify(made.key)).toMatchObject({ credits: 89 });
    expect(await verify(old.key)).toMatchObject({ credits: 98 });
  });

  test('give back nothing to a balance that was set or refilled since', async () => {
    const old = await newKey({ credits: { remaining: 100, refill: daily } });
    const before = (await held(old.key, 10)).hold!.id;
    const made = await move(old.keyId, 10 * dayMs);
    const after = (await held(old.key, 10)).hold!.id;
    await ok('keys.updateCredits', { keyId: made.keyId, operation: 'set', value: 40 });
    expect(await settle(before, 0)).toMatchObject({ credits: 40 });
    expect(await settle(after, 12)).toMatchObject({ credits: 38 });
    const third = (await held(old.key, 8, { ttl: 86_400_000 })).hold!.id;
    clock.advance(dayMs - 1);
    expect(await settle(third, 0)).toMatchObject({ credits: 50 });
  });

  test('come back only to the balance that they charged, also if that was set before it was moved', async () => {
    const old = await newKey();
    const ofFormer = (await held(old.key, 10)).hold!.id;
    await ok('keys.updateCredits', { keyId: old.keyId, operation: 'set', value: 70 });
    const ofMoved = (await held(old.key, 20)).hold!.id;
    const made = await move(old.keyId);
    expect(await settle(ofFormer, 0)).toMatchObject({ credits: 50 });
    expect(await settle(ofMoved, 0)).toMatchObject({ credits: 70 });
    expect(await remainingOf(made)).toBe(70);
  });

  test('of an old key that is deleted, also for good, come back', async () => {
    for (const permanent of [false, true]) {
      const old = await newKey();
      const made = await move(old.keyId);
      await held(old.key, 10);
      await held(old.key, 5, { onExpiry: 'charge' });
      await ok('keys.deleteKey', { keyId: old.keyId, permanent });
      expect(await remainingOf(made)).toBe(permanent ? 95 : 85);
    }
  });
});

interface Held {
  id: string;
  cost: number;
  charges: boolean;
  isSettled: boolean;
}
/** Keys that share a balance, the one that has it last; what was spent of it, and holds. */
class Family {
  readonly keys: Made[] = [];
  readonly holds: Held[] = [];
  spent = 0;

  key = (n: number) => this.keys[n % this.keys.length]!.key;

  async verify(n: number, cost: number) {
    if ((await verify(this.key(n), cost)).code === 'VALID') this.spent += cost;
  }

  async hold(n: number, cost: number, charges: boolean) {
    const { hold } = await held(this.key(n), cost, charges ? { onExpiry: 'charge' } : {});
    if (hold) this.holds.push({ id: hold.id, cost, charges, isSettled: false });
  }

  async settle(n: number, cost: number) {
    const open = this.holds.filter(({ isSettled }) => !isSettled);
    const hold = open[n % open.length];
    if (!hold) return;
    const { status } = await call('keys.settleHold', { holdId: hold.id, credits: { cost } });
    if (status !== 200) return;
    hold.isSettled = true;
    this.spent += cost;
  }

  async release(n: number) {
    const hold = this.holds[n % this.holds.length];
    if (hold && (await call('keys.releaseHold', { holdId: hold.id })).status === 200) hold.charges = false;
  }

  async rotate(expiration: number) {
    const { keyId } = this.keys.at(-1)!;
    const { status, data } = await call('keys.rerollKey', { keyId, expiration, credits: 'move' });
    if (status === 200) this.keys.push(data);
  }
}

const small = fc.nat(20);
const step = fc.oneof(
  fc.tuple(small, small).map(
    ([n, cost]) =>
      (family: Family) =>
        family.verify(n, cost),
  ),
  fc.tuple(small, small, fc.boolean()).map(
    ([n, cost, charges]) =>
      (family: Family) =>
        family.hold(n, cost, charges),
  ),
  fc.tuple(small, small).map(
    ([n, cost]) =>
      (family: Family) =>
        family.settle(n, cost),
  ),
  small.map((n) => (family: Family) => family.release(n)),
  fc.constantFrom(0, 30_000, dayMs).map((expiration) => (family: Family) => family.rotate(expiration)),
  fc.constantFrom(1, 100, 30_000, 60_000).map((ms) => async (_: Family) => clock.advance(ms)),
  small.map((n) => async (family: Family) => void (await ok('keys.explainKey', { key: family.key(n) }))),
);

test('in random histories of two families of keys, each balance is what was given less what was spent', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(fc.boolean(), step), { size: 'max', maxLength: 60 }), async (history) => {
      const families = [new Family(), new Family()] as const;
      for (const { keys } of families) keys.push(await newKey({ credits: { remaining: 300 } }));
      for (const [isFirst, run] of history) await run(families[isFirst ? 0 : 1]);
      clock.advance(61_000);
      while (await app.store.sweep.holds(app.workspaceId));
      for (const { keys, holds, spent } of families) {
        const charged = holds.filter(({ isSettled, charges }) => charges && !isSettled);
        const left = 300 - charged.reduce((sum, { cost }) => sum + cost, spent);
        const { credits } = await read(keys.at(-1)!.keyId);
        expect(credits!.remaining - (credits!.debt ?? 0)).toBe(left);
        for (const { keyId } of keys) {
          const record = await read(keyId);
          if (record.drawsOn === keys.at(-1)!.keyId) expect(record.credits).toEqual(credits);
        }
      }
    }),
    { numRuns: 100 },
  );
}, 60_000);
