// Reading the list of refusals while it is cut.

import { afterAll, expect, test } from 'vitest';
import { outcomes } from '../../src/domain/verification.ts';
import { refusalsKey, workspaceKey } from '../../src/store/keyspace.ts';
import { notedRefusal } from '../../src/store/layout.ts';
import { connect } from '../../src/store/redis.ts';
import { openRefusals } from '../../src/store/refusals.ts';
import { harness } from '../support/harness.ts';
import { testRedisUrl } from '../support/redis.ts';

const app = harness();
const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
afterAll(() => redis.disconnect());

test('each refusal is returned once when the list is cut between two steps', async () => {
  const { apiId } = await app.ok('apis.createApi', { name: 'cut' });
  const list = refusalsKey(workspaceKey(app.workspaceId), String(Math.floor(app.clock.now / 86_400_000)));
  await redis.rpush(
    list,
    ...Array.from({ length: 2500 }, (_, count) => {
      const values = {
        time: app.clock.now,
        outcome: outcomes.indexOf('DISABLED') + 1,
        leased: 0,
        count,
        limit: 0,
        duration: 0,
        key24: '1'.repeat(16) + apiId.slice(-8),
        externalId: Buffer.alloc(0),
        ratelimit: Buffer.alloc(0),
        tags: Buffer.alloc(0),
      };
      const packed = Buffer.alloc(notedRefusal.size(values));
      notedRefusal.write(packed, 0, values);
      return packed;
    }),
  );
  let steps = 0;
  const cutting = new Proxy(redis, {
    get(target, name) {
      const value = Reflect.get(target, name);
      if (name !== 'lrangeBuffer') return typeof value === 'function' ? value.bind(target) : value;
      return async (...range: [Buffer | string, number, number]) => {
        const entries = await target.lrangeBuffer(...range);
        if (++steps === 1) await target.ltrim(list, -2000, -1);
        return entries;
      };
    },
  });
  const refusals = openRefusals({ redis: cutting, currentMs: async () => app.clock.now });
  const query = { apiIds: true as const, start: 0, end: app.clock.now + 1, limit: 5000 };
  const found = await refusals.list(app.workspaceId, query);
  expect(found.map(({ count }) => count)).toEqual(Array.from({ length: 2000 }, (_, index) => 2499 - index));
});
