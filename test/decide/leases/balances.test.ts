// Credits that servers have leased: a balance is what was given to it, less what was spent, after every change but one
// that sets it. The server that changes is another one, or a holder itself.

import { describe, expect, test } from 'vitest';
import { dayMs } from '../../support/harness.ts';
import { heldServers } from './heldServers.ts';

const held = heldServers(3);
const [first, second, other] = held.servers as [typeof held.first, typeof held.first, typeof held.first];
const { ok } = other;
const { createKey, clock } = held;

const refill = { interval: 'monthly', amount: 1000 } as const;

/** Two servers verify 150 times each. They hold credits of the key then. */
async function use(key: string) {
  for (const server of [first, second]) {
    const leases = server.counts.granted.length;
    for (let time = 0; time < 150; time++) expect((await server.ok('keys.verifyKey', { key })).valid).toBe(true);
    expect(server.counts.granted.slice(leases).some((units) => units > 0)).toBe(true);
  }
}

/** The balance, when no server holds credits. */
async function balanceOf(keyId: string) {
  await held.recallAll();
  return (await ok('keys.getKey', { keyId })).credits!.remaining;
}

describe.each([
  ['another server', other],
  ['a holder', first],
])('changed by %s', (_by, changer) => {
  const update = (changes: object) => (keyId: string) => changer.ok('keys.updateKey', { keyId, ...changes });
  const inTurn =
    (...changes: ((keyId: string) => Promise<unknown>)[]) =>
    async (keyId: string) => {
      for (const change of changes) await change(keyId);
    };
  const refillOf = (amount: number) => update({ credits: { refill: { ...refill, amount } } });

  const keeping: [string, (keyId: string) => Promise<unknown>][] = [
    ['the amount of the refill', refillOf(2000)],
    ['the interval of the refill', update({ credits: { refill: { interval: 'daily', amount: 10 } } })],
    ['no refill any more', update({ credits: { refill: null } })],
    ['the refill, three times', inTurn(refillOf(1), refillOf(2), refillOf(3))],
    ['its name', update({ name: 'renamed' })],
    [
      'deleted and restored',
      inTurn(
        (keyId) => changer.ok('keys.deleteKey', { keyId }),
        (keyId) => changer.ok('keys.restoreKey', { keyId }),
      ),
    ],
  ];
  test.each(keeping)('a change keeps the balance: %s', async (_what, change) => {
    const { key, keyId } = await createKey({ credits: { remaining: 3000, refill } });
    await use(key);
    await change(keyId);
    expect(await balanceOf(keyId)).toBe(2700);
  });

  test('a copy for a successor has what is left', async () => {
    const { key, keyId } = await createKey({ credits: { remaining: 3000, refill } });
    await use(key);
    const successor = await changer.ok('keys.rerollKey', { keyId, expiration: 0, credits: 'copy' });
    expect(await balanceOf(keyId)).toBe(2700);
    expect(await balanceOf(successor.keyId)).toBe(2700);
  });

  test.each([0, 5, 50, 200, 400])('decrement leaves what it should: %i', async (keep) => {
    const { key, keyId } = await createKey({ credits: { remaining: 3000 } });
    await use(key);
    const value = 2700 - keep;
    expect(await changer.ok('keys.updateCredits', { keyId, operation: 'decrement', value })).toMatchObject({
      remaining: keep,
    });
    expect(await balanceOf(keyId)).toBe(keep);
  });

  test('decrement by more than there is leaves 0, and nothing comes back', async () => {
    const { key, keyId } = await createKey({ credits: { remaining: 3000 } });
    await use(key);
    const decrement = { keyId, operation: 'decrement', value: 2701 } as const;
    expect(await changer.ok('keys.updateCredits', decrement)).toMatchObject({ remaining: 0 });
    expect(await balanceOf(keyId)).toBe(0);
  });

  test('increment and decrement return the balance', async () => {
    const { key, keyId } = await createKey({ credits: { remaining: 3000 } });
    await use(key);
    const increment = { keyId, operation: 'increment', value: 7 } as const;
    expect(await changer.ok('keys.updateCredits', increment)).toMatchObject({ remaining: 2707 });
    // After the recall no leases of the key are granted for a while.
    clock.advance(5000);
    await use(key);
    const decrement = { keyId, operation: 'decrement', value: 7 } as const;
    expect(await changer.ok('keys.updateCredits', decrement)).toMatchObject({ remaining: 2400 });
    expect(await balanceOf(keyId)).toBe(2400);
  });

  const setting: [string, (keyId: string) => Promise<unknown>][] = [
    ['set', (keyId) => changer.ok('keys.updateCredits', { keyId, operation: 'set', value: 500 })],
    ['updateKey', update({ credits: { remaining: 500 } })],
    ['updateKey with a refill', update({ credits: { remaining: 500, refill: { ...refill, amount: 3 } } })],
    ['unlimited, and set', inTurn(update({ credits: null }), update({ credits: { remaining: 500 } }))],
  ];
  test.each(setting)('a balance that is set gets nothing back: %s', async (_how, set) => {
    const { key, keyId } = await createKey({ credits: { remaining: 3000, refill } });
    await use(key);
    await set(keyId);
    expect(await balanceOf(keyId)).toBe(500);
  });
});

describe('moved to another key', () => {
  const move = (by: typeof first, keyId: string, expiration = dayMs) =>
    by.ok('keys.rerollKey', { keyId, expiration, credits: 'move' });

  test.each([
    ['another server', other],
    ['a holder', first],
  ])('a balance takes along what servers held of it, by %s', async (_by, changer) => {
    const { key, keyId } = await createKey({ credits: { remaining: 3000, refill } });
    await use(key);
    const made = await move(changer, keyId);
    expect(await balanceOf(made.keyId)).toBe(2700);
    expect(await balanceOf(keyId)).toBe(2700);
    expect(await ok('keys.getKey', { keyId: made.keyId })).toMatchObject({ credits: { remaining: 2700, refill } });
  });

  test('is not leased while another key draws on it, and is afterwards', async () => {
    const { key, keyId } = await createKey({ credits: { remaining: 3000 } });
    const made = await move(other, keyId);
    const leases = first.counts.granted.length;
    for (let time = 0; time < 100; time++)
      for (const each of [key, made.key]) expect((await first.ok('keys.verifyKey', { key: each })).code).toBe('VALID');
    expect(first.counts.granted.slice(leases).filter((units) => units > 0)).toEqual([]);
    clock.advance(dayMs);
    await use(made.key);
    expect(await balanceOf(made.keyId)).toBe(2500);
    // Its use is changed again: the servers return what they hold of it before the response.
    await use(made.key);
    await ok('keys.updateKey', { keyId, expires: null });
    expect((await second.ok('keys.verifyKey', { key, credits: { cost: 2200 } })).credits).toBe(0);
  });

  test('is spent exactly once, with rotations while three servers use all keys', async () => {
    const keys = [(await createKey({ credits: { remaining: 2000 } })) as { keyId: string; key: string }];
    let [spent, isDone] = [0, false];
    async function spend(server: typeof first, key: string, cost = 1) {
      const { code } = await server.ok('keys.verifyKey', { key, credits: { cost } });
      if (code === 'VALID') spent += cost;
      else expect(['USAGE_EXCEEDED', 'EXPIRED']).toContain(code);
      return code;
    }
    const spending = [first, second, other].map(async (server, number) => {
      for (let n = number; !isDone; n++) await spend(server, keys[n % keys.length]!.key);
    });
    for (let n = 0; n < 6; n++) {
      for (let time = 0; time < 50; time++) await spend(second, keys[n]!.key);
      keys.push(await move(n % 2 ? first : other, keys[n]!.keyId, n % 3 ? dayMs : 1));
      clock.advance(5000);
    }
    isDone = true;
    await Promise.all(spending);
    const last = keys.at(-1)!;
    expect(spent).toBeGreaterThan(300);
    expect((await balanceOf(last.keyId)) + spent).toBe(2000);
    while ((await spend(first, last.key, 10)) === 'VALID');
    while ((await spend(second, last.key)) === 'VALID');
    expect(spent).toBe(2000);
  });
});

test('a refill that was applied gets nothing back, and a changed one is applied once', async () => {
  const { key, keyId } = await createKey({ credits: { remaining: 3000, refill: { interval: 'daily', amount: 1000 } } });
  await use(key);
  await ok('keys.updateKey', { keyId, credits: { refill: { interval: 'daily', amount: 2000 } } } as never);
  await use(key);
  clock.advance(dayMs);
  expect((await ok('keys.verifyKey', { key })).credits).toBe(1999);
  expect(await balanceOf(keyId)).toBe(1999);
});
