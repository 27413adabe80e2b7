// The list of recent refusals in Redis: its bounds, reading it while it is cut, and a call that fails.

import { afterAll, expect, test } from 'vitest';
import { outcomes } from '../../src/domain/verification.ts';
import { refusalsKey, workspaceKey } from '../../src/store/keyspace.ts';
import { notedRefusal } from '../../src/store/layout.ts';
import { connect } from '../../src/store/redis.ts';
import { openRefusals } from '../../src/store/refusals.ts';
import { dayMs, harness } from '../support/harness.ts';
import { testRedisUrl } from '../support/redis.ts';

const app = harness();
const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
afterAll(() => redis.disconnect());

const today = () => String(Math.floor(app.clock.now / dayMs));
const listOf = (workspaceId: string) => refusalsKey(workspaceKey(workspaceId), today());

function packed(api8: string, count: number): Buffer {
  const values = {
    time: app.clock.now,
    outcome: outcomes.indexOf('DISABLED') + 1,
    leased: 0,
    count,
    limit: 0,
    duration: 0,
    key24: '1'.repeat(16) + api8,
    externalId: Buffer.alloc(0),
    ratelimit: Buffer.alloc(0),
    tags: Buffer.alloc(0),
  };
  const entry = Buffer.alloc(notedRefusal.size(values));
  notedRefusal.write(entry, 0, values);
  return entry;
}

test('a list of 10 500 is cut to 10 000, and expires after two days', async () => {
  const { key } = await app.createKey({ enabled: false });
  const list = listOf(app.workspaceId);
  const verify = () => app.ok('keys.verifyKey', { key });
  await verify();
  expect(Math.ceil((await redis.pttl(list)) / dayMs)).toBe(2);
  const more = Array.from({ length: 10_498 }, (_, count) => packed('11111111', count));
  await redis.rpush(list, ...more);
  await verify();
  expect(await redis.llen(list)).toBe(10_500);
  await verify();
  expect(await redis.llen(list)).toBe(10_000);
  expect(await app.ok('analytics.listRefusals', { limit: 3 })).toMatchObject([{ count: 1 }, { count: 1 }]);
  await redis.del(list);
});

test('what a failed call has noted is in no list of the next call', async () => {
  const other = await app.createWorkspace();
  const { key, apiId } = await app.createKey({ enabled: false });
  const { apiId: otherApi } = (await app.call('apis.createApi', { name: 'other' }, other.rootKey)).data;
  const created = await app.call('keys.createKey', { apiId: otherApi, enabled: false }, other.rootKey);
  const totals = `${workspaceKey(app.workspaceId)}:ua:${apiId.slice(-8)}:${today()}`;
  await redis.set(totals, 'no hash');
  expect((await app.call('keys.verifyKey', { key })).status).toBe(500);
  await redis.del(totals);
  const verified = await app.call('keys.verifyKey', { key: created.data.key }, other.rootKey);
  expect(verified.data).toMatchObject({ code: 'DISABLED' });
  expect(await redis.llen(listOf(app.workspaceId))).toBe(0);
  expect(await redis.llen(listOf(other.workspaceId))).toBe(1);
});

test('each refusal is returned once when the list is cut between two steps', async () => {
  const { apiId } = await app.ok('apis.createApi', { name: 'cut' });
  const list = listOf(app.workspaceId);
  await redis.rpush(list, ...Array.from({ length: 2500 }, (_, count) => packed(apiId.slice(-8), count)));
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
