// Every verification of a known key is counted once: compares the counts with a simple tally of all responses, over
// random histories with a fixed clock.

import { beforeAll, describe, expect, test } from 'vitest';
import { outcomes as allOutcomes } from '../../../src/domain/verification.ts';
import { connect } from '../../../src/redis/connection.ts';
import { dayMs, harness, hourMs, type InputOf, type OutputOf, testSettings } from '../../support/harness.ts';
import { outcomeExamples } from '../../support/keyExamples.ts';
import { readPages } from '../../support/lists.ts';
import { random, seed } from '../../support/random.ts';
import { testRedisUrl } from '../../support/redis.ts';
import { isThorough } from '../../support/testIf.ts';
import { addUsedKeys, keyLogOf } from '../../support/usage.ts';

const tollgate = harness();
const { call, ok, clock, createKey, createRootKey, createWorkspace } = tollgate;

type Query = InputOf<'analytics.getVerifications'>;
type Group = NonNullable<Query['groupBy']>[number];

/** A verification and its response. */
interface Verification {
  time: number;
  apiId: string;
  keyId: string;
  externalId?: string;
  outcome: string;
  tags: string[];
  spentCredits: number;
}

/** The time of the first hour that is kept by hour. */
const hourlyFrom = () => (Math.floor(clock.now / dayMs) - testSettings.usageHourlyDays) * dayMs;

const bucketOf = (time: number, granularity: string): number => {
  const date = new Date(time);
  if (granularity === 'hour') return time - (time % hourMs);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), granularity === 'day' ? date.getUTCDate() : 1);
};

/** The rows that a query must return, counted one by one, in no order. */
function tally(log: readonly Verification[], query: Query): object[] {
  const { granularity = 'hour', groupBy = ['outcome'], end = clock.now + 1 } = query;
  const start = query.start ?? end - dayMs;
  const from = Math.floor(start / hourMs) * hourMs;
  const to = Math.ceil(end / hourMs) * hourMs;
  const rows = new Map<string, { count: number; spentCredits: number }>();
  // Counts of APIs are kept by hour, all others by day after some days.
  const isOfKeys =
    groupBy.some((group) => group !== 'apiId' && group !== 'outcome') ||
    [query.keyId, query.keyIds, query.externalId, query.externalIds, query.tag].some((filter) => filter !== undefined);
  for (const { tags, ...one } of log) {
    const isOfDay = isOfKeys && one.time < hourlyFrom();
    const time = isOfDay ? Math.floor(one.time / dayMs) * dayMs : one.time;
    if (isOfDay ? time + dayMs <= from || time >= to : time < from || time >= to) continue;
    if (query.apiId !== undefined && one.apiId !== query.apiId) continue;
    if (query.keyId !== undefined && one.keyId !== query.keyId) continue;
    if (query.keyIds !== undefined && !query.keyIds.includes(one.keyId)) continue;
    if (query.externalId !== undefined && one.externalId !== query.externalId) continue;
    if (query.externalIds !== undefined && !query.externalIds.includes(one.externalId!)) continue;
    const grouped = groupBy.includes('tag') && tags.length > 0 ? tags : [undefined];
    const counted = query.tag !== undefined ? tags.filter((tag) => tag === query.tag) : grouped;
    for (const tag of counted) {
      const all: Record<Group, string | undefined> = { externalId: undefined, ...one, tag };
      const groups = groupBy.flatMap((group) => (all[group] === undefined ? [] : [[group, all[group]]]));
      const row = {
        time: bucketOf(time, granularity),
        ...(isOfDay && granularity === 'hour' && { granularity: 'day' }),
        ...Object.fromEntries(groups),
      };
      const name = JSON.stringify(Object.entries(row).sort());
      const sums = rows.get(name) ?? { ...row, count: 0, spentCredits: 0 };
      sums.count++;
      sums.spentCredits += one.spentCredits;
      rows.set(name, sums);
    }
  }
  return [...rows.values()];
}

const inOneOrder = (rows: readonly object[]) => rows.map((row) => JSON.stringify(Object.entries(row).sort())).sort();

async function expectTally(log: readonly Verification[], query: Query, as?: string) {
  const { status, data, error } = await call('analytics.getVerifications', query, as);
  expect(status, error?.detail).toBe(200);
  const rows = data as { time: number }[];
  expect(inOneOrder(rows), JSON.stringify(query)).toEqual(inOneOrder(tally(log, query)));
  expect(rows.map(({ time }) => time)).toEqual(rows.map(({ time }) => time).sort((a, b) => a - b));
  return rows.length;
}

/** Verifies and records the response. */
function logger() {
  const log: Verification[] = [];
  return {
    log,
    async verify(
      {
        key,
        apiId,
        keyId,
        externalId,
        limited,
      }: { key: string; apiId: string; keyId: string; externalId?: string | undefined; limited?: boolean },
      input: Omit<InputOf<'keys.verifyKey'>, 'key'> = {},
    ) {
      const { code } = await ok('keys.verifyKey', { key, ...input });
      const spentCredits = limited && code === 'VALID' ? (input.credits?.cost ?? 1) : 0;
      const tags = [...new Set(input.tags ?? [])];
      log.push({ time: clock.now, apiId, keyId, ...(externalId && { externalId }), outcome: code, tags, spentCredits });
      return code;
    },
  };
}

describe('analytics.getVerifications: random histories', () => {
  const { log, verify } = logger();
  const pick = random(seed);
  const oneOf = <T>(items: readonly T[]): T => items[pick(0, items.length - 1)]!;
  const people = ['alice', 'bob', 'carol.x'];
  const tags = ['eu', 'us', 'path=/a b', '\u00fc', 's'];
  const keys: {
    key: string;
    apiId: string;
    keyId: string;
    externalId?: string | undefined;
    limited: boolean;
    enabled: boolean;
  }[] = [];
  const apis: string[] = [];
  const everyKey: string[] = [];
  let outcomes: Set<string>;

  async function addKey() {
    const limited = pick(0, 2) > 0;
    const externalId = oneOf([...people, undefined]);
    const made = await createKey({
      apiId: oneOf(apis),
      externalId,
      credits: { remaining: limited ? 300 : null },
      ratelimits: [{ name: 'requests', limit: 3, duration: 6 * hourMs, autoApply: true }],
      expires: pick(0, 5) === 0 ? clock.now + 5 * dayMs : undefined,
    });
    keys.push({ ...made, externalId, limited, enabled: true });
    everyKey.push(made.keyId);
  }

  async function change() {
    const place = pick(0, keys.length - 1);
    const one = keys[place]!;
    switch (pick(0, 6)) {
      case 0:
        one.enabled = !one.enabled;
        return ok('keys.updateKey', { keyId: one.keyId, enabled: one.enabled });
      case 1:
      case 2:
        one.externalId = oneOf([...people, undefined]);
        return ok('keys.updateKey', { keyId: one.keyId, externalId: one.externalId ?? null });
      case 3: {
        const identity = oneOf(people);
        if ((await call('identities.deleteIdentity', { identity })).status === 404) return;
        for (const other of keys) if (other.externalId === identity) other.externalId = undefined;
        if (pick(0, 1) === 0) await ok('identities.createIdentity', { externalId: identity });
        return;
      }
      case 4:
        keys.splice(place, 1);
        await ok('keys.deleteKey', { keyId: one.keyId, permanent: pick(0, 1) === 0 });
        return addKey();
      case 5: {
        const { keyId, key } = await ok('keys.rerollKey', { keyId: one.keyId, expiration: pick(0, 1) * hourMs });
        keys.push({ ...one, keyId, key });
        everyKey.push(keyId);
        return;
      }
      default:
        return ok('keys.updateCredits', { keyId: one.keyId, operation: 'set', value: one.limited ? 20 : null });
    }
  }

  function advance() {
    const how = pick(0, 99);
    if (how < 60) clock.advance(pick(0, 10 * 60_000));
    else if (how < 85) clock.advance(pick(0, 3 * hourMs));
    else if (how < 92) clock.advance(-pick(0, 2 * hourMs));
    else if (how < 99) clock.advance(pick(0, 2 * dayMs));
    else clock.advance(pick(5, 15) * dayMs);
  }

  beforeAll(async () => {
    for (const name of ['first', 'second', 'third']) apis.push((await ok('apis.createApi', { name })).apiId);
    for (let index = 0; index < 6; index++) await addKey();
    // Every API has a key that was used.
    for (const apiId of apis) await verify(await createKey({ apiId }));
    // Each outcome occurs in every history.
    const apiId = apis[0]!;
    for (const [index, example] of Object.values(outcomeExamples).entries()) {
      const made = await createKey({ apiId, ...example.key });
      const input = { ...example.request, tags: tags.slice(0, index % 3) };
      for (let times = 0; times < 2; times++) await verify({ ...made, limited: false }, input);
    }
    const start = clock.now;
    // Well within the retention of ninety days.
    for (let step = 0; step < 700 && clock.now < start + 70 * dayMs; step++) {
      advance();
      if (pick(0, 9) === 0) while (await tollgate.store.sweep.rollUp(tollgate.workspaceId));
      if (pick(0, 7) === 0) await change();
      for (let times = pick(0, 4); times > 0; times--) {
        await verify(oneOf(keys), {
          ...(pick(0, 1) && { tags: Array.from({ length: pick(0, 3) }, () => oneOf(tags)) }),
          ...(pick(0, 2) === 0 && { credits: { cost: pick(0, 30) } }),
          ...(pick(0, 9) === 0 && { permissions: 'nobody.has.this' }),
        });
      }
    }
    outcomes = new Set(log.map(({ outcome }) => outcome));
  });

  /** A period that ends now, with a granularity that gives not too many buckets. */
  const period = (granularity: string): Partial<Query> => {
    const end = clock.now + 1 - (pick(0, 1) && pick(0, 40 * dayMs));
    const hours = { hour: 24 * 41, day: 24 * 90, month: 24 * 120 }[granularity]!;
    return { end, start: end - pick(0, hours) * hourMs + pick(0, hourMs - 1) - hourMs };
  };

  test(`contain every outcome, and identities and tags of every kind (seed ${seed})`, () => {
    expect([...outcomes].sort()).toEqual(allOutcomes.filter((outcome) => outcome !== 'NOT_FOUND').sort());
    expect(log.length).toBeGreaterThan(100);
  });

  const groups: Group[] = ['apiId', 'keyId', 'externalId', 'outcome', 'tag'];
  const everyGroupBy = Array.from({ length: 32 }, (_, bits) => groups.filter((_group, bit) => bits & (1 << bit)));
  const someGroupBy = everyGroupBy.filter(({ length }, at) => isThorough || length === 1 || at % 4 === seed % 4);

  test.each(someGroupBy.map((groupBy) => ({ groupBy })))(
    `grouped by $groupBy, with all filters (seed ${seed})`,
    async ({ groupBy }) => {
      const wide: Query = { start: clock.now - 89 * dayMs, end: clock.now + 1, granularity: 'day' };
      expect(await expectTally(log, { ...wide, groupBy: [...groupBy] })).toBeGreaterThan(0);
      for (const granularity of ['hour', 'day', 'month'] as const) {
        const filters: Partial<Query> = {
          ...(pick(0, 2) === 0 && { apiId: oneOf(apis) }),
          ...(pick(0, 3) === 0 && { keyId: oneOf(everyKey) }),
          ...(pick(0, 3) === 0 && { keyIds: [oneOf(everyKey), oneOf(everyKey), oneOf(everyKey)] }),
          ...(pick(0, 2) === 0 && { externalId: oneOf(people) }),
          ...(pick(0, 3) === 0 && { externalIds: [oneOf(people), oneOf(people), 'nobody'] }),
          ...(pick(0, 2) === 0 && { tag: oneOf(tags) }),
        };
        for (const filter of [{}, filters]) {
          await expectTally(log, { ...period(granularity), ...filter, granularity, groupBy: [...groupBy] });
        }
      }
    },
  );

  test(`each filter, alone and together (seed ${seed})`, async () => {
    let rows = 0;
    for (let bits = 0; bits < 64; bits++) {
      for (let round = 0; round < 4; round++) {
        const of = oneOf(log);
        const query: Query = {
          ...(bits & 1 && { apiId: of.apiId }),
          ...(bits & 2 && { keyId: of.keyId }),
          ...(bits & 4 && { externalId: of.externalId ?? oneOf(people) }),
          ...(bits & 8 && { tag: of.tags[0] ?? oneOf(tags) }),
          ...(bits & 16 && { keyIds: [of.keyId, oneOf(everyKey), of.keyId] }),
          ...(bits & 32 && { externalIds: [of.externalId ?? oneOf(people), 'nobody', oneOf(people)] }),
          start: of.time - pick(0, 20 * dayMs),
          end: of.time + pick(1, 20 * dayMs),
          granularity: oneOf(['hour', 'day', 'month']),
        };
        rows += await expectTally(log, query);
      }
    }
    expect(rows).toBeGreaterThanOrEqual(32);
  });

  test('a caller with a grant for one API gets and counts only its rows', async () => {
    const [mine, theirs] = apis as [string, string];
    const rootKey = await createRootKey([`api.${mine}.read_analytics`]);
    const seen = log.filter(({ apiId }) => apiId === mine);
    const wide: Query = { start: clock.now - 89 * dayMs, end: clock.now + 1, granularity: 'day' };
    for (const groupBy of everyGroupBy) {
      await expectTally(seen, { ...wide, groupBy: [...groupBy] }, rootKey);
      await expectTally([], { ...wide, groupBy: [...groupBy], apiId: theirs }, rootKey);
    }
    const another = log.find(({ apiId }) => apiId === theirs)!;
    await expectTally(seen, { ...wide, keyId: another.keyId }, rootKey);
    const both = await createRootKey([`api.${mine}.read_analytics`, `api.${theirs}.read_analytics`]);
    await expectTally(
      log.filter(({ apiId }) => apiId !== apis[2]),
      { ...wide, groupBy: ['apiId'] },
      both,
    );
  });
});

describe('analytics.getVerifications: single cases', () => {
  test('the default is the last 24 hours by hour and outcome', async () => {
    const { log, verify } = logger();
    const made = await createKey({ credits: { remaining: 100 } });
    clock.now = clock.now - (clock.now % hourMs) + 25 * hourMs + 1000;
    const key = { ...made, limited: true };
    for (const back of [25 * hourMs, 24 * hourMs, hourMs, 0]) {
      clock.advance(-back);
      await verify(key, { credits: { cost: 3 } });
      clock.advance(back);
    }
    const hour = clock.now - (clock.now % hourMs);
    expect(await ok('analytics.getVerifications', { apiId: made.apiId })).toEqual([
      { time: hour - 24 * hourMs, outcome: 'VALID', count: 1, spentCredits: 3 },
      { time: hour - hourMs, outcome: 'VALID', count: 1, spentCredits: 3 },
      { time: hour, outcome: 'VALID', count: 1, spentCredits: 3 },
    ]);
    await expectTally(log, { apiId: made.apiId });
  });

  test('a verification of an unknown key, or one refused with 4xx, is not counted', async () => {
    const { apiId, key } = await createKey();
    await ok('keys.verifyKey', { key: 'unknown' });
    expect((await call('keys.verifyKey', { key }, ['api.api_other.verify_key'])).data.code).toBe('NOT_FOUND');
    expect((await call('keys.verifyKey', { key, ratelimits: [{ name: 'nowhere' }] })).status).toBe(412);
    expect((await call('keys.verifyKey', { key, permissions: '(' })).status).toBe(400);
    expect(await ok('analytics.getVerifications', { apiId })).toEqual([]);
  });

  test('each of many concurrent verifications is counted', async () => {
    const { apiId } = await createKey();
    const keys = await Promise.all(
      Array.from({ length: 5 }, () => createKey({ apiId, externalId: 'crowd', credits: { remaining: 30 } })),
    );
    await Promise.all(
      Array.from({ length: 200 }, (_, index) =>
        ok('keys.verifyKey', { key: keys[index % 5]!.key, tags: ['crowd', `tag ${index % 3}`] }),
      ),
    );
    const rows = async (query: Query) =>
      (await ok('analytics.getVerifications', { apiId, granularity: 'day', ...query })).map(
        ({ time: _time, ...row }) => row,
      );
    const sums = [
      { outcome: 'VALID', count: 150, spentCredits: 150 },
      { outcome: 'USAGE_EXCEEDED', count: 50, spentCredits: 0 },
    ];
    for (const query of [{}, { externalId: 'crowd' }, { tag: 'crowd' }]) {
      expect(await rows(query)).toEqual(expect.arrayContaining(sums));
    }
    expect(await rows({ groupBy: ['keyId'] })).toEqual(
      expect.arrayContaining(keys.map(({ keyId }) => ({ keyId, count: 40, spentCredits: 30 }))),
    );
    expect(await rows({ groupBy: ['tag'], tag: 'tag 0' })).toMatchObject([{ tag: 'tag 0', count: 67 }]);
  });

  test('a key whose identity changes within the hour: each part is counted for the identity of that time', async () => {
    const { log, verify } = logger();
    const key: Parameters<typeof verify>[0] = await createKey({ externalId: 'before' });
    await verify({ ...key, externalId: 'before' });
    await ok('keys.updateKey', { keyId: key.keyId, externalId: 'after' });
    await verify({ ...key, externalId: 'after' });
    await verify({ ...key, externalId: 'after' });
    await ok('keys.updateKey', { keyId: key.keyId, externalId: null });
    await verify(key);
    await ok('keys.updateKey', { keyId: key.keyId, externalId: 'before' });
    await verify({ ...key, externalId: 'before' });
    await ok('identities.deleteIdentity', { identity: 'before' });
    await verify(key);
    for (const query of [
      { keyId: key.keyId },
      { apiId: key.apiId },
      { externalId: 'before' },
      { externalId: 'after' },
    ]) {
      await expectTally(log, { ...query, groupBy: ['externalId', 'outcome'] });
      await expectTally(log, query);
    }
    // Verifications without an identity are a row without the field.
    expect(await ok('analytics.getVerifications', { keyId: key.keyId, groupBy: ['externalId'] })).toContainEqual({
      time: clock.now - (clock.now % hourMs),
      count: 2,
      spentCredits: 0,
    });
  });

  test('a deleted key keeps its counts, a deleted API has none', async () => {
    const { log, verify } = logger();
    const { apiId } = await createKey();
    for (const permanent of [false, true]) {
      const key = {
        ...(await createKey({ apiId, externalId: 'leaver', credits: { remaining: 9 } })),
        externalId: 'leaver',
        limited: true,
      };
      await verify(key, { tags: ['last'] });
      clock.advance(hourMs);
      await verify(key);
      await ok('keys.deleteKey', { keyId: key.keyId, permanent });
      await tollgate.store.sweep.purge(tollgate.workspaceId);
      for (const query of [{ keyId: key.keyId }, { apiId }, { apiId, externalId: 'leaver' }, { apiId, tag: 'last' }]) {
        await expectTally(log, { ...query, groupBy: ['keyId', 'outcome'] });
      }
    }
    await ok('apis.deleteApi', { apiId });
    for (const query of [{ apiId }, { keyId: log[0]!.keyId }, { externalId: 'leaver' }]) {
      expect(await ok('analytics.getVerifications', query)).toEqual([]);
    }
  });

  test('an API counts no more tags than the setting allows, and continues with known ones', async () => {
    const { log, verify } = logger();
    const key = await createKey();
    const tags = Array.from({ length: testSettings.tagsMax + 15 }, (_, index) => `tag ${index}`);
    for (let first = 0; first < tags.length; first += 20) await verify(key, { tags: tags.slice(first, first + 20) });
    // The last call had fifteen tags beyond the limit. They are dropped in the order of the call.
    const counted = log.map((one) => ({
      ...one,
      tags: one.tags.filter((tag) => tags.indexOf(tag) < testSettings.tagsMax),
    }));
    await expectTally(counted, { apiId: key.apiId, groupBy: ['tag'] });
    await verify(key, { tags: ['tag 3', 'one more', 'tag 4', 'tag 3'] });
    counted.push({ ...log.at(-1)!, tags: ['tag 3', 'tag 4'] });
    await expectTally(counted, { apiId: key.apiId, groupBy: ['tag'] });
    // All verifications are counted, and another API has its own limit.
    await expectTally(log, { apiId: key.apiId });
    const other = logger();
    const otherKey = await createKey();
    await other.verify(otherKey, { tags: ['one more'] });
    await expectTally(other.log, { apiId: otherKey.apiId, groupBy: ['tag'] });
  });

  test('an API counts a limited number of bytes by tag per day; tags of this hour continue, with their credits', async () => {
    clock.now = (Math.floor(clock.now / dayMs) + 1) * dayMs + hourMs;
    const { apiId } = await ok('apis.createApi', { name: 'tagged' });
    const query = { apiId, start: clock.now - hourMs, end: clock.now + 1, groupBy: ['tag' as const] };
    const sums = async (isTagged = true) => {
      const rows = await ok('analytics.getVerifications', query);
      const some = rows.filter(({ tag }) => (tag !== undefined) === isTagged);
      const sum = (of: 'count' | 'spentCredits') => some.reduce((total, row) => total + row[of], 0);
      return [sum('count'), sum('spentCredits')];
    };
    // Two fields for each key and tag, of 3 + 24 + 1 + 255 + 512 bytes and 64 more, and two for what the tags repeat.
    const externalId = 'e'.repeat(255);
    const tags = Array.from({ length: 20 }, (_, index) => `${index}`.padEnd(512, 't'));
    const bytes = 2 * (3 + 24 + 1 + 255 + 64);
    const ofKey = 20 * (bytes + 2 * 512) + bytes;
    const room =
      20 * Math.floor(testSettings.tagBytesMax / ofKey) +
      Math.floor((testSettings.tagBytesMax % ofKey) / (bytes + 2 * 512));
    expect(room % 20).not.toBe(0);
    const first = await createKey({ apiId, externalId, credits: { remaining: 1000 } });
    const keys = [first];
    for (let counted = 0; counted < room + 40; counted += 20) {
      if (counted > 0) keys.push(await createKey({ apiId, externalId, credits: { remaining: 1000 } }));
      await ok('keys.verifyKey', { key: keys.at(-1)!.key, tags, credits: { cost: 3 } });
    }
    expect(await sums()).toEqual([room, 3 * room]);
    // Those of which no tag was counted.
    const untagged = keys.length - Math.ceil(room / 20);
    expect(await sums(false)).toEqual([untagged, 3 * untagged]);
    await ok('keys.verifyKey', { key: first.key, tags, credits: { cost: 4 } });
    expect(await sums()).toEqual([room + 20, 3 * room + 80]);
    expect(await sums(false)).toEqual([untagged, 3 * untagged]);
    // All verifications are counted, also by key.
    for (const groupBy of [[], ['keyId' as const]]) {
      const rows = await ok('analytics.getVerifications', { ...query, groupBy });
      expect(rows.reduce((total, { count }) => total + count, 0)).toBe(keys.length + 1);
    }
    const record = `tg:{${tollgate.workspaceId}}:ut:${apiId.slice(-8)}:${Math.floor(clock.now / dayMs)}`;
    const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
    expect(await redis.memory('USAGE', record, 'SAMPLES', 0)).toBeLessThan(1.25 * testSettings.tagBytesMax);
    await redis.quit();
    // The next day has its own limit.
    clock.advance(dayMs);
    await ok('keys.verifyKey', { key: keys.at(-1)!.key, tags: ['one'] });
    expect(await ok('analytics.getVerifications', { apiId, start: clock.now, groupBy: ['tag'] })).toMatchObject([
      { tag: 'one', count: 1 },
    ]);
  });

  test('unknown ids, and those of another workspace, give no rows', async () => {
    const key = await createKey({ externalId: 'ours' });
    await ok('keys.verifyKey', { key: key.key, tags: ['ours'] });
    const unknown = [
      { apiId: 'api_unknown' },
      { keyId: 'key_unknown' },
      { keyId: `key_${'1'.repeat(24)}` },
      { externalId: 'nobody' },
      { tag: 'nothing' },
      // The same key with another API, or with another key's externalId.
      { apiId: (await ok('apis.createApi', { name: 'other' })).apiId, keyId: key.keyId },
      { keyId: key.keyId, externalId: 'nobody' },
    ];
    for (const query of unknown) expect(await ok('analytics.getVerifications', query)).toEqual([]);
    const { rootKey } = await createWorkspace();
    for (const query of [{ apiId: key.apiId }, { keyId: key.keyId }, { externalId: 'ours' }, { tag: 'ours' }, {}]) {
      expect((await call('analytics.getVerifications', query, rootKey)).data).toEqual([]);
    }
  });

  test('a clock that steps back into the previous hour loses no counts', async () => {
    const { log, verify } = logger();
    const key = { ...(await createKey({ externalId: 'time.traveller' })), externalId: 'time.traveller' };
    await verify(key);
    clock.advance(-hourMs);
    await verify(key);
    clock.advance(hourMs);
    const start = clock.now;
    for (const query of [{ keyId: key.keyId }, { externalId: 'time.traveller' }, { apiId: key.apiId }]) {
      await expectTally(log, { ...query, start, end: start + 1, groupBy: ['keyId'] });
      await expectTally(log, { ...query, groupBy: ['keyId', 'externalId'] });
    }
  });

  test('counts of one hour do not leak into the next, to the millisecond', async () => {
    const { log, verify } = logger();
    const key = await createKey();
    clock.now += hourMs - (clock.now % hourMs) - 1;
    await verify(key);
    clock.advance(1);
    await verify(key);
    const turn = clock.now;
    for (const [start, end] of [
      [turn - hourMs, turn],
      [turn, turn + 1],
      [turn - 1, turn + 1],
      [turn - 1, turn],
    ] as const) {
      for (const query of [{ keyId: key.keyId }, { apiId: key.apiId }])
        await expectTally(log, { ...query, start, end });
    }
  });
});

describe('analytics.getVerifications: pages', () => {
  let apiId: string;
  const start = () => clock.now - 20 * dayMs;
  type Row = OutputOf<'analytics.getVerifications'>[number];
  const all = (query: Query) =>
    ok('analytics.getVerifications', { apiId, start: start(), granularity: 'day', ...query });
  const pagesOf = (query: Query) =>
    readPages((at) =>
      call('analytics.getVerifications', { apiId, start: start(), granularity: 'day', ...query, ...at }),
    );

  beforeAll(async () => {
    ({ apiId } = await ok('apis.createApi', { name: 'paged' }));
    const keys = await Promise.all(
      Array.from({ length: 7 }, (_, index) =>
        createKey({ apiId, externalId: `customer_${index % 3}`, credits: { remaining: 10 + index } }),
      ),
    );
    for (let day = 0; day < 12; day++) {
      clock.advance(dayMs);
      for (const [index, { key }] of keys.entries()) {
        for (let times = 0; times <= (index * day) % 4; times++) await ok('keys.verifyKey', { key });
      }
      if (day % 5 === 0) while (await tollgate.store.sweep.rollUp(tollgate.workspaceId));
    }
  });

  test.each(['time', 'count', 'spentCredits'] as const)(
    'ordered by %s: the rows of all pages are all rows',
    async (orderBy) => {
      const query: Query = { groupBy: ['keyId', 'outcome'], orderBy };
      const whole = await all({ ...query, orderBy: 'time' });
      const pages = await pagesOf({ ...query, limit: 9 });
      expect(pages.length).toBe(Math.ceil(whole.length / 9));
      expect(pages.slice(0, -1).every((page) => page.length === 9)).toBe(true);
      const rows: Row[] = pages.flat();
      expect(inOneOrder(rows)).toEqual(inOneOrder(whole));
      const numbers = rows.map((row) => (orderBy === 'time' ? -row.time : row[orderBy]));
      expect(numbers).toEqual(numbers.toSorted((a, b) => b - a));
      expect(await all({ ...query, ...(orderBy === 'time' && { limit: 1000 }) })).toEqual(rows);
    },
  );

  test('a total is one row for each group, from the start of the period', async () => {
    const rows = await all({ granularity: 'total', groupBy: ['externalId'], orderBy: 'count' });
    const days = await all({ groupBy: ['externalId'] });
    expect(rows.map(({ externalId }) => externalId).sort()).toEqual(['customer_0', 'customer_1', 'customer_2']);
    for (const { externalId, count, spentCredits, time } of rows) {
      const of = days.filter((row) => row.externalId === externalId);
      expect(count).toBe(of.reduce((sum, row) => sum + row.count, 0));
      expect(spentCredits).toBe(of.reduce((sum, row) => sum + row.spentCredits, 0));
      // A day that is kept as one sum is counted whole.
      expect(time).toBe(Math.floor(start() / dayMs) * dayMs);
    }
    const whole = await all({ granularity: 'total' });
    expect(whole[0]!.time).toBe(start() - (start() % hourMs));
  });

  test('the cursor continues the period of the first page', async () => {
    const query: Query = { apiId, granularity: 'total', groupBy: ['keyId'], limit: 4 };
    const first = await call('analytics.getVerifications', query);
    clock.advance(2 * dayMs);
    const second = await call('analytics.getVerifications', { ...query, cursor: first.pagination.cursor! });
    clock.advance(-2 * dayMs);
    expect([...first.data, ...second.data]).toHaveLength(7);
    expect(second.data[0]!.time).toBe(first.data[0]!.time);
    // The cursor is of this query only, in any order of its fields.
    const other = { ...query, groupBy: ['keyId' as const, 'outcome' as const], cursor: first.pagination.cursor! };
    expect(await call('analytics.getVerifications', other)).toMatchObject({ status: 400, code: 'invalid_input' });
  });
});

describe('analytics.getVerifications: 400', () => {
  test.each(['SELECT 1', ''])('an SQL query is refused with the fields to use: %j', async (query) => {
    const { status, code, error } = await call('analytics.getVerifications', { query });
    expect({ status, code }).toEqual({ status: 400, code: 'invalid_input' });
    expect(error.errors).toEqual([
      { location: 'body.query', message: expect.any(String), fix: expect.stringContaining('groupBy') },
    ]);
  });

  const day = Date.UTC(2026, 0, 1);
  test.each<[Query, boolean]>([
    [{ start: day, end: day + 1000 * hourMs }, true],
    [{ start: day, end: day + 1000 * hourMs + 1 }, false],
    [{ start: day, end: day + 1000 * dayMs, granularity: 'day' }, true],
    [{ start: day, end: day + 1000 * dayMs + 1, granularity: 'day' }, false],
    // A thousand days, of which the first and the last are incomplete, are one bucket more.
    [{ start: day + dayMs / 2, end: day + dayMs / 2 + 1000 * dayMs, granularity: 'day' }, false],
    [{ start: Date.UTC(2000, 0, 1), end: Date.UTC(2083, 4, 1), granularity: 'month' }, true],
    [{ start: Date.UTC(2000, 0, 1), end: Date.UTC(2083, 4, 1) + 1, granularity: 'month' }, false],
    [{ start: 0, end: 4_102_444_800_000, granularity: 'month' }, false],
    [{ start: day, end: day }, true],
    [{ start: day + 1, end: day }, false],
  ])('at most a thousand buckets, the end after the start: %j', async (query, isAccepted) => {
    const { status, code } = await call('analytics.getVerifications', query);
    expect({ status, code }).toEqual(
      isAccepted ? { status: 200, code: undefined } : { status: 400, code: 'invalid_input' },
    );
  });

  test.each([{ granularity: 'week' }, { groupBy: ['key'] }, { groupBy: 'outcome' }, { start: -1 }, { tag: '' }])(
    '%j',
    async (wrong) => {
      expect(await call('analytics.getVerifications', wrong as never)).toMatchObject({ status: 400 });
    },
  );
});

describe('analytics.getVerifications: a long key history', () => {
  const keysCount = 140;
  const hoursCount = 28 * 24;
  const end = Date.UTC(2026, 5, 29);
  const start = end - hoursCount * hourMs;
  let apiId: string;
  let keyIds: string[];
  beforeAll(async () => {
    clock.now = end;
    ({ apiId } = await ok('apis.createApi', { name: 'long history' }));
    keyIds = (await Promise.all(Array.from({ length: keysCount }, () => createKey({ apiId })))).map(
      ({ keyId }) => keyId,
    );
    const hours = Array.from({ length: hoursCount }, (_, index) => start / hourMs + index);
    const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
    for (const keyId of keyIds) {
      const { name, log } = keyLogOf(tollgate.workspaceId, keyId, hours);
      await redis.set(name, log);
    }
    await addUsedKeys(redis, tollgate.workspaceId, keyIds, hours);
    await redis.quit();
  });

  test('is read completely, by several scripts', async () => {
    const rows = await ok('analytics.getVerifications', {
      apiId,
      start,
      end,
      granularity: 'month',
      groupBy: ['keyId'],
    });
    const of = { time: Date.UTC(2026, 5, 1), count: 4 * hoursCount, spentCredits: 3 * hoursCount };
    expect(rows).toHaveLength(keysCount);
    expect(rows).toEqual(expect.arrayContaining(keyIds.map((keyId) => ({ ...of, keyId }))));
  });

  test('is refused when it gives more rows than a response may have', async () => {
    const query = { apiId, start, end, granularity: 'hour' as const };
    const few = await ok('analytics.getVerifications', { ...query, groupBy: ['externalId', 'outcome'] });
    // Two outcomes of each hour of the last days, and of each day before.
    const { usageHourlyDays } = testSettings;
    const bucketsCount = 24 * usageHourlyDays + hoursCount / 24 - usageHourlyDays;
    expect(few).toHaveLength(2 * bucketsCount);
    const { status, code, data } = await call('analytics.getVerifications', {
      ...query,
      groupBy: ['keyId', 'outcome'],
    });
    expect({ status, code, data }).toEqual({ status: 400, code: 'invalid_input', data: undefined });
    expect(2 * keysCount * bucketsCount).toBeGreaterThan(50_000);
  });
});
