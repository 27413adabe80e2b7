// What is ranked first has the largest sum: compares with sums of getVerifications and getRatelimits, and with what was
// sent.

import { beforeAll, describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs, type InputOf, type OutputOf } from '../../support/harness.ts';
import { random, seed } from '../../support/random.ts';
import { hasVolume } from '../../support/testIf.ts';

const tollgate = harness();
const { call, ok, clock, createKey, createRootKey } = tollgate;
type Query = InputOf<'analytics.getTop'>;
type Ranked = OutputOf<'analytics.getTop'>['top'][number];

const apiIds: string[] = [];
let start: number;

beforeAll(async () => {
  const pick = random(seed);
  for (const name of ['first', 'second']) apiIds.push((await ok('apis.createApi', { name })).apiId);
  const keys = await Promise.all(
    Array.from({ length: 15 }, (_, index) =>
      createKey({
        apiId: apiIds[index % 2]!,
        externalId: index % 5 === 4 ? undefined : `customer_${index % 5}`,
        credits: { remaining: index % 3 === 0 ? null : 40 },
      }),
    ),
  );
  start = clock.now;
  for (let day = 0; day < 20; day++) {
    for (let times = 0; times < 20; times++) {
      const { key } = keys[Math.floor(Math.sqrt(pick(0, 224)))]!;
      await ok('keys.verifyKey', {
        key,
        tags: [`path=/${pick(0, 5)}`],
        ...(pick(0, 3) === 0 && { permissions: 'not.held' }),
        credits: { cost: pick(0, 3) },
      });
      const namespace = `namespace ${pick(0, 2)}`;
      await ok('ratelimits.limit', { namespace, identifier: `user ${pick(0, 6)}`, limit: 3, duration: dayMs });
      clock.advance(pick(0, 2 * hourMs));
    }
    if (pick(0, 2) === 0) while (await tollgate.store.sweep.rollUp(tollgate.workspaceId));
  }
});

const names = { keys: 'keyId', identities: 'externalId', apis: 'apiId', tags: 'tag' } as const;

/** The ranking by the rows of another operation. */
async function expected(of: keyof typeof names, by: 'count' | 'refused' | 'spentCredits', filter: Partial<Query>) {
  const group = names[of];
  const rows = await ok('analytics.getVerifications', {
    ...filter,
    start,
    granularity: 'total',
    groupBy: ['apiId', 'outcome', ...(group === 'apiId' ? [] : [group])],
  } as never);
  const sums = new Map<string, { count: number; refused: number; spentCredits: number }>();
  for (const row of rows) {
    const name = row[group];
    if (name === undefined) continue;
    const sum = sums.get(name) ?? { count: 0, refused: 0, spentCredits: 0 };
    sum.count += row.count;
    if (row.outcome !== 'VALID') sum.refused += row.count;
    sum.spentCredits += row.spentCredits;
    sums.set(name, sum);
  }
  return [...sums]
    .filter(([, sum]) => sum[by] > 0)
    .sort(([a, one], [b, other]) => other[by] - one[by] || (a < b ? -1 : 1))
    .map(([name, sum]) => ({ [group]: name, ...sum }));
}

/** Those that are in no row of tags, which have one tag at most in this file. */
async function withoutTag(filter: object) {
  const query = { ...filter, start, granularity: 'total' as const };
  const untagged = { count: 0, refused: 0, spentCredits: 0 };
  for (const [sign, groupBy] of [
    [1, ['outcome', 'apiId', 'keyId', 'externalId']],
    [-1, ['outcome', 'tag']],
  ] as const) {
    for (const row of await ok('analytics.getVerifications', { ...query, groupBy: [...groupBy] })) {
      if (sign < 0 && row.tag === undefined) continue;
      untagged.count += sign * row.count;
      if (row.outcome !== 'VALID') untagged.refused += sign * row.count;
      untagged.spentCredits += sign * row.spentCredits;
    }
  }
  return untagged;
}

const withoutApi = (of: string) => (row: Ranked) => {
  const { apiId, ...rest } = row;
  return of === 'apis' ? row : rest;
};

describe.each(['keys', 'identities', 'apis', 'tags'] as const)('the top %s', (of) => {
  test.each(hasVolume ? (['count', 'refused', 'spentCredits'] as const) : (['count'] as const))(
    `by %s (seed ${seed})`,
    async (by) => {
      for (const filter of [{}, { apiId: apiIds[1]! }, { externalId: 'customer_2' }, { tag: 'path=/3' }]) {
        const ranking = await expected(of, by, filter);
        const { top, untagged } = await ok('analytics.getTop', { ...filter, of, by, start, limit: 100 });
        expect(untagged).toEqual(of === 'tags' && !('tag' in filter) ? await withoutTag(filter) : undefined);
        expect(top.map(withoutApi(of)), JSON.stringify(filter)).toEqual(ranking);
        const few = await ok('analytics.getTop', { ...filter, of, by, start, limit: 2 });
        expect(few.top).toEqual(top.slice(0, 2));
      }
      expect((await expected(of, by, {})).length).toBeGreaterThan(1);
    },
  );
});

describe('limit checks', () => {
  const numbers = async (identifier: string | undefined) => {
    const rows = await ok('analytics.getRatelimits', { start, granularity: 'total', identifier });
    return new Map(
      rows.map(({ namespace, passed, blocked }) => [namespace, { count: passed + blocked, refused: blocked }]),
    );
  };

  test('the top namespaces', async () => {
    const sums = await numbers(undefined);
    const { top } = await ok('analytics.getTop', { of: 'namespaces', start });
    expect(new Map(top.map(({ namespace, ...rest }) => [namespace, rest]))).toEqual(sums);
    expect(top.map(({ count }) => count)).toEqual(top.map(({ count }) => count).toSorted((a, b) => b - a));
  });

  test('the top identifiers, of all namespaces and of one', async () => {
    const { top } = await ok('analytics.getTop', { of: 'identifiers', by: 'refused', start, limit: 100 });
    expect(top.length).toBeGreaterThan(5);
    expect(top.map(({ refused }) => refused)).toEqual(top.map(({ refused }) => refused).toSorted((a, b) => b - a));
    for (const { namespace, identifier, count, refused } of top) {
      expect((await numbers(identifier)).get(namespace!)).toEqual({ count, refused });
    }
    const namespace = top[0]!.namespace!;
    const ofOne = await ok('analytics.getTop', { of: 'identifiers', by: 'refused', start, limit: 100, namespace });
    expect(ofOne.top).toEqual(top.filter((row) => row.namespace === namespace));
  });
});

describe('plans', () => {
  test.each([['count'], ['refused'], ['spentCredits']] as const)('the top plans by %s', async (by) => {
    const { of } = await tollgate.openWorkspace();
    const planIds = ['free', 'pro', 'scale', 'unused'];
    for (const planId of planIds) await of('plans.createPlan', { planId });
    const apis = [await of('apis.createApi', { name: 'first' }), await of('apis.createApi', { name: 'second' })];
    const pick = random(seed);
    const customers = Array.from({ length: 12 }, (_, at) => `customer_${at}`);
    const planOf = new Map<string, string>();
    for (const externalId of customers) {
      const planId = planIds[pick(0, 2)]!;
      if (pick(0, 5) > 0) planOf.set(externalId, planId);
      await of('identities.createIdentity', { externalId, ...(planOf.has(externalId) && { planId }) });
    }
    // A key with a plan of its own, and one without a customer, count for no plan.
    for (const input of [...customers.map((externalId) => ({ externalId })), { planId: 'scale' }, {}]) {
      const { apiId } = apis[pick(0, 1)]!;
      const { key } = await of('keys.createKey', { apiId, ...input, credits: { remaining: 1000 } });
      for (let times = pick(1, 6); times > 0; times--)
        await of('keys.verifyKey', {
          key,
          tags: [`path=/${pick(0, 1)}`],
          ...(pick(0, 2) === 0 && { permissions: 'not.held' }),
          credits: { cost: pick(0, 3) },
        });
    }
    const since = clock.now - hourMs;
    for (const filter of [{}, { apiId: apis[0]!.apiId }, { tag: 'path=/1' }, { externalId: 'customer_3' }]) {
      const query = { ...filter, by, start: since, limit: 100 };
      const { top: byCustomer } = await of('analytics.getTop', { ...query, of: 'identities' });
      expect(byCustomer.map(({ externalId, planId }) => [externalId, planId])).toEqual(
        byCustomer.map(({ externalId }) => [externalId, planOf.get(externalId!)]),
      );
      const all = (await of('analytics.getTop', { ...query, by: 'count', of: 'identities' })).top;
      const sums = planIds.map((planId) => {
        const theirs = all.filter((row) => row.planId === planId);
        const sumOf = (name: 'count' | 'refused' | 'spentCredits') => theirs.reduce((sum, row) => sum + row[name]!, 0);
        return { planId, count: sumOf('count'), refused: sumOf('refused'), spentCredits: sumOf('spentCredits') };
      });
      const expected = sums
        .filter((row) => row[by] > 0)
        .sort((a, b) => b[by] - a[by] || (a.planId < b.planId ? -1 : 1));
      const { top } = await of('analytics.getTop', { ...query, of: 'plans' });
      expect(top, JSON.stringify(filter)).toEqual(expected);
      expect((await of('analytics.getTop', { ...query, of: 'plans', limit: 1 })).top).toEqual(expected.slice(0, 1));
    }
    expect((await of('analytics.getTop', { of: 'plans', start: since })).top.length).toBeGreaterThan(1);
    const { top: byKey } = await of('analytics.getTop', { of: 'keys', start: since, limit: 100 });
    expect(new Set(byKey.map(({ planId }) => planId))).toEqual(new Set([undefined, 'scale']));
  });

  test('a row has the plan of now, also one of a ranking that is kept', async () => {
    const { of } = await tollgate.openWorkspace();
    for (const planId of ['free', 'pro']) await of('plans.createPlan', { planId });
    const { apiId } = await of('apis.createApi', { name: 'first' });
    const { key } = await of('keys.createKey', { apiId, externalId: 'ada' });
    await of('keys.verifyKey', { key });
    for (const planId of ['free', null, 'pro']) {
      await of('identities.updateIdentity', { identity: 'ada', planId });
      const row = { externalId: 'ada', count: 1, refused: 0, spentCredits: 0, ...(planId && { planId }) };
      for (let times = 0; times < 2; times++)
        expect((await of('analytics.getTop', { of: 'identities' })).top).toEqual([row]);
      expect((await of('analytics.getTop', { of: 'plans' })).top.map((top) => top.planId)).toEqual(
        planId ? [planId] : [],
      );
    }
  });
});

test('the period that was counted is stated: days that are kept as one sum are whole', async () => {
  const hour = (time: number) => Math.floor(time / hourMs) * hourMs;
  const byKey = await ok('analytics.getTop', { of: 'keys', start });
  expect(byKey).toMatchObject({ start: Math.floor(start / dayMs) * dayMs, end: hour(clock.now) + hourMs });
  const byApi = await ok('analytics.getTop', { of: 'apis', start });
  expect(byApi).toMatchObject({ start: hour(start), end: hour(clock.now) + hourMs });
  const standard = await ok('analytics.getTop', { of: 'keys' });
  expect(standard.end - standard.start).toBe(dayMs + hourMs);
});

test('a caller sees only what its grants cover', async () => {
  const some = await createRootKey([`api.${apiIds[0]!}.read_analytics`]);
  const { data } = await call('analytics.getTop', { of: 'keys', start, limit: 100 }, some);
  expect(data.top.length).toBeGreaterThan(0);
  expect(new Set(data.top.map(({ apiId }) => apiId))).toEqual(new Set([apiIds[0]]));
  for (const of of ['namespaces', 'identifiers'] as const) {
    expect(await call('analytics.getTop', { of }, some)).toMatchObject({
      status: 403,
      code: 'insufficient_permissions',
    });
  }
});

test.each([
  { of: 'namespaces', apiId: 'api_1' },
  { of: 'identifiers', tag: 'a' },
  { of: 'namespaces', by: 'spentCredits' },
  { of: 'keys', namespace: 'n' },
  { of: 'plans', namespace: 'n' },
  { of: 'customers' },
  { of: 'keys', limit: 101 },
  {},
])('400: %j', async (query) => {
  expect(await call('analytics.getTop', query as never)).toMatchObject({ status: 400, code: 'invalid_input' });
});
