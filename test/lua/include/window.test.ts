// lua/include/windowLog.lua, through ratelimits.limit and keys.verifyKey, compared with a simple sliding-window log. A
// failure prints its seed and the smallest history that fails.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { presented } from '../../../src/domain/keyString.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { type Admitted, Counter, unitsOf } from '../../support/counter.ts';
import { dayMs, harness, hourMs } from '../../support/harness.ts';
import { snippets } from '../../support/snippet.ts';
import { thorough } from '../../support/testIf.ts';

const h = harness(undefined, { leaseMs: 0 });
const lua = snippets();
const { clock } = h;
const startMs = clock.now;

interface Answer {
  passed: boolean;
  remaining: number;
  reset: number;
}

interface Charged extends Admitted {
  /** The total forward movement of the clock when this was charged. */
  at: number;
  /** The same at the first check after the last step back. From there on it may count for a whole duration. */
  since: number;
}

/** A counter that also keeps entries that no longer count, to check the promise, which does not mention sub-windows. */
class Log extends Counter {
  readonly charges: Charged[] = [];
  #now = Number.NEGATIVE_INFINITY;
  /** The total forward movement of the clock. A step back does not decrease it. */
  #moved = 0;

  override counted(now: number): Admitted[] {
    if (now > this.#now && this.#now > 0) this.#moved += now - this.#now;
    if (now < this.#now) for (const charged of this.live as Charged[]) charged.since = this.#moved;
    this.#now = now;
    return super.counted(now);
  }

  override charge(now: number, limit: number, units: number): Admitted | undefined {
    const admitted = super.charge(now, limit, units);
    if (admitted) this.charges.push(Object.assign(admitted, { at: this.#moved, since: this.#moved }));
    return admitted;
  }

  fits(now: number, limit: number, cost: number): boolean {
    return this.used(now) + cost <= limit;
  }

  /** The response to a check with this decision. */
  response(now: number, limit: number, cost: number, passed: boolean): Answer {
    const reset = passed ? this.admittedReset(now) : this.deniedReset(now, limit, cost);
    return { passed, remaining: Math.max(0, limit - this.used(now)), reset };
  }

  check(now: number, limit: number, cost: number): Answer {
    const passed = this.fits(now, limit, cost);
    if (passed) this.charge(now, limit, cost);
    return this.response(now, limit, cost, passed);
  }

  /** While the clock advances by the duration, at most the limit is admitted. */
  expectNeverMoreThan(limit: number) {
    for (let first = 0; first < this.charges.length; first++) {
      let units = 0;
      for (let last = first; last < this.charges.length; last++) {
        // Both times are cut off to milliseconds, so the real interval may be a fraction longer.
        if (this.charges[last]!.at - this.charges[first]!.at > this.duration) break;
        units += this.charges[last]!.units;
        if (units > limit) expect({ first, last, units }).toEqual({ first, last, units: `at most ${limit}` });
      }
    }
  }

  /** The units that must count now by the promise, and the units that may count. */
  mustCount(now: number): [atLeast: number, atMost: number] {
    const late = Math.max(1, this.duration / 64);
    this.counted(now);
    const live = this.live as Charged[];
    return [
      unitsOf(this.charges.filter(({ at }) => at + this.duration >= this.#moved)),
      unitsOf(live.filter(({ since }) => since + this.duration + late > this.#moved)),
    ];
  }
}

let runs = 0;
/** Unused identifiers. */
const fresh = (count: number) => {
  runs++;
  return Array.from({ length: count }, (_, index) => `run ${runs} identifier ${index}`);
};

async function limit(identifier: string, durationMs: number, most: number, cost: number): Promise<Answer> {
  const rootKey = presented(h.rootKey);
  const check = { namespace: 'window', identifier, limit: most, durationMs, cost };
  const { passed, checks } = await h.store.decide.limitChecks.prepare(rootKey, [check]).decide();
  expect(checks[0]!.passed).toBe(passed);
  return { passed, remaining: checks[0]!.remaining, reset: checks[0]!.resetAtMs };
}

/** The bytes of the string that contains a counter. */
async function storedBytes(identifier: string, duration: number): Promise<number> {
  const workspace = workspaceKey(h.workspaceId);
  const bytes = await lua.run(
    `local id16 = redis.call('HGET', name_of.namespace_ids(KEYS[1]), 'window')
     return redis.call('STRLEN', name_of.window_at(KEYS[1], id16, name_of.window_member(tonumber(ARGV[2]), ARGV[1])))`,
    workspace,
    [identifier, duration],
  );
  return bytes as number;
}

const ttlOf = (identifier: string, duration: number) =>
  lua.run(
    `local id16 = redis.call('HGET', name_of.namespace_ids(KEYS[1]), 'window')
     return redis.call('PTTL', name_of.window_at(KEYS[1], id16, name_of.window_member(tonumber(ARGV[2]), ARGV[1])))`,
    workspaceKey(h.workspaceId),
    [identifier, duration],
  );

const durations = fc.constantFrom(1000, 1001, 1063, 6400, 60_000, 2_592_000_000, 31_622_400_000);
const anyLimit = fc.oneof(
  fc.integer({ min: 1, max: 5 }),
  fc.integer({ min: 60, max: 70 }),
  fc.integer({ min: 1, max: 1000 }),
  fc.constantFrom(64, 65, 1e9, Number.MAX_SAFE_INTEGER),
);
/** Units, or eighths of the limit (nine are too many). Values instead of functions, so that a failure prints them. */
const costs = fc.oneof(
  fc.record({ units: fc.integer({ min: 0, max: 3 }) }),
  fc.record({ eighths: fc.integer({ min: 0, max: 9 }) }),
);
type Cost = { units: number } | { eighths: number };
const costOf = (cost: Cost, most: number) =>
  'units' in cost ? cost.units : Math.min(Math.floor((most / 8) * cost.eighths), Number.MAX_SAFE_INTEGER);

/** How far the clock advances between two steps: a share of the duration, and milliseconds. */
const steps = (back: boolean) => {
  const ms = (min: number, max: number) => fc.record({ share: fc.constant(0), ms: fc.integer({ min, max }) });
  const share = (min: number, max: number) =>
    fc.record({ share: fc.double({ min, max, noNaN: true }), ms: fc.constant(0) });
  return fc.oneof(
    { weight: 3, arbitrary: ms(0, 2) },
    { weight: 4, arbitrary: share(0, 1 / 16) },
    { weight: 2, arbitrary: share(0, 1.1) },
    // Exactly at the ends of the interval.
    { weight: 2, arbitrary: fc.record({ share: fc.constant(1), ms: fc.integer({ min: -1, max: 2 }) }) },
    { weight: back ? 2 : 0, arbitrary: share(-1.1, 0) },
    { weight: back ? 1 : 0, arbitrary: ms(-3, -1) },
  );
};
const stepMs = ({ share, ms }: { share: number; ms: number }, duration: number) => Math.round(share * duration) + ms;

const identifiers = 10;
/**
 * Ten counters with different limits and costs share the times of a history, so that one round trip checks all of them.
 */
const histories = (limits: fc.Arbitrary<number[]>) =>
  fc.boolean().chain((back) =>
    fc.record({
      duration: durations,
      limits: fc.array(limits, { minLength: identifiers, maxLength: identifiers }),
      steps: fc.array(
        fc.record({
          step: steps(back),
          checks: fc.array(fc.record({ which: fc.nat(), cost: costs }), {
            minLength: identifiers,
            maxLength: identifiers,
          }),
        }),
        { minLength: 1, maxLength: 50, size: 'max' },
      ),
    }),
  );

type History = ReturnType<typeof histories> extends fc.Arbitrary<infer Value> ? Value : never;

interface Check {
  most: number;
  cost: number;
  answer: Answer;
}

/**
 * Runs a history and compares every response with the log. `also` gets each response and the units that had to count
 * before.
 */
async function live(
  { duration, limits, steps }: History,
  also: (check: Check, used: [atLeast: number, atMost: number]) => void = () => {},
) {
  clock.now = startMs;
  const names = fresh(identifiers);
  const logs = names.map(() => new Log(duration));
  let last: Check[] = [];
  for (const { step, checks } of steps) {
    clock.advance(stepMs(step, duration));
    last = await Promise.all(
      checks.map(async ({ which, cost: chosen }, index) => {
        const most = limits[index]![which % limits[index]!.length]!;
        const cost = costOf(chosen, most);
        return { most, cost, answer: await limit(names[index]!, duration, most, cost) };
      }),
    );
    for (const [index, log] of logs.entries()) {
      const { most, cost, answer } = last[index]!;
      also(last[index]!, log.mustCount(clock.now));
      expect(answer, `identifier ${index}`).toEqual(log.check(clock.now, most, cost));
    }
  }
  return { names, logs, last };
}

describe('the window’s promise', () => {
  test('in no interval of the duration is more than the limit admitted, and capacity comes back in time', async () => {
    await fc.assert(
      fc.asyncProperty(histories(anyLimit.map((one) => [one])), async (history) => {
        const { logs } = await live(history, ({ most, cost, answer }, [atLeast, atMost]) => {
          const charged = answer.passed ? cost : 0;
          if (answer.passed) expect(atLeast + cost).toBeLessThanOrEqual(most);
          else expect(atMost + cost).toBeGreaterThan(most);
          expect(answer.remaining).toBeLessThanOrEqual(Math.max(0, most - atLeast - charged));
          expect(answer.remaining).toBeGreaterThanOrEqual(Math.max(0, most - atMost - charged));
        });
        for (const [index, log] of logs.entries()) log.expectNeverMoreThan(history.limits[index]![0]!);
      }),
      { numRuns: thorough(40, 14) },
    );
  });

  test('the promise holds for every limit of one counter, and the counter stays small', async () => {
    await fc.assert(
      fc.asyncProperty(histories(fc.array(anyLimit, { minLength: 2, maxLength: 3 })), async (history) => {
        const { names } = await live(history, ({ most, cost, answer }, [atLeast]) => {
          if (answer.passed) expect(atLeast + cost).toBeLessThanOrEqual(most);
        });
        for (const name of names) expect(await storedBytes(name, history.duration)).toBeLessThanOrEqual(2048);
      }),
      { numRuns: thorough(25, 8) },
    );
  });

  test("a denied check's reset is the earliest moment at which it is admitted", async () => {
    await fc.assert(
      fc.asyncProperty(histories(fc.array(anyLimit, { minLength: 1, maxLength: 2 })), async (history) => {
        const { names, last } = await live(history);
        for (const [index, { most, cost, answer }] of last.entries()) {
          if (answer.passed || cost > most) continue;
          clock.now = answer.reset - 1;
          expect((await limit(names[index]!, history.duration, most, cost)).passed).toBe(false);
          clock.now = answer.reset;
          expect((await limit(names[index]!, history.duration, most, cost)).passed).toBe(true);
        }
      }),
      { numRuns: thorough(25, 8) },
    );
  });

  test('a cost of `remaining` is admitted, and one more is not', async () => {
    await fc.assert(
      fc.asyncProperty(histories(anyLimit.map((one) => [one])), async (history) => {
        const { names, last } = await live(history);
        for (const [index, { most, answer }] of last.entries()) {
          const check = (cost: number) => limit(names[index]!, history.duration, most, cost);
          if (answer.remaining < Number.MAX_SAFE_INTEGER) {
            expect((await check(answer.remaining + 1)).passed).toBe(false);
          }
          expect(await check(answer.remaining)).toMatchObject({ passed: true, remaining: 0 });
        }
      }),
      { numRuns: thorough(15, 5) },
    );
  });
});

describe('memory of a window', () => {
  // The maximum of entries: 64 single units, then the many slices of a large limit, and so on for three durations.
  test.each([1000, 1063, 64_000, 31_622_400_000])('a counter of %i ms stays below 2 KB', async (duration) => {
    clock.now = startMs;
    const [name] = fresh(1) as [string];
    const slice = Math.floor(duration / 64);
    let largest = 0;
    for (let round = 0; round < 3; round++) {
      for (let unit = 0; unit < 64; unit++) {
        await limit(name, duration, 64, 1);
        clock.advance(1);
      }
      for (let index = 0; index < 67; index++) {
        clock.advance(slice - (index === 0 ? clock.now % slice : 0));
        await limit(name, duration, 1e9, 1);
        largest = Math.max(largest, await storedBytes(name, duration));
      }
    }
    expect(largest).toBeGreaterThan(64 * 4);
    expect(largest).toBeLessThanOrEqual(2048);
  });

  test('a usual counter is small: two bytes a slice, four where a slice holds many units', async () => {
    clock.now = startMs - (startMs % hourMs);
    const [name] = fresh(1) as [string];
    const bytes: number[] = [];
    for (const cost of [1, 300]) {
      for (let slice = 0; slice < 64; slice++) {
        await limit(name, hourMs, 1e6, cost);
        clock.advance(hourMs / 64);
      }
      bytes.push(await storedBytes(name, hourMs));
    }
    // Besides the slices: kind, base and step, and the sum of units.
    expect(bytes).toEqual([13 + 2 * 64 + 7, 13 + 4 * 65 + 7]);
  });

  test('a counter expires some time after its last charge', async () => {
    clock.now = startMs;
    const [name] = fresh(1) as [string];
    await limit(name, 60_000, 5, 1);
    const ttl = await ttlOf(name, 60_000);
    expect(ttl).toBeGreaterThan(60_000 + 938);
    expect(ttl).toBeLessThanOrEqual(2 * 60_000 + 938);
  });
});

describe('window examples', () => {
  const check = (name: string, most: number, cost: number) => limit(name, 1000, most, cost);

  test('a small limit is exact to the millisecond: a unit charged at 0 is available again at 1001', async () => {
    clock.now = startMs;
    const [name] = fresh(1) as [string];
    expect(await check(name, 1, 1)).toEqual({ passed: true, remaining: 0, reset: startMs + 1001 });
    clock.now = startMs + 1000;
    expect(await check(name, 1, 1)).toEqual({ passed: false, remaining: 0, reset: startMs + 1001 });
    clock.now = startMs + 1001;
    expect(await check(name, 1, 1)).toEqual({ passed: true, remaining: 0, reset: startMs + 2002 });
  });

  test('a denied check charges nothing: a smaller one still fits', async () => {
    clock.now = startMs;
    const [name] = fresh(1) as [string];
    expect(await check(name, 10, 8)).toMatchObject({ passed: true, remaining: 2 });
    expect(await check(name, 10, 3)).toMatchObject({ passed: false, remaining: 2 });
    expect(await check(name, 10, 2)).toMatchObject({ passed: true, remaining: 0 });
  });

  test('cost 0 stores nothing, and the reset of an unused counter is now', async () => {
    clock.now = startMs;
    const [name] = fresh(1) as [string];
    expect(await check(name, 10, 0)).toEqual({ passed: true, remaining: 10, reset: startMs });
    expect(await storedBytes(name, 1000)).toBe(0);
    await check(name, 10, 10);
    expect(await check(name, 10, 0)).toEqual({ passed: true, remaining: 0, reset: startMs + 1001 });
  });

  test('a cost above the limit is denied, also by an empty counter, until one duration from now', async () => {
    clock.now = startMs;
    const [name] = fresh(1) as [string];
    expect(await check(name, 10, 11)).toEqual({ passed: false, remaining: 10, reset: startMs + 1000 });
  });

  test('a clock that steps back opens no limit; units charged in the future count for one duration from then', async () => {
    clock.now = startMs;
    const [name] = fresh(1) as [string];
    await check(name, 3, 2);
    clock.now = startMs - hourMs;
    const open = clock.now + 1000 + 15;
    expect(await check(name, 3, 2)).toEqual({ passed: false, remaining: 1, reset: open });
    // This check was refused. The end of the entry does not move with the clock.
    clock.advance(10);
    expect(await check(name, 3, 2)).toEqual({ passed: false, remaining: 1, reset: open });
    expect(await check(name, 3, 1)).toEqual({ passed: true, remaining: 0, reset: open });
    clock.now = open - 1;
    expect(await check(name, 3, 1)).toMatchObject({ passed: false, remaining: 0 });
    clock.now = open;
    expect(await check(name, 3, 3)).toMatchObject({ passed: true, remaining: 0 });
  });

  test('a clock that was ahead for a moment closes no limit for longer than its duration', async () => {
    clock.now = startMs;
    const [name] = fresh(1) as [string];
    clock.advance(hourMs);
    expect(await check(name, 5, 1)).toMatchObject({ passed: true });
    clock.now = startMs + 30;
    let admitted = 0;
    for (; clock.now < startMs + 8000; clock.advance(20)) admitted += (await check(name, 5, 1)).passed ? 1 : 0;
    // Four besides the one from the future, and then five for each 1001 ms after the first.
    expect(admitted).toBe(4 + 7 * 5);
  });

  test('a counter of a clock that was ahead expires', async () => {
    clock.now = startMs;
    const [name] = fresh(1) as [string];
    const duration = 2_592_000_000;
    await limit(name, duration, 1000, 10);
    clock.now = startMs - 400 * dayMs;
    expect(await limit(name, duration, 1000, 991)).toMatchObject({ passed: false, remaining: 990 });
    expect(await ttlOf(name, duration)).toBeLessThan(31 * dayMs);
    clock.advance(duration + duration / 64);
    expect(await limit(name, duration, 1000, 1000)).toMatchObject({ passed: true });
  });

  test('the longest duration ends at the largest safe integer', async () => {
    clock.now = startMs;
    const [name] = fresh(1) as [string];
    const longest = Number.MAX_SAFE_INTEGER;
    expect(await limit(name, longest, 1, 0)).toEqual({ passed: true, remaining: 1, reset: startMs });
    expect(await limit(name, longest, 1, 1)).toEqual({ passed: true, remaining: 0, reset: longest });
    expect(await limit(name, longest, 1, 1)).toEqual({ passed: false, remaining: 0, reset: longest });
    expect(await limit(name, longest, 1, 2)).toEqual({ passed: false, remaining: 0, reset: longest });
    expect(await limit(name, longest, 1000, 999)).toEqual({ passed: true, remaining: 0, reset: longest });
  });

  test('another limit counts the same units; another duration is another counter', async () => {
    clock.now = startMs;
    const [name] = fresh(1) as [string];
    await check(name, 10, 8);
    expect(await check(name, 5, 1)).toMatchObject({ passed: false, remaining: 0 });
    expect(await check(name, 100, 1)).toMatchObject({ passed: true, remaining: 91 });
    expect(await limit(name, 1001, 10, 1)).toMatchObject({ passed: true, remaining: 9 });
  });
});

describe('in the state of keys and identities', () => {
  const duration = 6400;
  /** Limits: two of each key, two of its identity, which keys share, and one ad hoc. */
  const names = ['small', 'large', 'shared', 'each', 'extra'] as const;
  const owned = fc.record({
    mosts: fc.tuple(anyLimit, anyLimit, anyLimit, anyLimit, anyLimit),
    /** The limit and duration of a request for `small`, instead of the key's own. */
    other: anyLimit,
    steps: fc.array(
      fc.record({
        step: steps(true),
        checks: fc.array(
          fc.record({
            which: fc.integer({ min: 0, max: 2 }),
            costsOf: fc.tuple(costs, costs, costs, costs, costs),
            smallIsOther: fc.boolean(),
          }),
          { minLength: 1, maxLength: 4 },
        ),
      }),
      { minLength: 1, maxLength: 25, size: 'max' },
    ),
  });

  test('every limit of a verification is charged or none, and keys share the limits of their identity', async () => {
    const { apiId } = await h.ok('apis.createApi', { name: 'window' });
    let identities = 0;
    await fc.assert(
      fc.asyncProperty(owned, async ({ mosts, other, steps }) => {
        clock.now = startMs;
        const externalId = `window_${++identities}`;
        const ratelimits = [
          { name: 'small', limit: mosts[0], duration },
          { name: 'large', limit: mosts[1], duration, autoApply: true },
        ];
        const keys = await Promise.all(
          [0, 1, 2].map(() => h.createKey({ apiId, externalId, ratelimits, credits: { remaining: 20 } })),
        );
        await shareLimits(externalId, mosts[2], mosts[3]);

        const sharedLogs = [new Log(duration), new Log(duration)];
        const logsOf = keys.map(() => [new Log(duration), new Log(duration), ...sharedLogs, new Log(duration)]);
        const balances = keys.map(() => 20);
        for (const { step, checks } of steps) {
          clock.advance(stepMs(step, duration));
          const asked = checks.map(({ which, costsOf, smallIsOther }) => {
            const limits = mosts.map((most, index) => (index === 0 && smallIsOther ? other : most));
            // `each` has autoApply, so it is checked at cost 1.
            const costs = costsOf.map((cost, index) => (names[index] === 'each' ? 1 : costOf(cost, limits[index]!)));
            return { which, limits, costs, smallIsOther };
          });
          const answers = await Promise.all(
            asked.map(({ which, limits, costs, smallIsOther }) =>
              h.ok('keys.verifyKey', {
                key: keys[which]!.key,
                ratelimits: [
                  { name: 'extra', cost: costs[4]!, limit: limits[4]!, duration },
                  { name: 'small', cost: costs[0]!, ...(smallIsOther && { limit: other, duration }) },
                  { name: 'shared', cost: costs[2]! },
                  { name: 'large', cost: costs[1]! },
                ],
              }),
            ),
          );
          for (const [index, { which, limits, costs }] of asked.entries()) {
            const logs = logsOf[which]!;
            const fits = logs.map((log, at) => log.fits(clock.now, limits[at]!, costs[at]!));
            const passed = !fits.includes(false) && balances[which]! > 0;
            if (passed) {
              for (const [at, log] of logs.entries()) log.charge(clock.now, limits[at]!, costs[at]!);
              balances[which]!--;
            }
            const code = passed ? 'VALID' : fits.includes(false) ? 'RATE_LIMITED' : 'USAGE_EXCEEDED';
            const states = logs.map((log, at) => {
              const { remaining, reset } = log.response(clock.now, limits[at]!, costs[at]!, fits[at]!);
              return { name: names[at], limit: limits[at], exceeded: !fits[at], remaining, reset };
            });
            const answer = answers[index]!;
            const inOrder = names.map((name) => answer.ratelimits!.find((state) => state.name === name));
            expect({ ...answer, ratelimits: inOrder }).toMatchObject({
              code,
              credits: balances[which],
              ratelimits: states,
            });
            expect(answer.ratelimits).toHaveLength(names.length);
          }
        }
      }),
      { numRuns: thorough(40, 14) },
    );
  });

  /** Gives an identity the limits `shared` and `each` in the store, without the API. */
  const shareLimits = (externalId: string, shared: number, each: number) =>
    lua.run(
      `local record = name_of.identity_record(KEYS[1], ARGV[1])
       local identity = packed_identity.read(redis.call('HGET', record, 'state'))
       local function limit(name, most, applied)
         local limit = limit_list.of({ name = name, limit = tonumber(most), duration = tonumber(ARGV[4]), autoApply = applied })
         limit.id, limit.window = name .. string.rep('1', 16 - #name), ''
         return limit
       end
       identity.limits = { limit('shared', ARGV[2], 0), limit('each', ARGV[3], 1) }
       return redis.call('HSET', record, 'state', packed_identity.pack(identity))`,
      workspaceKey(h.workspaceId),
      [externalId, shared, each, duration],
    );
});

test.each([
  [3, 60_000, '0'],
  [2, 60_000, '1'],
  [4, 60_000, 'no slice has 1 units that are given back'],
  // Of a slice before that, in which nothing was charged.
  [1, 58_000, 'no slice has 1 units that are given back'],
])('%i of 3 units that are given back: none is dropped silently', async (units, at, expected) => {
  const left = lua.run(
    `local _, _, _, _, counter = window_charge('', 1, 0, 60000, 1000, 60000, 3, true)
     counter = window_returns.without(counter, tonumber(ARGV[2]), 60000, 60000, false, tonumber(ARGV[1]))
     return counter == '' and '0' or '' .. window_charge(counter, 1, #counter, 60000, 1000, 60000, 0, false)`,
    workspaceKey(h.workspaceId),
    [units, at],
  );
  expect(await left.catch((error) => error.message)).toContain(expected);
});
