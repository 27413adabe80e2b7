import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';

const { call, ok, createWorkspace, clock } = harness();

describe('rootKeys.listRootKeys: 200', () => {
  test('root keys have the fields that are set', async () => {
    const { rootKey } = await createWorkspace();
    const createdAt = clock.now;
    const expires = clock.now + 60_000;
    const permissions = ['api.*.read_api', 'api.api_a.read_key'];
    const { rootKeyId, key } = (await call('rootKeys.createRootKey', { name: 'named', permissions, expires }, rootKey))
      .data;
    // `lastUsedAt` is written at most once a second.
    clock.advance(1000);
    const listing = await call('rootKeys.listRootKeys', {}, rootKey);
    expect(listing.pagination).toEqual({ hasMore: false });
    expect(listing.data).toEqual([
      {
        rootKeyId: expect.stringMatching(/^root_\w{16}$/),
        start: expect.stringMatching(/^root_\w{16}_\w{4}$/),
        permissions: ['*'],
        enabled: true,
        createdAt,
        lastUsedAt: clock.now,
      },
      { rootKeyId, name: 'named', start: key.slice(0, 26), permissions, enabled: true, expires, createdAt },
    ]);
  });

  test('lastUsedAt is its last request of management or verification, to a second', async () => {
    const { rootKey } = await createWorkspace();
    const grants = { permissions: ['api.*.verify_key'] };
    const { key } = (await call('rootKeys.createRootKey', grants, rootKey)).data;
    const lastUsedAt = async () => (await call('rootKeys.listRootKeys', {}, rootKey)).data[1]!.lastUsedAt;
    expect(await lastUsedAt()).toBeUndefined();
    clock.advance(10);
    const verifiedAt = clock.now;
    const verify = () => call('keys.verifyKey', { key: 'any' }, key);
    await verify();
    clock.advance(999);
    await verify();
    expect(await lastUsedAt()).toBe(verifiedAt);
    clock.advance(1);
    await call('apis.createApi', { name: 'refused' }, key);
    expect(await lastUsedAt()).toBe(clock.now);
    // After the clock stepped back, the next request has its time.
    clock.advance(-10_000);
    await verify();
    expect(await lastUsedAt()).toBe(clock.now);
  });

  test('pages are in order of creation, each item once while others are created and deleted', async () => {
    const { rootKey } = await createWorkspace();
    const create = async () =>
      (await call('rootKeys.createRootKey', { permissions: ['api.*.read_api'] }, rootKey)).data.rootKeyId;
    const rootKeyIds: string[] = [];
    for (let index = 0; index < 9; index++) rootKeyIds.push(await create());

    const pages: string[][] = [];
    let cursor: string | undefined;
    do {
      const { data, pagination } = await call(
        'rootKeys.listRootKeys',
        { limit: 3, ...(cursor && { cursor }) },
        rootKey,
      );
      pages.push(data.map((row) => row.rootKeyId));
      cursor = pagination.cursor;
      if (pages.length === 1) {
        // The one at the cursor, and one after it.
        await call('rootKeys.deleteRootKey', { rootKeyId: rootKeyIds[1]! }, rootKey);
        await call('rootKeys.deleteRootKey', { rootKeyId: rootKeyIds[4]! }, rootKey);
        rootKeyIds.push(await create());
      }
    } while (cursor);

    const [first, ...rest] = pages.flat();
    expect(first).not.toBe(rootKeyIds[0]); // The workspace's own.
    expect(rest).toEqual(rootKeyIds.filter((_, index) => index !== 4));
    expect(pages.map((page) => page.length)).toEqual([3, 3, 3, 1]);
  });

  test('the default page size is 100', async () => {
    const { rootKey } = await createWorkspace();
    for (let index = 0; index < 100; index++) {
      await call('rootKeys.createRootKey', { permissions: ['api.*.read_api'] }, rootKey);
    }
    const { data, pagination } = await call('rootKeys.listRootKeys', {}, rootKey);
    expect(data).toHaveLength(100);
    expect(pagination).toEqual({ hasMore: true, cursor: expect.any(String) });
  });

  test('lists this workspace only', async () => {
    const [mine, theirs] = [await createWorkspace(), await createWorkspace()];
    const [a, b] = [
      (await call('rootKeys.listRootKeys', {}, mine.rootKey)).data,
      (await call('rootKeys.listRootKeys', {}, theirs.rootKey)).data,
    ];
    expect([a.length, b.length]).toEqual([1, 1]);
    expect(a[0]!.rootKeyId).not.toBe(b[0]!.rootKeyId);
  });
});

describe('rootKeys.listRootKeys: 400', () => {
  test.each([0, 101, 1.5])('the page size %d', async (limit) => {
    expect((await call('rootKeys.listRootKeys', { limit })).status).toBe(400);
  });

  test('a cursor of another list', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'keys' });
    for (let index = 0; index < 2; index++) await ok('keys.createKey', { apiId });
    const cursor = (await call('apis.listKeys', { apiId, limit: 1 })).pagination.cursor!;
    expect(await call('rootKeys.listRootKeys', { cursor })).toMatchObject(onlyInvalidAt('body.cursor'));
  });
});
