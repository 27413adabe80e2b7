import { describe, expect, test } from 'vitest';
import type { InputOf } from '../../support/harness.ts';
import { harness } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';
import { brokenCursors, readPages } from '../../support/lists.ts';

const { call, ok, clock, createKey, createWorkspace } = harness();

/** A workspace with APIs of these names, in order. */
async function withApis(names: readonly string[]) {
  const { rootKey } = await createWorkspace();
  const ids: string[] = [];
  for (const name of names) {
    ids.push((await call('apis.createApi', { name }, rootKey)).data.apiId);
    clock.advance(1);
  }
  const list = (input: InputOf<'apis.listApis'> = {}) => call('apis.listApis', input, rootKey);
  return { rootKey, ids, list };
}

const names = (count: number) => Array.from({ length: count }, (_, index) => `api ${index}`);

describe('apis.listApis: 200', () => {
  test('a workspace without APIs has an empty list', async () => {
    const { list } = await withApis([]);
    expect(await list()).toMatchObject({ data: [], pagination: { hasMore: false, looked: 0, total: 0 } });
  });

  test('an API has its id, name, time of creation and number of keys without deleted ones', async () => {
    const createdAt = clock.now;
    const { apiId, keyId } = await createKey();
    await createKey({ apiId });
    await createKey({ apiId });
    await ok('keys.deleteKey', { keyId });
    const { data } = await call('apis.listApis', { search: apiId });
    expect(data).toEqual([{ id: apiId, name: 'test', createdAt, keyCount: 2 }]);
  });

  test.each(['asc', 'desc'] as const)('%s: pages are in order, for any page size', async (order) => {
    const { ids, list } = await withApis(names(13));
    const expected = order === 'asc' ? ids : ids.toReversed();
    for (const limit of [1, 5, 13, 14]) {
      const pages = await readPages((at) => list({ order, limit, ...at }));
      expect(pages.flat().map(({ id }) => id)).toEqual(expected);
      expect(pages[0]).toHaveLength(Math.min(limit, 13));
    }
    expect((await list()).data.map(({ id }) => id)).toEqual(ids);
  });

  test.each(['asc', 'desc'] as const)(
    '%s: an API that stays is listed once while others come and go',
    async (order) => {
      const { rootKey, ids, list } = await withApis(names(12));
      const gone: string[] = [];
      const pages = await readPages(
        (at) => list({ order, limit: 3, ...at }),
        async (page) => {
          const apiId = (order === 'asc' ? ids : ids.toReversed())[page * 3 - 1];
          if (page > 3 || !apiId) return;
          await call('apis.deleteApi', { apiId }, rootKey);
          gone.push(apiId);
          await call('apis.createApi', { name: 'new' }, rootKey);
        },
      );
      const listed = pages.flat().map(({ id }) => id);
      expect(new Set(listed).size).toBe(listed.length);
      const stayed = ids.filter((id) => !gone.includes(id));
      expect(listed.filter((id) => stayed.includes(id))).toEqual(order === 'asc' ? stayed : stayed.toReversed());
    },
  );

  test.each([
    ['PAY', ['payments', 'Repay']],
    ['ü', ['Münze']],
    ['%', []],
    ['*', ['a*b']],
    ['\0', []],
  ])('a search for %j finds names that contain it in any case', async (search, expected) => {
    const { list } = await withApis(['payments', 'maps', 'Repay', 'Münze', 'a*b']);
    const { data, pagination } = await list({ search });
    expect(data.map(({ name }) => name)).toEqual(expected);
    expect(pagination).toEqual({ hasMore: false, looked: 5, total: 5 });
  });

  test('a search reports how far it has looked, and continues there', async () => {
    const { ids, list } = await withApis(['found', 'other', 'found', 'other', 'found']);
    const first = await list({ search: 'found', limit: 2 });
    expect(first.data.map(({ id }) => id)).toEqual([ids[0], ids[2]]);
    expect(first.pagination).toMatchObject({ hasMore: true, looked: 3, total: 5 });
    const { data, pagination } = await list({ search: 'found', limit: 2, cursor: first.pagination.cursor! });
    expect(data.map(({ id }) => id)).toEqual([ids[4]]);
    expect(pagination).toEqual({ hasMore: false, looked: 2, total: 5 });
  });

  test('does not list APIs of other workspaces', async () => {
    await withApis(['theirs']);
    const { list } = await withApis(['ours']);
    expect((await list()).data.map(({ name }) => name)).toEqual(['ours']);
  });
});

describe('apis.listApis: 400', () => {
  test('a malformed cursor, and one of the other order', async () => {
    const { ids, list } = await withApis(names(3));
    const { cursor } = (await list({ limit: 1 })).pagination;
    for (const wrong of brokenCursors(cursor!, ids[0]!)) {
      expect((await list({ cursor: wrong })).status, wrong).toBe(400);
    }
    expect(await list({ cursor: cursor!, order: 'desc' })).toMatchObject({ status: 400, code: 'invalid_input' });
  });

  test.each<[string, object]>([
    ['limit', { limit: 0 }],
    ['limit', { limit: 101 }],
    ['order', { order: 'newest' }],
    ['search', { search: '' }],
    ['search', { search: 'x'.repeat(256) }],
  ])('a wrong %s: %j', async (field, input) => {
    expect(await call('apis.listApis', input as never)).toMatchObject(onlyInvalidAt(`body.${field}`));
  });
});
