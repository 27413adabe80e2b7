// Redis Sentinel: a master, its replica and three Sentinels, which this file starts. The master is lost under load.

import { afterEach, beforeEach, expect, test } from 'vitest';
import { redisNodes, until } from '../support/redisNodes.ts';
import { longTest } from '../support/testIf.ts';
import { expectTakenOver } from './failover.ts';
import { openTenants } from './tenants.ts';

let redis: ReturnType<typeof redisNodes>;
beforeEach(() => {
  redis = redisNodes();
});
afterEach(() => redis.stop());

test('the master is killed: its replica takes its place', async () => {
  const fault = 'The master of Sentinels killed (kill -9) during verification load';
  await expectTakenOver(redis, '5.4', fault, ({ master }) => master.process.kill('SIGKILL'));
});

longTest(
  'the master is stopped, and its connections stay: its replica takes its place',
  async () => {
    const fault = 'The master of Sentinels stopped (SIGSTOP: its connections stay) during verification load';
    await expectTakenOver(redis, '5.4b', fault, ({ master }) => master.process.kill('SIGSTOP'));
  },
  90_000,
);

test('fewer replicas than min-replicas-to-write: changes are refused, and charge nothing', async () => {
  const { master, url } = await redis.startSentinels();
  const tenants = await openTenants(url, 1000);
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
