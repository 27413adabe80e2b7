// Redis Sentinel, the slow tests: a master is replaced while it still runs, and confirmed charges may be lost.

import { afterEach, beforeEach, expect, test } from 'vitest';
import { redisNodes, until } from '../support/redisNodes.ts';
import { expectTakenOver, type Sentinels } from './failover.ts';

let redis: ReturnType<typeof redisNodes>;
beforeEach(() => {
  redis = redisNodes();
});
afterEach(() => redis.stop());

test.each([
  ['5.4c', 'without min-replicas-to-write', {}],
  // The new master has no replica, and so refuses writes, until the old master has become its replica.
  ['5.4d', 'with min-replicas-to-write 1', { configuration: ['--min-replicas-to-write', '1'], backWithinMs: 25_000 }],
])(
  'SENTINEL FAILOVER: the replica takes over (%s, %s)',
  async (order, how, options) => {
    const fault = `SENTINEL FAILOVER during verification load, ${how}`;
    const turned = async ({ replica, sentinels }: Sentinels) => {
      await sentinels[0]!.admin.call('SENTINEL', 'FAILOVER', 'tollgate');
      // Sentinel makes the old master a replica ten seconds later. Until then it accepts writes.
      await until('the new master has requests', 6000, async () =>
        /cmd=(eval|fcall)/.test(String(await replica.admin.client('LIST'))),
      );
    };
    const lost = await expectTakenOver(redis, order, fault, turned, options);
    // With this setting the old master refuses writes as soon as its replica is gone.
    if ('configuration' in options) expect(lost).toBeLessThan(20);
  },
  90_000,
);
