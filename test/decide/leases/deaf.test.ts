// The connection on which a server hears of recalls hangs, without an end: as when the master that it is connected to
// was replaced.

import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';
import { openRedisProcess } from '../../support/processes.ts';

const leaseMs = 200;
/** Redis's ends of the connections that subscribed. */
const subscriptions = new Set<Socket>();
let own: Awaited<ReturnType<typeof openRedisProcess>>;
let proxy: Server;
beforeAll(async () => {
  own = await openRedisProcess();
  proxy = createServer((client) => {
    const redis = createConnection(own.url.replace(/^unix:/, ''));
    client.on('data', (bytes) => {
      if (bytes.includes('subscribe')) subscriptions.add(redis);
    });
    for (const socket of [client, redis]) socket.on('error', () => {});
    client.pipe(redis).pipe(client);
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
});
afterAll(async () => {
  proxy.close();
  await own.close();
});

const portOf = (server: Server) => (server.address() as { port: number }).port;
const realTime = { nowMs: () => undefined, leaseNowMs: () => performance.now() };
const holder = harness(() => `redis://127.0.0.1:${portOf(proxy)}`, { ...realTime, leaseMs, leaseAfter: 2 });
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
