// Data of a form that this version does not read is refused, rather than half of it found.

import { afterAll, afterEach, expect, test } from 'vitest';
import { formKey, keysKey, workspaceKey } from '../../src/store/keyspace.ts';
import { connect } from '../../src/store/redis.ts';
import { openStore } from '../../src/store/store.ts';
import { harness } from '../support/harness.ts';
import { testRedisUrl } from '../support/redis.ts';

const h = harness();
const settings = {
  url: testRedisUrl(),
  commandTimeoutMs: 5000,
  durable: false,
  keyRetentionMs: 1,
  usageRetentionMs: 1,
  auditEventsMax: 1,
  tagsMax: 1,
  inFlightMax: 1,
};
const open = async () => (await openStore(settings)).close();
const redis = await connect(settings.url, settings);
afterEach(() => redis.del(formKey));
afterAll(() => redis.disconnect());

test('what an older version wrote without its form: the lists of keys show it', async () => {
  await redis.flushdb();
  const { workspaceId } = await h.store.workspaces.create('old');
  const actor = { rootKeyId: 'root', operation: 'test', requestId: 'req' };
  const apiId = await h.store.apis.create(workspaceId, 'old', actor);
  const list = keysKey(workspaceKey(workspaceId), apiId);

  await redis.zadd(list, '0', Buffer.alloc(48, 'a'));
  await expect(open()).rejects.toThrow(/form 1, .* reads form 2.*docs\/running\.md/);
  expect(await redis.get(formKey)).toBeNull();

  await redis.del(list);
  await redis.zadd(list, '0', Buffer.alloc(44, 'a'));
  await open();
  expect(await redis.get(formKey)).toBe('2');
});

test('what is written down is believed, and an empty Redis gets it', async () => {
  await redis.flushdb();
  await open();
  expect(await redis.get(formKey)).toBe('2');
  await open();
  await redis.set(formKey, '3');
  await expect(open()).rejects.toThrow('is of form 3');
});
