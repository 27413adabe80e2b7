// Data of an unsupported version is refused, because a part of it would not be found.

import { afterAll, afterEach, expect, test } from 'vitest';
import { connect } from '../../src/redis/connection.ts';
import { dataVersionKey, keysKey, workspaceKey } from '../../src/redis/names.ts';
import { checkDataVersion } from '../../src/scripts/dataVersion.ts';
import { dataVersion } from '../../src/scripts/layout.ts';
import { openStore } from '../../src/store.ts';
import { harness } from '../support/harness.ts';
import { testRedisUrl } from '../support/redis.ts';

const h = harness();
const settings = {
  url: testRedisUrl(),
  commandTimeoutMs: 5000,
  durable: false,
  keyRetentionMs: 1,
  usageRetentionMs: 1,
  usageHourlyDays: 1,
  refusalHours: 1,
  refusalBytesMax: 65_536,
  auditEventsMax: 1,
  tagsMax: 1,
  tagBytesMax: 1,
  identifiersMax: 1,
  recordsMax: 0,
  inFlightMax: 1,
  leaseMs: 0,
  leaseCredits: false,
};
const open = async () => (await openStore(settings)).close();
const redis = await connect(settings.url, settings);
afterEach(() => redis.del(dataVersionKey));
afterAll(() => redis.disconnect());

test('data of an older version without a version number is recognised by its lists of keys', async () => {
  await redis.flushdb();
  const { workspaceId } = await h.store.workspaces.create('old');
  const actor = { rootKeyId: 'root', operation: 'test', requestId: 'req' };
  const apiId = await h.store.apis.create(workspaceId, 'old', actor);
  const list = keysKey(workspaceKey(workspaceId), apiId);

  await redis.zadd(list, '0', Buffer.alloc(48, 'a'));
  await expect(open()).rejects.toThrow(/version 1, .* reads version \d.*docs\/running\.md/);
  expect(await redis.get(dataVersionKey)).toBeNull();

  await redis.del(list);
  await redis.zadd(list, '0', Buffer.alloc(44, 'a'));
  await checkDataVersion(redis, '2');
  expect(await redis.get(dataVersionKey)).toBe('2');
});

test('a later version reads data without a number as the version it was written by', async () => {
  const reads = '3';
  await redis.flushdb();
  const { workspaceId } = await h.store.workspaces.create('old');
  // Without a key the lists do not tell versions 1 and 2 apart. The server then assumes 2.
  await expect(checkDataVersion(redis, reads)).rejects.toThrow(/version 2, .* reads version 3/);

  const actor = { rootKeyId: 'root', operation: 'test', requestId: 'req' };
  const list = keysKey(workspaceKey(workspaceId), await h.store.apis.create(workspaceId, 'old', actor));
  for (const [bytes, form] of [
    [48, '1'],
    [44, '2'],
  ] as const) {
    await redis.del(list);
    await redis.zadd(list, '0', Buffer.alloc(bytes, 'a'));
    await expect(checkDataVersion(redis, reads)).rejects.toThrow(`version ${form}, and this Tollgate reads version 3`);
  }
  expect(await redis.get(dataVersionKey)).toBeNull();

  await redis.flushdb();
  await checkDataVersion(redis, reads);
  expect(await redis.get(dataVersionKey)).toBe('3');
});

test('a stored number is used, and an empty Redis gets the current one', async () => {
  await redis.flushdb();
  await open();
  expect(await redis.get(dataVersionKey)).toBe(String(dataVersion));
  await open();
  await redis.set(dataVersionKey, String(dataVersion + 1));
  await expect(open()).rejects.toThrow(`has version ${dataVersion + 1}`);
});
