// A Redis that is 80 ms away. What is on the way does not wait at Redis, so it takes nothing of a workspace's share of
// Redis's queue. A round trip is measured by others beside it, because the machine may be busy.

import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { Batch } from '../../src/decide/batch.ts';
import { digestOf, digestTextOf } from '../../src/domain/keyString.ts';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { budgetMax } from '../../src/scripts/layout.ts';
import { harness, testSettings } from '../support/harness.ts';
import { redisProxy } from './leases/proxy.ts';

const far = redisProxy();
const setRoundTrip = (ms: number) => Object.assign(far, { delayMs: ms / 2, delayRequestsMs: ms / 2 });
// The clock of Redis, as its times are compared.
const app = harness(far.url, { commandTimeoutMs: 10_000, nowMs: () => undefined });
let beside: RedisClient;
beforeAll(async () => {
  beside = await connect(far.url(), testSettings);
  setRoundTrip(80);
});
afterAll(() => beside?.disconnect());

/** The plain requests that a workspace may have waiting at Redis, see workMax in src/decide/decider.ts. */
const atRedisMax = 192;

test('serves many times what may wait at Redis in a round trip', async () => {
  setRoundTrip(0);
  const { key } = await app.createKey();
  setRoundTrip(80);
  const { workspaceId, rootKey } = app;
  const presented = { workspaceId, digest: digestOf(rootKey), digestText: digestTextOf(rootKey) };
  const verification = app.store.decide.verifications.prepare(presented, { digest: digestTextOf(key), cost: 1 });
  await verification.decide();
  const packed = vi.spyOn(Batch.prototype, 'packed');
  let answered = 0;
  let isOver = false;
  async function verify() {
    while (!isOver) {
      const { outcome } = await verification.decide();
      expect(outcome).toBe('VALID');
      answered++;
    }
  }
  const callers = Array.from({ length: 512 }, verify);
  const trips = 12;
  let most = 0;
  // A machine that is busy with other programs gets several attempts.
  for (let attempt = 0; attempt < 8 && most < 2 * atRedisMax; attempt++) {
    const before = answered;
    for (let trip = 0; trip < trips; trip++) await beside.ping();
    most = Math.max(most, (answered - before) / trips);
  }
  isOver = true;
  await Promise.all(callers);
  expect(most).toBeGreaterThan(2 * atRedisMax);
  const budgets = packed.mock.calls.map(([, budget]) => budget);
  expect(budgets.slice(0, 8)).toEqual(Array(8).fill(budgetMax));
  expect(Math.min(...budgets)).toBeLessThan(budgetMax);
  packed.mockRestore();
});
