// Redis Sentinel where it takes time: a master that is replaced while it is well, and what that may lose.

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
  // The new one has no replica, and so refuses, until the old one has become it.
  ['5.4d', 'with min-replicas-to-write 1', { configuration: ['--min-replicas-to-write', '1'], backWithinMs: 25_000 }],
])(
  'the Sentinels are told to have another master: its replica takes its place (%s, %s)',
  async (order, how, options) => {
    const fault = `Sentinels told to fail over (SENTINEL FAILOVER) during verification load, ${how}`;
    const turned = async ({ replica, sentinels }: Sentinels) => {
      await sentinels[0]!.admin.call('SENTINEL', 'FAILOVER', 'tollgate');
      // The old one is told to be a replica ten seconds later, and until then takes all it is asked.
      await until('the new one is asked', 6000, async () =>
        /cmd=(eval|fcall)/.test(String(await replica.admin.client('LIST'))),
      );
    };
    const lost = await expectTakenOver(redis, order, fault, turned, options);
    // The setting makes the old one refuse as soon as its replica is gone.
    if ('configuration' in options) expect(lost).toBeLessThan(20);
  },
  90_000,
);
