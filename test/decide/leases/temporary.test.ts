// Leases end when a temporary limit or override does, to the millisecond of Redis's clock, on every server that has
// one. Afterwards the former one applies, or none.

import { afterEach, describe, expect, test } from 'vitest';
import { hourMs, type InputOf } from '../../support/harness.ts';
import { heldServers, newName } from './heldServers.ts';

// The leases of these servers would outlast every `until` of these tests, and none ends by itself before.
const held = heldServers(2, { leaseMs: 2000 });
// The clock of these servers is slower than that of Redis by the most that leases allow for.
const slow = heldServers(1, { leaseMs: 2000 }, { speed: 0.99 });
// Each test begins with an hour: no lease of it ends because the hour ends in which its decisions are counted.
afterEach(() => {
  for (const { clock } of [held, slow]) clock.set(Math.floor(clock.now / hourMs) * hourMs + 2 * hourMs);
});

type Servers = typeof held;
type Server = Servers['servers'][number];
interface Limit {
  limit: number;
  duration?: number;
  until?: number;
}
/** A request that a limit of 20,000 applies to. */
interface Limited {
  send(server: Server, cost?: number): Promise<{ passed: boolean; limit: number | undefined; remaining: number }>;
  set(limit: Limit): Promise<unknown>;
}

const most = { name: 'most', limit: 20_000, duration: hourMs, autoApply: true };

/** With a limit of a key or of its identity. */
async function owned({ first: { ok } }: Servers, of: 'key' | 'identity', ratelimits: object[] = [most]) {
  const { apiId } = await ok('apis.createApi', { name: 'leases' });
  const externalId = newName();
  const limits = { ratelimits } as never as object;
  if (of === 'identity') await ok('identities.createIdentity', { externalId, ...limits });
  const owner = of === 'identity' ? { externalId } : limits;
  const { keyId, key } = await ok('keys.createKey', { apiId, ...owner });
  return {
    keyId,
    async send(server: Server, cost?: number) {
      const named = cost === undefined ? {} : { ratelimits: [{ name: 'most', cost }] };
      const { valid, code, ratelimits, identity } = await server.ok('keys.verifyKey', { key, ...named });
      const returned = identity?.ratelimits.find(({ name }) => name === 'most');
      // A disabled key has no limits in its response, but its identity has.
      const isDisabled = code === 'DISABLED';
      if (!isDisabled) expect(code).toBe(valid ? 'VALID' : 'RATE_LIMITED');
      if (identity && !isDisabled) expect(returned?.limit).toBe(ratelimits?.[0]?.limit);
      return {
        passed: valid,
        limit: isDisabled ? returned?.limit : ratelimits?.[0]?.limit,
        remaining: ratelimits?.[0]?.remaining ?? 0,
      };
    },
    set(limit: Limit) {
      const ratelimit = { name: 'most', ...limit };
      return of === 'key'
        ? ok('keys.updateKey', { keyId, ratelimit })
        : ok('identities.updateIdentity', { identity: externalId, ratelimit });
    },
  };
}

/** With an override, of a limit of 100,000. */
async function checked({ first: { ok } }: Servers, former: Limit = most) {
  const of = { namespace: 'temporary', identifier: newName() };
  const check: InputOf<'ratelimits.limit'> = { ...of, limit: 100_000, duration: hourMs };
  const set = ({ limit, duration = hourMs, until }: Limit) =>
    ok('ratelimits.setOverride', { ...of, limit, duration, ...(until && { until }) });
  await set(former);
  const send = async (server: Server, cost = 1) => {
    const { success: passed, limit, remaining } = await server.ok('ratelimits.limit', { ...check, cost });
    return { passed, limit, remaining };
  };
  return { check, send, set };
}

/** Sends until each server was granted a lease. */
const leaseAll = (group: Servers, { send }: Limited) =>
  group.untilAllGranted(async (server) => (await send(server)).passed);
const applied = (group: Servers, { send }: Limited) => group.applied(async (server) => (await send(server)).limit);

type Make = (group: Servers, former?: Limit) => Promise<Limited>;
const ofKey: Make = (group, former) => owned(group, 'key', [{ ...most, ...former }]);
const ofIdentity: Make = (group, former) => owned(group, 'identity', [{ ...most, ...former }]);

describe.each<[string, Servers, Make, number | undefined]>([
  ['two servers, a key', held, ofKey, undefined],
  ['two servers, an identity', held, ofIdentity, undefined],
  ['two servers, an override', held, checked, 100_000],
  ['a server with a slow clock, a key', slow, ofKey, undefined],
  ['a server with a slow clock, an override', slow, checked, 100_000],
])('%s', (_, group, make, otherwise) => {
  const { clock, servers } = group;
  const all = (limit: number | undefined) => servers.map(() => limit);

  test('decide locally before `until`, and by the former limit from then on', async () => {
    const limited = await make(group);
    const until = clock.now + 1500;
    await limited.set({ limit: 90_000, until });
    const count = servers.length;
    await leaseAll(group, limited);
    expect(await applied(group, limited)).toEqual({ limits: all(90_000), local: count });
    // 1 % of the term, by which a clock may be slow, is not leased.
    clock.set(until - 30);
    expect(await applied(group, limited)).toEqual({ limits: all(90_000), local: count });
    clock.set(until - 1);
    expect((await applied(group, limited)).limits).toEqual(all(90_000));
    clock.set(until);
    expect(await applied(group, limited)).toEqual({ limits: all(20_000), local: 0 });
    // Until then the lease may not have ended for Redis, so none is asked for.
    clock.advance(30);
    // A request that was refused one asks again after 25 ms.
    await applied(group, limited);
    clock.advance(25);
    await leaseAll(group, limited);
    clock.advance(1300);
    expect(await applied(group, limited)).toEqual({ limits: all(20_000), local: count });
  });

  test('have no limit any more after one without a former one', async () => {
    const until = clock.now + 1500;
    const limited = await make(group, { limit: 20_000, until });
    await leaseAll(group, limited);
    clock.set(until - 1);
    expect((await applied(group, limited)).limits).toEqual(all(20_000));
    clock.set(until);
    expect(await applied(group, limited)).toEqual({ limits: all(otherwise), local: 0 });
  });

  test('admit again when a limit of 1 ends', async () => {
    const limited = await make(group);
    const until = clock.now + 1000;
    await limited.set({ limit: 1, until });
    expect((await limited.send(group.first)).passed).toBe(true);
    // A refusal is leased without units, of which no count is kept.
    for (const server of servers)
      for (let times = 0; times < 6; times++) expect((await limited.send(server)).passed).toBe(false);
    expect((await applied(group, limited)).limits).toEqual(all(1));
    clock.set(until - 1);
    expect((await limited.send(group.first)).passed).toBe(false);
    clock.set(until);
    for (const server of servers) expect((await limited.send(server)).passed).toBe(true);
  });

  test('lose no units: neither of the window of the temporary limit nor of that of the former one', async () => {
    const limited = await make(group);
    const until = clock.now + 1000;
    const longer = { limit: 90_000, duration: 2 * hourMs };
    await limited.set({ ...longer, until });
    const charged = async () => {
      let times = 0;
      for (const server of servers)
        times += await group.untilGranted(server, async () => (await limited.send(server)).passed);
      return times;
    };
    const during = await charged();
    expect(servers.every(({ counts }) => counts.granted.at(-1)! > 0)).toBe(true);
    clock.set(until);
    const after = await charged();
    await group.recallAll();
    const left = async () => (await limited.send(group.first, 0)).remaining;
    expect(await left()).toBe(20_000 - after);
    await limited.set(longer);
    expect(await left()).toBe(90_000 - during);
  });
});

test.each([held, slow])('admit again when an override of 0 ends: %#', async (group) => {
  const until = group.clock.now + 1000;
  const limited = await checked(group, { limit: 0, until });
  const { check, send } = limited;
  const all = (limit: number) => group.servers.map(() => limit);
  // A refusal is leased without units, of which no count is kept.
  for (const server of group.servers)
    for (let times = 0; times < 6; times++) expect((await send(server)).passed).toBe(false);
  expect(await applied(group, limited)).toEqual({ limits: all(0), local: group.servers.length });
  group.clock.set(until - 1);
  expect((await applied(group, limited)).limits).toEqual(all(0));
  group.clock.set(until);
  expect(await applied(group, limited)).toEqual({ limits: all(check.limit), local: 0 });
});

test.each([held, slow])('leases of several checks end with the first of their overrides: %#', async (group) => {
  const until = group.clock.now + 1000;
  const { check: one } = await checked(group, { limit: 90_000, until: until + 500 });
  const { check: two } = await checked(group, { limit: 90_000, until });
  const send = async (server: Server) => {
    const { limits } = await server.ok('ratelimits.multiLimit', [one, two]);
    return limits.map(({ limit }) => limit);
  };
  await group.untilAllGranted(async (server) => (await send(server)).every((limit) => limit === 90_000));
  group.clock.set(until);
  for (const server of group.servers) {
    const before = server.counts.decided;
    expect(await send(server)).toEqual([90_000, two.limit]);
    expect(server.counts.decided).toBe(before);
  }
});

test('a refusal returns the limits of the identity that are in force', async () => {
  const { keyId, send, set } = await owned(held, 'identity');
  const until = held.clock.now + 1000;
  await set({ limit: 90_000, until });
  await held.first.ok('keys.updateKey', { keyId, enabled: false });
  const refused = (limit: number) => expect.objectContaining({ passed: false, limit });
  for (const server of held.servers)
    for (let times = 0; times < 6; times++) expect(await send(server)).toEqual(refused(90_000));
  held.clock.set(until);
  for (const server of held.servers) expect(await send(server)).toEqual(refused(20_000));
});

test.each([
  ['limit', ofKey],
  ['override', checked],
])('a change of a temporary %s takes its leases back at once', async (_, make) => {
  const limited = await make(held);
  const until = held.clock.now + 1500;
  for (const limit of [{ limit: 90_000, until }, { limit: 80_000, until }, { limit: 70_000 }]) {
    await limited.set(limit);
    expect((await applied(held, limited)).limits).toEqual([limit.limit, limit.limit]);
    await leaseAll(held, limited);
  }
  held.clock.set(until);
  expect((await applied(held, limited)).limits).toEqual([70_000, 70_000]);
});
