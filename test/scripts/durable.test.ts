// TOLLGATE_DURABLE=1 on real servers: what it refuses, and changes while Redis does not sync to its disk.

import { readFileSync } from 'node:fs';
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { changingScripts } from '../../src/scripts/durable.ts';
import { library } from '../../src/scripts/loader.ts';
import { openClient } from '../support/client.ts';
import { build, endAll, findNewRedis, startRedis, startTollgate, temporaryDir } from '../support/processes.ts';

const newRedis = findNewRedis();

beforeAll(build, 120_000);
afterEach(endAll);

const durable = (redisUrl: string) =>
  startTollgate({ REDIS_URL: redisUrl, TOLLGATE_DURABLE: '1', LOG_LEVEL: 'info', REDIS_TIMEOUT_MS: '1000' });

test('every writing script waits for the disk, except verification, background work, imports and the creation of a workspace', () => {
  const waitedFor = changingScripts();
  const others = [...library().scripts].filter(([name, { isRead }]) => !isRead && !waitedFor.has(name));
  // The server waits for the workspace together with the entry in the list of all workspaces, which is written after
  // it. Usage, events and windows of an import are followed by the event of its end, which waits for all of them.
  expect(others.map(([name]) => name)).toEqual([
    'audit/import',
    'data/beat',
    'data/claim',
    'data/finish',
    'decide',
    'leases/deactivate',
    'migrations/to5',
    'rootKeys/authenticate',
    'sweep/ended',
    'sweep/holds',
    'sweep/purge',
    'sweep/refill',
    'sweep/requeue',
    'sweep/rollCounts',
    'sweep/rolled',
    'sweep/rollup',
    'usage/keys',
    'usage/part',
    'usage/refusals',
    'usage/total',
    'windows/import',
    'workspaces/advance',
    'workspaces/create',
    'workspaces/import',
  ]);
});

test('a Cluster is refused', async () => {
  const { openDurable } = await import('../../src/scripts/durable.ts');
  await expect(
    openDurable('redis+cluster://127.0.0.1:1', { commandTimeoutMs: 100 }, {} as never, {} as never),
  ).rejects.toThrow('TOLLGATE_DURABLE=1 is not supported on a Redis Cluster');
});

test.skipIf(newRedis === 'redis-server')('a Redis without WAITAOF is refused', async () => {
  const redis = await startRedis(temporaryDir(), { fsync: 'always' });
  await expect(durable(redis.url)).rejects.toThrow(
    /^tollgate: This Redis does not support TOLLGATE_DURABLE=1: it has no WAITAOF; Redis 7\.2 and Valkey 8 have it\.\n$/,
  );
});

test.skipIf(newRedis !== undefined)('without a new enough Redis on the PATH, its own is refused as well', async () => {
  await expect(startTollgate({ TOLLGATE_DATA_DIR: temporaryDir(), TOLLGATE_DURABLE: '1' })).rejects.toThrow(
    /^tollgate: Tollgate needs redis-server or valkey-server 7\.2 or later on the PATH for TOLLGATE_DURABLE=1\. redis-server here is 7\./,
  );
});

describe.skipIf(!newRedis)('on a Redis with WAITAOF', () => {
  test.each([
    ['off', 'its append-only file is off (appendonly no).'],
    ['everysec', 'its appendfsync is everysec; it must be always.'],
    ['no', 'its appendfsync is no; it must be always.'],
  ] as const)('appendfsync %s is refused', async (fsync, reason) => {
    const redis = await startRedis(temporaryDir(), { program: newRedis!, fsync });
    await expect(durable(redis.url)).rejects.toThrow(`This Redis does not support TOLLGATE_DURABLE=1: ${reason}`);
  });

  test('its own Redis runs appendfsync always', async () => {
    const dataDir = temporaryDir();
    const server = await startTollgate({ TOLLGATE_DATA_DIR: dataDir, TOLLGATE_DURABLE: '1' });
    const { call } = openClient(() => server.url, await server.firstRootKey());
    expect((await call('apis.createApi', { name: 'durable' })).status).toBe(200);
    expect(readFileSync(`${dataDir}/redis/redis.conf`, 'utf8')).toContain('\nappendfsync always\n');
  });

  test('a change is refused while the disk is not written to; reads and verifications do not wait', async () => {
    const redis = await startRedis(temporaryDir(), { program: newRedis!, fsync: 'always' });
    const server = await durable(redis.url);
    const { call } = openClient(() => server.url, await server.firstRootKey());
    const { apiId } = (await call('apis.createApi', { name: 'durable' })).data;
    const { key, keyId } = (await call('keys.createKey', { apiId })).data;

    // From now on Redis does not confirm that the data is on the disk.
    await redis.admin.config('SET', 'appendfsync', 'no');
    let refused = false;
    const change = call('keys.updateKey', { keyId, name: 'new' }).then((answer) => {
      refused = true;
      return answer;
    });
    expect((await call('keys.verifyKey', { key })).data.code).toBe('VALID');
    expect((await call('keys.getKey', { keyId })).status).toBe(200);
    expect(refused).toBe(false);
    expect(await change).toMatchObject({ status: 503, code: 'store_unavailable' });
    // The response may arrive before the log line.
    await vi.waitFor(() => expect(server.err).toContain('WAITAOF: Redis did not write to its disk in time'));

    await redis.admin.config('SET', 'appendonly', 'no');
    expect(await call('keys.updateKey', { keyId, name: 'newer' })).toMatchObject({ status: 503 });
    expect((await call('keys.verifyKey', { key })).data.code).toBe('VALID');

    await redis.admin.config('SET', 'appendonly', 'yes', 'appendfsync', 'always');
    await expect
      .poll(async () => (await call('keys.updateKey', { keyId, name: 'newest' })).status, { timeout: 10_000 })
      .toBe(200);
  });
});
