// The data that `tollgate inspect` reads of a key, with windows whose contents are known because the clock is fixed.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { digestOf } from '../../src/domain/keyString.ts';
import { temporarySwitch } from '../../src/domain/limit.ts';
import type { Inspection } from '../../src/records/inspection.ts';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { workspaceKey } from '../../src/redis/names.ts';
import { keyFixed, keyLive, limit, usage } from '../../src/scripts/layout.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';
import { limitDefaults } from '../support/limits.ts';
import { testRedisUrl } from '../support/redis.ts';
import { keyLogOf } from '../support/usage.ts';

const app = harness();
const { ok, clock, createKey } = app;
let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(async () => void (await redis.quit()));

async function inspect(keyId: string): Promise<Inspection> {
  const found = await app.store.keys.inspect(app.workspaceId, { keyId });
  if (found.outcome !== 'found') throw new Error(found.outcome);
  return found.inspection;
}

const nameOf = (rest: string | Buffer) =>
  Buffer.concat([Buffer.from(`${workspaceKey(app.workspaceId)}:`), Buffer.from(rest)]);
const recordOf = (key: string) => nameOf(Buffer.concat([Buffer.from('k:'), digestOf(key)]));
const stateOf = async (key: string) => (await redis.hgetBuffer(recordOf(key), 'state'))!;
const verify = (key: string, rest: object = {}) => ok('keys.verifyKey', { key, ...rest });

const minute = { name: 'minute', limit: 10, duration: 60_000, autoApply: true };

test('a new key has its state, no counts and an empty window', async () => {
  const { key, keyId, apiId } = await createKey({ name: 'plain', prefix: 'pk', ratelimits: [minute] });
  expect(await inspect(keyId)).toEqual({
    now: clock.now,
    keyId,
    api: { id: apiId, name: 'test' },
    stateBytes: (await stateOf(key)).length,
    state: {
      version: { time: clock.now, number: expect.any(Number) },
      flags: ['enabled'],
      expires: undefined,
      refill: undefined,
      balance: undefined,
      lastUsed: undefined,
      usage: undefined,
      limits: [
        {
          id: expect.stringMatching(/^rl_\w{16}$/),
          ...limitDefaults,
          ...minute,
          window: { bytes: 0, counted: 0, remaining: 10, slices: [] },
        },
      ],
    },
    fault: undefined,
    identity: undefined,
    fields: { start: key.slice(0, 7), prefix: 'pk', name: 'plain' },
    counters: { count: 0, counters: [] },
    history: { log: { bytes: 0, hours: [], fault: undefined }, days: { bytes: 0, days: [], fault: undefined } },
  });
});

test('reading by digest returns the same as by id', async () => {
  const { key, keyId } = await createKey({ ratelimits: [minute] });
  await verify(key);
  expect(await app.store.keys.inspect(app.workspaceId, { digest: digestOf(key) })).toEqual(
    await app.store.keys.inspect(app.workspaceId, { keyId }),
  );
});

test('flags, expiry, balance, refill, last use and the counts of this hour', async () => {
  const created = clock.now;
  const { key, keyId } = await createKey({
    expires: created + 5 * dayMs,
    permissions: ['may.read'],
    credits: { remaining: 5, refill: { interval: 'monthly', amount: 9, refillDay: 20 } },
  });
  await verify(key, { credits: { cost: 3 } });
  clock.advance(1000);
  await verify(key, { credits: { cost: 3 } });
  await verify(key, { permissions: 'may.write' });
  const { state, fields } = await inspect(keyId);
  expect(state).toMatchObject({
    flags: ['enabled', 'limited', 'refilled', 'direct'],
    expires: created + 5 * dayMs,
    balance: 2,
    refill: { amount: 9, interval: 'monthly', day: 20, due: Date.UTC(2026, 0, 20) },
    lastUsed: created,
    usage: {
      hour: created - (created % hourMs),
      counts: { VALID: 1, USAGE_EXCEEDED: 1, INSUFFICIENT_PERMISSIONS: 1 },
      spentCredits: 3,
    },
  });
  expect(fields.direct).toMatch(/^,\d+,$/);
  expect(fields.start).toBe(key.slice(0, 4));
  // The stored data, without the changes that a request would apply.
  clock.advance(6 * dayMs);
  expect((await inspect(keyId)).state).toMatchObject({ balance: 2, refill: { due: Date.UTC(2026, 0, 20) } });
});

describe('a window', () => {
  test('of a small limit has a slice for each millisecond, and the units that count now', async () => {
    const { key, keyId } = await createKey({ ratelimits: [minute] });
    const start = clock.now;
    for (let times = 0; times < 3; times++) await verify(key);
    clock.advance(30_000);
    await verify(key, { ratelimits: [{ name: 'minute', cost: 4 }] });
    const stored = { bytes: 24, kind: 2, base: start + 1, step: 1, sum: 7 };
    const windowNow = async () => (await inspect(keyId)).state!.limits[0]!.window;
    expect(await windowNow()).toEqual({
      ...stored,
      counted: 7,
      remaining: 3,
      reset: start + 60_001,
      bytes: expect.any(Number),
      slices: [
        { end: start + 1, units: 3, counts: true },
        { end: start + 30_001, units: 4, counts: true },
      ],
    });
    // The millisecond in which the first unit leaves.
    clock.now = start + 60_001;
    expect(await windowNow()).toMatchObject({
      sum: 7,
      counted: 4,
      remaining: 6,
      reset: start + 90_001,
      slices: [{ counts: false }, { counts: true }],
    });
    clock.now = start + 90_001;
    const empty = await windowNow();
    expect(empty).toMatchObject({ sum: 7, counted: 0, remaining: 10, slices: [{ counts: false }, { counts: false }] });
    expect(empty).toMatchObject({ reset: undefined });
  });

  test('of a large limit has slices of a 64th of its duration', async () => {
    const { key, keyId } = await createKey({
      ratelimits: [{ name: 'hourly', limit: 1000, duration: hourMs, autoApply: true }],
    });
    const slice = hourMs / 64;
    const first = clock.now - (clock.now % slice) + slice;
    await verify(key, { ratelimits: [{ name: 'hourly', cost: 300 }] });
    clock.now = first + slice / 2;
    await verify(key);
    const { window } = (await inspect(keyId)).state!.limits[0]!;
    expect(window).toMatchObject({
      kind: 2,
      base: first,
      step: slice,
      sum: 301,
      counted: 301,
      remaining: 699,
      slices: [
        { end: first, units: 300 },
        { end: first + slice, units: 1 },
      ],
    });
  });

  test('that was charged while the clock was ahead is marked, and counts', async () => {
    const { key, keyId } = await createKey({ ratelimits: [minute] });
    await verify(key);
    clock.advance(-dayMs);
    expect((await inspect(keyId)).state!.limits[0]!.window).toMatchObject({ isAhead: true, counted: 1, remaining: 9 });
    clock.advance(dayMs);
  });

  test('with more counted than a lowered limit has nothing remaining', async () => {
    const { key, keyId } = await createKey({ ratelimits: [minute] });
    await verify(key, { ratelimits: [{ name: 'minute', cost: 8 }] });
    await ok('keys.updateKey', { keyId, ratelimits: [{ ...minute, limit: 5 }] });
    expect((await inspect(keyId)).state!.limits[0]).toMatchObject({ limit: 5, window: { counted: 8, remaining: 0 } });
  });
});

test('counters of ad hoc and former limits', async () => {
  const { key, keyId } = await createKey({ ratelimits: [minute] });
  await verify(key, { ratelimits: [{ name: 'burst:x', cost: 2, limit: 5, duration: 10_000 }] });
  await ok('keys.updateKey', { keyId, ratelimits: [] });
  const { counters } = await inspect(keyId);
  expect(counters.count).toBe(2);
  const byName = Object.fromEntries(counters.counters.map((counter) => [counter.name, counter]));
  expect(byName['burst:x']).toMatchObject({ duration: 10_000, window: { counted: 2, reset: clock.now + 10_001 } });
  expect(byName['burst:x']!.window).toMatchObject({ remaining: undefined });
  expect(byName['burst:x']!.expiresIn).toBeGreaterThan(60_000);
  expect(byName['burst:x']!.expiresIn).toBeLessThanOrEqual(70_157);
  expect(byName.minute).toMatchObject({ duration: 60_000, window: { counted: 1 } });
});

test('a quota of the key, and the counter of a former one, which is kept until its next period ends', async () => {
  const year = { name: 'tokens', limit: 10, period: 'year' as const, anchor: clock.now, autoApply: true };
  const { key, keyId } = await createKey({ ratelimits: [year] });
  await verify(key);
  const end = clock.now + 365 * dayMs;
  const [limit] = (await inspect(keyId)).state!.limits;
  expect(limit).toMatchObject({ period: 'year', duration: 365 * dayMs });
  expect(limit!.window).toMatchObject({
    counted: 1,
    remaining: 9,
    reset: end,
    slices: [{ end, units: 1, counts: true }],
  });
  await ok('keys.updateKey', { keyId, ratelimit: { ...year, period: 'day' } });
  const [former] = (await inspect(keyId)).counters.counters;
  expect(former).toMatchObject({ name: 'tokens', period: 'year', duration: 365 * dayMs, window: { counted: 1 } });
  expect(former!.expiresIn).toBeGreaterThan(2 * 365 * dayMs);
  expect(former!.expiresIn).toBeLessThanOrEqual((17 / 8) * 365 * dayMs + 60_000);
});

test('of many counters a hundred are read', async () => {
  const { key, keyId } = await createKey();
  for (let index = 0; index < 105; index++)
    await verify(key, { ratelimits: [{ name: `adhoc${index}`, limit: 5, duration: 10_000 }] });
  const { counters } = await inspect(keyId);
  expect([counters.count, counters.counters.length]).toEqual([105, 100]);
});

describe('an identity', () => {
  test('has the windows that its keys share, and counters of former limits', async () => {
    await ok('identities.createIdentity', {
      externalId: 'shared',
      meta: { plan: 'x' },
      ratelimits: [minute, { ...minute, name: 'former' }],
    });
    const first = await createKey({ externalId: 'shared' });
    const second = await createKey({ externalId: 'shared' });
    await verify(first.key);
    await verify(second.key);
    await ok('identities.updateIdentity', { identity: 'shared', ratelimits: [minute] });
    const { identity } = await inspect(second.keyId);
    expect(identity).toMatchObject({
      id: expect.stringMatching(/^id_\w{16}$/),
      externalId: 'shared',
      isDeleted: false,
      meta: '{"plan":"x"}',
      version: { time: clock.now },
      limits: [{ name: 'minute', window: { counted: 2, remaining: 8 } }],
      counters: { count: 1, counters: [{ name: 'former', window: { counted: 2 } }] },
    });
  });

  test('that was deleted is reported, also when another has its externalId', async () => {
    const { keyId } = await createKey({ externalId: 'gone' });
    const before = (await inspect(keyId)).identity!;
    await ok('identities.deleteIdentity', { identity: 'gone' });
    expect((await inspect(keyId)).identity).toMatchObject({ id: before.id, isDeleted: true, isReplaced: false });
    await ok('identities.createIdentity', { externalId: 'gone' });
    expect((await inspect(keyId)).identity).toMatchObject({ id: before.id, isDeleted: true, isReplaced: true });
  });
});

describe('usage history', () => {
  test('has the hours that ended, with the externalId of that time', async () => {
    const { key, keyId } = await createKey({ externalId: 'user_1', credits: { remaining: 1 } });
    const hour = clock.now - (clock.now % hourMs);
    await verify(key);
    await verify(key);
    clock.advance(hourMs);
    await verify(key);
    const { history, state } = await inspect(keyId);
    expect(history.log).toMatchObject({
      hours: [{ hour, counts: { VALID: 1, USAGE_EXCEEDED: 1 }, spentCredits: 1, externalId: 'user_1' }],
    });
    expect(state!.usage).toEqual({ hour: hour + hourMs, counts: { USAGE_EXCEEDED: 1 }, spentCredits: 0 });
  });

  test('has the days that were rolled up, the last ones with their hours', async () => {
    const { key, keyId } = await createKey({ externalId: 'user_2', credits: { remaining: 9 } });
    const day = clock.now - (clock.now % dayMs);
    const first = clock.now - (clock.now % hourMs);
    await verify(key);
    clock.advance(hourMs);
    await verify(key);
    clock.advance(2 * dayMs);
    await verify(key);
    while (await app.store.sweep.rollUp(app.workspaceId));
    const { history } = await inspect(keyId);
    const sums = { day, counts: { VALID: 2 }, spentCredits: 2, externalId: 'user_2' };
    const hours = [first, first + hourMs].map((hour) => ({ hour, counts: { VALID: 1 }, spentCredits: 1 }));
    expect(history).toMatchObject({ log: { bytes: 0, hours: [] }, days: { days: [{ ...sums, hours }] } });
    // The roll-up of a later day removes the hours of a day that has become too old.
    clock.advance(8 * dayMs);
    await verify(key);
    clock.advance(2 * dayMs);
    while (await app.store.sweep.rollUp(app.workspaceId));
    const { days } = (await inspect(keyId)).history;
    expect(days.days[0]).toEqual({ ...sums, hours: undefined });
    expect(days.fault).toBeUndefined();
  });

  test('of a log that is too large only its length', async () => {
    const { keyId } = await createKey();
    const name = nameOf(`uk:${keyId.slice(4)}`);
    await redis.set(name, Buffer.alloc(512 * 1024 + 1));
    expect((await inspect(keyId)).history.log).toMatchObject({ bytes: 512 * 1024 + 1, hours: [] });
    await redis.set(name, Buffer.alloc(512 * 1024));
    // Hours of 6 bytes without counts.
    expect((await inspect(keyId)).history.log.hours).toHaveLength(Math.floor((512 * 1024) / 6));
  });
});

describe('a key that does not exist', () => {
  test('unknown', async () => {
    for (const key of [{ keyId: `key_${'1'.repeat(24)}` }, { digest: digestOf('no such key') }])
      expect(await app.store.keys.inspect(app.workspaceId, key)).toEqual({ outcome: 'unknown' });
  });

  test.each([false, true])('deleted, permanent %s', async (permanent) => {
    const { key, keyId } = await createKey();
    await ok('keys.deleteKey', { keyId, permanent });
    const hour = clock.now - (clock.now % hourMs);
    expect(await app.store.keys.inspect(app.workspaceId, { keyId })).toEqual({ outcome: 'deleted', keyId, hour });
    const byDigest = await app.store.keys.inspect(app.workspaceId, { digest: digestOf(key) });
    expect(byDigest).toEqual(
      permanent ? { outcome: 'unknown' } : { outcome: 'deleted', keyId, hour, purge: clock.now + 30 * dayMs },
    );
  });

  test('a key of a deleted API is found until the sweeper removes it', async () => {
    const { keyId, apiId } = await createKey();
    await ok('apis.deleteApi', { apiId });
    expect(await inspect(keyId)).toMatchObject({ keyId, api: undefined, state: { flags: ['enabled'] } });
  });
});

describe('bytes that cannot be decoded', () => {
  async function damaged(change: (state: Buffer) => Buffer) {
    const { key, keyId } = await createKey({
      externalId: 'damage',
      ratelimits: [minute, { ...minute, name: 'second' }],
    });
    await verify(key);
    const state = change(await stateOf(key));
    await redis.hset(recordOf(key), 'state', state);
    const inspection = await inspect(keyId);
    // The sweeper, the deletion and the inspection of other keys of the workspace still work.
    await redis.del(recordOf(key));
    return { inspection, state };
  }

  test('a state that was cut off is returned as hex, at any length', async () => {
    const { key, keyId } = await createKey({ externalId: 'cut', ratelimits: [minute] });
    await verify(key);
    const whole = await stateOf(key);
    const fields = new Set<string>();
    for (let length = 0; length < whole.length; length++) {
      const cut = whole.subarray(0, length);
      await redis.hset(recordOf(key), 'state', cut);
      const { fault, state, fields: others } = await inspect(keyId);
      expect({ length, state, hex: fault?.hex }).toEqual({ length, state: undefined, hex: cut.toString('hex') });
      expect(others.start).toBe(key.slice(0, 4));
      expect(fault!.offset).toBeLessThanOrEqual(length);
      fields.add(fault!.field);
    }
    const fixed = ['id16', 'version', 'api8', 'flags', 'expires', 'refillAmount', 'refillDay'];
    expect([...fields]).toEqual(expect.arrayContaining([...fixed, 'link', 'limits[0]', 'limits[0].name', 'windows']));
    await redis.hdel(recordOf(key), 'state');
    expect((await inspect(keyId)).fault).toEqual({ field: 'id16', offset: 0, bytes: 0, hex: '' });
    await redis.hset(recordOf(key), 'state', whole);
    expect((await inspect(keyId)).fault).toBeUndefined();
  });

  test('a state without a link that was cut off before its limits stops at the link', async () => {
    const { key, keyId } = await createKey({ ratelimits: [minute] });
    const whole = await stateOf(key);
    for (let length = keyFixed.bytes; length <= linkAt + 2 + liveAndUsage; length++) {
      await redis.hset(recordOf(key), 'state', whole.subarray(0, length));
      expect((await inspect(keyId)).fault).toMatchObject({ field: 'link', offset: linkAt, bytes: length });
    }
    await redis.hset(recordOf(key), 'state', whole);
  });

  test('the state of an identity that was cut off, at any length', async () => {
    const { key, keyId } = await createKey({ externalId: 'halved' });
    await ok('identities.updateIdentity', { identity: 'halved', ratelimits: [minute] });
    await verify(key);
    const whole = (await redis.hgetBuffer(nameOf('i:halved'), 'state'))!;
    const fields: string[] = [];
    for (let length = 16; length < whole.length; length++) {
      await redis.hset(nameOf('i:halved'), 'state', whole.subarray(0, length));
      const { identity, state } = await inspect(keyId);
      expect(identity!.fault).toMatchObject({ bytes: length, hex: whole.toString('hex', 0, length) });
      expect(state).toBeDefined();
      fields.push(identity!.fault!.field);
    }
    // Its id and version have 24 bytes.
    expect(fields.slice(0, 10)).toEqual([...Array(9).fill('identity'), 'limits[0]']);
  });

  const linkAt = keyFixed.bytes;
  const liveAndUsage = keyLive.bytes + usage.bytes;
  const limitAt = linkAt + 2 + 16 + 'damage'.length + 1;
  const secondAt = limitAt + limit.at.name + 'minute'.length;
  test.each([
    ['link', linkAt, linkAt + 1, 3],
    ['link', linkAt, linkAt, 255],
    ['limits[0].switches', limitAt + limit.at.switches, limitAt + limit.at.switches, 32],
    ['limits[0].name', limitAt + limit.at.name, limitAt + limit.at.nameBytes, 255],
    ['limits[1].switches', secondAt + limit.at.switches, secondAt + limit.at.switches, 255],
  ])('%s that does not fit is named', async (field, offset, at, byte) => {
    const { inspection, state } = await damaged((bytes) => {
      bytes[at] = byte;
      return bytes;
    });
    expect(inspection.fault).toEqual({ field, offset, bytes: state.length, hex: state.toString('hex') });
    expect(inspection.state).toBeUndefined();
  });

  test('a limit that is marked as temporary, whose window is too short for its end', async () => {
    const { key, keyId } = await createKey({ ratelimits: [minute] });
    const state = await stateOf(key);
    const switchesAt = keyFixed.bytes + 2 + 1 + limit.at.switches;
    state[switchesAt] = state[switchesAt]! | temporarySwitch;
    await redis.hset(recordOf(key), 'state', state);
    const offset = keyFixed.bytes + 2 + 1 + limit.at.name + minute.name.length;
    expect((await inspect(keyId)).fault).toMatchObject({ field: 'limits[0].end', offset });
  });

  test('a duration of 0', async () => {
    const { inspection } = await damaged((bytes) => bytes.fill(0, limitAt + 7, limitAt + 14));
    expect(inspection.fault).toMatchObject({ field: 'limits[0].duration', offset: limitAt + 7 });
  });

  test.each([
    ['limits[0].windowBytes', 3],
    ['limits[1].windowBytes', 1],
  ])('%s', async (field, fromEnd) => {
    const { inspection, state } = await damaged((bytes) => {
      bytes[bytes.length - liveAndUsage - fromEnd] = 255;
      return bytes;
    });
    expect(inspection.fault).toMatchObject({ field, offset: state.length - liveAndUsage - 4 });
  });

  test('a window without entries', async () => {
    const { keyId, key } = await createKey();
    await verify(key, { ratelimits: [{ name: 'adhoc', limit: 5, duration: 10_000 }] });
    await redis.set(nameOf(`w:${keyId.slice(4)}:10000:adhoc`), Buffer.concat([Buffer.of(1), Buffer.alloc(19)]));
    expect((await inspect(keyId)).counters.counters[0]!.window.fault).toMatchObject({ field: 'entries', offset: 13 });
  });

  test.each([
    ['kind', 0, 0, 9],
    ['entries', 13, 0, 2],
    ['sum', 15, 14, 2],
  ])('a window whose %s does not fit is returned as hex, and the rest is decoded', async (field, offset, at, byte) => {
    let window: Buffer = Buffer.alloc(0);
    const { inspection } = await damaged((bytes) => {
      const windowAt = secondAt + limit.at.name + 'second'.length;
      bytes[windowAt + at] = byte;
      window = bytes.subarray(windowAt, windowAt + 22);
      return bytes;
    });
    const [first, second] = inspection.state!.limits;
    expect(first!.window).toEqual({ fault: { field, offset, bytes: 22, hex: window.toString('hex') } });
    expect(second!.window).toMatchObject({ counted: 1 });
  });

  test('of very many bytes the first 64 KB are returned', async () => {
    const { inspection } = await damaged((bytes) => Buffer.concat([bytes, Buffer.alloc(70_000, 1)]));
    expect(inspection.fault!.bytes).toBeGreaterThan(70_000);
    expect(inspection.fault!.hex).toHaveLength(2 * 64 * 1024);
  });

  test('the balance of an identity', async () => {
    const refill = { interval: 'monthly', amount: 9, refillDay: 31 } as const;
    await ok('identities.createIdentity', { externalId: 'prepaid', credits: { remaining: 7, refill } });
    const { keyId, key } = await createKey({ externalId: 'prepaid' });
    await ok('keys.verifyKey', { key, credits: { cost: 2 }, hold: { ttl: 60_000 } });
    const { identity } = await inspect(keyId);
    expect(identity!.balance).toEqual({
      balance: 5,
      refill: { amount: 9, interval: 'monthly', day: 31, due: expect.any(Number) },
      number: expect.any(Number),
      held: 2,
    });
    expect(identity!.version!.time).toBeLessThan(2 ** 47);
    await redis.hset(nameOf('i:prepaid'), 'credits', 'x');
    expect((await inspect(keyId)).identity!.fault).toEqual({ field: 'credits', offset: 0, bytes: 1, hex: '78' });
  });

  test('the state of an identity, a counter, and a history', async () => {
    const { key, keyId } = await createKey({ externalId: 'broken' });
    await verify(key, { ratelimits: [{ name: 'adhoc', limit: 5, duration: 10_000 }] });
    await redis.set(nameOf(`w:${keyId.slice(4)}:10000:adhoc`), Buffer.from([7, 1]));
    const name = nameOf('i:broken');
    const state = (await redis.hgetBuffer(name, 'state'))!;
    await redis.hset(name, 'state', Buffer.concat([state, Buffer.of(1)]));
    const hour = clock.now / hourMs;
    const { name: logName, log } = keyLogOf(app.workspaceId, keyId, [hour]);
    await redis.set(logName, Buffer.concat([log, log.subarray(0, 8)]));
    await redis.set(nameOf(`uh:${keyId.slice(4)}`), Buffer.from([0, 1, 0, 9, 80, 20, 0, 9, 1]));
    const inspection = await inspect(keyId);
    expect(inspection.counters.counters).toMatchObject([
      { name: 'adhoc', window: { fault: { field: 'kind', hex: '0701' } } },
    ]);
    expect(inspection.identity).toMatchObject({ limits: [], fault: { field: 'windows', bytes: state.length + 1 } });
    expect(inspection.history).toMatchObject({
      log: { hours: [{ counts: { VALID: 3 } }], fault: { field: 'hours[1]', offset: 21, bytes: 29 } },
      days: { bytes: 9, days: [], fault: { field: 'days', hex: '000100095014000901' } },
    });
    expect(inspection.state).toBeDefined();
  });
});

test('nothing is written', async () => {
  const { key, keyId } = await createKey({
    ratelimits: [minute],
    credits: { remaining: 5, refill: { interval: 'daily', amount: 9 } },
  });
  await verify(key);
  clock.advance(2 * dayMs);
  const before = await stateOf(key);
  await inspect(keyId);
  expect(await stateOf(key)).toEqual(before);
});
