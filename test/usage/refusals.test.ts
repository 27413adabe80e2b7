// The rows of recent refusals in Redis: how long they are kept, a call that fails, and a library that was loaded again.

import { expect, test } from 'vitest';
import { refusalRowsKey, workspaceKey } from '../../src/redis/names.ts';
import { harness, hourMs } from '../support/harness.ts';
import { ownRedis } from '../support/ownRedis.ts';

// A Redis of its own, whose library is removed.
const own = ownRedis();

const app = harness(() => own.url, { leaseMs: 0, refusalHours: 30, refusalBytesMax: 65_536 });

const rowsOf = (workspaceId: string) => refusalRowsKey(workspaceKey(workspaceId), Math.floor(app.clock.now / hourMs));

test('rows are kept an hour longer than REFUSAL_HOURS, and listed for these', async () => {
  const { key, keyId } = await app.createKey({ enabled: false });
  await app.ok('keys.verifyKey', { key });
  expect(Math.ceil((await own.redis.pttl(rowsOf(app.workspaceId))) / hourMs)).toBe(31);
  app.clock.advance(30 * hourMs - 1);
  expect(await app.ok('analytics.listRefusals', { keyId })).toHaveLength(1);
  app.clock.advance(1);
  expect(await app.ok('analytics.listRefusals', { keyId })).toEqual([]);
});

test('what a failed call has noted is in no row of the next call', async () => {
  const other = await app.createWorkspace();
  const { key } = await app.createKey({ enabled: false });
  const { apiId: otherApi } = (await app.call('apis.createApi', { name: 'other' }, other.rootKey)).data;
  const created = await app.call('keys.createKey', { apiId: otherApi, enabled: false }, other.rootKey);
  await app.ok('keys.verifyKey', { key });
  await own.redis.del(rowsOf(app.workspaceId));
  await own.redis.hset(rowsOf(app.workspaceId), 'no', 'string');
  await app.ok('keys.verifyKey', { key });
  await own.redis.del(rowsOf(app.workspaceId));
  const verified = await app.call('keys.verifyKey', { key: created.data.key }, other.rootKey);
  expect(verified.data).toMatchObject({ code: 'DISABLED' });
  expect(await own.redis.exists(rowsOf(app.workspaceId))).toBe(0);
  expect(await own.redis.strlen(rowsOf(other.workspaceId))).toBeGreaterThan(0);
});

test('a library that was loaded again knows how many bytes the hour has', async () => {
  app.clock.advance(hourMs);
  const { apiId } = await app.ok('apis.createApi', { name: 'full' });
  const [first, second] = [
    await app.createKey({ apiId, enabled: false }),
    await app.createKey({ apiId, enabled: false }),
  ];
  await app.ok('keys.verifyKey', { key: first!.key });
  await own.redis.append(rowsOf(app.workspaceId), '\0\0'.repeat(32_768));
  await own.redis.function('FLUSH');
  await app.ok('keys.verifyKey', { key: second!.key });
  expect(await own.redis.strlen(rowsOf(app.workspaceId))).toBeLessThan(65_536 + 200);
});
