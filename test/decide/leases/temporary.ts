// What leases of temporary limits and of temporary overrides have in common.

import { afterEach, expect } from 'vitest';
import { hourMs } from '../../support/harness.ts';
import type { HeldServers } from './heldServers.ts';

/** Each test begins with an hour: no lease of it ends because the hour ends in which its decisions are counted. */
export function startHours(...groups: HeldServers[]): void {
  afterEach(() => {
    for (const { clock } of groups) clock.set(Math.floor(clock.now / hourMs) * hourMs + 2 * hourMs);
  });
}

/**
 * A limit of 90,000 ends at `until`, which is 1500 ms away, and then one of 20,000 applies. After `leaseAll` each
 * server has a lease; `applied` is that of heldServers.
 */
export async function expectEnd(
  { clock, servers }: HeldServers,
  until: number,
  leaseAll: () => Promise<void>,
  applied: () => Promise<{ limits: (number | undefined)[]; local: number }>,
): Promise<void> {
  const count = servers.length;
  const all = (limit: number) => servers.map(() => limit);
  await leaseAll();
  expect(await applied()).toEqual({ limits: all(90_000), local: count });
  // 1 % of the term, by which a clock may be slow, is not leased.
  clock.set(until - 30);
  expect(await applied()).toEqual({ limits: all(90_000), local: count });
  clock.set(until - 1);
  expect((await applied()).limits).toEqual(all(90_000));
  clock.set(until);
  expect(await applied()).toEqual({ limits: all(20_000), local: 0 });
  // Until then the lease may not have ended for Redis, so none is asked for.
  clock.advance(30);
  await leaseAll();
  clock.advance(1400);
  expect(await applied()).toEqual({ limits: all(20_000), local: count });
}
