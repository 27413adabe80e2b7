// Redis's clock is set while leases are out: what they leave is given back all the same.

import { randomBytes } from 'node:crypto';
import { beforeAll, expect, test, vi } from 'vitest';
import { harness } from '../../support/harness.ts';
import { observing } from '../../support/observer.ts';

const hourMs = 3_600_000;
const counts = { units: 0 };
const observe = observing({
  granted(units: number) {
    counts.units += units;
  },
});
// Leases last longer than a test by the clock of the server, which is not set.
const settings = { leaseMs: 2000, leaseCredits: true, leaseAfter: 2, leaseNowMs: () => performance.now(), observe };
const app = harness(undefined, settings);
const { call, ok, clock, createKey } = app;

/** Requests until a lease of units is granted. Returns what they spent. */
async function untilGranted(request: (cost: number) => Promise<boolean>, cost: number): Promise<number> {
  let spent = 0;
  counts.units = 0;
  await vi.waitFor(
    async () => {
      expect(await request(cost)).toBe(true);
      spent += cost;
      expect(counts.units).toBeGreaterThan(0);
    },
    { timeout: 15_000, interval: 1 },
  );
  return spent;
}

const month = { name: 'requests', limit: 100_000, duration: 30 * 24 * hourMs, autoApply: true };

async function ofCredits(more: Parameters<typeof createKey>[0]) {
  const { key, keyId } = await createKey({ credits: { remaining: 100_000 }, ...more });
  return {
    request: async (cost: number) => (await call('keys.verifyKey', { key, credits: { cost } })).data.valid,
    left: async () => (await ok('keys.getKey', { keyId })).credits!.remaining,
  };
}

/** How to spend units, and how many are left. */
const kinds = {
  credits: () => ofCredits({}),
  'credits of a key with a limit, whose window moves with the clock': () =>
    ofCredits({ ratelimits: [{ ...month, duration: 60_000 }] }),
  async 'a limit of a month'() {
    const { key, keyId } = await createKey({ ratelimits: [month] });
    return {
      request: async (cost: number) =>
        (await call('keys.verifyKey', { key, ratelimits: [{ name: 'requests', cost }] })).data.valid,
      async left() {
        const { rules } = await ok('keys.explainKey', { keyId });
        return month.limit - rules.find(({ rule }) => rule === 'ratelimits')!.ratelimits![0]!.used;
      },
    };
  },
  async 'a limit of a month of an identifier'() {
    const { limit, duration } = month;
    const check = { namespace: 'clock', identifier: randomBytes(4).toString('hex'), limit, duration };
    return {
      request: async (cost: number) => (await call('ratelimits.limit', { ...check, cost })).data.success,
      left: async () => (await ok('ratelimits.limit', { ...check, cost: 0 })).remaining,
    };
  },
};
type Kind = keyof typeof kinds;

beforeAll(async () => {
  // A server asks for leases from a term after it connected on, once it hears of recalls: until then, thousands of
  // requests may be decided by Redis.
  const { key } = await createKey({ credits: { remaining: 100_000 } });
  await untilGranted(async () => (await call('keys.verifyKey', { key })).data.valid, 1);
});

// Units of a window that were charged while the clock was ahead count as used (docs/limits.md).
test.each<[Kind, number]>([
  ['credits', hourMs],
  ['credits', -hourMs],
  ['credits of a key with a limit, whose window moves with the clock', hourMs],
  ['credits of a key with a limit, whose window moves with the clock', -hourMs],
  ['a limit of a month', hourMs],
  ['a limit of a month of an identifier', hourMs],
  ['a limit of a month of an identifier', -hourMs],
])('%s, after a step of %i ms', async (kind, stepMs) => {
  const { request, left } = await kinds[kind]();
  let spent = await untilGranted(request, 1);
  clock.advance(stepMs);
  // Another lease, so that those of the key are written again.
  spent += await untilGranted(request, 2);
  await app.store.decide.leasing.leases.recall();
  expect(await left()).toBe(month.limit - spent);
});
