// Overrides with `until`: what applies before, at and after that time, what is listed, and what is left in Redis.

import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import { createPipeline } from '../../../src/http/pipeline.ts';
import { operations } from '../../../src/operations/index.ts';
import { cliActor } from '../../../src/records/rootKeys.ts';
import { connect } from '../../../src/redis/connection.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { openStore } from '../../../src/store.ts';
import { dayMs, harness, hourMs, type InputOf, requestTo, testSettings } from '../../support/harness.ts';
import { onlyInvalidAt } from '../../support/invalid.ts';
import { namesIn } from '../../support/keyspace.ts';
import { readPages } from '../../support/lists.ts';
import { testRedisUrl } from '../../support/redis.ts';
import { volumeTest } from '../../support/testIf.ts';

const h = harness(undefined, { leaseMs: 0 });
const { call, ok, clock, createWorkspace } = h;

const minute = 60_000;
let namespaces = 0;
const freshNamespace = () => `temporary ${++namespaces}`;

type Set = InputOf<'ratelimits.setOverride'>;
const set = async (namespace: string, identifier: string, more: Partial<Set> = {}) =>
  (await ok('ratelimits.setOverride', { namespace, identifier, limit: 50, duration: minute, ...more })).overrideId;
const remove = (namespace: string, identifier: string) => call('ratelimits.deleteOverride', { namespace, identifier });

/** What applies to a check whose own limit is 1000 in an hour. */
async function inForce(namespace: string, identifier: string) {
  const check = { namespace, identifier, limit: 1000, duration: hourMs, cost: 0 };
  const { limit, overrideId } = await ok('ratelimits.limit', check);
  return overrideId === undefined ? undefined : limit;
}
const found = async (namespace: string, identifier: string) => {
  const { status, code, data } = await call('ratelimits.getOverride', { namespace, identifier });
  return status === 200 ? data : code;
};
const listed = async (namespace: string) => {
  const { overrides } = (await ok('ratelimits.listOverrides', { namespace, limit: 100 })) as never as {
    overrides: { identifier: string }[];
  };
  return overrides;
};
const countOf = async (namespace: string) => {
  const all = await readPages((at) => call('ratelimits.listNamespaces', { limit: 100, ...at }));
  return all.flat().find(({ name }) => name === namespace)!.overrideCount;
};
const sweep = () => h.store.sweep.ended(h.workspaceId);

/** At `until`, and one millisecond before it. */
async function around<Value>(until: number, read: () => Promise<Value>): Promise<[before: Value, at: Value]> {
  clock.advance(until - 1 - clock.now);
  const before = await read();
  clock.advance(1);
  return [before, await read()];
}

describe('a temporary override', () => {
  test('of an identifier without one is gone at `until`, to the millisecond', async () => {
    const namespace = freshNamespace();
    const createdAt = clock.now;
    const until = createdAt + dayMs;
    const overrideId = await set(namespace, 'alice', { until });
    const expected = { overrideId, identifier: 'alice', limit: 50, duration: minute, createdAt, until };
    expect(await found(namespace, 'alice')).toEqual({ ...expected, namespace, namespaceId: expect.any(String) });
    expect(await listed(namespace)).toMatchObject([expected]);
    const read = async () => [
      await inForce(namespace, 'alice'),
      (await listed(namespace)).length,
      await countOf(namespace),
      await found(namespace, 'alice'),
    ];
    expect(await around(until, read)).toEqual([
      [50, 1, 1, expect.objectContaining({ until })],
      [undefined, 0, 0, 'override_not_found'],
    ]);
    expect(await remove(namespace, 'alice')).toMatchObject({ status: 404, code: 'override_not_found' });
  });

  test('gives way to the one that it replaced, to the millisecond', async () => {
    const namespace = freshNamespace();
    const overrideId = await set(namespace, 'alice', { limit: 10, duration: 2 * minute });
    const former = { limit: 10, duration: 2 * minute };
    const before = await found(namespace, 'alice');
    clock.advance(5);
    const until = clock.now + hourMs;
    expect(await set(namespace, 'alice', { until })).toBe(overrideId);
    expect(await found(namespace, 'alice')).toEqual({
      ...(before as object),
      limit: 50,
      duration: minute,
      until,
      former,
    });
    const read = async () => [
      await inForce(namespace, 'alice'),
      await found(namespace, 'alice'),
      await listed(namespace),
      await countOf(namespace),
    ];
    const during = expect.objectContaining({ until, former });
    expect(await around(until, read)).toEqual([
      [50, during, [during], 1],
      [10, before, [before], 1],
    ]);
    expect(await sweep()).toBe(false);
    expect(await found(namespace, 'alice')).toEqual(before);
  });

  test('keeps the permanent one through several temporary ones, and after one has ended', async () => {
    const namespace = freshNamespace();
    await set(namespace, 'alice', { limit: 10 });
    const former = { limit: 10, duration: minute };
    await set(namespace, 'alice', { limit: 20, until: clock.now + 100 });
    const until = clock.now + 50;
    await set(namespace, 'alice', { limit: 30, until });
    expect(await found(namespace, 'alice')).toMatchObject({ limit: 30, until, former });
    expect(await around(until, () => inForce(namespace, 'alice'))).toEqual([30, 10]);
    // The first one does not come back, although its time is not over.
    await set(namespace, 'alice', { limit: 40, until: clock.now + 50 });
    expect(await found(namespace, 'alice')).toMatchObject({ limit: 40, former });
    clock.advance(50);
    expect(await found(namespace, 'alice')).not.toHaveProperty('until');
    expect(await inForce(namespace, 'alice')).toBe(10);
  });

  test('that replaces a temporary one without a former one has none either', async () => {
    const namespace = freshNamespace();
    const overrideId = await set(namespace, 'alice', { limit: 20, until: clock.now + 100 });
    const until = clock.now + 200;
    expect(await set(namespace, 'alice', { limit: 30, until })).toBe(overrideId);
    expect(await found(namespace, 'alice')).not.toHaveProperty('former');
    clock.advance(150);
    while (await sweep());
    expect(await inForce(namespace, 'alice')).toBe(30);
    expect(await around(until, () => inForce(namespace, 'alice'))).toEqual([30, undefined]);
  });

  test('is replaced by a permanent one with all that it kept, and nothing ends any more', async () => {
    const namespace = freshNamespace();
    for (const identifier of ['alone', 'with a former']) {
      if (identifier === 'with a former') await set(namespace, identifier, { limit: 10 });
      const overrideId = await set(namespace, identifier, { limit: 20, until: clock.now + 100 });
      expect(await set(namespace, identifier, { limit: 30 })).toBe(overrideId);
      const override = await found(namespace, identifier);
      expect(override).toMatchObject({ limit: 30 });
      expect(override).not.toHaveProperty('until');
      expect(override).not.toHaveProperty('former');
      clock.advance(dayMs);
      while (await sweep());
      expect(await found(namespace, identifier)).toEqual(override);
    }
    expect(await countOf(namespace)).toBe(2);
  });

  test('is deleted with the former one', async () => {
    const namespace = freshNamespace();
    await set(namespace, 'alice', { limit: 10 });
    await set(namespace, 'alice', { until: clock.now + 100 });
    expect((await remove(namespace, 'alice')).status).toBe(200);
    expect(await found(namespace, 'alice')).toBe('override_not_found');
    expect(await inForce(namespace, 'alice')).toBeUndefined();
    clock.advance(100);
    expect(await inForce(namespace, 'alice')).toBeUndefined();
    // The former one alone, after the end.
    await set(namespace, 'alice', { limit: 10 });
    await set(namespace, 'alice', { until: clock.now + 100 });
    clock.advance(100);
    expect((await remove(namespace, 'alice')).status).toBe(200);
    expect(await listed(namespace)).toEqual([]);
  });

  test('that has ended is made again as a new one, with the age of a new one', async () => {
    const namespace = freshNamespace();
    const first = await set(namespace, 'alice', { until: clock.now + 100 });
    clock.advance(100);
    const second = await set(namespace, 'alice', { limit: 7 });
    expect(second).not.toBe(first);
    expect(await found(namespace, 'alice')).toMatchObject({ overrideId: second, createdAt: clock.now });
    expect(await listed(namespace)).toHaveLength(1);
    expect(await countOf(namespace)).toBe(1);
    while (await sweep());
    expect(await inForce(namespace, 'alice')).toBe(7);
  });

  test('that has ended is made again, also after more others than one call removes', async () => {
    const namespace = freshNamespace();
    for (let first = 0; first < 120; first += 20)
      await Promise.all(
        Array.from({ length: 20 }, (_, index) => set(namespace, `${first + index}`, { until: clock.now + 50 })),
      );
    await set(namespace, 'alice', { until: clock.now + 100 });
    clock.advance(100);
    await set(namespace, 'alice', { limit: 7 });
    expect(await countOf(namespace)).toBe(1);
    expect(await listed(namespace)).toMatchObject([{ identifier: 'alice', limit: 7 }]);
    while (await sweep());
    expect(await listed(namespace)).toMatchObject([{ identifier: 'alice', limit: 7 }]);
    expect(await countOf(namespace)).toBe(1);
  });

  test('leaves the units of the windows where they are', async () => {
    const namespace = freshNamespace();
    const check = { namespace, identifier: 'alice', limit: 10, duration: minute };
    await ok('ratelimits.limit', { ...check, cost: 8 });
    const until = clock.now + 1000;
    await set(namespace, 'alice', { limit: 100, until });
    expect(await ok('ratelimits.limit', { ...check, cost: 50 })).toMatchObject({ success: true, remaining: 42 });
    clock.advance(1000);
    expect(await ok('ratelimits.limit', check)).toMatchObject({ success: false, limit: 10, remaining: 0 });
    // Another duration is another window.
    await set(namespace, 'alice', { limit: 100, duration: 2 * minute, until: clock.now + 1000 });
    expect(await ok('ratelimits.limit', check)).toMatchObject({ success: true, remaining: 99 });
    clock.advance(1000);
    expect(await ok('ratelimits.limit', check)).toMatchObject({ success: false, limit: 10 });
  });

  test('with a wildcard is absent from its end on: the next wildcard applies', async () => {
    const namespace = freshNamespace();
    await set(namespace, '*', { limit: 1 });
    await set(namespace, 'user_*', { limit: 5, until: clock.now + 100 });
    await set(namespace, 'user_1', { limit: 9, until: clock.now + 50 });
    expect(await inForce(namespace, 'user_1')).toBe(9);
    expect(await around(clock.now + 50, () => inForce(namespace, 'user_1'))).toEqual([9, 5]);
    expect(await around(clock.now + 50, () => inForce(namespace, 'user_1'))).toEqual([5, 1]);
    while (await sweep());
    expect(await inForce(namespace, 'user_1')).toBe(1);
    expect(await countOf(namespace)).toBe(1);
    // A former wildcard takes its place again.
    await set(namespace, '*', { limit: 3, until: clock.now + 100 });
    expect(await around(clock.now + 100, () => inForce(namespace, 'user_1'))).toEqual([3, 1]);
  });

  test('is in force again if Redis’s clock steps back, until what has ended is removed', async () => {
    const namespace = freshNamespace();
    const until = clock.now + 1000;
    await set(namespace, 'kept', { limit: 10 });
    for (const identifier of ['kept', 'alone']) await set(namespace, identifier, { until });
    const both = () => Promise.all(['kept', 'alone'].map((identifier) => inForce(namespace, identifier)));
    expect(await around(until, both)).toEqual([
      [50, 50],
      [10, undefined],
    ]);
    clock.advance(-500);
    expect(await both()).toEqual([50, 50]);
    clock.advance(500);
    while (await sweep());
    clock.advance(-500);
    expect(await both()).toEqual([50, undefined]);
    clock.advance(500);
  });

  test('is in the audit log with its end', async () => {
    const namespace = freshNamespace();
    const until = clock.now + 1000;
    const overrideId = await set(namespace, 'alice', { limit: 10 });
    await set(namespace, 'alice', { until });
    await set(namespace, 'alice');
    await set(namespace, 'alice', { until });
    await remove(namespace, 'alice');
    const events = await ok('audit.listEvents', { resource: { id: overrideId } });
    const ends = events.map(({ changes }) => changes!.find(({ field }) => field === 'until'));
    const [none, text] = [undefined, String(until)];
    expect(ends).toEqual([
      none,
      { field: 'until', after: text },
      { field: 'until', before: text },
      { field: 'until', after: text },
      { field: 'until', before: text },
    ]);
  });
});

describe('overrides that have ended', () => {
  test('are left out of pages, of which none is the last one too early', async () => {
    const namespace = freshNamespace();
    const identifiers = Array.from({ length: 24 }, (_, index) => `${index}`);
    for (const [index, identifier] of identifiers.entries())
      await set(namespace, identifier, index % 12 < 8 ? { until: clock.now + 1000 } : {});
    clock.advance(1000);
    const left = identifiers.filter((_, index) => index % 12 >= 8);
    for (const limit of [1, 3, 8, 100]) {
      const full = await call('ratelimits.listOverrides', { namespace, limit });
      expect((full.data as never as { overrides: unknown[] }).overrides).toHaveLength(Math.min(limit, left.length));
      const pages = await readPages(async (at) => {
        const { status, data, pagination } = await call('ratelimits.listOverrides', { namespace, limit, ...at });
        return { status, data: (data as never as { overrides: { identifier: string }[] }).overrides, pagination };
      });
      expect(pages.flat().map(({ identifier }) => identifier)).toEqual(left);
    }
    expect(await countOf(namespace)).toBe(left.length);
  });

  volumeTest('more than a call examines: a page may be short, and the next one goes on', async () => {
    const namespace = freshNamespace();
    await set(namespace, 'first');
    for (let first = 0; first < 440; first += 20)
      await Promise.all(
        Array.from({ length: 20 }, (_, index) => set(namespace, `${first + index}`, { until: clock.now + 1000 })),
      );
    await set(namespace, 'last');
    clock.advance(1000);
    const pages = await readPages(async (at) => {
      const { status, data, pagination } = await call('ratelimits.listOverrides', { namespace, limit: 2, ...at });
      return { status, data: (data as never as { overrides: { identifier: string }[] }).overrides, pagination };
    });
    expect(pages.map((items) => items.map(({ identifier }) => identifier))).toEqual([['first'], ['last']]);
    while (await sweep());
  });

  test('are removed by the sweeper, and nothing is left of them', async () => {
    const { rootKey, workspaceId } = await createWorkspace();
    const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
    try {
      const namesOf = async () => {
        const names = (await namesIn(redis)).map((name) => name.toString('latin1'));
        return names.filter((name) => name.startsWith(`${workspaceKey(workspaceId)}:ov`)).sort();
      };
      const namespace = 'swept';
      const given = { namespace, limit: 1, duration: minute };
      const one = async (identifier: string, until?: number) =>
        expect(
          (await call('ratelimits.setOverride', { ...given, identifier, ...(until && { until }) }, rootKey)).status,
        ).toBe(200);
      await one('stays');
      const before = await namesOf();
      const fields = () => redis.hgetall(workspaceKey(workspaceId));
      const { override_records: records, wildcards = '0' } = await fields();
      const until = clock.now + 1000;
      // More than a step removes.
      for (let first = 0; first < 220; first += 20)
        await Promise.all(Array.from({ length: 20 }, (_, index) => one(`${first + index}`, until)));
      for (const identifier of ['a*', 'b*']) await one(identifier, until);
      await one('later', until + 1);
      const status = async () => (await call('system.getStatus', {}, rootKey)).data.stored.overrides;
      expect(await status()).toBe(224);
      expect(await h.store.sweep.ended(workspaceId)).toBe(false);
      clock.advance(1000);
      expect(await status()).toBe(2);
      const steps: boolean[] = [];
      do steps.push(await h.store.sweep.ended(workspaceId));
      while (steps.at(-1));
      expect(steps).toEqual([true, false]);
      expect(await status()).toBe(2);
      clock.advance(1);
      expect(await h.store.sweep.ended(workspaceId)).toBe(false);
      expect(await namesOf()).toEqual(before);
      expect(await fields()).toMatchObject({ override_records: records, wildcards });
      expect((await redis.hgetall(`${workspaceKey(workspaceId)}:ns`))[namespace]).toMatch(/^.{16}e$/);
    } finally {
      await redis.quit();
    }
  });

  volumeTest('leave room for others without the sweeper', async () => {
    const limited = await openStore({ ...testSettings, recordsMax: 12, url: testRedisUrl(), nowMs: () => clock.now });
    const { workspaceId, rootKey } = await createWorkspace();
    const answer = createPipeline(operations, { store: limited, log: pino({ level: 'silent' }), metaBytesMax: 10_240 });
    const send = async (identifier: string, until?: number) => {
      const input = { namespace: 'full', identifier, limit: 1, duration: minute, until };
      const request = requestTo('/v2/ratelimits.setOverride', rootKey, { body: JSON.stringify(input) });
      return (await answer(request)).status;
    };
    try {
      expect(workspaceId).toMatch(/^ws_/);
      const made: number[] = [];
      for (let index = 0; index < 12; index++) made.push(await send(`${index}`, clock.now + 1000));
      expect(made.filter((status) => status === 200).length).toBeGreaterThan(5);
      expect(made.at(-1)).toBe(403);
      clock.advance(1000);
      expect(await send('permanent')).toBe(200);
      expect(await send('0')).toBe(200);
    } finally {
      await limited.close();
    }
  });

  test('leave room for other wildcards', async () => {
    const namespace = freshNamespace();
    const until = clock.now + 1000;
    for (let index = 0; index < 16; index++) await set(namespace, `*${index}*`, { until });
    const more = { namespace, identifier: '*x*', limit: 1, duration: minute };
    expect((await call('ratelimits.setOverride', more)).status).toBe(400);
    clock.advance(1000);
    expect((await call('ratelimits.setOverride', more)).status).toBe(200);
  });
});

describe('ratelimits.setOverride with `until`: refused', () => {
  const wrong: [what: string, until: () => unknown][] = [
    ['the past', () => clock.now - 1],
    ['now', () => clock.now],
    ['more than 366 days ahead', () => clock.now + 366 * dayMs + 1],
    ['a negative time', () => -1],
    ['a fraction', () => clock.now + 1000.5],
    ['a text', () => '2026-01-16'],
    ['null', () => null],
    ['a time after 2099', () => 4_102_444_800_001],
  ];
  test.each(wrong)('%s', async (_, untilOf) => {
    const namespace = freshNamespace();
    await set(namespace, 'alice', { limit: 10 });
    const before = await found(namespace, 'alice');
    const input = { namespace, identifier: 'alice', limit: 50, duration: minute, until: untilOf() as number };
    expect(await call('ratelimits.setOverride', input)).toMatchObject(onlyInvalidAt('body.until'));
    expect(await found(namespace, 'alice')).toEqual(before);
    // Neither is a namespace created.
    const other = { ...input, namespace: `${namespace} other` };
    expect((await call('ratelimits.setOverride', other)).status).toBe(400);
    expect(await found(other.namespace, 'alice')).toBe('namespace_not_found');
  });

  test('exactly 366 days ahead is accepted', async () => {
    await set(freshNamespace(), 'alice', { until: clock.now + 366 * dayMs });
  });
});

test('an override of an export keeps its id and its end; one that has ended is its former one, or none', async () => {
  const namespace = freshNamespace();
  await set(namespace, 'first');
  const createdMs = clock.now - 1000;
  const former = { limit: 7, duration: 2 * minute };
  const importOf = (identifier: string, more: object) => {
    const keptId = identifier.padEnd(16, 'x');
    const given = { namespace, identifier, limit: 50, duration: minute, keptId, createdMs, ...more };
    return h.store.overrides.set(h.workspaceId, given, cliActor);
  };
  const until = clock.now + 400 * dayMs;
  const ended = clock.now;
  await importOf('lasts', { untilMs: until, former });
  await importOf('lastsAlone', { untilMs: until });
  await importOf('ended', { untilMs: ended, former });
  expect(await importOf('endedAlone', { untilMs: ended })).toMatchObject({ refused: 'ended' });
  expect(await importOf('lasts', { untilMs: until + 1 })).toMatchObject({ refused: 'exists' });
  const of = { createdAt: createdMs, namespace, namespaceId: expect.any(String) };
  const lasts = { ...of, limit: 50, duration: minute, until };
  expect((await listed(namespace)).slice(1)).toEqual(
    [
      { ...of, ...former, identifier: 'ended', overrideId: 'rlor_endedxxxxxxxxxxx' },
      { ...lasts, former, identifier: 'lasts', overrideId: 'rlor_lastsxxxxxxxxxxx' },
      { ...lasts, identifier: 'lastsAlone', overrideId: 'rlor_lastsAlonexxxxxx' },
    ].sort((a, b) => (a.overrideId < b.overrideId ? -1 : 1)),
  );
});

test('a permanent override is stored in the bytes that it always had, also after a temporary one was replaced', async () => {
  const namespace = freshNamespace();
  const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
  try {
    await set(namespace, 'alice', { limit: 10 });
    const { namespaceId } = await ok('ratelimits.getOverride', { namespace, identifier: 'alice' });
    const record = `${workspaceKey(h.workspaceId)}:ov:${namespaceId.slice('rlns_'.length)}`;
    const bytes = () => redis.hgetBuffer(record, 'alice');
    const before = await bytes();
    expect(before).toHaveLength(36);
    await set(namespace, 'alice', { until: clock.now + 1000 });
    expect(await bytes()).toHaveLength(57);
    await set(namespace, 'alice', { limit: 10 });
    expect(await bytes()).toEqual(before);
  } finally {
    await redis.quit();
  }
});
