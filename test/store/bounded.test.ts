// What grows without a bound is removed and read in bounded steps: no single command of Redis, and no script, does all of it.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { formerKeysKey, formerMembersKey, workspaceKey } from '../../src/store/keyspace.ts';
import { connect, type RedisClient } from '../../src/store/redis.ts';
import { dayMs, harness, hourMs, testSettings } from '../support/harness.ts';
import { testRedisUrl } from '../support/redis.ts';

const tollgate = harness();
const { ok, createKey, clock } = tollgate;

let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(() => redis.disconnect());

/** `count` notes of keys that were deleted so long ago that nothing is kept of their usage. */
const oldNotes = (count: number): string[] => {
  const hour = Math.floor((clock.now - testSettings.usageRetentionMs - 60 * dayMs) / hourMs);
  return Array.from({ length: count }, (_, at) => [`${hour}`, `${at}`.padStart(24, 'x')]).flat();
};

describe('notes of deleted keys', () => {
  test.each(['of an API', 'of an externalId'])('%s: a call removes at most 100 that are too old', async (which) => {
    const workspace = workspaceKey(tollgate.workspaceId);
    const { apiId } = await createKey();
    const externalId = `gone-${which.length}`;
    const list = which === 'of an API' ? formerKeysKey(workspace, apiId) : formerMembersKey(workspace, externalId);
    await redis.zadd(list, ...oldNotes(250));
    const left: number[] = [];
    for (let call = 0; call < 4; call++) {
      const { keyId } = await createKey({ apiId, externalId });
      await ok('keys.deleteKey', { keyId });
      left.push(await redis.zcard(list));
    }
    // Each call adds one.
    expect(left).toEqual([151, 52, 3, 4]);
  });
});
