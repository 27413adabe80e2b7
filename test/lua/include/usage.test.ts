// The size of usage logs (docs/operate.md): the bytes of an hour of a key depend on what was counted in it.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect, type RedisClient } from '../../../src/redis/connection.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { harness, hourMs } from '../../support/harness.ts';
import { testRedisUrl } from '../../support/redis.ts';

const tollgate = harness();
const { ok, clock, createKey } = tollgate;
let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(async () => void (await redis.quit()));

/** Verifies a key in each of ten hours, and once more to end the last. Returns the bytes of its log. */
async function bytesOf(input: object, verify: (key: string) => Promise<unknown>) {
  clock.now = Date.UTC(2026, 4, 4, 12);
  const { key, keyId } = await createKey(input);
  for (let hour = 0; hour <= 10; hour++) {
    await verify(key);
    clock.advance(hourMs);
  }
  return redis.strlen(`${workspaceKey(tollgate.workspaceId)}:uk:${keyId.slice(4)}`);
}
const once = (key: string) => ok('keys.verifyKey', { key });

test.each([
  ['that are VALID: hour, bits, a count and no externalId', {}, once, 4 + 1 + 4 + 1],
  [
    'that spend credits for an externalId: those as well',
    { externalId: 'ada', credits: { remaining: 100 } },
    once,
    10 + 7 + 3,
  ],
  [
    'of two outcomes: two counts',
    {},
    async (key: string) => {
      await once(key);
      await ok('keys.verifyKey', { key, permissions: 'not.held' });
    },
    10 + 4,
  ],
  [
    'of which one was FORBIDDEN: its count as well',
    { allowedIps: ['10.0.0.1'] },
    async (key: string) => {
      await ok('keys.verifyKey', { key });
      await ok('keys.verifyKey', { key, ip: '10.0.0.1' });
    },
    10 + 4,
  ],
])('an hour of verifications %s', async (_what, input, verify, bytes) => {
  expect(await bytesOf(input, verify)).toBe(10 * bytes);
});

test.each([
  ['that spends nothing: a count', {}, { '121': '1' }],
  ['that spends a credit: a count and the credit', { credits: { remaining: 9 } }, { '121': '1', s121: '1' }],
])('an hour of an API %s', async (_what, input, fields) => {
  clock.now = Date.UTC(2026, 4, 4, 12);
  const { key, apiId } = await createKey(input);
  await once(key);
  const day = Math.floor(clock.now / (24 * hourMs));
  expect(await redis.hgetall(`${workspaceKey(tollgate.workspaceId)}:ua:${apiId.slice(-8)}:${day}`)).toEqual(fields);
});
