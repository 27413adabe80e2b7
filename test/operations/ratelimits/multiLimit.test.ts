// limit.test.ts tests single checks. This file tests several checks in one call.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';

const { call, ok, clock, createRootKey, createWorkspace, send } = harness();

const minute = 60_000;
type Check = InputOf<'ratelimits.limit'>;
let identifiers = 0;

/** A counter that no other test charges. */
const fresh = (more: Partial<Check> = {}): Check => ({
  namespace: 'email',
  identifier: `user_${++identifiers}`,
  limit: 2,
  duration: minute,
  ...more,
});

const look = (check: Check) => ok('ratelimits.limit', { ...check, cost: 0 });
const namespaceId = async (namespace: string) => {
  await ok('ratelimits.setOverride', { namespace, identifier: 'to learn the id', limit: 1, duration: minute });
  return (await ok('ratelimits.getOverride', { namespace, identifier: 'to learn the id' })).namespaceId;
};

describe('ratelimits.multiLimit: a call whose checks all pass', () => {
  test('charges each, and returns them in the order of the request', async () => {
    const checks = [fresh({ limit: 5, cost: 3 }), fresh({ namespace: 'sms', duration: 5000 }), fresh({ cost: 0 })];
    const { overrideId } = await ok('ratelimits.setOverride', {
      ...fresh(),
      identifier: checks[2]!.identifier,
      limit: 7,
    });
    expect(await ok('ratelimits.multiLimit', checks)).toEqual({
      passed: true,
      limits: [
        { ...named(checks[0]!), limit: 5, remaining: 2, reset: clock.now + minute + 1, passed: true },
        { ...named(checks[1]!), limit: 2, remaining: 1, reset: clock.now + 5001, passed: true },
        { ...named(checks[2]!), limit: 7, remaining: 7, reset: clock.now, passed: true, overrideId },
      ],
    });
    expect(await look(checks[0]!)).toMatchObject({ remaining: 2 });
    expect(await look(checks[1]!)).toMatchObject({ remaining: 1 });
  });

  test('responds as ratelimits.limit does for one, and charges the same counter', async () => {
    const check = fresh();
    const { success, ...rest } = await ok('ratelimits.limit', check);
    clock.advance(10);
    expect(await ok('ratelimits.multiLimit', [check])).toEqual({
      passed: success,
      limits: [{ ...named(check), ...rest, remaining: 0, passed: success }],
    });
    expect(await ok('ratelimits.limit', check)).toMatchObject({ success: false });
  });

  test('a hundred at once', async () => {
    const checks = Array.from({ length: 100 }, () => fresh());
    const { passed, limits } = await ok('ratelimits.multiLimit', checks);
    expect(passed).toBe(true);
    expect(limits.map(({ identifier }) => identifier)).toEqual(checks.map(({ identifier }) => identifier));
    expect(new Set(limits.map(({ remaining }) => remaining))).toEqual(new Set([1]));
  });

  test('returns namespaces as they were given, by name or by id', async () => {
    const id = await namespaceId('email');
    const [byId, byName] = [fresh({ namespace: id }), fresh()];
    const { limits } = await ok('ratelimits.multiLimit', [byId, byName]);
    expect(limits.map(({ namespace }) => namespace)).toEqual([id, 'email']);
  });

  test('both path families charge the same', async () => {
    const check = fresh();
    for (const [path, remaining] of [
      ['ratelimit', 1],
      ['ratelimits', 0],
    ] as const) {
      const { json } = await send(`/v2/${path}.multiLimit`, { body: JSON.stringify([check]) });
      expect(json.data).toMatchObject({ passed: true, limits: [{ remaining, passed: true }] });
    }
  });
});

describe('ratelimits.multiLimit: a call of which one check fails', () => {
  test('none is charged; those that would fit report it, with what remains without the call', async () => {
    const [fits, full, alsoFits] = [fresh({ limit: 5, cost: 4 }), fresh(), fresh({ limit: 3, cost: 3 })];
    const start = clock.now;
    await ok('ratelimits.limit', { ...fits, cost: 1 });
    await ok('ratelimits.limit', { ...full, cost: 2 });
    clock.advance(1000);
    const answer = {
      passed: false,
      limits: [
        { ...named(fits), limit: 5, remaining: 4, reset: start + minute + 1, passed: true },
        { ...named(full), limit: 2, remaining: 0, reset: start + minute + 1, passed: false },
        { ...named(alsoFits), limit: 3, remaining: 3, reset: clock.now, passed: true },
      ],
    };
    expect(await ok('ratelimits.multiLimit', [fits, full, alsoFits])).toEqual(answer);
    // The same again: nothing was charged.
    expect(await ok('ratelimits.multiLimit', [fits, full, alsoFits])).toEqual(answer);
    expect(await look(alsoFits)).toMatchObject({ remaining: 3 });
    // Once the failing check passes, all do.
    clock.advance(minute);
    expect(await ok('ratelimits.multiLimit', [fits, full, alsoFits])).toMatchObject({ passed: true });
    expect(await look(alsoFits)).toMatchObject({ remaining: 0 });
  });

  test.each([0, 1, 2])('with the failing check at position %i', async (place) => {
    const checks = [fresh(), fresh(), fresh()];
    checks[place] = { ...checks[place]!, cost: 3 };
    const { passed, limits } = await ok('ratelimits.multiLimit', checks);
    expect({ passed, limits: limits.map((item) => item.passed) }).toEqual({
      passed: false,
      limits: [0, 1, 2].map((index) => index !== place),
    });
    for (const check of checks) expect(await look(check)).toMatchObject({ remaining: 2 });
  });

  test('a blocked identifier refuses the whole call, even at cost 0', async () => {
    const [blocked, other] = [fresh({ cost: 0 }), fresh()];
    await ok('ratelimits.setOverride', {
      namespace: 'email',
      identifier: blocked.identifier,
      limit: 0,
      duration: minute,
    });
    expect(await ok('ratelimits.multiLimit', [other, blocked])).toMatchObject({
      passed: false,
      limits: [{ passed: true }, { passed: false, limit: 0, remaining: 0 }],
    });
    expect(await look(other)).toMatchObject({ remaining: 2 });
  });
});

describe('ratelimits.multiLimit: several checks of one counter', () => {
  test('within the limit all are charged, and each returns what remains after the call', async () => {
    const check = fresh({ limit: 10 });
    const { passed, limits } = await ok('ratelimits.multiLimit', [
      { ...check, cost: 3 },
      { ...check, cost: 0 },
      { ...check, cost: 4 },
    ]);
    expect({ passed, remaining: limits.map(({ remaining }) => remaining) }).toEqual({
      passed: true,
      remaining: [3, 3, 3],
    });
    expect(await look(check)).toMatchObject({ remaining: 3 });
  });

  test('beyond the limit the check that exceeds it fails, and none is charged', async () => {
    const check = fresh({ limit: 5 });
    const { passed, limits } = await ok('ratelimits.multiLimit', [
      { ...check, cost: 3 },
      { ...check, cost: 3 },
      { ...check, cost: 2 },
    ]);
    expect(passed).toBe(false);
    expect(limits.map((item) => [item.passed, item.remaining])).toEqual([
      [true, 5],
      [false, 5],
      [true, 5],
    ]);
    expect(await look(check)).toMatchObject({ remaining: 5 });
  });

  test('100 checks, of which the last exceeds the limit', async () => {
    const check = fresh({ limit: 99 });
    expect((await ok('ratelimits.multiLimit', Array(100).fill(check))).passed).toBe(false);
    expect(await look(check)).toMatchObject({ remaining: 99 });
    expect((await ok('ratelimits.multiLimit', Array(99).fill(check))).passed).toBe(true);
    expect(await look(check)).toMatchObject({ remaining: 0 });
  });

  test('each is checked against its own limit', async () => {
    const check = fresh();
    const { passed, limits } = await ok('ratelimits.multiLimit', [
      { ...check, limit: 10, cost: 4 },
      { ...check, limit: 6, cost: 2 },
    ]);
    expect({ passed, remaining: limits.map(({ remaining }) => remaining) }).toEqual({
      passed: true,
      remaining: [4, 0],
    });
    expect(await ok('ratelimits.multiLimit', [{ ...check, limit: 6 }])).toMatchObject({ passed: false });
  });

  test('are added up when given by name and by id, or when an override makes their durations equal', async () => {
    const check = fresh({ limit: 3 });
    const id = await namespaceId('email');
    expect(
      await ok('ratelimits.multiLimit', [
        { ...check, cost: 2 },
        { ...check, namespace: id, cost: 2 },
      ]),
    ).toMatchObject({ passed: false, limits: [{ passed: true }, { passed: false }] });

    await ok('ratelimits.setOverride', { ...check, limit: 3, duration: 1000 });
    expect(
      await ok('ratelimits.multiLimit', [
        { ...check, cost: 2 },
        { ...check, duration: 2 * minute, cost: 2 },
      ]),
    ).toMatchObject({ passed: false, limits: [{ passed: true }, { passed: false }] });
  });

  test('the cost of earlier checks counts in the `reset` of the one that fails', async () => {
    const check = fresh({ limit: 10 });
    const first = clock.now + minute + 1;
    await ok('ratelimits.limit', { ...check, cost: 4 });
    clock.advance(1000);
    await ok('ratelimits.limit', { ...check, cost: 2 });
    const calls = [3, 3].map((cost) => ({ ...check, cost }));
    const refused = await ok('ratelimits.multiLimit', calls);
    expect(refused).toMatchObject({
      passed: false,
      limits: [
        { passed: true, remaining: 4 },
        { passed: false, remaining: 4, reset: first },
      ],
    });
    clock.now = first - 1;
    expect(await ok('ratelimits.multiLimit', calls)).toMatchObject({ passed: false });
    clock.now = first;
    expect(await ok('ratelimits.multiLimit', calls)).toMatchObject({ passed: true });
  });

  test('checks that can never fit together have a reset of one duration from now, also by name and id', async () => {
    const check = fresh({ limit: 10, cost: 6 });
    const namespace = await namespaceId('email');
    for (const second of [check, { ...check, namespace }]) {
      expect(await ok('ratelimits.multiLimit', [check, second])).toMatchObject({
        passed: false,
        limits: [
          { passed: true, remaining: 10, reset: clock.now },
          { passed: false, remaining: 10, reset: clock.now + minute },
        ],
      });
    }
    const most = Number.MAX_SAFE_INTEGER;
    const huge = fresh({ limit: most, cost: most });
    expect((await ok('ratelimits.multiLimit', [huge, huge])).limits[1]).toMatchObject({ reset: clock.now + minute });
  });

  test('a call after the last `reset` of the failed checks passes', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 1, max: 5 }), { maxLength: 6 }),
        fc.array(fc.record({ counter: fc.nat(1), cost: fc.integer({ min: 0, max: 6 }) }), {
          minLength: 1,
          maxLength: 5,
        }),
        async (charges, asked) => {
          const checks = [fresh({ limit: 10 }), fresh({ limit: 12 })];
          for (const cost of charges) {
            await Promise.all(checks.map((check) => ok('ratelimits.limit', { ...check, cost })));
            clock.advance(7000);
          }
          const call = () =>
            ok(
              'ratelimits.multiLimit',
              asked.map(({ counter, cost }) => ({ ...checks[counter]!, cost })),
            );
          /** The index of the first check that is refused. */
          const stuck = ({ limits }: Awaited<ReturnType<typeof call>>) => limits.findIndex(({ passed }) => !passed);
          let refused = await call();
          while (!refused.passed) {
            const { reset } = refused.limits[stuck(refused)]!;
            expect(reset).toBeGreaterThan(clock.now);
            const together = asked.slice(0, stuck(refused) + 1);
            const { counter } = together.at(-1)!;
            const units = together.filter((one) => one.counter === counter).reduce((sum, { cost }) => sum + cost, 0);
            // Exact to the millisecond. If they never fit together, `reset` is one duration from now.
            if (units > checks[counter]!.limit) {
              expect(reset).toBe(clock.now + minute);
              return;
            }
            clock.now = reset - 1;
            expect(stuck(await call())).toBe(stuck(refused));
            clock.now = reset;
            const next = await call();
            expect(next.passed || stuck(next) > stuck(refused)).toBe(true);
            refused = next;
          }
        },
      ),
      { numRuns: 60 },
    );
  });

  test('another duration is another counter', async () => {
    const check = fresh();
    const longer = { ...check, duration: 2 * minute };
    expect(
      await ok('ratelimits.multiLimit', [
        { ...check, cost: 2 },
        { ...longer, cost: 2 },
      ]),
    ).toMatchObject({
      passed: true,
      limits: [
        { remaining: 0, reset: clock.now + minute + 1 },
        { remaining: 0, reset: clock.now + 2 * minute + 1 },
      ],
    });
  });

  test('of many concurrent calls exactly the limit is admitted, all or nothing for each call', async () => {
    const [one, two] = [fresh({ limit: 20 }), fresh({ limit: 30 })];
    const calls = Array.from({ length: 60 }, () => ok('ratelimits.multiLimit', [one, { ...two, cost: 2 }]));
    expect((await Promise.all(calls)).filter(({ passed }) => passed)).toHaveLength(15);
    expect(await look(one)).toMatchObject({ remaining: 5 });
    expect(await look(two)).toMatchObject({ remaining: 0 });
  });
});

describe('ratelimits.multiLimit: 400', () => {
  test.each([
    ['no check', [], 'body'],
    ['more than a hundred', Array(101).fill(fresh()), 'body'],
    ['a bad one among good ones', [fresh(), fresh({ limit: 0 })], 'body[1].limit'],
    ['a cost below nothing', [fresh({ cost: -1 })], 'body[0].cost'],
    ['a duration beyond a year', [fresh({ duration: 31_622_400_001 })], 'body[0].duration'],
  ])('%s', async (_what, checks, location) => {
    const refused = await call('ratelimits.multiLimit', checks);
    expect(refused).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(refused.error.errors).toEqual([expect.objectContaining({ location })]);
  });
});

describe('ratelimits.multiLimit: 403', () => {
  test('a missing grant for one of the namespaces charges nothing', async () => {
    const ids = [await namespaceId('one'), await namespaceId('two'), await namespaceId('three')] as const;
    const checks = [fresh({ namespace: 'one' }), fresh({ namespace: 'two' }), fresh({ namespace: ids[2] })];
    const grants = ids.map((id) => `ratelimit.${id}.limit`);
    for (const [place, id] of ids.entries()) {
      const refused = await call('ratelimits.multiLimit', checks, grants.toSpliced(place, 1));
      expect(refused).toMatchObject({ status: 403, code: 'insufficient_permissions' });
      expect(refused.error.detail).toContain(`ratelimit.*.limit or ratelimit.${id}.limit`);
    }
    for (const check of checks) expect(await look(check)).toMatchObject({ remaining: 2 });
    expect((await call('ratelimits.multiLimit', checks, grants)).data.passed).toBe(true);
  });

  test('namespaces are created only when the whole call is permitted', async () => {
    const id = await namespaceId('known');
    const known = fresh({ namespace: 'known' });
    const fresh2 = [fresh({ namespace: 'unborn 1' }), fresh({ namespace: 'unborn 2' })];
    const isThere = async (namespace: string) => (await call('ratelimits.listOverrides', { namespace })).status === 200;
    const creating = await createRootKey([`ratelimit.${id}.limit`, 'ratelimit.*.create_namespace']);
    const limiting = await createRootKey(['ratelimit.*.limit']);
    for (const rootKey of [creating, limiting]) {
      const refused = await call('ratelimits.multiLimit', [known, ...fresh2], rootKey);
      expect(refused).toMatchObject({ status: 403, code: 'insufficient_permissions' });
    }
    const unknownId = fresh({ namespace: 'rlns_unknown' });
    expect(await call('ratelimits.multiLimit', [...fresh2, unknownId])).toMatchObject({ status: 404 });
    expect([await isThere('unborn 1'), await isThere('unborn 2')]).toEqual([false, false]);
    expect(await look(known)).toMatchObject({ remaining: 2 });

    const both = ['ratelimit.*.limit', 'ratelimit.*.create_namespace'];
    const { data } = await call('ratelimits.multiLimit', [known, ...fresh2, { ...fresh2[0]!, cost: 1 }], both);
    expect(data).toMatchObject({ passed: true, limits: [{}, { remaining: 0 }, { remaining: 1 }, { remaining: 0 }] });
    expect([await isThere('unborn 1'), await isThere('unborn 2')]).toEqual([true, true]);
  });

  test('a permitted call that fails its checks creates its namespace', async () => {
    const check = fresh({ namespace: 'born blocked', cost: 3 });
    expect(await ok('ratelimits.multiLimit', [check])).toMatchObject({ passed: false, limits: [{ remaining: 2 }] });
    expect(await ok('ratelimits.listOverrides', { namespace: 'born blocked' })).toEqual({ overrides: [] });
  });
});

describe('ratelimits.multiLimit: 404', () => {
  test('for an unknown id of a namespace, or one of another workspace, and nothing is charged', async () => {
    const id = await namespaceId('ours');
    const { rootKey } = await createWorkspace();
    const check = fresh();
    for (const [namespace, as] of [
      ['rlns_unknown', undefined],
      [id, rootKey],
    ] as const) {
      const refused = await call('ratelimits.multiLimit', [check, fresh({ namespace })], as);
      expect(refused).toMatchObject({ status: 404, code: 'namespace_not_found' });
    }
    expect(await look(check)).toMatchObject({ remaining: 2 });
  });
});

function named({ namespace, identifier }: Check) {
  return { namespace, identifier };
}
