// Leases of limit checks end when a temporary override does, to the millisecond of Redis's clock, on every server that
// has one. Afterwards the former override applies, or the limit of the request.

import { describe, expect, test } from 'vitest';
import { hourMs, type InputOf } from '../../support/harness.ts';
import { heldServers, newName } from './heldServers.ts';
import { expectEnd, startHours } from './temporary.ts';

// The leases of these servers would outlast every `until` of these tests, and none ends by itself before.
const held = heldServers(2, { leaseMs: 2000 });
// The clock of these servers is slower than that of Redis by the most that leases allow for.
const slow = heldServers(1, { leaseMs: 2000 }, { speed: 0.99 });
startHours(held, slow);

type Check = InputOf<'ratelimits.limit'>;
type Servers = typeof held;

const checkOf = (more: Partial<Check> = {}): Check => ({
  namespace: 'temporary',
  identifier: newName(),
  limit: 100_000,
  duration: hourMs,
  ...more,
});

const override = (
  { namespace, identifier }: Check,
  limit: number,
  more: { until?: number; duration?: number } = {},
) => ({
  namespace,
  identifier,
  limit,
  duration: hourMs,
  ...more,
});

/** Sends a check until each server was granted a lease of it. */
const leaseAll = (group: Servers, check: Check, passes = true) =>
  group.untilAllGranted(async (server) => (await server.ok('ratelimits.limit', check)).success === passes);

const applied = (group: Servers, check: Check) =>
  group.applied(async (server) => (await server.ok('ratelimits.limit', check)).limit);

describe.each([
  ['two servers', held],
  ['a server with a slow clock', slow],
])('%s', (_, group) => {
  const count = () => group.servers.length;
  const all = (limit: number) => group.servers.map(() => limit);

  test('decide locally before `until`, and by the former override from then on', async () => {
    const check = checkOf();
    await group.first.ok('ratelimits.setOverride', override(check, 20_000));
    const until = group.clock.now + 1500;
    await group.first.ok('ratelimits.setOverride', override(check, 90_000, { until }));
    await expectEnd(
      group,
      until,
      () => leaseAll(group, check),
      () => applied(group, check),
    );
  });

  test('admit again when an override of 0 ends', async () => {
    const check = checkOf();
    const until = group.clock.now + 1000;
    await group.first.ok('ratelimits.setOverride', override(check, 0, { until }));
    // A refusal is leased without units, of which no count is kept.
    for (const server of group.servers)
      for (let times = 0; times < 6; times++) expect((await server.ok('ratelimits.limit', check)).success).toBe(false);
    expect(await applied(group, check)).toEqual({ limits: all(0), local: count() });
    group.clock.set(until - 1);
    expect((await applied(group, check)).limits).toEqual(all(0));
    group.clock.set(until);
    expect(await applied(group, check)).toEqual({ limits: all(check.limit), local: 0 });
  });

  test('end leases of several checks with the first of their overrides', async () => {
    const [one, two] = [checkOf(), checkOf()];
    const until = group.clock.now + 1000;
    await group.first.ok('ratelimits.setOverride', override(one, 90_000, { until: until + 500 }));
    await group.first.ok('ratelimits.setOverride', override(two, 90_000, { until }));
    const send = async (server: (typeof group.servers)[number]) => {
      const { limits } = await server.ok('ratelimits.multiLimit', [one, two]);
      return limits.map(({ limit }) => limit);
    };
    for (const server of group.servers)
      await group.untilGranted(server, async () => (await send(server)).every((limit) => limit === 90_000));
    group.clock.set(until);
    for (const server of group.servers) {
      const before = server.counts.decided;
      expect(await send(server)).toEqual([90_000, two.limit]);
      expect(server.counts.decided).toBe(before);
    }
  });

  test('lose no units: neither of the window of the temporary override nor of that of the former one', async () => {
    const check = checkOf();
    const { namespace, identifier } = check;
    const until = group.clock.now + 1000;
    const longer = 2 * hourMs;
    await group.first.ok('ratelimits.setOverride', override(check, 50_000));
    await group.first.ok('ratelimits.setOverride', override(check, 90_000, { until, duration: longer }));
    const charged = async () => {
      let times = 0;
      for (const server of group.servers)
        times += await group.untilGranted(server, async () => (await server.ok('ratelimits.limit', check)).success);
      return times;
    };
    const during = await charged();
    expect(group.servers.every(({ counts }) => counts.granted.at(-1)! > 0)).toBe(true);
    group.clock.set(until);
    const after = await charged();
    await group.recallAll();
    const left = async () => (await group.first.ok('ratelimits.limit', { ...check, cost: 0 })).remaining;
    expect(await left()).toBe(50_000 - after);
    await group.first.ok('ratelimits.setOverride', { namespace, identifier, limit: 90_000, duration: longer });
    expect(await left()).toBe(90_000 - during);
  });
});

test('a change of a temporary override takes its leases back at once', async () => {
  const check = checkOf();
  await held.first.ok('ratelimits.setOverride', override(check, 10_000));
  const until = held.clock.now + 1500;
  await held.first.ok('ratelimits.setOverride', override(check, 90_000, { until }));
  await leaseAll(held, check);
  await held.first.ok('ratelimits.setOverride', override(check, 80_000, { until }));
  expect((await applied(held, check)).limits).toEqual([80_000, 80_000]);
  await leaseAll(held, check);
  await held.first.ok('ratelimits.setOverride', override(check, 70_000));
  expect((await applied(held, check)).limits).toEqual([70_000, 70_000]);
  await leaseAll(held, check);
  held.clock.set(until);
  expect((await applied(held, check)).limits).toEqual([70_000, 70_000]);
});
