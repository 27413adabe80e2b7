// Leases of verifications end when a temporary limit does, to the millisecond of Redis's clock, on every server that
// has one. Afterwards the former limit applies, or none.

import { describe, expect, test } from 'vitest';
import { hourMs } from '../../support/harness.ts';
import { heldServers, newName } from './heldServers.ts';
import { expectEnd, startHours } from './temporary.ts';

// The leases of these servers would outlast every `until` of these tests, and none ends by itself before.
const held = heldServers(2, { leaseMs: 2000 });
// The clock of these servers is slower than that of Redis by the most that leases allow for.
const slow = heldServers(1, { leaseMs: 2000 }, { speed: 0.99 });
startHours(held, slow);

type Servers = typeof held;
type Server = Servers['servers'][number];

const most = { name: 'most', limit: 20_000, duration: hourMs, autoApply: true };

/** A key with a limit of its own or of its identity, and how to change that. */
async function owned({ first: { ok } }: Servers, of: 'key' | 'identity', ratelimits: object[] = [most]) {
  const { apiId } = await ok('apis.createApi', { name: 'leases' });
  const externalId = newName();
  const limits = { ratelimits } as never as object;
  if (of === 'identity') await ok('identities.createIdentity', { externalId, ...limits });
  const owner = of === 'identity' ? { externalId } : limits;
  const { keyId, key } = await ok('keys.createKey', { apiId, ...owner });
  const change = (fields: object) =>
    of === 'key'
      ? ok('keys.updateKey', { keyId, ...fields } as never)
      : ok('identities.updateIdentity', { identity: externalId, ...fields } as never);
  return { key, change, set: (ratelimit: object) => change({ ratelimit: { name: 'most', ...ratelimit } }) };
}

const verify = (server: Server, key: string) => server.ok('keys.verifyKey', { key });

/** Verifies until each server was granted a lease. */
const leaseAll = (group: Servers, key: string, passes = true) =>
  group.untilAllGranted(async (server) => (await verify(server, key)).valid === passes);

/** The limits that the servers apply, which those of the identity in their responses equal. */
const applied = (group: Servers, key: string) =>
  group.applied(async (server) => {
    const { ratelimits, identity } = await verify(server, key);
    const returned = identity?.ratelimits.find(({ name }) => name === 'most');
    if (identity) expect(returned?.limit).toBe(ratelimits?.[0]?.limit);
    return ratelimits?.[0]?.limit;
  });

describe.each([
  ['two servers, a key', held, 'key'],
  ['two servers, an identity', held, 'identity'],
  ['a server with a slow clock, a key', slow, 'key'],
] as const)('%s', (_, group, of) => {
  const all = (limit: number | undefined) => group.servers.map(() => limit);

  test('decide locally before `until`, and by the former limit from then on', async () => {
    const { key, set } = await owned(group, of);
    const until = group.clock.now + 1500;
    await set({ limit: 90_000, until });
    await expectEnd(
      group,
      until,
      () => leaseAll(group, key),
      () => applied(group, key),
    );
  });

  test('have no limit any more after one without a former one', async () => {
    const until = group.clock.now + 1500;
    const { key } = await owned(group, of, [{ ...most, until }]);
    await leaseAll(group, key);
    group.clock.set(until - 1);
    expect((await applied(group, key)).limits).toEqual(all(20_000));
    group.clock.set(until);
    expect(await applied(group, key)).toEqual({ limits: all(undefined), local: 0 });
  });

  test('admit again when a limit of 1 ends', async () => {
    const { key, set } = await owned(group, of);
    const until = group.clock.now + 1000;
    await set({ limit: 1, until });
    expect((await verify(group.first, key)).valid).toBe(true);
    // A refusal is leased without units, of which no count is kept.
    for (const server of group.servers)
      for (let times = 0; times < 6; times++) expect((await verify(server, key)).code).toBe('RATE_LIMITED');
    expect((await applied(group, key)).limits).toEqual(all(1));
    group.clock.set(until - 1);
    expect((await verify(group.first, key)).code).toBe('RATE_LIMITED');
    group.clock.set(until);
    for (const server of group.servers) expect((await verify(server, key)).valid).toBe(true);
  });

  test('lose no units: neither of the window of the temporary limit nor of that of the former one', async () => {
    const { key, set } = await owned(group, of);
    const until = group.clock.now + 1000;
    const longer = { limit: 90_000, duration: 2 * hourMs };
    await set({ ...longer, until });
    const charged = async () => {
      let times = 0;
      for (const server of group.servers)
        times += await group.untilGranted(server, async () => (await verify(server, key)).valid);
      return times;
    };
    const during = await charged();
    expect(group.servers.every(({ counts }) => counts.granted.at(-1)! > 0)).toBe(true);
    group.clock.set(until);
    const after = await charged();
    await group.recallAll();
    const left = async () => {
      const named = { key, ratelimits: [{ name: 'most', cost: 0 }] };
      return (await group.first.ok('keys.verifyKey', named)).ratelimits![0]!.remaining;
    };
    expect(await left()).toBe(20_000 - after);
    await set(longer);
    expect(await left()).toBe(90_000 - during);
  });
});

test('a refusal returns the limits of the identity that are in force', async () => {
  const { key, change } = await owned(held, 'identity');
  const until = held.clock.now + 1000;
  await change({ ratelimit: { name: 'most', limit: 90_000, until } });
  const { keyId } = await held.first.ok('keys.whoami', { key });
  await held.first.ok('keys.updateKey', { keyId, enabled: false });
  const limitOf = async (server: Server) => (await verify(server, key)).identity!.ratelimits[0]!.limit;
  for (const server of held.servers) for (let times = 0; times < 6; times++) expect(await limitOf(server)).toBe(90_000);
  held.clock.set(until);
  for (const server of held.servers) expect(await limitOf(server)).toBe(20_000);
});

test('a change of a temporary limit takes its leases back at once', async () => {
  const { key, set } = await owned(held, 'key');
  const until = held.clock.now + 1500;
  await set({ limit: 90_000, until });
  await leaseAll(held, key);
  await set({ limit: 80_000, until });
  expect((await applied(held, key)).limits).toEqual([80_000, 80_000]);
  await leaseAll(held, key);
  await set({ limit: 70_000 });
  expect((await applied(held, key)).limits).toEqual([70_000, 70_000]);
  await leaseAll(held, key);
  held.clock.set(until);
  expect((await applied(held, key)).limits).toEqual([70_000, 70_000]);
});
