// A server that returns its units later than a recall waits for: they count as spent until then, and are given back
// after all. And one that leaves the registry later than it was granted a lease: a change waits for it.

import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import type { Decide } from '../../../src/decide/decide.ts';
import { digestTextOf } from '../../../src/domain/keyString.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { harness } from '../../support/harness.ts';
import { redisOfFile } from '../../support/ofFile.ts';
import { openServer, presentedOf, untilGranted } from './lateServer.ts';

const app = harness(undefined, { leaseMs: 0, nowMs: () => undefined });
const redis = await redisOfFile();

const leaseMs = 40;
const presented = () => presentedOf(app);

const kinds = {
  async 'a limit check'() {
    const check = { namespace: 'late', identifier: randomBytes(4).toString('hex'), limit: 1000, durationMs: 3_600_000 };
    return async ({ decider }: { decider: Decide }, cost: number) =>
      (await decider.limitChecks.prepare(presented(), [{ ...check, cost }]).decide()).passed;
  },
  async 'a verification'() {
    const { key } = await app.createKey({ credits: { remaining: 1000 } });
    return async ({ decider }: { decider: Decide }, cost: number) =>
      (await decider.verifications.prepare(presented(), { digest: digestTextOf(key), cost }).decide()).outcome ===
      'VALID';
  },
};

test.each(Object.entries(kinds))('%s', async (_kind, make) => {
  const request = await make();
  const [holder, other] = [await openServer(redis, leaseMs), await openServer(redis, leaseMs)];
  const spent = await untilGranted(holder, () => request(holder, 1));
  holder.isLate = true;
  const [startedAt, left] = [performance.now(), 1000 - spent];
  expect(await request(other, left)).toBe(false);
  expect(performance.now() - startedAt).toBeGreaterThan(leaseMs);
  // No other refusal waits for it, and none is leased.
  const tookMs: number[] = [];
  for (let times = 0; times < 5; times++) {
    const refusedAt = performance.now();
    expect(await request(other, left)).toBe(false);
    tookMs.push(performance.now() - refusedAt);
  }
  // If they waited, all of them would. A busy machine delays some.
  expect(Math.min(...tookMs)).toBeLessThan(leaseMs);
  expect(other.decided).toBe(0);
  holder.isLate = false;
  await holder.decider.leasing.leases.recall();
  expect(await request(other, left)).toBe(true);
  await Promise.all([holder, other].map(({ decider }) => decider.leasing.close()));
});

test('a server that leaves the registry, and is granted a lease before that arrives, stays in it', async () => {
  const server = await openServer(redis, 200);
  const request = await kinds['a verification']();
  const registry = `${workspaceKey(app.workspaceId)}:leases`;
  const others = await redis.hkeys(registry);
  server.isLate = true;
  // It leaves at once. Calls that were sent later may be decided before, when a call leaves requests undecided.
  server.decider.leasing.leases.registered(app.workspaceId);
  await delay(200);
  await vi.waitFor(
    async () => {
      await request(server, 1);
      expect(server.decided).toBeGreaterThan(0);
    },
    { timeout: 5000, interval: 1 },
  );
  server.isLate = false;
  await delay(20);
  const before = server.decided;
  await request(server, 1);
  expect(server.decided).toBe(before + 1);
  expect(await redis.hkeys(registry)).toHaveLength(others.length + 1);
  await server.decider.leasing.close();
  expect(await redis.hkeys(registry)).toHaveLength(others.length);
});
