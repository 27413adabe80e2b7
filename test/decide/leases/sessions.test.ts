// Sessions: how long a change waits for one that does not answer, when a server may hold leases, and how much of a
// limit it may take.

import { describe, expect, test, vi } from 'vitest';
import { workspaceKey } from '../../../src/redis/names.ts';
import { hourMs } from '../../support/harness.ts';
import { redisOfFile } from '../../support/ofFile.ts';
import { testRedisUrl } from '../../support/redisUrl.ts';
import { heldServers, newName } from './heldServers.ts';
import { redisProxy } from './proxy.ts';

const leaseMs = 300;
const proxy = redisProxy();
// The holder is behind the proxy.
const held = heldServers(2, { leaseMs }, { url: (number) => (number === 1 ? proxy.url() : testRedisUrl()) });
const [changer, holder] = held.servers as [typeof held.first, typeof held.first];
const { createKey, untilGranted } = held;

const redis = await redisOfFile();

const codeOf = async (server: typeof holder, key: string) => (await server.ok('keys.verifyKey', { key })).code;

test('a change waits for the term of a session that does not answer, and for 1 % more', async () => {
  const termMs = 2000;
  // REGISTERED: the term, and the numbers of a lease and a settlement.
  const entry = Buffer.alloc(14);
  entry.writeUInt16BE(termMs);
  entry.writeUIntBE(1, 2, 6);
  const waits = [1, 2, 3, 4].map(async () => {
    const { workspaceId, rootKey } = await held.createWorkspace();
    await redis.hset(`${workspaceKey(workspaceId)}:leases`, '0123456789abcdef', entry);
    const startedAt = performance.now();
    expect((await changer.call('apis.createApi', { name: 'waits' }, rootKey)).status).toBe(200);
    return performance.now() - startedAt;
  });
  // A timer may be a millisecond early.
  expect(Math.min(...(await Promise.all(waits)))).toBeGreaterThanOrEqual(1.01 * termMs - 1);
});

test('a session that got a lease while a change waited for it is waited for by the next change', async () => {
  const [first, second] = [await createKey(), await createKey()];
  await untilGranted(holder, async () => (await codeOf(holder, first.key)) === 'VALID');
  proxy.losesMessages = true;
  const startedAt = performance.now();
  const changed = changer.ok('keys.updateKey', { keyId: first.keyId, enabled: false });
  // The clock of leases stands still here: a lease that was granted before the change would last too long.
  await vi.waitUntil(async () => !(await changer.ok('keys.getKey', { keyId: first.keyId })).enabled, { interval: 1 });
  await untilGranted(holder, async () => (await codeOf(holder, second.key)) === 'VALID');
  await changed;
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(leaseMs);
  proxy.losesMessages = false;
  const before = holder.counts.decided;
  expect(await codeOf(holder, second.key)).toBe('VALID');
  expect(holder.counts.decided).toBe(before + 1);
  await changer.ok('keys.updateKey', { keyId: second.keyId, enabled: false });
  expect(await codeOf(holder, second.key)).toBe('DISABLED');
});

test('a server that connected again asks for no lease within a term', async () => {
  const { key, keyId } = await createKey();
  const isValid = async () => (await codeOf(holder, key)) === 'VALID';
  await untilGranted(holder, isValid);
  await holder.recall();
  const disconnectedAt = performance.now();
  proxy.disconnect();
  // A request that is sent before it is noticed may ask.
  const isConnected = async () => expect((await holder.call('keys.getKey', { keyId })).status).toBe(200);
  await vi.waitFor(isConnected, { timeout: 10_000, interval: 1 });
  await untilGranted(holder, isValid);
  expect(performance.now() - disconnectedAt).toBeGreaterThan(1.01 * leaseMs);
});

describe('a lease leaves room for four of its size for each server', () => {
  const limit = { name: 'requests', limit: 2000, duration: hourMs, autoApply: true };
  const kinds: Record<string, () => Promise<() => Promise<boolean>>> = {
    async 'a limit of a key'() {
      const { key } = await createKey({ ratelimits: [limit] });
      return async () => (await codeOf(holder, key)) === 'VALID';
    },
    async 'a limit of an identity'() {
      const externalId = newName();
      await changer.ok('identities.createIdentity', { externalId, ratelimits: [limit] });
      const { key } = await createKey({ externalId });
      return async () => (await codeOf(holder, key)) === 'VALID';
    },
    async credits() {
      const { key } = await createKey({ credits: { remaining: 2000 } });
      return async () => (await codeOf(holder, key)) === 'VALID';
    },
    async 'a limit of an identifier'() {
      const check = { namespace: 'room', identifier: newName(), limit: 2000, duration: hourMs };
      return async () => (await holder.ok('ratelimits.limit', check)).success;
    },
  };

  test.each(Object.entries(kinds))('%s', async (_kind, make) => {
    const request = await make();
    // Both servers may hold leases of the workspace.
    const other = await createKey();
    await untilGranted(changer, async () => (await codeOf(changer, other.key)) === 'VALID');
    holder.counts.granted.length = 0;
    for (let times = 1; times <= 1900; times++) {
      const leases = holder.counts.granted.length;
      expect(await request()).toBe(true);
      const units = holder.counts.granted[leases];
      if (units !== undefined) expect(units).toBeLessThanOrEqual((2000 - times) / (2 * 4));
    }
    expect(Math.max(...holder.counts.granted)).toBeGreaterThan(64);
  });
});
