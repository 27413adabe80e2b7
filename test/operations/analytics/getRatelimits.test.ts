// Every limit check is counted once: compares the counts with a simple tally of all responses.

import { beforeAll, describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs, type InputOf, testSettings } from '../../support/harness.ts';
import { random, seed } from '../../support/random.ts';

const tollgate = harness();
const { call, ok, clock, createRootKey, createWorkspace } = tollgate;
type Query = InputOf<'analytics.getRatelimits'>;

interface Check {
  time: number;
  namespace: string;
  identifier: string;
  passed: boolean;
}

const bucketOf = (time: number, granularity: string): number => {
  const date = new Date(time);
  if (granularity === 'hour') return time - (time % hourMs);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), granularity === 'day' ? date.getUTCDate() : 1);
};

function tally(log: readonly Check[], query: Query) {
  const { granularity = 'hour', end = clock.now + 1 } = query;
  const start = query.start ?? end - dayMs;
  const rows = new Map<
    string,
    { time: number; granularity?: 'day'; namespace: string; identifier?: string; passed: number; blocked: number }
  >();
  const from = Math.floor(start / hourMs) * hourMs;
  const to = Math.ceil(end / hourMs) * hourMs;
  // Counts of namespaces are kept by hour, those of identifiers by day after some days.
  const hourlyFrom = (Math.floor(clock.now / dayMs) - testSettings.usageHourlyDays) * dayMs;
  for (const check of log) {
    const isOfDay = query.identifier !== undefined && check.time < hourlyFrom;
    const counted = isOfDay ? Math.floor(check.time / dayMs) * dayMs : check.time;
    if (isOfDay ? counted + dayMs <= from || counted >= to : counted < from || counted >= to) continue;
    if (query.namespace !== undefined && check.namespace !== query.namespace) continue;
    if (query.identifier !== undefined && check.identifier !== query.identifier) continue;
    const time = bucketOf(counted, granularity);
    const name = `${time} ${check.namespace}`;
    const { namespace, identifier } = check;
    const row = rows.get(name) ?? {
      time,
      ...(isOfDay && granularity === 'hour' && { granularity: 'day' as const }),
      namespace,
      ...(query.identifier !== undefined && { identifier }),
      passed: 0,
      blocked: 0,
    };
    row[check.passed ? 'passed' : 'blocked']++;
    rows.set(name, row);
  }
  return [...rows.values()];
}

const inOneOrder = <Row extends { time: number; namespace: string }>(rows: readonly Row[]) =>
  rows.toSorted((a, b) => a.time - b.time || (a.namespace < b.namespace ? -1 : 1));

async function expectTally(log: readonly Check[], query: Query, as?: string) {
  const { status, data } = await call('analytics.getRatelimits', query, as);
  expect(status).toBe(200);
  expect(inOneOrder(data), JSON.stringify(query)).toEqual(inOneOrder(tally(log, query)));
  expect(data.map(({ time }) => time)).toEqual(data.map(({ time }) => time).sort((a, b) => a - b));
  return data.length;
}

const log: Check[] = [];
const pick = random(seed);
const oneOf = <T>(items: readonly T[]): T => items[pick(0, items.length - 1)]!;
const namespaces = ['email', 'sms', 'p', '\u{1f511}'];
const identifiers = ['alice', 'bob', 'p', '00palice', 'b:', '\u00fc'];
const idOf = new Map<string, string>();

beforeAll(async () => {
  for (const namespace of namespaces) {
    await ok('ratelimits.setOverride', { namespace, identifier: 'blocked', limit: 0, duration: 1000 });
    const { namespaceId } = await ok('ratelimits.getOverride', { namespace, identifier: 'blocked' });
    idOf.set(namespace, namespaceId);
  }
  const check = () => ({
    namespace: oneOf(namespaces),
    identifier: oneOf([...identifiers, 'blocked']),
    limit: pick(1, 4),
    duration: hourMs,
    cost: pick(0, 2),
  });
  for (let step = 0; step < 500; step++) {
    const how = pick(0, 99);
    if (how < 70) clock.advance(pick(0, 20 * 60_000));
    else if (how < 90) clock.advance(pick(0, 5 * hourMs));
    else clock.advance(pick(0, dayMs));
    if (how > 90) while (await tollgate.store.sweep.rollUp(tollgate.workspaceId));
    const time = clock.now;
    if (pick(0, 2) > 0) {
      const one = check();
      // Its name and its id mean the same namespace.
      const named = { ...one, namespace: pick(0, 1) ? one.namespace : idOf.get(one.namespace)! };
      const { success } = await ok('ratelimits.limit', named);
      log.push({ time, namespace: one.namespace, identifier: one.identifier, passed: success });
    } else {
      // All checks of a call pass, or all count as blocked.
      const some = Array.from({ length: pick(1, 4) }, check);
      const { passed } = await ok('ratelimits.multiLimit', some);
      for (const { namespace, identifier } of some) log.push({ time, namespace, identifier, passed });
    }
  }
});

describe(`analytics.getRatelimits: random histories (seed ${seed})`, () => {
  const period = (granularity: string): Query => {
    const end = clock.now + 1 - (pick(0, 1) && pick(0, 20 * dayMs));
    const hours = granularity === 'hour' ? 980 : 24 * 60;
    return { end, start: end - pick(0, hours) * hourMs - pick(0, hourMs) };
  };

  test.each(['hour', 'day', 'month'] as const)(
    'by %s: all, by namespace, by identifier, by both',
    async (granularity) => {
      let rows = 0;
      for (let round = 0; round < 10; round++) {
        const [namespace, identifier] = [oneOf(namespaces), oneOf([...identifiers, 'blocked'])];
        for (const filter of [{}, { namespace }, { identifier }, { namespace, identifier }]) {
          rows += await expectTally(log, { ...period(granularity), ...filter, granularity });
        }
      }
      expect(rows).toBeGreaterThan(10);
    },
  );

  test('the default is the last 24 hours by hour', async () => {
    await ok('ratelimits.limit', { namespace: 'email', identifier: 'last', limit: 1, duration: 1000 });
    log.push({ time: clock.now, namespace: 'email', identifier: 'last', passed: true });
    expect(await expectTally(log, {})).toBeGreaterThan(0);
    expect(await expectTally(log, { namespace: 'email', identifier: 'last' })).toBe(1);
  });

  test('a namespace given by its id is returned by its name', async () => {
    const query: Query = { start: clock.now - 30 * dayMs, end: clock.now + 1, granularity: 'month' };
    const byId = await ok('analytics.getRatelimits', { ...query, namespace: idOf.get('sms')! });
    expect(byId).toEqual(await ok('analytics.getRatelimits', { ...query, namespace: 'sms' }));
    expect(new Set(byId.map(({ namespace }) => namespace))).toEqual(new Set(['sms']));
  });

  test('a caller with grants for some namespaces gets only their rows', async () => {
    const rootKey = await createRootKey(['email', 'p'].map((name) => `ratelimit.${idOf.get(name)}.read_analytics`));
    const seen = log.filter(({ namespace }) => namespace === 'email' || namespace === 'p');
    const query: Query = { start: clock.now - 60 * dayMs, end: clock.now + 1, granularity: 'day' };
    for (const identifier of [undefined, ...identifiers]) {
      for (const namespace of [undefined, ...namespaces]) {
        const filter = {
          ...(namespace !== undefined && { namespace }),
          ...(identifier !== undefined && { identifier }),
        };
        await expectTally(seen, { ...query, ...filter }, rootKey);
      }
    }
    expect((await call('analytics.getRatelimits', { ...query, namespace: idOf.get('sms')! }, rootKey)).data).toEqual(
      [],
    );
  });
});

test('analytics.getRatelimits: each of many concurrent checks is counted', async () => {
  const check = { namespace: 'crowd', identifier: 'a', limit: 30, duration: hourMs };
  await Promise.all(Array.from({ length: 100 }, () => ok('ratelimits.limit', check)));
  const time = clock.now - (clock.now % hourMs);
  expect(await ok('analytics.getRatelimits', { namespace: 'crowd' })).toEqual([
    { time, namespace: 'crowd', passed: 30, blocked: 70 },
  ]);
});

test('analytics.getRatelimits: a check refused with 4xx is not counted', async () => {
  const check = { namespace: 'refused', identifier: 'a', limit: 1, duration: 1000 };
  await ok('ratelimits.limit', check);
  await call('ratelimits.limit', check, ['ratelimit.rlns_other.limit']);
  await call('ratelimits.multiLimit', [check, { ...check, namespace: 'rlns_unknown' }]);
  await call('ratelimits.limit', { ...check, limit: 0 });
  expect(await ok('analytics.getRatelimits', { namespace: 'refused' })).toMatchObject([{ passed: 1, blocked: 0 }]);
});

test('analytics.getRatelimits: unknown names, and those of another workspace, give no rows', async () => {
  await ok('ratelimits.limit', { namespace: 'ours', identifier: 'a', limit: 1, duration: 1000 });
  for (const query of [
    { namespace: 'nowhere' },
    { namespace: 'rlns_unknown' },
    { namespace: 'ours', identifier: 'b' },
  ]) {
    expect(await ok('analytics.getRatelimits', query)).toEqual([]);
  }
  const { rootKey } = await createWorkspace();
  for (const query of [{}, { namespace: 'ours' }, { identifier: 'a' }, { namespace: idOf.get('email')! }]) {
    expect((await call('analytics.getRatelimits', query, rootKey)).data).toEqual([]);
  }
});

describe('analytics.getRatelimits: 400', () => {
  test('an SQL query is refused with the fields to use', async () => {
    const refused = await call('analytics.getRatelimits', { query: 'SELECT 1' });
    expect(refused).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(refused.error.errors).toEqual([
      { location: 'body.query', message: expect.any(String), fix: expect.stringContaining('namespace') },
    ]);
  });

  test.each([
    { start: 0, end: 1000 * hourMs + 1 },
    { start: 2, end: 1 },
    { granularity: 'week' },
    { namespace: '' },
    { identifier: '' },
    { groupBy: ['namespace'] },
  ])('%j', async (wrong) => {
    expect(await call('analytics.getRatelimits', wrong as never)).toMatchObject({ status: 400, code: 'invalid_input' });
  });
});

describe('analytics.getRatelimits: the limit of identifiers per namespace and day', () => {
  const { identifiersMax } = testSettings;
  const checks = (namespace: string, from: number, count: number) =>
    Array.from({ length: count }, (_, index) => ({
      namespace,
      identifier: `i${from + index}`,
      limit: 5,
      duration: hourMs,
    }));
  const countOf = async (identifier?: string) => {
    const query = { namespace: 'many', identifier, start: clock.now - dayMs, end: clock.now + 1 };
    const rows = await ok('analytics.getRatelimits', { ...query, granularity: 'day' });
    return rows.reduce((sum, { passed, blocked }) => sum + passed + blocked, 0);
  };

  test('identifiers beyond the limit are counted for the namespace only, and are still rate limited', async () => {
    clock.now = (Math.floor(clock.now / dayMs) + 40) * dayMs + hourMs;
    for (let from = 0; from < identifiersMax - 1; from += 99) {
      await ok('ratelimits.multiLimit', checks('many', from, Math.min(99, identifiersMax - 1 - from)));
    }
    // One of these is counted separately, in the same batch as others that are not.
    const last = checks('many', identifiersMax - 1, 1)[0]!;
    await ok('ratelimits.limit', last);
    const beyond = checks('many', identifiersMax, 3);
    for (let time = 0; time < 6; time++) {
      const answers = await Promise.all(beyond.map((check) => ok('ratelimits.limit', check)));
      expect(answers.map(({ success }) => success)).toEqual(Array(3).fill(time < 5));
    }
    // Passed and blocked in one batch.
    const both = { ...beyond[0]!, identifier: 'both', limit: 1 };
    await Promise.all([ok('ratelimits.limit', both), ok('ratelimits.limit', both)]);
    expect(await countOf('both')).toBe(0);
    expect(await countOf()).toBe(identifiersMax + 20);
    expect(await countOf(last.identifier)).toBe(1);
    for (const { identifier } of beyond) expect(await countOf(identifier)).toBe(0);

    // Identifiers that are counted separately are so in every hour of the day, passed and blocked.
    clock.advance(hourMs);
    for (let time = 0; time < 6; time++) await ok('ratelimits.limit', last);
    await ok('ratelimits.limit', beyond[0]!);
    expect(await countOf(last.identifier)).toBe(7);
    expect(await countOf(beyond[0]!.identifier)).toBe(0);
    // Another namespace, and another day, have their own limit.
    await ok('ratelimits.limit', { ...beyond[0]!, namespace: 'other' });
    expect(await ok('analytics.getRatelimits', { namespace: 'other', identifier: beyond[0]!.identifier })).toHaveLength(
      1,
    );
    clock.advance(dayMs);
    await ok('ratelimits.limit', beyond[0]!);
    expect(await countOf(beyond[0]!.identifier)).toBe(1);
  });
});
