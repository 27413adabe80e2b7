import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import { outcomeExamples } from '../../support/keyExamples.ts';
import { openRedisProcess } from '../../support/processes.ts';

// A Redis of its own: the library counts the refusals of one minute, which other tests with other clocks would end.
let redis: Awaited<ReturnType<typeof openRedisProcess>>;
beforeAll(async () => {
  redis = await openRedisProcess();
});
afterAll(() => redis.close());

const app = harness(() => redis.url, { leaseMs: 0 });
const leasing = harness(() => redis.url, { leaseMs: 2000, leaseAfter: 2, leaseClockMs: () => 0 });
const { clock, ok, call, createKey, createRootKey, createWorkspace } = app;
const startMs = clock.now;
const minuteMs = 60_000;
let days = 0;
// Each test has a day of its own, so that no list is shared.
beforeEach(() => {
  clock.now = startMs + ++days * 3 * dayMs;
});

const list = (input: InputOf<'analytics.listRefusals'> = {}) => ok('analytics.listRefusals', input);
const verify = (key: string, extras: object = {}) => ok('keys.verifyKey', { key, ...extras });
const requests = { name: 'requests', limit: 1, duration: hourMs, autoApply: true };

describe('analytics.listRefusals: rows', () => {
  test.each(Object.entries(outcomeExamples).filter(([outcome]) => outcome !== 'VALID'))(
    'of %s',
    async (outcome, example) => {
      const { key, keyId, apiId } = await createKey({ externalId: 'ada', ...example.key });
      await verify(key, { ...example.request, tags: ['eu', 'a "tag"\n\0'] });
      expect(await list({ keyId })).toEqual([
        {
          time: clock.now,
          outcome,
          keyId,
          apiId,
          externalId: 'ada',
          ...(outcome === 'RATE_LIMITED' && { ratelimit: 'limited', limit: 1, duration: hourMs }),
          tags: ['eu', 'a "tag"\n\0'],
          source: 'redis',
          count: 1,
        },
      ]);
    },
  );

  test('name the first limit that is exceeded: of the key, the identity or the request', async () => {
    await ok('identities.createIdentity', { externalId: 'shared', ratelimits: [{ ...requests, name: 'of identity' }] });
    const { key, keyId } = await createKey({
      externalId: 'shared',
      ratelimits: [
        { ...requests, name: 'roomy', limit: 99 },
        { ...requests, name: 'of key', limit: 2 },
      ],
    });
    const own = [{ name: 'of request', limit: 1, duration: hourMs, cost: 2 }];
    await verify(key, { ratelimits: own });
    await verify(key);
    await verify(key);
    await verify(key, { ratelimits: [{ name: 'of key', cost: 3 }] });
    const rows = await list({ keyId });
    const named = (ratelimit: string, limit: number) => ({ ratelimit, limit, duration: hourMs });
    expect(rows).toMatchObject([named('of key', 2), named('of identity', 1), named('of request', 1)]);
  });

  test('are newest first, filtered, and those of 24 hours, also of the day before', async () => {
    clock.now = Math.floor(clock.now / dayMs) * dayMs - hourMs;
    const one = await createKey({ enabled: false, externalId: 'one' });
    const two = await createKey({ expires: 0, apiId: one.apiId });
    const other = await createKey({ enabled: false });
    const first = clock.now;
    await verify(one.key);
    clock.advance(2 * hourMs);
    await verify(two.key);
    await verify(other.key);
    const keysOf = async (input: InputOf<'analytics.listRefusals'>) => (await list(input)).map(({ keyId }) => keyId);
    expect(await keysOf({})).toEqual([other.keyId, two.keyId, one.keyId]);
    expect(await keysOf({ apiId: one.apiId })).toEqual([two.keyId, one.keyId]);
    expect(await keysOf({ externalId: 'one' })).toEqual([one.keyId]);
    expect(await keysOf({ outcome: 'EXPIRED' })).toEqual([two.keyId]);
    expect(await keysOf({ limit: 2 })).toEqual([other.keyId, two.keyId]);
    expect(await keysOf({ start: first + 1 })).toEqual([other.keyId, two.keyId]);
    expect(await keysOf({ end: first + 1 })).toEqual([one.keyId]);
    expect(await keysOf({ keyId: 'key_none' })).toEqual([]);
    clock.now = first + dayMs - 1;
    expect(await keysOf({ keyId: one.keyId })).toEqual([one.keyId]);
    clock.now = first + dayMs;
    expect(await keysOf({ keyId: one.keyId })).toEqual([]);
    await ok('apis.deleteApi', { apiId: other.apiId });
    expect(await keysOf({})).toEqual([two.keyId]);
  });

  test('VALID, NOT_FOUND and errors have none, and an explanation adds none', async () => {
    const { key, keyId } = await createKey({ enabled: false });
    const open = await createKey();
    await verify(open.key);
    await verify('unknown');
    await call('keys.verifyKey', { key: open.key, ratelimits: [{ name: 'nonexistent' }] });
    await ok('keys.explainKey', { key });
    expect(await list({ keyId })).toEqual([]);
    expect(await list({ keyId: open.keyId })).toEqual([]);
  });

  test('many tags are cut to 256 bytes as JSON', async () => {
    const { key, keyId } = await createKey({ enabled: false });
    await verify(key, { tags: ['a'.repeat(150), 'b'.repeat(99), 'c'] });
    await verify(key, { tags: ['a'.repeat(150), 'b'.repeat(100), 'c'] });
    await verify(key, { tags: ['\0'.repeat(50)] });
    const rows = await list({ keyId });
    expect(rows.map(({ tags }) => tags?.length)).toEqual([undefined, 1, 2]);
  });

  test('a caller gets the APIs of its grants, and no other workspace', async () => {
    const mine = await createKey({ enabled: false });
    const theirs = await createKey({ enabled: false });
    for (const { key } of [mine, theirs]) await verify(key);
    const rootKey = await createRootKey([`api.${mine.apiId}.read_analytics`]);
    const as = async (input: object, who: string) =>
      (await call('analytics.listRefusals', input, who)).data.map(({ keyId }) => keyId);
    expect(await as({}, rootKey)).toEqual([mine.keyId]);
    expect(await as({ apiId: theirs.apiId }, rootKey)).toEqual([]);
    expect(await as({}, (await createWorkspace()).rootKey)).toEqual([]);
  });
});

describe('analytics.listRefusals: a flood', () => {
  test('of one key has few rows, which have the number of refusals', async () => {
    const { key, keyId } = await createKey({ enabled: false });
    for (let round = 0; round < 10; round++) await Promise.all(Array.from({ length: 100 }, () => verify(key)));
    const counts = (await list({ keyId })).map(({ count }) => count);
    expect(counts.reverse()).toEqual([1, 1, 1, 1, 4, 8, 16, 32, 64, 128, 256]);
    // The 1024th would be the next. Another minute begins anew.
    clock.advance(minuteMs);
    await verify(key);
    expect((await list({ keyId, limit: 1 }))[0]).toMatchObject({ count: 1, time: clock.now });
  });

  test('of many keys has 500 rows, then five a second, and counts those in between', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'many' });
    const keys = await Promise.all(Array.from({ length: 130 }, () => createKey({ apiId, enabled: false })));
    const flood = () => Promise.all(keys.map(({ key }) => verify(key)));
    const rows = () => list({ apiId, limit: 1000 });
    for (let times = 0; times < 3; times++) await flood();
    expect(await rows()).toHaveLength(390);
    await flood();
    expect(await rows()).toHaveLength(500);
    clock.advance(1000);
    for (let times = 4; times < 8; times++) await flood();
    expect(await rows()).toHaveLength(505);
    // A key that is refused when the allowance is used up has a row as soon as it has grown.
    const late = await createKey({ apiId, enabled: false });
    await verify(late.key);
    clock.advance(199);
    await verify(late.key);
    expect(await list({ keyId: late.keyId })).toEqual([]);
    clock.advance(1);
    await verify(late.key);
    expect((await rows())[0]).toMatchObject({ keyId: late.keyId, count: 3 });
    clock.advance(dayMs / 2);
    await flood();
    expect(await rows()).toHaveLength(506 + 130);
  });

  test('by leases has rows with their counts, without the limit', async () => {
    const { key, keyId } = await leasing.createKey({ ratelimits: [requests], externalId: 'leased' });
    let leased = 0;
    await expect
      .poll(
        async () => {
          await leasing.ok('keys.verifyKey', { key, tags: ['eu'] });
          await leasing.store.decide.leasing.leases.recall();
          const rows = await leasing.ok('analytics.listRefusals', { keyId, limit: 1000 });
          for (let times = 0; times < 5; times++) await leasing.ok('keys.verifyKey', { key, tags: ['eu'] });
          leased = rows.filter(({ source }) => source === 'lease').reduce((sum, { count }) => sum + count, 0);
          return leased;
        },
        { timeout: 10_000, interval: 10 },
      )
      .toBeGreaterThan(3);
    const row = (await leasing.ok('analytics.listRefusals', { keyId })).find(({ source }) => source === 'lease');
    expect(row).toMatchObject({ outcome: 'RATE_LIMITED', externalId: 'leased', tags: ['eu'] });
    expect(row).not.toHaveProperty('ratelimit');
  });
});

test.each<[string, object, string]>([
  ['an outcome that refuses nothing', { outcome: 'VALID' }, 'body.outcome'],
  ['a limit of 1001', { limit: 1001 }, 'body.limit'],
  ['a malformed keyId', { keyId: 'a b' }, 'body.keyId'],
])('400 for %s', async (_title, input, location) => {
  const answer = await call('analytics.listRefusals', input as never);
  expect(answer).toMatchObject({ status: 400, error: { errors: [{ location }] } });
});
