// Faults while leases are out, the slow tests: many rounds, leases that outlast a restart of Redis, and a failover.

import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeAll, expect, test, vi } from 'vitest';
import { build, endAll } from '../support/processes.ts';
import { redisNodes, until } from '../support/redisNodes.ts';
import { exhaustAll, killHolder, restartRedis, revocables, revokeUnderLoad, stopHolder } from './leaseFaults.ts';
import { leaseMs, ms, openLeaseRig, startLoad, valid, waitMs } from './leaseRig.ts';
import { report } from './report.ts';

vi.setConfig({ testTimeout: 300_000 });
beforeAll(build, 120_000);
afterEach(endAll);

test('holders killed, stopped and revoked from, ten times each', async () => {
  const rig = await openLeaseRig(4);
  const [killed, stopped] = [[] as number[], [] as number[]];
  for (let round = 0; round < 10; round++) {
    killed.push((await killHolder(rig)).firstChangeMs);
    stopped.push((await stopHolder(rig, 40 * round)).changeMs);
    for (const make of Object.values(revocables)) await revokeUnderLoad(rig, { make });
  }
  report({
    order: '13.8',
    fault: 'Servers that hold leases killed and stopped, and revocations under load, ten times each',
    expected: `as 13.1, 13.2 and 13.6; a change waits for LEASE_MS and 1 % (${waitMs()} ms)`,
    measured: `the slowest change after a kill ${ms(Math.max(...killed))}, while a server was stopped ${ms(Math.max(...stopped))}; no VALID that began later`,
  });
});

test('limits and balances used up with leases of 100 ms, five times', async () => {
  const rig = await openLeaseRig(4);
  const measured = await exhaustAll(rig, { times: 5 });
  report({
    order: '13.9',
    fault: `Four servers with leases of ${leaseMs} ms, 64 connections to each, on one limit and one balance, five times`,
    expected: 'exactly what is allowed passes, and nothing that was sent after a refusal; usage = answers',
    measured: `each time ${measured}`,
  });
});

test('Redis restarted at once from a snapshot that has no leases', async () => {
  const termMs = 2000;
  const rig = await openLeaseRig(4, { env: { LEASE_MS: `${termMs}` }, fsync: 'off' });
  const { redis } = rig;
  await delay(waitMs(termMs));
  const { waitedMs } = await restartRedis(rig, () => Promise.resolve(redis.signal('SIGKILL')), {
    termMs,
    pauseMs: 0,
    prepare: () => redis.admin.save(),
  });
  report({
    order: '13.10',
    fault: 'Redis killed while leases of 2 s are out, and started at once from a snapshot without them',
    expected: `no change is answered within ${waitMs(termMs)} ms after the reconnect; then not one VALID`,
    measured: `the first change answered ${ms(waitedMs)} after the last 503, none VALID later`,
  });
});

test('the master killed while leases are out: a revocation at the new one', async () => {
  const redis = redisNodes();
  try {
    const { url, master, replica } = await redis.startSentinels();
    const rig = await openLeaseRig(4, { url });
    const { key, keyId } = await rig.newKey();
    const load = startLoad(rig.servers, { connections: 8, input: () => ({ key }) });
    await load.answered(200);
    master.process.kill('SIGKILL');
    await until('the replica is master', 30_000, async () =>
      (await replica.admin.info('replication')).includes('role:master'),
    );
    const changer = rig.servers[1]!.client;
    await until(
      'the change is answered',
      20_000,
      async () => (await changer.call('keys.updateKey', { keyId, enabled: false })).status === 200,
    );
    const changedAt = performance.now();
    await vi.waitFor(
      () => {
        for (const server of rig.servers) {
          expect(
            load.shots.some((shot) => shot.server === server && shot.sentAt > changedAt && shot.status === 200),
          ).toBe(true);
        }
      },
      { timeout: 20_000 },
    );
    await load.stop();
    const later = load.shots.filter(({ sentAt }) => sentAt > changedAt);
    expect(valid(later)).toEqual([]);
    report({
      order: '13.11',
      fault: 'kill -9 of the Sentinel master while leases are out, a key revoked at the new one',
      expected: 'not one VALID that began after the answer',
      measured: `${later.length} later requests, none VALID`,
    });
  } finally {
    await endAll();
    await redis.stop();
  }
});
