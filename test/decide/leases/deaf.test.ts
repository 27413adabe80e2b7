// The connection on which a server hears of recalls hangs, without an end: as when the master that it is connected to
// was replaced.

import { expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';
import { ownRedis } from '../../support/ownRedis.ts';
import { redisProxy } from './proxy.ts';

const leaseMs = 200;
const own = ownRedis();
const proxy = redisProxy(() => own.url);
const { subscriptions } = proxy;
const realTime = { nowMs: () => undefined, leaseNowMs: () => performance.now() };
const holder = harness(proxy.url, { ...realTime, leaseMs, leaseAfter: 2 });
const changer = harness(() => own.url, { ...realTime, leaseMs });

test('a server that hears nothing connects again, and changes no longer wait for it', async () => {
  const { key, keyId } = await holder.createKey();
  /** How long a change took, once the other server has a lease of the key. */
  async function changeMs() {
    for (let times = 0; times < 5; times++) await holder.call('keys.verifyKey', { key });
    const startedAt = performance.now();
    const { status } = await changer.call('keys.updateKey', { keyId, name: `${startedAt}` }, holder.rootKey);
    expect(status).toBe(200);
    return performance.now() - startedAt;
  }
  await expect.poll(changeMs, { timeout: 5000 }).toBeLessThan(leaseMs / 2);

  expect(subscriptions.size).toBe(1);
  for (const redis of subscriptions) redis.pause();
  await expect.poll(changeMs, { timeout: 5000 }).toBeGreaterThanOrEqual(leaseMs);
  await expect.poll(changeMs, { timeout: 15_000 }).toBeLessThan(leaseMs / 2);
  expect(subscriptions.size).toBeGreaterThan(1);
});
