// Leases of quotas: four servers spend one quota, with leases that are out when its period ends. In each period they
// admit exactly its number.

import { expect, test } from 'vitest';
import { periodAt, type QuotaPeriod } from '../../../src/domain/quota.ts';
import { heldServers, newName } from './heldServers.ts';

const held = heldServers(4);
const { servers, clock, createKey } = held;
type Server = (typeof servers)[number];
type Request = (server: Server) => Promise<boolean>;

/** A quota that is spent in this way: whether a request passes. */
const ways: [
  string,
  QuotaPeriod,
  (quota: { limit: number; period: QuotaPeriod; anchor: number }) => Promise<Request>,
][] = [
  [
    'a key',
    'month',
    async (quota) => {
      const { key } = await createKey({ ratelimits: [{ name: 'quota', ...quota, autoApply: true }] });
      return async (server) => (await server.ok('keys.verifyKey', { key })).valid;
    },
  ],
  [
    'an identity',
    'week',
    async (quota) => {
      const externalId = newName();
      const ratelimits = [{ name: 'quota', ...quota, autoApply: true }];
      await held.first.ok('identities.createIdentity', { externalId, ratelimits });
      const keys = await Promise.all([1, 2].map(() => createKey({ externalId })));
      return async (server) => (await server.ok('keys.verifyKey', { key: keys[server.number % 2]!.key })).valid;
    },
  ],
  [
    'a request',
    'day',
    async (quota) => {
      const { key } = await createKey();
      const ratelimits = [{ name: 'quota', ...quota }];
      return async (server) => (await server.ok('keys.verifyKey', { key, ratelimits })).valid;
    },
  ],
  [
    'an identifier',
    'hour',
    async (quota) => {
      const check = { namespace: 'quotas', identifier: newName(), ...quota };
      return async (server) => (await server.ok('ratelimits.limit', check)).success;
    },
  ],
  [
    'an identifier with an override',
    'year',
    async (quota) => {
      const of = { namespace: 'quotas', identifier: newName() };
      await held.first.ok('ratelimits.setOverride', { ...of, ...quota });
      return async (server) => (await server.ok('ratelimits.limit', { ...of, limit: 1, duration: 1000 })).success;
    },
  ],
];

test.each(ways)('four servers admit exactly 300 in each of ten periods: %s', async (_what, period, make) => {
  const quota = { limit: 300, period, anchor: Date.UTC(2026, 0, 31, 9) };
  const request = await make(quota);
  const decided = () => servers.reduce((sum, { counts }) => sum + counts.decided, 0);
  const before = decided();
  const passed: number[] = [];
  for (let number = 0; number < 10; number++) {
    const { end } = periodAt(quota, clock.now);
    let count = 0;
    /** Some requests of each server at the same time, a while after each other. Whether one passed. */
    const round = async () => {
      const answers = await Promise.all(
        servers.map(async (server) => {
          let own = 0;
          for (let time = 0; time < 10; time++) own += (await request(server)) ? 1 : 0;
          return own;
        }),
      );
      const sum = answers.reduce((all, own) => all + own);
      count += sum;
      clock.advance(20);
      return sum > 0;
    };
    // Leases are out when an even period ends, of which not all is spent.
    const isSpent = number % 2 === 1;
    if (isSpent) while (await round());
    else {
      for (let time = 0; time < 4; time++) await round();
      clock.set(end - 1);
      await round();
    }
    passed.push(count);
    clock.set(Math.max(end, clock.now));
  }
  expect(passed.filter((_, index) => index % 2 === 1)).toEqual([300, 300, 300, 300, 300]);
  expect(Math.max(...passed)).toBe(300);
  expect(decided()).toBeGreaterThan(before + 100);
});

test('answers by leases have the end of the period as reset, and change when it ends', async () => {
  const [server] = servers as [Server];
  // Not at a full hour, with which leases end, too.
  const period = { period: 'day' as const, anchor: 1_800_000 };
  const quota = { name: 'quota', limit: 500, ...period, autoApply: true };
  const ways: [object, object[]?][] = [
    // Refused for good, and for want of credits, which no figure of the quota explains.
    [{ ratelimits: [quota] }, [{ name: 'quota', cost: 501 }]],
    [{ ratelimits: [quota], credits: { remaining: 0 } }],
    [{ ratelimits: [quota] }],
  ];
  for (const [fields, ratelimits] of ways) {
    const { key } = await createKey(fields as never);
    const { end } = periodAt(period, clock.now);
    const resetOf = async () =>
      (await server.ok('keys.verifyKey', { key, ...(ratelimits && { ratelimits }) } as never)).ratelimits![0]!.reset;
    clock.set(end - 250);
    const before = server.counts.decided;
    for (let time = 0; time < 20; time++) {
      expect(await resetOf()).toBe(end);
      clock.advance(10);
    }
    expect(server.counts.decided).toBeGreaterThan(before);
    clock.set(end);
    expect(await resetOf()).toBe(periodAt(period, end).end);
  }
});

test('a lease of the period before, to which the clock stepped back, gives back to that one', async () => {
  const [holder, other] = servers as [Server, Server];
  const { end } = periodAt({ period: 'week', anchor: 0 }, clock.now);
  const of = { namespace: 'quotas', identifier: newName(), limit: 1000, period: 'week' as const, anchor: 0 };
  const limit = (server: Server, cost = 1) => server.ok('ratelimits.limit', { ...of, cost });
  clock.set(end - 10);
  await limit(other, 100);
  clock.set(end);
  await limit(other, 200);
  clock.set(end - 5000);
  const spent = await held.untilGranted(holder, async () => (await limit(holder)).success);
  await holder.recall();
  expect((await limit(other, 0)).remaining).toBe(900 - spent);
  clock.set(end);
  expect((await limit(other, 0)).remaining).toBe(800);
});

test('units of a lease that is settled after its period come back to that one', async () => {
  const quota = { name: 'quota', limit: 1000, period: 'day' as const, autoApply: true };
  const { key } = await createKey({ ratelimits: [quota] });
  const [holder, other] = servers as [Server, Server];
  await held.untilGranted(holder, async () => (await holder.ok('keys.verifyKey', { key })).valid);
  clock.set(periodAt({ period: 'day', anchor: 0 }, clock.now).end);
  await other.ok('keys.verifyKey', { key });
  await holder.recall();
  const { ratelimits } = await other.ok('keys.verifyKey', { key, ratelimits: [{ name: 'quota', cost: 0 }] });
  expect(ratelimits).toMatchObject([{ remaining: 999 }]);
});

test('a key with a monthly quota of much room is decided locally as often as one without limits', async () => {
  const local: number[] = [];
  for (const ratelimits of [[], [{ name: 'quota', limit: 1_000_000, period: 'month' as const, autoApply: true }]]) {
    const { key } = await createKey({ ratelimits });
    const before = servers[0]!.counts.decided;
    for (let time = 0; time < 400; time++) {
      expect((await servers[0]!.ok('keys.verifyKey', { key })).valid).toBe(true);
      clock.advance(2);
    }
    local.push(servers[0]!.counts.decided - before);
  }
  expect(local[1]).toBeGreaterThanOrEqual(0.95 * local[0]!);
});
