// Redis forgets which servers hold leases, as a restart without its last writes or a failover can make it: a change by
// a server with other leases, or on a connection of its own, still waits for those of others.

import { setTimeout as delay } from 'node:timers/promises';
import { beforeAll, expect, test, vi } from 'vitest';
import { workspaceKey } from '../../../src/redis/names.ts';
import type { StoreOptions } from '../../../src/store.ts';
import { harness } from '../../support/harness.ts';
import { ownRedis } from '../../support/ownRedis.ts';
import { findNewRedis } from '../../support/processes.ts';

const leaseMs = 500;
const newRedis = findNewRedis();
const own = ownRedis(newRedis);
beforeAll(async () => {
  if (newRedis) await own.redis.config('SET', 'appendfsync', 'always');
});

const realTime = { nowMs: () => undefined, leaseNowMs: () => performance.now() };
const open = (settings: Partial<StoreOptions>) => harness(() => own.url, { ...realTime, ...settings });
const holder = open({ leaseMs, leaseAfter: 2 });
const changers: [string, ReturnType<typeof harness>, RegExp][] = [
  ['a server without leases', open({ leaseMs: 0 }), /./],
  ['a server with shorter leases', open({ leaseMs: 20 }), /./],
];
// Its other connection stays.
if (newRedis) changers.push(['TOLLGATE_DURABLE=1', open({ leaseMs, durable: true }), /cmd=waitaof/]);

/** Redis closes the connections whose lines of CLIENT LIST match, except that of this test. */
async function closeConnections(matching: RegExp) {
  const self = await own.redis.client('ID');
  const lines = `${await own.redis.call('CLIENT', 'LIST', 'TYPE', 'normal')}`
    .split('\n')
    .filter((line) => matching.test(line));
  for (const line of lines) {
    const id = Number(/^id=(\d+)/.exec(line)![1]);
    if (id !== self) await own.redis.client('KILL', 'ID', id);
  }
}

test.each(changers)('%s', async (_changer, changer, connections) => {
  const { key, keyId } = await holder.createKey();
  const verify = async () => (await holder.call('keys.verifyKey', { key })).data.code;
  const change = (name: string, enabled: boolean) =>
    changer.call('keys.updateKey', { keyId, name, enabled }, holder.rootKey);
  // All are connected for longer than a lease lasts.
  await delay(2 * leaseMs);
  const lease = async () => {
    for (let times = 0; times < 20; times++) expect(await verify()).toBe('VALID');
  };
  await lease();
  // A server without leases knows from it that others have some.
  await change('first', true);
  await lease();
  // Until it has settled these: with a settlement it registers again.
  await delay(leaseMs / 3);
  const registry = `${workspaceKey(holder.workspaceId)}:leases`;
  const sessions = (await own.redis.hkeys(registry)).filter((name) => /^[0-9a-f]{16}$/.test(name));
  expect(sessions).toHaveLength(1);
  await own.redis.del(registry);
  await closeConnections(connections);
  await vi.waitFor(async () => expect((await change('second', false)).status).toBe(200), {
    timeout: 5000,
    interval: 1,
  });
  expect(await verify()).toBe('DISABLED');
});
