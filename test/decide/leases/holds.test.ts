// Holds and leases: what is held is never leased, a refusal is not leased while a settlement could return units, and a
// settlement on one server leaves the leases of another one exact.

import { describe, expect, test } from 'vitest';
import { harness, hourMs, type InputOf } from '../../support/harness.ts';
import { heldServers, newName } from './heldServers.ts';

const held = heldServers(4);
const [holder, other] = held.servers as [typeof held.first, typeof held.first];
const { clock, createKey } = held;
/** Without leases. */
const plain = harness(undefined, { leaseMs: 0, nowMs: () => clock.now });
const sweep = () => plain.store.sweep.holds(held.workspaceId);

const requests = { name: 'requests', limit: 1000, duration: hourMs, autoApply: true };
type Server = typeof holder;

const hold = async (server: Server, key: string, cost: number, ttl = 60_000) => {
  const input = { key, credits: { cost }, ratelimits: [{ name: 'requests', cost }], hold: { ttl } };
  const { code, hold } = await server.ok('keys.verifyKey', input);
  expect(code).toBe('VALID');
  return hold!.id;
};
const settle = (server: Server, holdId: string, cost: number, input: Partial<InputOf<'keys.settleHold'>> = {}) =>
  server.ok('keys.settleHold', { holdId, ratelimits: [{ name: 'requests', cost }], ...input });

/** Verifies until a refusal. Returns how many passed. */
async function fill(server: Server, key: string) {
  for (let passed = 0; ; passed++) if (!(await server.ok('keys.verifyKey', { key })).valid) return passed;
}

const decidedBy = async (server: Server, send: () => Promise<unknown>) => {
  const before = server.counts.decided;
  await send();
  return server.counts.decided - before;
};

/** A key, and another one of its identity if the limit is the identity's. */
async function keysOf(of: 'key' | 'identity') {
  if (of === 'key') {
    const { key } = await createKey({ ratelimits: [requests] });
    return [key, key] as const;
  }
  const externalId = newName();
  await holder.ok('identities.createIdentity', { externalId, ratelimits: [requests] });
  return [(await createKey({ externalId })).key, (await createKey({ externalId })).key] as const;
}

describe.each(['key', 'identity'] as const)('a limit of a %s', (of) => {
  test('admits what is not held, and then what a settlement on the other server gives back', async () => {
    const [held, used] = await keysOf(of);
    const id = await hold(other, held, 800);
    expect(await fill(holder, used)).toBe(200);
    expect(holder.counts.granted.some((units) => units > 0)).toBe(true);
    await settle(other, id, 300);
    expect((await fill(holder, used)) + (await fill(other, used))).toBe(500);
  });

  test('of a refusal is not leased while units are held, so that the next request after a settlement passes', async () => {
    const [held, used] = await keysOf(of);
    const id = await hold(other, held, 1000);
    const refusals = await decidedBy(holder, async () => {
      for (let time = 0; time < 50; time++)
        expect((await holder.ok('keys.verifyKey', { key: used })).valid).toBe(false);
    });
    expect(refusals).toBe(0);
    await settle(other, id, 999);
    expect((await holder.ok('keys.verifyKey', { key: used })).valid).toBe(true);
  });

  test('gets nothing back twice: held, leased, settled above, and expired', async () => {
    const [held, used] = await keysOf(of);
    const [above, released, expiring] = [
      await hold(other, held, 100),
      await hold(holder, held, 100),
      await hold(other, held, 100, 1000),
    ];
    for (let time = 0; time < 150; time++) await holder.ok('keys.verifyKey', { key: used });
    await settle(other, above, 250);
    await other.ok('keys.releaseHold', { holdId: released });
    for (let time = 0; time < 50; time++) await other.ok('keys.verifyKey', { key: used });
    clock.advance(1000);
    await sweep();
    expect((await fill(holder, used)) + (await fill(other, used))).toBe(1000 - 250 - 150 - 50);
    void expiring;
  });
});

test('a refusal of an identity is not leased while a hold is extended whose key has another identity since', async () => {
  const externalId = newName();
  await holder.ok('identities.createIdentity', { externalId, ratelimits: [requests] });
  const { key, keyId } = await createKey({ externalId });
  const { key: sibling } = await createKey({ externalId });
  const id = await hold(other, key, 1000, 1000);
  await holder.ok('keys.updateKey', { keyId, externalId: null });
  await other.ok('keys.extendHold', { holdId: id, ttl: 60_000 });
  clock.advance(2000);
  const refusals = await decidedBy(holder, async () => {
    for (let time = 0; time < 50; time++) await holder.ok('keys.verifyKey', { key: sibling });
  });
  expect(refusals).toBe(0);
  await settle(other, id, 0);
  expect((await holder.ok('keys.verifyKey', { key: sibling })).valid).toBe(true);
});

test.each([
  ['made there', holder, false],
  ['that another server made', other, false],
  ['made there, of a key that has another identity since', holder, true],
] as const)(
  'the end of a hold of a sibling is in the next answer of a server with leases: %s',
  async (_, maker, moves) => {
    const [externalId, elsewhere] = [newName(), newName()];
    await holder.ok('identities.createIdentity', { externalId, ratelimits: [requests] });
    const { key, keyId } = await createKey({ externalId });
    const { key: sibling } = await createKey({ externalId });
    const id = await hold(maker, key, 400);
    if (moves) {
      await holder.ok('identities.createIdentity', { externalId: elsewhere, ratelimits: [requests] });
      await holder.ok('keys.updateKey', { keyId, externalId: elsewhere });
      await hold(holder, key, 1);
    }
    const remaining = async () => (await holder.ok('keys.verifyKey', { key: sibling })).ratelimits![0]!.remaining;
    // Until a lease has decided the last one.
    let [used, decided] = [0, 0];
    while (used < 31 || decided === 0)
      decided = await decidedBy(holder, async () => expect(await remaining()).toBe(600 - ++used));
    await settle(holder, id, 100);
    expect(await remaining()).toBe(600 - used + 300 - 1);
    await holder.ok('keys.releaseHold', { holdId: await hold(maker, moves ? sibling : key, 50) });
    expect(await remaining()).toBe(600 - used + 300 - 2);
  },
);

test('a lease of units ends when a hold of its key expires', async () => {
  const { key } = await createKey({ ratelimits: [requests] });
  await hold(other, key, 500, 1000);
  clock.advance(950);
  const remaining = async () => (await holder.ok('keys.verifyKey', { key })).ratelimits![0]!.remaining;
  for (let time = 0; time < 100; time++) await remaining();
  expect(holder.counts.decided).toBeGreaterThan(0);
  // Long before the term of 300 ms.
  clock.advance(50);
  expect(await remaining()).toBe(1000 - 101);
});

test('a debt is seen at once by the server that has leases and settles', async () => {
  const { key } = await createKey({ credits: { remaining: 3000 } });
  const input = { key, credits: { cost: 20 }, hold: { ttl: 60_000 } };
  const { hold } = await holder.ok('keys.verifyKey', input);
  for (let time = 0; time < 200; time++) await holder.ok('keys.verifyKey', { key });
  expect(holder.counts.decided).toBeGreaterThan(0);
  const debt = { credits: 0, debt: 1000 };
  expect(await holder.ok('keys.settleHold', { holdId: hold!.id, credits: { cost: 3800 } })).toMatchObject(debt);
  expect(await holder.ok('keys.verifyKey', { key })).toMatchObject({ code: 'USAGE_EXCEEDED', ...debt });
});

test('a change of a hold by a root key that is unknown ends no lease', async () => {
  const { key, keyId } = await createKey({ ratelimits: [requests] });
  await held.untilGranted(holder, async () => (await holder.ok('keys.verifyKey', { key })).valid);
  const holdId = `hold_${keyId.slice('key_'.length)}.1`;
  const unknown = `${held.rootKey.slice(0, -4)}1111`;
  expect((await holder.call('keys.releaseHold', { holdId }, unknown)).status).toBe(401);
  expect(await decidedBy(holder, () => holder.ok('keys.verifyKey', { key }))).toBe(1);
  expect((await holder.call('keys.releaseHold', { holdId })).status).toBe(404);
  expect(await decidedBy(holder, () => holder.ok('keys.verifyKey', { key }))).toBe(0);
});

describe('a concurrency limit', () => {
  test('that is full takes back no leases: none has slots; nor after a look at a full window', async () => {
    const jobs = { name: 'jobs', limit: 1, duration: hourMs, type: 'concurrency' as const };
    const { key } = await createKey({ ratelimits: [{ ...requests, limit: 100_000 }, jobs] });
    const full = {
      key: (await createKey({ ratelimits: [{ ...requests, limit: 1 }] })).key,
      hold: { ttl: 60_000, id: 'own' },
    };
    const named = { key, ratelimits: [{ name: 'jobs', cost: 1 }] };
    const { hold } = await other.ok('keys.verifyKey', named);
    await held.untilGranted(holder, async () => (await holder.ok('keys.verifyKey', { key })).valid);
    for (let times = 0; times < 3; times++) {
      await other.ok('keys.verifyKey', full);
      expect(await other.ok('keys.verifyKey', named)).toMatchObject({ code: 'RATE_LIMITED' });
      expect(await decidedBy(holder, () => holder.ok('keys.verifyKey', { key }))).toBe(1);
    }
    await other.ok('keys.releaseHold', { holdId: hold!.id });
  });

  const jobs = { name: 'jobs', limit: 3, duration: 60_000, autoApply: true, type: 'concurrency' as const };
  const verify = (server: Server, key: string, ratelimits?: object[]) =>
    server.ok('keys.verifyKey', { key, ...(ratelimits && { ratelimits }) } as never);

  test.each([
    ['the key', 'key'],
    ['its identity', 'identity'],
  ])('of %s is never decided by a lease: neither its slots, nor looks, nor refusals', async (_of, owner) => {
    const externalId = newName();
    const ofKey = owner === 'key';
    if (!ofKey) await holder.ok('identities.createIdentity', { externalId, ratelimits: [jobs] });
    const { key } = await createKey({ externalId, ...(ofKey && { ratelimits: [jobs] }) });
    const { key: sibling } = ofKey ? { key } : await createKey({ externalId });
    const decided = await decidedBy(holder, async () => {
      for (let time = 0; time < 20; time++) {
        expect((await verify(holder, key, [{ name: 'jobs', cost: 0 }])).ratelimits![0]!.remaining).toBe(3);
        expect((await verify(holder, sibling, [{ name: 'jobs', cost: 0 }])).valid).toBe(true);
      }
      const holds = [await verify(holder, key), await verify(holder, sibling), await verify(holder, key)];
      for (let time = 0; time < 20; time++) expect((await verify(holder, sibling)).code).toBe('RATE_LIMITED');
      await other.ok('keys.releaseHold', { holdId: holds[1]!.hold!.id });
      expect((await verify(holder, sibling)).valid).toBe(true);
      for (let time = 0; time < 20; time++) expect((await verify(holder, key)).code).toBe('RATE_LIMITED');
      clock.advance(60_000);
      expect((await verify(holder, key)).valid).toBe(true);
    });
    expect(decided).toBe(0);
    expect(holder.counts.granted.filter((units) => units > 0)).toEqual([]);
  });

  test('that is not named leaves the leases of the key, and ends those that a new one would take part in', async () => {
    const { key, keyId } = await createKey({ ratelimits: [requests, { ...jobs, autoApply: false }] });
    const decided = await decidedBy(holder, async () => {
      for (let time = 0; time < 50; time++) expect((await verify(holder, key)).valid).toBe(true);
    });
    expect(decided).toBeGreaterThan(0);
    await other.ok('keys.updateKey', { keyId, ratelimit: { name: 'jobs', limit: 3, autoApply: true } });
    for (let time = 0; time < 3; time++) expect((await verify(holder, key)).hold).toBeDefined();
    expect((await verify(holder, key)).code).toBe('RATE_LIMITED');
  });

  test('takes part while units of the key are leased: these come back first', async () => {
    const { key } = await createKey({
      ratelimits: [
        { ...requests, limit: 200 },
        { ...jobs, autoApply: false },
      ],
    });
    for (let time = 0; time < 100; time++) await verify(holder, key);
    expect(holder.counts.granted.some((units) => units > 0)).toBe(true);
    const named = [{ name: 'jobs' }, { name: 'requests', cost: 100 }];
    const { valid, hold } = await verify(other, key, named);
    expect([valid, hold !== undefined]).toEqual([true, true]);
    expect(await fill(holder, key)).toBe(0);
  });
});

test('callers of four servers race for the last slots: never more than there are, and all come back', async () => {
  const externalId = newName();
  const limit = 3;
  const jobs = { name: 'jobs', limit, duration: 60_000, autoApply: true, type: 'concurrency' as const };
  await holder.ok('identities.createIdentity', { externalId, ratelimits: [jobs] });
  const keys = [await createKey({ externalId }), await createKey({ externalId }), await createKey({ externalId })];
  let open = 0;
  let most = 0;
  let taken = 0;
  const caller = async (number: number) => {
    for (let time = 0; time < 25; time++) {
      const server = held.servers[(number + time) % 4]!;
      const { hold } = await server.ok('keys.verifyKey', { key: keys[number % 3]!.key });
      if (!hold) continue;
      open++;
      taken++;
      most = Math.max(most, open);
      await new Promise((resolve) => setImmediate(resolve));
      open--;
      const end = time % 2 ? 'keys.releaseHold' : 'keys.settleHold';
      await held.servers[number % 4]!.ok(end, { holdId: hold.id });
    }
  };
  await Promise.all(Array.from({ length: 12 }, (_, number) => caller(number)));
  expect(most).toBeLessThanOrEqual(limit);
  expect(taken).toBeGreaterThan(limit);
  const left = await holder.ok('keys.verifyKey', { key: keys[0]!.key, ratelimits: [{ name: 'jobs', cost: 0 }] });
  expect(left.ratelimits![0]!.remaining).toBe(limit);
});
