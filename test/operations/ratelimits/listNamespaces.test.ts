import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connect, type RedisClient } from '../../../src/redis/connection.ts';
import { harness, type InputOf } from '../../support/harness.ts';
import { brokenCursors, readPages } from '../../support/lists.ts';
import { testRedisUrl } from '../../support/redis.ts';

const { call, clock, createWorkspace } = harness();

let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(async () => void (await redis.quit()));

/** A workspace with these namespaces, in order, created alternately by a limit and an override. */
async function withNamespaces(names: readonly string[]) {
  const { rootKey, workspaceId } = await createWorkspace();
  for (const [index, namespace] of names.entries()) {
    const check = { namespace, identifier: 'a', limit: 1, duration: 1000 };
    const operation = index % 2 === 0 ? 'ratelimits.limit' : 'ratelimits.setOverride';
    expect((await call(operation, check, rootKey)).status).toBe(200);
    clock.advance(1);
  }
  const list = (input: InputOf<'ratelimits.listNamespaces'> = {}) => call('ratelimits.listNamespaces', input, rootKey);
  return { rootKey, workspaceId, list };
}

const numbered = (count: number) => Array.from({ length: count }, (_, index) => `namespace ${index}`);

describe('ratelimits.listNamespaces: 200', () => {
  test('a workspace without namespaces has an empty list', async () => {
    const { list } = await withNamespaces([]);
    expect(await list()).toMatchObject({ data: [], pagination: { hasMore: false, looked: 0, total: 0 } });
  });

  test('a namespace has its id, name, time of creation and number of overrides', async () => {
    const createdAt = clock.now;
    const { rootKey, list } = await withNamespaces(['email', 'sms']);
    const override = { namespace: 'sms', limit: 1, duration: 1000 };
    await call('ratelimits.setOverride', { ...override, identifier: '*' }, rootKey);
    const { namespaceId } = (await call('ratelimits.getOverride', { namespace: 'sms', identifier: '*' }, rootKey)).data;
    const { data } = await list();
    expect(data).toEqual([
      { id: expect.stringMatching(/^rlns_/), name: 'email', createdAt, overrideCount: 0 },
      { id: namespaceId, name: 'sms', createdAt: createdAt + 1, overrideCount: 2 },
    ]);
  });

  test.each(['asc', 'desc'] as const)('%s: pages are in order, for any page size', async (order) => {
    const names = numbered(13);
    const { list } = await withNamespaces(names);
    for (const limit of [1, 5, 13, 14]) {
      const pages = await readPages((at) => list({ order, limit, ...at }));
      expect(pages.flat().map(({ name }) => name)).toEqual(order === 'asc' ? names : names.toReversed());
    }
  });

  test.each([
    ['MAIL', ['email', 'Mail out']],
    ['rlns_', ['email', 'sms:*', 'Mail out', '\u0000\n"ü']],
    [':*', ['sms:*']],
    ['Ü', ['\u0000\n"ü']],
    ['none', []],
  ])('a search for %j finds names that contain it in any case', async (search, expected) => {
    const { list } = await withNamespaces(['email', 'sms:*', 'Mail out', '\u0000\n"ü']);
    const { data, pagination } = await list({ search });
    expect(data.map(({ name }) => name)).toEqual(expected);
    expect(pagination).toEqual({ hasMore: false, looked: 4, total: 4 });
  });
});

test('ratelimits.listNamespaces: 400 for a malformed cursor, and one of the other order', async () => {
  const { list } = await withNamespaces(numbered(3));
  const { data, pagination } = await list({ limit: 1 });
  for (const cursor of brokenCursors(pagination.cursor!, data[0]!.id)) {
    expect((await list({ cursor })).status, cursor).toBe(400);
  }
  expect((await list({ cursor: pagination.cursor!, order: 'desc' })).status).toBe(400);
});
