// test/lua compares the window with a model. This file tests what a caller sees of it.

import { describe, expect, test } from 'vitest';
import { connect } from '../../../src/redis/connection.ts';
import { dayMs, harness, type InputOf } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';
import { testRedisUrl } from '../../support/redis.ts';

const tollgate = harness();
const { call, ok, createWorkspace, clock } = tollgate;

const minute = 60_000;
let identifiers = 0;

/** A counter that no other test charges. */
const fresh = (more: Partial<InputOf<'ratelimits.limit'>> = {}) => ({
  namespace: 'email',
  identifier: `user_${++identifiers}`,
  limit: 2,
  duration: minute,
  ...more,
});

/** The id of a namespace from the store, because a limit check does not return it. */
async function idOf(namespace: string): Promise<string> {
  const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
  const id = await redis.hget(`tg:{${tollgate.workspaceId}}:ns`, namespace);
  await redis.quit();
  if (!id) throw new Error(`no namespace ${namespace}`);
  return `rlns_${id.slice(0, 16)}`;
}

/** Milliseconds until Redis removes the counter of a request. */
async function ttlOf(workspaceId: string, namespaceId: string, { duration, identifier }: ReturnType<typeof fresh>) {
  const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
  const counter = `${namespaceId.slice('rlns_'.length)}:${duration}:${identifier}`;
  const ttl = await redis.pttl(`tg:{${workspaceId}}:w:${counter}`);
  await redis.quit();
  return ttl;
}

describe('ratelimits.limit: 200', () => {
  test('admits up to the limit, then refuses', async () => {
    const request = fresh();
    const start = clock.now;
    const answers = [];
    for (let index = 0; index < 3; index++) {
      answers.push(await ok('ratelimits.limit', request));
      clock.advance(10);
    }
    // A small limit is exact to the millisecond: a unit is available again at most 1 ms after `duration`.
    const reset = start + minute + 1;
    expect(answers).toEqual([
      { success: true, limit: 2, remaining: 1, reset },
      { success: true, limit: 2, remaining: 0, reset },
      { success: false, limit: 2, remaining: 0, reset },
    ]);
  });

  test('the window slides: each unit is available again one duration after it was charged', async () => {
    const request = fresh();
    await ok('ratelimits.limit', request);
    clock.advance(minute - 1);
    await ok('ratelimits.limit', request);
    // Fixed windows would admit two a moment later.
    clock.advance(2);
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: true, remaining: 0 });
    const refused = await ok('ratelimits.limit', request);
    expect(refused).toMatchObject({ success: false, remaining: 0, reset: clock.now + minute - 1 });
    clock.now = refused.reset - 1;
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: false });
    clock.now = refused.reset;
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: true, remaining: 0 });
  });

  test('a year is counted to its end, and the counter is kept as long', async () => {
    const request = fresh({ namespace: 'yearly', duration: 366 * dayMs });
    const start = clock.now;
    await ok('ratelimits.limit', request);
    await ok('ratelimits.limit', request);
    clock.advance(366 * dayMs - 1);
    const reset = start + 366 * dayMs + 1;
    expect(await ok('ratelimits.limit', request)).toEqual({ success: false, limit: 2, remaining: 0, reset });
    expect(await ttlOf(tollgate.workspaceId, await idOf('yearly'), request)).toBeGreaterThan(366 * dayMs);
    clock.now = reset;
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: true, remaining: 1 });
  });

  test('an imported counter of a year is kept as long', async () => {
    const request = fresh({ namespace: 'imported', limit: 9, duration: 366 * dayMs, cost: 4 });
    await ok('ratelimits.limit', request);
    const { windows } = tollgate.store;
    const exported = [];
    for await (const page of windows.export(tollgate.workspaceId, undefined)) exported.push(...page.windows);
    const namespaceId = await idOf('imported');
    const own = exported.filter(({ owner }) => `rlns_${owner}` === namespaceId);
    expect(own).toMatchObject([{ duration: 366 * dayMs, isNamespace: true }]);
    const { workspaceId } = await createWorkspace();
    expect(await windows.import(workspaceId, own, false)).toEqual([true]);
    expect(await ttlOf(workspaceId, namespaceId, request)).toBeGreaterThan(366 * dayMs);
  });

  test('a refused request is not charged: a smaller one still fits', async () => {
    const request = fresh({ limit: 10 });
    await ok('ratelimits.limit', { ...request, cost: 8 });
    expect(await ok('ratelimits.limit', { ...request, cost: 3 })).toMatchObject({ success: false, remaining: 2 });
    expect(await ok('ratelimits.limit', { ...request, cost: 2 })).toMatchObject({ success: true, remaining: 0 });
  });

  test('the reset of a refused check is when its cost fits, so a larger cost waits longer', async () => {
    const request = fresh({ limit: 10 });
    const start = clock.now;
    for (const cost of [2, 3, 5]) {
      await ok('ratelimits.limit', { ...request, cost });
      clock.advance(100);
    }
    const resets: number[] = [];
    for (const cost of [1, 2, 3, 5, 6, 10]) {
      const answer = await ok('ratelimits.limit', { ...request, cost });
      expect(answer).toMatchObject({ success: false, remaining: 0 });
      resets.push(answer.reset - start - minute - 1);
    }
    expect(resets).toEqual([0, 0, 100, 100, 200, 200]);
  });

  test('cost 0 reads and charges nothing', async () => {
    const request = fresh();
    const look = { ...request, cost: 0 };
    expect(await ok('ratelimits.limit', look)).toEqual({ success: true, limit: 2, remaining: 2, reset: clock.now });
    await ok('ratelimits.limit', { ...request, cost: 2 });
    const full = { success: true, limit: 2, remaining: 0, reset: clock.now + minute + 1 };
    expect(await ok('ratelimits.limit', look)).toEqual(full);
    expect(await ok('ratelimits.limit', look)).toEqual(full);
    clock.advance(minute + 1);
    expect(await ok('ratelimits.limit', look)).toEqual({ success: true, limit: 2, remaining: 2, reset: clock.now });
  });

  test('a cost above the limit is never admitted, also by an empty window', async () => {
    const request = fresh({ cost: 3 });
    const refused = { success: false, limit: 2, remaining: 2, reset: clock.now + minute };
    expect(await ok('ratelimits.limit', request)).toEqual(refused);
    expect(await ok('ratelimits.limit', { ...request, cost: Number.MAX_SAFE_INTEGER })).toEqual(refused);
    expect(await ok('ratelimits.limit', { ...request, cost: 2 })).toMatchObject({ success: true });
  });

  test('the largest limit and cost', async () => {
    const request = fresh({ limit: Number.MAX_SAFE_INTEGER });
    expect(await ok('ratelimits.limit', { ...request, cost: Number.MAX_SAFE_INTEGER - 1 })).toMatchObject({
      success: true,
      limit: Number.MAX_SAFE_INTEGER,
      remaining: 1,
    });
    expect(await ok('ratelimits.limit', { ...request, cost: 2 })).toMatchObject({ success: false, remaining: 1 });
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: true, remaining: 0 });
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: false, remaining: 0 });
  });

  test('a large limit gives capacity back at most a 64th of the duration late', async () => {
    const request = fresh({ limit: 1000, duration: 64_000 });
    clock.now += 1000 - (clock.now % 1000) + 300;
    const taken = clock.now;
    const { reset } = await ok('ratelimits.limit', { ...request, cost: 1000 });
    expect(reset).toBe(taken + 64_000 + 700);
    clock.now = reset - 1;
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: false, reset });
    clock.now = reset;
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: true, remaining: 999 });
  });
});

describe('ratelimits.limit: which checks share a counter', () => {
  test('changing the limit keeps the count', async () => {
    const request = fresh({ limit: 5 });
    await ok('ratelimits.limit', { ...request, cost: 4 });
    expect(await ok('ratelimits.limit', { ...request, limit: 10, cost: 0 })).toMatchObject({ remaining: 6 });
    const lowered = await ok('ratelimits.limit', { ...request, limit: 3, cost: 0 });
    expect(lowered).toMatchObject({ success: false, limit: 3, remaining: 0 });
    expect(await ok('ratelimits.limit', { ...request, limit: 1000, cost: 996 })).toMatchObject({ remaining: 0 });
  });

  test('another duration, identifier or namespace is another counter', async () => {
    const request = fresh({ limit: 1 });
    await ok('ratelimits.limit', request);
    for (const other of [
      { duration: minute + 1 },
      { identifier: `${request.identifier} ` },
      { identifier: request.identifier.toUpperCase() },
      { namespace: 'Email' },
    ]) {
      expect(await ok('ratelimits.limit', { ...request, ...other })).toMatchObject({ success: true });
    }
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: false });
  });

  test.each([
    ['a', ':60000:b', 'a:60000', 'b'],
    ['\u0000', '*', '\u0000*', '*'],
    ['\u{1f511}', 'ü\n', 'u\u0308', 'ü\n'],
  ])('any characters: %j %j is not %j %j', async (namespace, identifier, otherNamespace, otherIdentifier) => {
    const request = fresh({ namespace, identifier, limit: 1 });
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: true });
    const other = { ...request, namespace: otherNamespace, identifier: otherIdentifier };
    expect(await ok('ratelimits.limit', other)).toMatchObject({ success: true });
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: false });
    expect(await ok('ratelimits.limit', other)).toMatchObject({ success: false });
  });

  test('a namespace is the same by its name and by its id', async () => {
    const request = fresh({ namespace: 'by name or id' });
    await ok('ratelimits.limit', request);
    const byId = { ...request, namespace: await idOf('by name or id') };
    expect(await ok('ratelimits.limit', byId)).toMatchObject({ success: true, remaining: 0 });
    expect(await ok('ratelimits.limit', request)).toMatchObject({ success: false });
  });

  test('workspaces share nothing, even with the same names', async () => {
    const request = fresh({ limit: 1 });
    await ok('ratelimits.limit', request);
    const { rootKey } = await createWorkspace();
    expect((await call('ratelimits.limit', request, rootKey)).data).toMatchObject({ success: true });
    expect((await call('ratelimits.limit', request, rootKey)).data).toMatchObject({ success: false });
  });

  test('of many concurrent checks exactly the limit is admitted', async () => {
    const request = fresh({ limit: 37 });
    const answers = await Promise.all(Array.from({ length: 200 }, () => ok('ratelimits.limit', request)));
    expect(answers.filter(({ success }) => success)).toHaveLength(37);
    expect(answers.filter(({ success }) => success).map(({ remaining }) => remaining)).toEqual(
      Array.from({ length: 37 }, (_, index) => 36 - index),
    );
  });
});

describe('ratelimits.limit: 400', () => {
  test.each([
    { namespace: '' },
    { namespace: 'a'.repeat(513) },
    { identifier: '' },
    { identifier: '\u{1f511}'.repeat(513) },
    { limit: 0 },
    { limit: -1 },
    { limit: 1.5 },
    { limit: Number.MAX_SAFE_INTEGER + 1 },
    { duration: 999 },
    { duration: 31_622_400_001 },
    { duration: 1000.5 },
    { cost: -1 },
    { cost: 0.5 },
    { cost: Number.MAX_SAFE_INTEGER + 1 },
  ])('%j', async (wrong) => {
    expect(await call('ratelimits.limit', fresh(wrong))).toMatchObject(onlyInvalidAt(`body.${Object.keys(wrong)[0]}`));
  });

  test.each([
    { namespace: '\u{1f511}'.repeat(512) },
    { identifier: '\u{1f511}'.repeat(512) },
    { duration: 1000 },
    { duration: 31_622_400_000 },
  ])('but not %j', async (right) => {
    expect(await ok('ratelimits.limit', fresh({ limit: 1, ...right }))).toMatchObject({ success: true, remaining: 0 });
    expect(await ok('ratelimits.limit', fresh({ limit: 1, ...right, cost: 0 }))).toMatchObject({ success: true });
  });
});

describe('ratelimits.limit: 403', () => {
  const refusedFor = (needed: string) => ({
    status: 403,
    code: 'insufficient_permissions',
    error: { detail: expect.stringContaining(needed) },
  });

  test('a refused check charges nothing', async () => {
    const request = fresh();
    await ok('ratelimits.limit', request);
    await call('ratelimits.limit', request, ['ratelimit.rlns_other.limit']);
    expect(await ok('ratelimits.limit', { ...request, cost: 0 })).toMatchObject({ remaining: 1 });
  });

  test('a namespace that does not exist needs create_namespace', async () => {
    const request = fresh({ namespace: 'not yet' });
    const limitOnly = ['ratelimit.*.limit'];
    const scoped = ['ratelimit.rlns_other.limit', 'ratelimit.*.create_namespace'];
    const scopedCreate = ['ratelimit.*.limit', 'ratelimit.rlns_other.create_namespace'];
    expect(await call('ratelimits.limit', request, limitOnly)).toMatchObject(
      refusedFor('ratelimit.*.create_namespace'),
    );
    expect(await call('ratelimits.limit', request, scoped)).toMatchObject(refusedFor('ratelimit.*.limit'));
    expect((await call('ratelimits.limit', request, scopedCreate)).status).toBe(403);
    await expect(idOf('not yet')).rejects.toThrow('no namespace');

    const both = ['ratelimit.*.limit', 'ratelimit.*.create_namespace'];
    expect((await call('ratelimits.limit', request, both)).data).toMatchObject({ success: true, remaining: 1 });
    expect((await call('ratelimits.limit', request, limitOnly)).data).toMatchObject({ success: true, remaining: 0 });
  });
});

describe('ratelimits.limit: 404', () => {
  test('a name that begins like an id is a name', async () => {
    for (const namespace of ['rlns', 'RLNS_a', ' rlns_a']) {
      expect((await call('ratelimits.limit', fresh({ namespace }))).status).toBe(200);
    }
  });
});
