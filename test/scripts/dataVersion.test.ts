// Data of an unsupported version is refused, because a part of it would not be found.

import { afterAll, afterEach, expect, test } from 'vitest';
import { connect } from '../../src/redis/connection.ts';
import { dataKey, formKey, workspacesKey } from '../../src/redis/names.ts';
import { exitCodeOf, readData } from '../../src/scripts/dataVersion.ts';
import { dataVersion, oldestDataVersion } from '../../src/scripts/layout.ts';
import { openStore } from '../../src/store.ts';
import { version } from '../../src/version.ts';
import { testSettings } from '../support/harness.ts';
import { testRedisUrl } from '../support/redis.ts';

const settings = { ...testSettings, url: testRedisUrl() };
const open = async () => (await openStore(settings)).close();
const redis = await connect(settings.url, settings);
afterEach(() => redis.del(dataKey, formKey));
afterAll(() => redis.disconnect());

const supported = { oldest: 4, newest: 5, release: '1.0.0' };
/** The message of a refusal, which has the exit code 78. */
const refusal = async (reads = supported): Promise<string> => {
  const error = (await readData(redis, reads).catch((error) => error)) as Error;
  expect(exitCodeOf(error)).toBe(78);
  return error.message;
};

test('data of versions 1 and 2, which have no version number, is refused', async () => {
  await redis.flushdb();
  await redis.zadd(workspacesKey, 1, 'ws_1111111111111111');
  expect(await refusal()).toMatch(/version 1 or 2, and Tollgate 1.0.0 reads versions 4 to 5\. .*docs\/upgrade\.md/);
  expect(await redis.exists(dataKey)).toBe(0);
});

test.each(['1', '2', '3'])('data that states version %s is refused, with the way out', async (form) => {
  await redis.set(formKey, form);
  expect(await refusal()).toContain(`version ${form}, and Tollgate 1.0.0 reads versions 4 to 5. Export it`);
});

test('data of version 4 is read as it is, and its version is stored in both records', async () => {
  await redis.set(formKey, '4');
  expect(await readData(redis, supported)).toEqual({ version: 4, migration: undefined });
  expect(await redis.hgetall(dataKey)).toEqual({ version: '4' });
});

test('an empty Redis gets the current version, with the release that wrote it', async () => {
  await redis.flushdb();
  await open();
  expect(await redis.get(formKey)).toBe(String(dataVersion));
  expect(await redis.hgetall(dataKey)).toEqual({ moveless: '1', version: String(dataVersion), release: version });
  await open();
});

test('newer data is refused in one sentence that names the release', async () => {
  await redis.hset(dataKey, { version: '6', release: '1.2.0' });
  expect(await refusal()).toBe(
    'The data in Redis has version 6, and Tollgate 1.0.0 reads versions 4 to 5. Run Tollgate 1.2.0 or a later one: ' +
      'docs/upgrade.md.',
  );
  await redis.hdel(dataKey, 'release');
  expect(await refusal()).toContain('Run the release that wrote it or a later one');
  await redis.del(dataKey);
  await redis.set(formKey, `${dataVersion + 1}`);
  expect(await refusal()).toContain(`has version ${dataVersion + 1}`);
  await expect(open()).rejects.toThrow(`has version ${dataVersion + 1}`);
});

test('data that is being migrated to a newer version is refused, too', async () => {
  await redis.hset(dataKey, {
    version: '5',
    release: '1.0.0',
    target: '6',
    by: '1.2.0',
    done: 1,
    total: 9,
    started: 7,
  });
  expect(await refusal()).toContain('Run Tollgate 1.2.0 or a later one');
  expect(await readData(redis, { ...supported, newest: 6 })).toEqual({
    version: 5,
    migration: { from: 5, to: 6, done: 1, total: 9, startedAt: 7 },
  });
});

test('what this release supports begins with version 4, for ever', () => {
  expect(oldestDataVersion).toBe(4);
});
