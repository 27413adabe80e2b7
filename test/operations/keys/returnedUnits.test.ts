// Units that holds give back: each from the slice in which it was charged, and without a trace in the counter.

import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { digestOf } from '../../../src/domain/keyString.ts';
import { connect, type RedisClient } from '../../../src/redis/connection.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { dayMs, harness, hourMs } from '../../support/harness.ts';
import { namesIn } from '../../support/keyspace.ts';
import { testRedisUrl } from '../../support/redis.ts';

const tollgate = harness();
const { clock, ok, createKey } = tollgate;
const startMs = clock.now;
beforeEach(() => {
  clock.now = startMs;
});

const minute = 60_000;
const verify = (key: string, cost: number, ttl?: number) =>
  ok('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost }], ...(ttl && { hold: { ttl } }) });
const look = async (key: string) => (await verify(key, 0)).ratelimits![0]!;
const remaining = async (key: string) => (await look(key)).remaining;
const tokens = (limit: number, duration: number) => ({ name: 'tokens', limit, duration });

let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(async () => void (await redis.quit()));
const stateBytes = (key: string) =>
  redis.hstrlen(Buffer.concat([Buffer.from(`${workspaceKey(tollgate.workspaceId)}:k:`), digestOf(key)]), 'state');

describe('several holds that expire in one look', () => {
  /** A time at which a slice begins within a 64th of the duration, so that both kinds of holds below are in that. */
  const boundaryOf = (duration: number, ahead: number) => {
    const slice = Math.floor(duration / 64);
    const exact = duration / 64;
    const within = exact * 0.1;
    let at = Math.ceil((clock.now + ahead) / slice) * slice;
    while (at % exact < within || exact - (at % exact) < within) at += slice;
    return at;
  };

  test.each([1000, 10_000, 30_000, minute, 5 * minute, 15 * minute])(
    'are given back each from its slice, also if slices of %i ms are no 64ths of it',
    async (duration) => {
      const { key } = await createKey({ ratelimits: [tokens(1000, duration)] });
      const slice = Math.floor(duration / 64);
      const boundary = boundaryOf(duration, slice);
      clock.now = boundary - 1;
      await verify(key, 400, 1000);
      clock.now = boundary;
      await verify(key, 400, 1000);
      await verify(key, 200);
      // A second is the shortest time of a hold.
      clock.now = boundary + Math.max(1000, Math.ceil(duration / 4));
      if (duration > 1000) expect(await remaining(key)).toBe(800);
      else expect(await remaining(key)).toBe(1000 - (boundary + slice + duration > clock.now ? 200 : 0));
    },
  );

  test('admit no more than the limit within one duration', async () => {
    const { key } = await createKey({ ratelimits: [tokens(1000, minute)] });
    const boundary = boundaryOf(minute, minute);
    clock.now = boundary - 1;
    await verify(key, 400, 1000);
    clock.now = boundary;
    await verify(key, 400, 1000);
    expect((await verify(key, 200)).valid).toBe(true);
    clock.now = boundary + 5000;
    expect((await verify(key, 800)).valid).toBe(true);
    // When the first slice leaves the window, nothing of it counts any more.
    clock.now = boundary + minute;
    expect(await remaining(key)).toBe(0);
  });

  test('of a crashed proxy, at any time, come back whole', async () => {
    const { key } = await createKey({ ratelimits: [tokens(2000, minute)] });
    for (let number = 0; number < 100; number++) {
      clock.advance(19);
      await verify(key, 10, 3000);
    }
    clock.advance(3000);
    expect(await remaining(key)).toBe(2000);
  });
});

describe('a window of which all came back', () => {
  test.each([
    ['50 an hour', tokens(50, hourMs)],
    ['50 a day', tokens(50, dayMs)],
    ['1000 a minute', tokens(1000, minute)],
  ])('of %s has the same size after 200 holds as after one', async (_, limit) => {
    const { key } = await createKey({ ratelimits: [limit] });
    // The state of a key that had a hold has further fields.
    await ok('keys.releaseHold', { holdId: (await verify(key, 10, 1000)).hold!.id });
    const before = await stateBytes(key);
    for (let number = 0; number < 200; number++) {
      clock.advance(3);
      const { hold } = await verify(key, 10, 1000);
      if (number % 2 === 0) await ok('keys.releaseHold', { holdId: hold!.id });
      else await ok('keys.settleHold', { holdId: hold!.id, ratelimits: [{ name: 'tokens', cost: 0 }] });
    }
    expect(await stateBytes(key)).toBe(before);
  });

  test('is bounded where some units of each hold stay, too', async () => {
    const { key } = await createKey({ ratelimits: [tokens(60, hourMs)] });
    const before = await stateBytes(key);
    for (let number = 0; number < 200; number++) {
      clock.advance(3);
      const { valid, hold } = await verify(key, 10, 1000);
      if (!valid) break;
      await ok('keys.settleHold', { holdId: hold!.id, ratelimits: [{ name: 'tokens', cost: number % 4 ? 0 : 1 }] });
    }
    expect((await stateBytes(key)) - before).toBeLessThan(1000);
  });

  test('resets now, and then when the next unit leaves', async () => {
    const { key } = await createKey({ ratelimits: [tokens(50, minute)] });
    const { hold } = await verify(key, 10, 5000);
    clock.advance(1600);
    await ok('keys.releaseHold', { holdId: hold!.id });
    expect(await look(key)).toMatchObject({ remaining: 50, reset: clock.now });
    clock.advance(100);
    expect((await verify(key, 1)).ratelimits![0]).toMatchObject({ remaining: 49, reset: clock.now + minute + 1 });
  });

  test('resets when the oldest unit leaves that is left, after holds expired before and after it', async () => {
    const { key } = await createKey({ ratelimits: [tokens(50, minute)] });
    await verify(key, 10, 1000);
    clock.advance(100);
    await verify(key, 2);
    const reset = clock.now + minute + 1;
    clock.advance(100);
    await verify(key, 10, 1000);
    clock.advance(2000);
    expect(await look(key)).toMatchObject({ remaining: 48, reset });
  });

  test('has no record, if it is that of an ad hoc limit', async () => {
    const { key } = await createKey({});
    const adhoc = { name: 'call', limit: 50, duration: minute };
    const { hold } = await ok('keys.verifyKey', { key, ratelimits: [adhoc], hold: { ttl: 1000 } });
    const prefix = `${workspaceKey(tollgate.workspaceId)}:w:`;
    // On a Cluster, one node has the record.
    const records = async () => (await namesIn(redis)).filter((name) => name.toString('latin1').startsWith(prefix));
    expect(await records()).toHaveLength(1);
    await ok('keys.releaseHold', { holdId: hold!.id });
    expect(await records()).toEqual([]);
    const again = await ok('keys.verifyKey', { key, ratelimits: [adhoc] });
    expect(again.ratelimits![0]).toMatchObject({ remaining: 49, reset: clock.now + minute + 1 });
  });
});
