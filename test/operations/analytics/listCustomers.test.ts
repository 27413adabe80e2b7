// The sums are tested over random histories in test/usage/sums.test.ts.

import { afterAll, beforeAll, expect, test } from 'vitest';
import type { PriceRule, Prices } from '../../../src/domain/price.ts';
import { createPipeline } from '../../../src/http/pipeline.ts';
import { type OperationName, operations } from '../../../src/operations/index.ts';
import { chunks } from '../../../src/redis/chunks.ts';
import { connect } from '../../../src/redis/connection.ts';
import { apiKey, rollupQueueKey, usedKeysKey, workspaceKey } from '../../../src/redis/names.ts';
import { openStore, type Store } from '../../../src/store.ts';
import type { CustomersPage } from '../../../src/usage/customers.ts';
import {
  dayMs,
  harness,
  hourMs,
  type InputOf,
  jsonOf,
  logOfCauses,
  requestTo,
  testSettings,
} from '../../support/harness.ts';
import { observing } from '../../support/observer.ts';
import { ownRedis } from '../../support/ownRedis.ts';

// A redis-server of this file, because a test stops it for a while.
const own = ownRedis();
const tollgate = harness(() => own.url);
const { ok, call, send, clock, createKey } = tollgate;
const start = () => Math.floor(clock.now / dayMs) * dayMs;

async function use(key: string, times: number, more: object = {}) {
  for (let time = 0; time < times; time++) await ok('keys.verifyKey', { key, ...more } as never);
}

/** All pages. */
async function allOf(input: object) {
  const rows: object[] = [];
  let cursor: string | undefined;
  let pages = 0;
  do {
    const { json } = await send('/v2/analytics.listCustomers', { body: JSON.stringify({ ...input, cursor }) });
    rows.push(...json.data);
    cursor = json.pagination.cursor;
    pages++;
  } while (cursor !== undefined);
  return { rows, pages };
}

test('customers are in order of their externalIds, keys without one first, with outcomes and credits', async () => {
  const { apiId, key } = await createKey({ credits: { remaining: 5 } });
  const [ada, also, bob] = await Promise.all([
    createKey({ apiId, externalId: 'ada' }),
    createKey({ apiId, externalId: 'ada', credits: { remaining: 10 } }),
    createKey({ externalId: 'Bob' }),
  ]);
  await createKey({ apiId, externalId: 'unused' });
  await use(key, 2, { credits: { cost: 3 } });
  await use(ada.key, 2);
  await use(also.key, 1, { credits: { cost: 4 } });
  await use(also.key, 1, { permissions: 'none' });
  await use(bob.key, 1);
  const none = { count: 2, outcomes: { VALID: 1, USAGE_EXCEEDED: 1 }, spentCredits: 3 };
  const ofBob = { externalId: 'Bob', count: 1, outcomes: { VALID: 1 }, spentCredits: 0 };
  const ofAda = { externalId: 'ada', count: 4, outcomes: { VALID: 3, INSUFFICIENT_PERMISSIONS: 1 }, spentCredits: 4 };
  expect(await ok('analytics.listCustomers', {})).toEqual([none, ofBob, ofAda]);
  expect(await allOf({ limit: 1 })).toEqual({ rows: [none, ofBob, ofAda], pages: 3 });
  expect(await ok('analytics.listCustomers', { apiId })).toEqual([none, ofAda]);
  expect(await ok('analytics.listCustomers', { apiId: 'api_none' })).toEqual([]);
  expect((await call('analytics.listCustomers', {}, [`api.${apiId}.read_analytics`])).data).toEqual([none, ofAda]);

  // The same when the day was rolled up, and is read from the sums.
  const asked = { start: start(), end: start() + dayMs };
  clock.advance(2 * dayMs);
  while (await tollgate.store.sweep.rollUp(tollgate.workspaceId));
  expect(await ok('analytics.listCustomers', asked)).toEqual([none, ofBob, ofAda]);
  expect(await ok('analytics.listCustomers', { ...asked, end: asked.start })).toEqual([]);
  expect(await ok('analytics.listCustomers', {})).toEqual([]);
  // A part of a day is read from keys.
  await use(ada.key, 1);
  clock.advance(hourMs);
  await use(ada.key, 1);
  expect(await ok('analytics.listCustomers', { start: clock.now })).toMatchObject([{ externalId: 'ada', count: 1 }]);
});

test('a bill does not depend on the number of namespaces', async () => {
  const { apiId, key } = await createKey({ externalId: 'ada' });
  await use(key, 1);
  const redis = await connect(own.url, { commandTimeoutMs: 5000 });
  const day = Math.floor(clock.now / dayMs);
  const members = Array.from({ length: 200_001 }, (_, at) => `i${String(at).padStart(16, 'z')}:${day}`);
  const queue = rollupQueueKey(workspaceKey(tollgate.workspaceId));
  for (const some of chunks(members, 5000))
    await redis.zadd(queue, ...some.flatMap((member) => [String((day + 8) * dayMs), member]));
  for (const of of [{ apiId }, { apiId, start: start() - dayMs }])
    expect(await ok('analytics.listCustomers', of)).toMatchObject([{ externalId: 'ada', count: 1 }]);
  for (const some of chunks(members, 5000)) await redis.zrem(queue, ...some);
  await redis.quit();
});

test('a customer has its present plan', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'planned' });
  for (const planId of ['free', 'pro']) await ok('plans.createPlan', { planId });
  await ok('identities.createIdentity', { externalId: 'planned', planId: 'free' });
  for (const externalId of ['planned', 'unplanned', undefined]) {
    const { key } = await createKey({ apiId, ...(externalId && { externalId }) });
    await use(key, 1);
  }
  const plansOf = async () => (await ok('analytics.listCustomers', { apiId })).map(({ planId }) => planId);
  expect(await plansOf()).toEqual([undefined, 'free', undefined]);
  await ok('identities.updateIdentity', { identity: 'planned', planId: 'pro' });
  expect(await plansOf()).toEqual([undefined, 'pro', undefined]);
});

test('what customers owe, by the prices of the API and the plan', async () => {
  const workspace = await tollgate.createWorkspace();
  const as = async <Name extends OperationName>(name: Name, input: InputOf<Name>, rootKey = workspace.rootKey) =>
    (await call(name, input, rootKey)).data;
  const [a, b] = [
    (await as('apis.createApi', { name: 'a-a' })).apiId,
    (await as('apis.createApi', { name: 'b-b' })).apiId,
  ];
  await as('plans.createPlan', { planId: 'pro' });
  await as('identities.createIdentity', { externalId: 'bob', planId: 'pro' });
  const credits = { remaining: 100 };
  for (const [apiId, externalId, times] of [
    [a, 'ada', 3],
    [b, 'ada', 2],
    [a, 'bob', 4],
    [b, undefined, 5],
  ] as const) {
    const { key } = await as('keys.createKey', { apiId, credits, ...(externalId && { externalId }) });
    for (let time = 0; time < times; time++) await as('keys.verifyKey', { key, credits: { cost: 2 } });
    // What is refused costs nothing.
    await as('keys.verifyKey', { key, permissions: 'none' });
  }
  const owed = async (input: InputOf<'analytics.listCustomers'> = {}, rootKey?: string) =>
    (await as('analytics.listCustomers', input, rootKey)).map((row) => row.owed?.amount);
  expect(await owed()).toEqual([undefined, undefined, undefined]);
  const flat = (unit: PriceRule['unit'], price: string, more: Partial<PriceRule> = {}): PriceRule => ({
    unit,
    steps: [{ from: 0, price }],
    ...more,
  });
  const rules = [
    flat('verification', '', {
      steps: [
        { from: 0, price: '1' },
        { from: 3, price: '0.5' },
      ],
    }),
    flat('verification', '10', { apiId: b }),
    flat('verification', '0.125', { planId: 'pro' }),
    flat('credit', '0.01', { apiId: a }),
  ];
  const set = (prices: Prices | null) => as('workspace.updateSettings', { prices });
  await set({ currency: 'EUR', decimals: 2, rules });
  // Ada: 3 + 2 × 10 + 6 × 0.01. Bob: 4 × 0.125 + 8 × 0.01.
  expect(await owed()).toEqual([undefined, '23.06', '0.58']);
  expect((await as('analytics.listCustomers', {}))[1]).toMatchObject({ owed: { amount: '23.06', currency: 'EUR' } });
  expect(await owed({ apiId: b })).toEqual([undefined, '20.00']);
  // The same from sums, page by page, with other prices in between.
  const asked = { start: start(), end: start() + dayMs };
  clock.advance(2 * dayMs);
  while (await tollgate.store.sweep.rollUp(workspace.workspaceId));
  expect(await owed(asked)).toEqual([undefined, '23.06', '0.58']);
  const page = async (cursor?: string) => {
    const body = JSON.stringify({ ...asked, limit: 2, ...(cursor && { cursor }) });
    return (await send('/v2/analytics.listCustomers', { body, authorization: `Bearer ${workspace.rootKey}` })).json;
  };
  const first = await page();
  expect(first.data[1].owed.amount).toBe('23.06');
  expect((await page(first.pagination.cursor)).data).toMatchObject([{ externalId: 'bob', owed: { amount: '0.58' } }]);
  // With other prices, or without, a bill would have rows of two price lists.
  await set({ currency: 'EUR', decimals: 1, rules: [flat('verification', '1', { apiId: a })] });
  const changed = await page(first.pagination.cursor);
  expect(changed.error).toMatchObject({ status: 400, errors: [{ location: 'body.cursor' }] });
  expect(changed.error.detail).toContain('prices');
  const again = await page();
  expect(again.data[1].owed.amount).toBe('3.0');
  expect((await page(again.pagination.cursor)).data).toMatchObject([{ externalId: 'bob', owed: { amount: '4.0' } }]);
  // A root key that may not read the settings reads no prices.
  const reader = async (permissions: string[]) => (await as('rootKeys.createRootKey', { permissions })).key;
  expect(await owed(asked, await reader(['api.*.read_analytics']))).toEqual([undefined, undefined, undefined]);
  const both = [`api.${a}.read_analytics`, 'workspace.*.read_settings'];
  expect(await owed(asked, await reader(both))).toEqual(['3.0', '4.0']);
  await set(null);
  expect(await owed(asked)).toEqual([undefined, undefined, undefined]);
  expect((await page(again.pagination.cursor)).error).toMatchObject({ errors: [{ location: 'body.cursor' }] });
  // A cursor without prices, as those that were made before the workspace had some.
  const unpriced = await page();
  expect((await page(unpriced.pagination.cursor)).data).toMatchObject([{ externalId: 'bob' }]);
  await set({ currency: 'EUR', decimals: 1, rules: [] });
  expect((await page(unpriced.pagination.cursor)).error).toMatchObject({ errors: [{ location: 'body.cursor' }] });
});

test('a listing continues in its own period, and with a cursor of it only', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'listed' });
  for (const externalId of ['a', 'b', 'c']) {
    const { key } = await createKey({ apiId, externalId });
    await use(key, 1);
  }
  const first = await send('/v2/analytics.listCustomers', { body: JSON.stringify({ apiId, limit: 2 }) });
  const { cursor } = first.json.pagination;
  expect(first.json.data.map(({ externalId }: { externalId: string }) => externalId)).toEqual(['a', 'b']);
  clock.advance(3 * dayMs);
  const next = { apiId, limit: 2, cursor };
  expect(await ok('analytics.listCustomers', next)).toMatchObject([{ externalId: 'c', count: 1 }]);
  // Another server has to add up again.
  const other = await openStore({ ...testSettings, url: own.url, nowMs: () => clock.now });
  const answer = createPipeline(operations, { store: other, log: logOfCauses(new Map()), metaBytesMax: 10_240 });
  const request = requestTo('/v2/analytics.listCustomers', tollgate.rootKey, {
    requestId: 'req_1',
    body: JSON.stringify(next),
  });
  expect(jsonOf(await answer(request), 'req_1').data).toMatchObject([{ externalId: 'c', count: 1 }]);
  await other.close();
  expect((await call('analytics.listCustomers', { cursor })).status).toBe(400);
  expect(await ok('analytics.listCustomers', { apiId })).toEqual([]);
});

test('a cursor gives a root key nothing of APIs that it may not read', async () => {
  const { of, rootKey } = await tollgate.openWorkspace();
  const apis: string[] = [];
  for (const [at, name] of ['mine', 'others'].entries()) {
    const { apiId } = await of('apis.createApi', { name });
    apis.push(apiId);
    for (const externalId of ['a', 'b', 'c']) {
      const { key } = await of('keys.createKey', { apiId, externalId });
      for (let time = 0; time <= at; time++) await of('keys.verifyKey', { key });
    }
  }
  const permissions = [`api.${apis[0]}.read_analytics`];
  const created = await of('rootKeys.createRootKey', { permissions });
  const page = async (as: string, cursor?: string) => {
    const { data, pagination } = await call('analytics.listCustomers', { limit: 1, ...(cursor && { cursor }) }, as);
    return { rows: data.map(({ externalId, count }) => [externalId, count]), cursor: pagination.cursor! };
  };
  const first = await page(rootKey);
  expect(first.rows).toEqual([['a', 3]]);
  // Another root key with this cursor, which continues in the window of the first one.
  const other = await page(created.key, first.cursor);
  expect(other.rows).toEqual([['b', 1]]);
  expect((await page(rootKey, first.cursor)).rows).toEqual([['b', 3]]);
  // The same root key, after it lost an API.
  const both = apis.map((apiId) => `api.${apiId}.read_analytics`);
  await of('rootKeys.updateRootKey', { rootKeyId: created.rootKeyId, permissions: both });
  const wide = await page(created.key);
  expect(wide.rows).toEqual([['a', 3]]);
  await of('rootKeys.updateRootKey', { rootKeyId: created.rootKeyId, permissions });
  expect((await page(created.key, wide.cursor)).rows).toEqual([['b', 1]]);
  // A cursor with another period, which the format does not exclude, has rows of that period.
  const text = Buffer.from(first.cursor, 'base64url').toString();
  const moved = text.replace(/ \d+-(\d+)-/, (_, to) => ` ${Number(to) - 48}-${Number(to) - 47}-`);
  expect(moved).not.toBe(text);
  expect((await page(rootKey, Buffer.from(moved).toString('base64url'))).rows).toEqual([]);
});

/** A server whose Redis stops for some seconds while usage is added up. */
let slow: Store;
let stops = 0;
beforeAll(async () => {
  const observe = observing({
    ran(script) {
      if (script !== 'analytics/used' || stops-- <= 0) return;
      // At once, unlike CLIENT PAUSE, which the next script could overtake.
      own.signal('SIGSTOP');
      setTimeout(() => own.signal('SIGCONT'), 4600);
    },
  });
  slow = await openStore({ ...testSettings, url: own.url, nowMs: () => clock.now, observe });
});
afterAll(() => slow.close());

test('pages are empty until usage is added up, of a few listings at a time', { timeout: 30_000 }, async () => {
  const { apiId, key } = await createKey({ externalId: 'ada' });
  await use(key, 3);
  const hour = Math.floor(clock.now / hourMs);
  const query = { apiIds: [apiId], fromHour: hour, toHour: hour + 1, limit: 10 };
  const page = (workspaceId: string, from?: CustomersPage['next']) =>
    slow.analytics.customers(workspaceId, { ...query, from });
  // Two other workspaces with an API of this id, and a key that was used.
  const others = ['ws_one', 'ws_two'];
  const day = Math.floor(hour / 24);
  for (const workspace of others.map(workspaceKey)) {
    await own.redis.hset(apiKey(workspace, apiId), 'id', apiId);
    await own.redis.zadd(rollupQueueKey(workspace), '1', `k${apiId.slice(-8)}:${day}`);
    await own.redis.rpush(usedKeysKey(workspace, apiId.slice(-8), 'day', day), '1'.repeat(16));
  }
  const { workspaceId } = tollgate;
  const asked = [workspaceId, workspaceId, workspaceId, others[0]!, others[0]!, others[1]!];
  stops = 1;
  const pages = await Promise.all(asked.map((each) => page(each)));
  expect(pages.map(({ customers }) => customers.length)).toEqual([0, 0, 0, 0, 0, 0]);
  // Those beyond two of a workspace, or four of all, have not begun.
  expect(pages.map(({ total }) => total !== undefined)).toEqual([true, true, false, true, true, false]);
  expect(pages).toContainEqual(expect.objectContaining({ looked: 0, total: 1 }));
  for (const [index, { next }] of pages.entries()) {
    const row = { externalId: 'ada', count: 3 };
    const customers = asked[index] === workspaceId ? [expect.objectContaining(row)] : [];
    expect(await page(asked[index]!, next)).toMatchObject({ customers, next: undefined });
  }
});

test('the first page of days that were rolled up reads the sums of the first customers only', async () => {
  let scripts = 0;
  const observe = observing({
    ran(script) {
      if (script === 'analytics/sums') scripts++;
    },
  });
  const store = await openStore({ ...testSettings, url: own.url, nowMs: () => clock.now, observe });
  const { apiId } = await ok('apis.createApi', { name: 'many' });
  // Names that are so long that a script reads about a hundred of them.
  const names = Array.from({ length: 600 }, (_, index) => `${index}`.padStart(255, '0'));
  for (const some of chunks(names, 50)) {
    await Promise.all(some.map(async (externalId) => use((await createKey({ apiId, externalId })).key, 1)));
  }
  const hours = { fromHour: start() / hourMs, toHour: start() / hourMs + 24 };
  const listed = async (pages: number) => {
    const rows: string[] = [];
    let from: CustomersPage['next'];
    for (let page = 0; page < pages; page++) {
      const { customers, next } = await store.analytics.customers(tollgate.workspaceId, {
        ...{ ...hours, apiIds: [apiId], limit: 5 },
        from,
      });
      rows.push(...customers.map(({ externalId }) => externalId));
      from = next;
      if (!next) break;
    }
    return rows;
  };
  // Read from keys, each pass takes as long as the first one: it has all customers.
  expect(await listed(2)).toEqual(names.slice(0, 10));
  clock.advance(2 * dayMs);
  while (await tollgate.store.sweep.rollUp(tollgate.workspaceId));
  scripts = 0;
  expect(await listed(1)).toEqual(names.slice(0, 5));
  expect(scripts).toBeLessThanOrEqual(2);
  scripts = 0;
  expect(await listed(200)).toEqual(names);
  expect(scripts).toBeGreaterThan(5);
  expect(scripts).toBeLessThan(20);
  await store.close();
});

test('keys without a log are found by one command for some of them', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'no logs' });
  await use((await createKey({ apiId })).key, 1);
  clock.advance(2 * dayMs);
  while (await tollgate.store.sweep.rollUp(tollgate.workspaceId));
  // Keys have no days from then on.
  clock.advance(4 * dayMs);
  const keys: string[] = [];
  for (let count = 0; count < 40; count++) {
    const { key } = await createKey({ apiId, externalId: `c${count % 3}` });
    keys.push(key);
    await use(key, 1);
  }
  /** Commands of a listing that read logs or look for them. */
  const commandsOf = async () => {
    await own.redis.config('RESETSTAT');
    const rows = await ok('analytics.listCustomers', { apiId });
    const stats = await own.redis.info('commandstats');
    const callsOf = (name: string) => Number(new RegExp(`cmdstat_${name}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
    return { counts: rows.map(({ count }) => count), reads: callsOf('getrange'), looks: callsOf('exists') };
  };
  // Two scripts of 20 keys each, which look for 16 logs and 4.
  expect(await commandsOf()).toEqual({ counts: [14, 13, 13], reads: 0, looks: 4 });
  clock.advance(hourMs);
  // The last keys of the second script.
  for (const key of keys.slice(-2)) await use(key, 1);
  expect(await commandsOf()).toEqual({ counts: [15, 13, 14], reads: 4, looks: 4 });
});

test('planId: the rows of the customers that have the plan now, in pages', async () => {
  const { of, rootKey } = await tollgate.openWorkspace();
  for (const planId of ['free', 'pro']) await of('plans.createPlan', { planId });
  const { apiId } = await of('apis.createApi', { name: 'plans' });
  for (const [at, planId] of ['free', 'pro', undefined, 'pro', 'free', 'pro'].entries()) {
    const externalId = `customer.${at}`;
    await of('identities.createIdentity', { externalId, ...(planId && { planId }) });
    await of('keys.verifyKey', { key: (await of('keys.createKey', { apiId, externalId })).key });
  }
  await of('keys.verifyKey', { key: (await of('keys.createKey', { apiId, planId: 'pro' })).key });
  const namesOf = async (planId: string, limit: number) => {
    const names: (string | undefined)[] = [];
    let after: string | undefined;
    do {
      const { data, pagination } = await call(
        'analytics.listCustomers',
        { planId, limit, ...(after !== undefined && { cursor: after }) },
        rootKey,
      );
      expect(data.every((row) => row.planId === planId)).toBe(true);
      names.push(...data.map(({ externalId }) => externalId));
      after = pagination.cursor;
    } while (after !== undefined);
    return names;
  };
  for (const limit of [1, 2, 1000]) {
    expect(await namesOf('pro', limit)).toEqual(['customer.1', 'customer.3', 'customer.5']);
    expect(await namesOf('free', limit)).toEqual(['customer.0', 'customer.4']);
    expect(await namesOf('unknown', limit)).toEqual([]);
  }
  await of('identities.updateIdentity', { identity: 'customer.3', planId: 'free' });
  expect(await namesOf('free', 100)).toEqual(['customer.0', 'customer.3', 'customer.4']);
  expect((await call('analytics.listCustomers', { planId: 'a b' })).status).toBe(400);
});
