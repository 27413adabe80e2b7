// lua/include/counters.lua: the counters next to the record of a key or an identity are limited in number and expire,
// and they are removed with their owner.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connect, type RedisClient } from '../../../src/redis/connection.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { dayMs, harness, hourMs, testSettings } from '../../support/harness.ts';
import { namesLike, testRedisUrl } from '../../support/redis.ts';

const tollgate = harness();
const { call, ok, clock, createKey } = tollgate;
let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(async () => void (await redis.quit()));

/** The counters of an owner and their list, by their names after the workspace. */
const countersOf = async (id: string) => {
  const workspace = workspaceKey(tollgate.workspaceId);
  const owner = id.slice(id.indexOf('_') + 1);
  const names = [
    ...(await namesLike(redis, `${workspace}:w:${owner}:*`)),
    ...(await redis.keys(`${workspace}:wo:${owner}`)),
  ];
  return names.map((name) => name.toString().slice(workspace.length + 1)).sort();
};
const adHoc = (from: number, count: number, duration = hourMs) =>
  Array.from({ length: count }, (_, index) => ({ name: `limit ${from + index}`, limit: 5, duration }));
/** Charges this many ad hoc counters of a key, with as few requests as possible. */
async function charge(key: string, count: number) {
  for (let from = 0; from < count; from += 50) {
    const answer = await ok('keys.verifyKey', { key, ratelimits: adHoc(from, Math.min(50, count - from)) });
    expect(answer.code).toBe('VALID');
  }
}

describe('counters are removed', () => {
  test.each([
    ['with a key that is deleted for good', true],
    ['with the purge of a key that was deleted', false],
  ])('%s', async (_title, permanent) => {
    const ratelimits = [{ name: 'own', limit: 5, duration: 1000, autoApply: true }];
    const { apiId, keyId, key } = await createKey({ ratelimits });
    const other = await createKey({ apiId });
    await charge(key, 3);
    await charge(other.key, 1);
    // Removed from the key. Its counter is kept in case the limit is added again.
    await ok('keys.updateKey', { keyId, ratelimits: null });
    expect(await countersOf(keyId)).toHaveLength(3 + 1 + 1);
    await ok('keys.deleteKey', { keyId, permanent });
    if (!permanent) {
      expect(await countersOf(keyId)).toHaveLength(3 + 1 + 1);
      clock.advance(testSettings.keyRetentionMs);
      while (await tollgate.store.sweep.purge(tollgate.workspaceId));
    }
    expect(await countersOf(keyId)).toEqual([]);
    expect(await countersOf(other.keyId)).toHaveLength(1 + 1);
  });

  test('with an identity', async () => {
    const ratelimits = [{ name: 'shared', limit: 5, duration: 1000, autoApply: true }];
    const { identityId } = await ok('identities.createIdentity', { externalId: 'going', ratelimits });
    const { key } = await createKey({ externalId: 'going' });
    await ok('keys.verifyKey', { key });
    await ok('identities.updateIdentity', { identity: identityId, ratelimits: [] });
    expect(await countersOf(identityId)).toHaveLength(1 + 1);
    await ok('identities.deleteIdentity', { identity: identityId, permanent: true });
    expect(await countersOf(identityId)).toEqual([]);
  });

  test('with the keys of an API that is deleted, in small steps', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'going' });
    const keys = await Promise.all(Array.from({ length: 5 }, () => createKey({ apiId })));
    for (const { key } of keys) await charge(key, 600);
    const left = async () => (await Promise.all(keys.map(({ keyId }) => countersOf(keyId)))).flat().length;
    expect(await left()).toBe(5 * 601);
    await ok('apis.deleteApi', { apiId, permanent: true });
    const steps = [await left()];
    while (await tollgate.store.sweep.purge(tollgate.workspaceId)) steps.push(await left());
    expect(await left()).toBe(0);
    // Two keys in each of three steps. Together they have one counter more than a key may have.
    expect(steps).toEqual([3005, 3 * 601, 601]);
  });

  test('by expiry, a minute after the last charge leaves at the latest; their list a day later', async () => {
    const { keyId, key } = await createKey({
      ratelimits: [{ name: 'long', limit: 5, duration: 1000 * dayMs, autoApply: true }],
    });
    await ok('keys.verifyKey', { key, ratelimits: adHoc(0, 1, 30 * dayMs) });
    await ok('keys.verifyKey', { key, ratelimits: adHoc(1, 1) });
    // A counter that is kept for a limit of years expires like one of a month.
    await ok('keys.updateKey', { keyId, ratelimits: [] });
    const workspace = workspaceKey(tollgate.workspaceId);
    const ttls = await Promise.all((await countersOf(keyId)).map((name) => redis.pttl(`${workspace}:${name}`)));
    const [month, hour] = [30 * dayMs, hourMs].map((duration) => Math.ceil(duration * (65 / 64)) + 60_000) as [
      number,
      number,
    ];
    const expected = [hour, month, month, month + dayMs];
    for (const [index, ttl] of ttls.sort((a, b) => a - b).entries()) {
      expect(ttl).toBeLessThanOrEqual(expected[index]!);
      expect(ttl).toBeGreaterThan(expected[index]! - 30_000);
    }
    expect(ttls).toHaveLength(4);
  });

  test('of a quota soon after the next period: a step back of the clock before it loses no charge', async () => {
    const { keyId, key } = await createKey();
    const charged = async () => {
      await ok('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', limit: 9, period: 'month' }] } as never);
      const [name] = await countersOf(keyId);
      return redis.pttl(`${workspaceKey(tollgate.workspaceId)}:${name}`);
    };
    const nowMs = clock.now;
    for (const [text, next] of [
      ['2027-02-10', '2027-04-01'],
      ['2027-03-01', '2027-05-01'],
      ['2027-02-28', '2027-04-01'],
    ] as const) {
      clock.now = Date.parse(text);
      const expected = Date.parse(next) - clock.now + 60_000;
      const ttl = await charged();
      expect(ttl).toBeLessThanOrEqual(expected + 7 * dayMs);
      expect(ttl).toBeGreaterThan(expected - 30_000);
    }
    clock.now = nowMs;
  });

  test('the list lasts as long as a counter that is charged again and again', async () => {
    const { keyId, key } = await createKey();
    const asked = { key, ratelimits: adHoc(0, 1, 30 * dayMs) };
    await ok('keys.verifyKey', asked);
    const list = `${workspaceKey(tollgate.workspaceId)}:wo:${keyId.slice(4)}`;
    // Sets the expiry as if nearly a month had passed for Redis.
    await redis.pexpire(list, 2000);
    await ok('keys.verifyKey', asked);
    expect(await redis.pttl(list)).toBeGreaterThan(30 * dayMs);
  });
});

describe('a key has at most a thousand counters', () => {
  test('one more is refused by its field, and nothing is charged; existing ones still count', async () => {
    const { keyId, key } = await createKey({ credits: { remaining: 100 } });
    await charge(key, 1000);
    const before = await ok('keys.getKey', { keyId });
    const refused = await call('keys.verifyKey', { key, ratelimits: [...adHoc(0, 1), ...adHoc(1000, 1)] });
    expect(refused).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(refused.error.errors).toEqual([
      {
        location: 'body.ratelimits[1].name',
        message: 'needs a counter, and the key has its maximum of 1000 counters of ad hoc limits',
        fix: expect.any(String),
      },
    ]);
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
    expect((await ok('keys.verifyKey', { key, ratelimits: adHoc(0, 1) })).ratelimits).toMatchObject([{ remaining: 3 }]);
    // A check at cost 0 needs no counter.
    const look = adHoc(1000, 1).map((limit) => ({ ...limit, cost: 0 }));
    expect((await ok('keys.verifyKey', { key, ratelimits: look })).ratelimits).toMatchObject([{ remaining: 5 }]);
    expect(await countersOf(keyId)).toHaveLength(1000 + 1);
  });

  test('those that have expired make room, those that were charged again do not', async () => {
    const { keyId, key } = await createKey();
    await charge(key, 1000);
    clock.advance(2 * hourMs);
    expect((await call('keys.verifyKey', { key, ratelimits: adHoc(1000, 1) })).status).toBe(400);
    const [counter] = await countersOf(keyId);
    await redis.unlink(`${workspaceKey(tollgate.workspaceId)}:${counter}`);
    const made = async () => {
      for (let time = 0; time < 11; time++) {
        const { status } = await call('keys.verifyKey', { key, ratelimits: adHoc(1000, 1) });
        if (status === 200) return true;
      }
      return false;
    };
    // By Redis's own clock, which the test does not set, only that one has expired.
    clock.advance(2 * hourMs);
    expect(await made()).toBe(true);
    expect((await call('keys.verifyKey', { key, ratelimits: adHoc(1001, 1) })).status).toBe(400);
  });

  test('one that got all its units back makes room', async () => {
    const { keyId, key } = await createKey();
    await charge(key, 999);
    const held = { key, ratelimits: adHoc(999, 1), hold: { ttl: 60_000 } };
    const { hold } = await ok('keys.verifyKey', held);
    await ok('keys.releaseHold', { holdId: hold!.id });
    expect(await countersOf(keyId)).toHaveLength(999 + 1);
    expect((await ok('keys.verifyKey', { key, ratelimits: adHoc(1000, 1) })).code).toBe('VALID');
    expect((await call('keys.verifyKey', { key, ratelimits: adHoc(1001, 1) })).status).toBe(400);
  });

  test('the counter of a limit that is removed from a key with a thousand counters is not kept', async () => {
    const { keyId, key } = await createKey({
      ratelimits: [{ name: 'own', limit: 50, duration: 1000, autoApply: true }],
    });
    await charge(key, 1000);
    expect((await call('keys.updateKey', { keyId, ratelimits: null })).status).toBe(200);
    expect(await countersOf(keyId)).toHaveLength(1000 + 1);
  });
});

test('a key has a list of counters only if it has such counters', async () => {
  const { keyId, key } = await createKey({ ratelimits: [{ name: 'own', limit: 50, duration: 1000, autoApply: true }] });
  await ok('keys.verifyKey', { key, ratelimits: [{ name: 'own', limit: 3, duration: 1000 }] });
  expect(await countersOf(keyId)).toEqual([]);
});
