// A server that returns its units later than a recall waits for: they count as spent until then, and are given back after all.

import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { digestOf, digestTextOf } from '../../src/domain/keyString.ts';
import { AcceptedRootKeys } from '../../src/store/accepted.ts';
import { Decider } from '../../src/store/decide.ts';
import { workspaceKey } from '../../src/store/keyspace.ts';
import { Leasing } from '../../src/store/leases/leasing.ts';
import { connect, type RedisClient } from '../../src/store/redis.ts';
import { loadScripts } from '../../src/store/scripts.ts';
import { Tail } from '../../src/store/tail/tail.ts';
import { harness, testSettings } from '../support/harness.ts';
import { observing } from '../support/observer.ts';
import { testRedisUrl } from '../support/redis.ts';

const app = harness(undefined, { leaseMs: 0, nowMs: () => undefined });
let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(async () => void (await redis.quit()));

const settings = { ...testSettings, leaseMs: 40, leaseCredits: true, leaseAfter: 2, leaseClockMs: () => 0 };
const presented = () => ({
  workspaceId: app.workspaceId,
  digest: digestOf(app.rootKey),
  digestText: digestTextOf(app.rootKey),
});

/** A server whose settlements wait while it `isLate`. */
async function openServer() {
  const server = { granted: [] as number[], decided: 0, isLate: false };
  const observe = observing({
    granted: (units: number) => void server.granted.push(units),
    decided: () => void server.decided++,
  });
  const decider = new Decider({
    ...settings,
    openLeasing: (settle) =>
      new Leasing({
        ...settings,
        redis,
        observe,
        deactivate: async () => {},
        async settle(...settlement) {
          while (server.isLate) await delay(1);
          await settle(...settlement);
        },
      }),
    scripts: await loadScripts(redis, workspaceKey),
    slugsOf: async () => [],
    accepted: new AcceptedRootKeys(),
    tail: new Tail(redis),
    now: () => '',
    observe,
  });
  return Object.assign(server, { decider });
}

const kinds = {
  async 'a limit check'() {
    const check = { namespace: 'late', identifier: randomBytes(4).toString('hex'), limit: 1000, durationMs: 3_600_000 };
    return async ({ decider }: { decider: Decider }, cost: number) =>
      (await decider.prepareLimit(presented(), [{ ...check, cost }]).decide()).passed;
  },
  async 'a verification'() {
    const { key } = await app.createKey({ credits: { remaining: 1000 } });
    return async ({ decider }: { decider: Decider }, cost: number) =>
      (await decider.prepareVerification(presented(), { digest: digestTextOf(key), cost }).decide()).outcome ===
      'VALID';
  },
};

test.each(Object.entries(kinds))('%s', async (_kind, make) => {
  const request = await make();
  const [holder, other] = [await openServer(), await openServer()];
  let spent = 0;
  await vi.waitFor(
    async () => {
      if (await request(holder, 1)) spent++;
      expect(Math.max(...holder.granted)).toBeGreaterThan(0);
    },
    { timeout: 5000, interval: 1 },
  );
  holder.isLate = true;
  const [startedAt, left] = [performance.now(), 1000 - spent];
  expect(await request(other, left)).toBe(false);
  expect(performance.now() - startedAt).toBeGreaterThan(settings.leaseMs);
  // No other refusal waits for it, and none is leased.
  const refusedAt = performance.now();
  for (let times = 0; times < 5; times++) expect(await request(other, left)).toBe(false);
  expect(performance.now() - refusedAt).toBeLessThan(5 * settings.leaseMs);
  expect(other.decided).toBe(0);
  holder.isLate = false;
  await holder.decider.leasing.leases.recall();
  expect(await request(other, left)).toBe(true);
  await Promise.all([holder, other].map(({ decider }) => decider.leasing.close()));
});
