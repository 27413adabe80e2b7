// Redis Sentinel: a master, its replica and three Sentinels of this file's own, and a master that is lost under load.

import { afterEach, expect, test } from 'vitest';
import { redisNodes, until } from '../support/redisNodes.ts';
import { loseMaster } from './failover.ts';
import { report } from './report.ts';
import { openTenants } from './tenants.ts';

const commandTimeoutMs = 1000;

let redis: ReturnType<typeof redisNodes>;
afterEach(() => redis.stop());

test.each([
  ['SIGKILL', '5.4', 'The master of Sentinels killed (kill -9) during verification load'],
  ['SIGSTOP', '5.4b', 'The master of Sentinels stopped (SIGSTOP: its connections stay) during verification load'],
] as const)(
  'the master is lost (%s): the replica that takes its place serves',
  async (signal, order, fault) => {
    redis = redisNodes();
    const { master, replica, url } = await redis.startSentinels();
    const tenants = await openTenants(url, commandTimeoutMs);
    const stricken = await tenants.createTenant();
    const measured = await loseMaster({ tenants, commandTimeoutMs, master, replica, signal, stricken, others: [] });
    await tenants.close();
    report({
      order,
      fault,
      expected:
        'each request 200 or 503 within the command timeout; well again by itself; lost is only what was not replicated',
      measured,
    });
  },
  60_000,
);

test('fewer replicas than min-replicas-to-write: changes are refused, and charge nothing', async () => {
  redis = redisNodes();
  const { master, url } = await redis.startSentinels();
  const tenants = await openTenants(url, commandTimeoutMs);
  const { rootKey, key, keyId } = await tenants.createTenant();
  await master.admin.config('SET', 'min-replicas-to-write', 2);
  for (const refused of [
    await tenants.send('keys.verifyKey', rootKey, { key }),
    await tenants.send('apis.createApi', rootKey, { name: 'unsafe' }),
  ]) {
    expect(refused.status).toBe(503);
  }
  expect(tenants.logged()).toContain('NOREPLICAS');
  await master.admin.config('SET', 'min-replicas-to-write', 1);
  await until('it serves', 5000, async () => (await tenants.send('keys.verifyKey', rootKey, { key })).status === 200);
  expect((await tenants.ok('keys.getKey', rootKey, { keyId })).credits.remaining).toBe(999_999);
  await tenants.close();
});
