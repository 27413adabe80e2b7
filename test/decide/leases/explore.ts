// Random scenarios for the model of leases, by themes.
import fc from 'fast-check';
import { type Mutation, type Rules, rules } from './model.ts';
import { lostDelay, type Scenario, type Step, startMs, World } from './world.ts';

const server = fc.nat(2);
const key = fc.nat(1);

const mutationOf = (mutation: fc.Arbitrary<Mutation>) =>
  fc.record({ do: fc.constant('change' as const), server, key, mutation });
const limitOf = (on: 'key' | 'identity') =>
  fc.record(
    {
      set: fc.constant('limit' as const),
      on: fc.constant(on),
      name: fc.constantFrom('a', 'a', 'b'),
      limit: fc.constantFrom(100, 200, 50, 0),
      duration: fc.constantFrom(640, 6_400),
    },
    { requiredKeys: ['set', 'on', 'name', 'limit'] },
  );

const step = {
  verify: fc.record({
    do: fc.constant('verify' as const),
    server,
    key,
    request: fc.nat(2),
    times: fc.constantFrom(1, 2, 5, 12),
    wanted: fc.constantFrom(16, 4, 0),
  }),
  hold: fc.record({
    do: fc.constant('hold' as const),
    server,
    key,
    request: fc.nat(2),
    ttl: fc.constantFrom(50, 400, 3_000),
  }),
  endHold: fc.record({
    do: fc.constant('endHold' as const),
    server,
    key,
    which: fc.nat(3),
    used: fc.constantFrom(0 as const, 0 as const, 1 as const, 2 as const),
  }),
  change: fc.record({
    do: fc.constant('change' as const),
    server,
    key,
    mutation: fc.oneof(
      fc.record({ set: fc.constant('enabled' as const), value: fc.boolean() }),
      fc.record({ set: fc.constant('credits' as const), value: fc.constantFrom(0, 1, 12) }),
      fc.record({ set: fc.constant('moreCredits' as const), value: fc.constant(5) }),
      limitOf('key'),
    ),
  }),
  limits: mutationOf(fc.oneof(limitOf('key'), limitOf('identity'))),
  links: mutationOf(
    fc.oneof(
      { weight: 2, arbitrary: fc.record({ set: fc.constant('link' as const), value: fc.constantFrom(0, 1, null) }) },
      limitOf('identity'),
    ),
  ),
  balance: mutationOf(
    fc.oneof(
      {
        weight: 2,
        arbitrary: fc.record({ set: fc.constant('refill' as const), amount: fc.constantFrom(8, 20, null) }),
      },
      fc.record({ set: fc.constant('credits' as const), value: fc.constantFrom(0, 12, 40, null) }),
      {
        weight: 2,
        arbitrary: fc.record({ set: fc.constant('moreCredits' as const), value: fc.constantFrom(-50, -4, 5) }),
      },
    ),
  ),
  deletion: mutationOf(fc.record({ set: fc.constantFrom('deleted' as const, 'gone' as const), value: fc.boolean() })),
  wait: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(0, 1, 5, 20, 60, 99, 101, 300) }),
  until: fc.record({
    do: fc.constant('waitUntil' as const),
    what: fc.constantFrom(
      'leaseEnds' as const,
      'sliceEnds' as const,
      'unitsFree' as const,
      'refill' as const,
      'hourEnds' as const,
      'settled' as const,
    ),
  }),
  pause: fc.record({ do: fc.constantFrom('pause' as const, 'resume' as const), server }),
  kill: fc.record({ do: fc.constant('kill' as const), server }),
  disconnect: fc.record({
    do: fc.constant('disconnect' as const),
    server,
    arrivesAfter: fc.constantFrom(undefined, 10, 150),
    reconnectsAfter: fc.constantFrom(0, 150, 500),
  }),
  half: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(50, 75, 100) }),
  settled: fc.constant({ do: 'waitUntil' as const, what: 'settled' as const }),
  restart: fc.record({ do: fc.constant('restartRedis' as const), lost: fc.constantFrom(0, 1, 3, 10) }),
  clock: fc.record({
    do: fc.constant('stepClock' as const),
    ms: fc.constantFrom(-3_600_000, -60, -10, 60, 3_600_000),
  }),
  back: fc.record({ do: fc.constant('stepClock' as const), ms: fc.constantFrom(-60, -20) }),
  relive: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(1, 20, 60) }),
  free: fc.constant({ do: 'waitUntil' as const, what: 'unitsFree' as const }),
} satisfies Record<string, fc.Arbitrary<Step>>;

const duration = fc.constantFrom(640, 6_400, 25_600);
const limitNamed = (name: string) => fc.record({ name: fc.constant(name), limit: fc.constantFrom(100, 200), duration });
const limits = fc.tuple(limitNamed('a'));
const twoLimits = fc.tuple(limitNamed('a'), limitNamed('b'));
const identity = fc.constant(0);
const enabled = fc.constant(true);
const requests = fc.constant([{ cost: 20 }]);
/** Of a counter of a namespace. */
const severalRequests = fc.constant([{ cost: 20 }, { cost: 7 }, { cost: 11, limit: 150 }]);
/** One with a limit of its own. */
const adhocRequests = fc.constant([
  { cost: 10 },
  { cost: 10, adhoc: { name: 'c', limit: 100, duration: 6_400 } },
  { cost: 7, adhoc: { name: 'c', limit: 150, duration: 6_400 } },
]);
/** One with a limit that has slices of 1 ms, on the same window. */
const smallRequests = fc.constant([{ cost: 3 }, { cost: 3, limit: 60 }]);
const refill = fc.record({ at: fc.constant(startMs + 600), every: fc.constant(500), amount: fc.constant(8) });
const keyKinds = {
  unlimited: fc.record({ enabled, requests }),
  limited: fc.record({ enabled, requests, limits }),
  linked: fc.record({ enabled, requests, identity }),
  linkedToo: fc.record({ enabled, requests: adhocRequests, identity, limits: fc.tuple(limitNamed('b')) }),
  several: fc.record({ enabled, requests: adhocRequests, limits: twoLimits, credits: fc.constantFrom(20, undefined) }),
  credits: fc.record({ enabled, requests, credits: fc.constantFrom(6, 20) }),
  refilled: fc.record({ enabled, requests, credits: fc.constant(8), refill }),
  shared: fc.record({ enabled, requests: severalRequests, limits }),
  both: fc.record({ enabled, requests, limits, credits: fc.constant(10) }),
  small: fc.record({ enabled, requests: smallRequests, limits }),
  expiring: fc.record({ enabled, requests, expires: fc.constant(startMs + 500) }),
};

const delay = { prompt: fc.constantFrom(0, 1, 3), slow: fc.constantFrom(30, 120), lost: fc.constant(lostDelay) };

/** A theme is about some keys, steps and delays, by weight: what must come together then does so more often. */
interface Theme {
  /** All terms are LEASE_MS: after a recall grants pause for less. */
  isShort?: boolean;
  /** Sessions look at which life of Redis it is. */
  looks?: boolean;
  keyCount?: number;
  keys: Partial<Record<keyof typeof keyKinds, number>>;
  steps: Partial<Record<keyof typeof step, number>>;
  delays: Partial<Record<keyof typeof delay, number>>;
}

export const themes = {
  everything: {
    keys: {
      unlimited: 1,
      limited: 1,
      linked: 1,
      linkedToo: 1,
      several: 1,
      shared: 1,
      credits: 1,
      refilled: 1,
      both: 1,
      expiring: 1,
    },
    steps: {
      verify: 12,
      change: 2,
      limits: 1,
      links: 1,
      balance: 1,
      deletion: 1,
      wait: 6,
      until: 4,
      pause: 2,
      kill: 1,
      disconnect: 1,
      restart: 1,
      clock: 1,
      hold: 2,
      endHold: 2,
    },
    delays: { prompt: 8, slow: 1, lost: 1 },
  },
  slices: { keyCount: 1, keys: { limited: 1 }, steps: { verify: 4, until: 4, wait: 1 }, delays: { prompt: 1 } },
  clocks: {
    keyCount: 1,
    keys: { limited: 3, both: 1 },
    steps: { verify: 6, until: 3, wait: 3, clock: 2 },
    delays: { prompt: 1 },
  },
  stepsBack: {
    keyCount: 1,
    isShort: true,
    keys: { small: 1, shared: 1 },
    steps: { verify: 4, back: 1, relive: 2, free: 1 },
    delays: { prompt: 1 },
  },
  balances: {
    keys: { refilled: 1, credits: 1 },
    steps: { verify: 4, change: 1, until: 2, wait: 2 },
    delays: { prompt: 4, slow: 1 },
  },
  changes: {
    keyCount: 2,
    keys: { unlimited: 3, limited: 2 },
    steps: { verify: 4, change: 3, wait: 4, until: 1 },
    delays: { prompt: 4, slow: 1, lost: 2 },
  },
  limits: {
    keys: { limited: 1, several: 2, linkedToo: 2 },
    steps: { verify: 6, limits: 3, wait: 2, until: 1 },
    delays: { prompt: 1 },
  },
  identities: {
    keyCount: 2,
    keys: { linked: 2, linkedToo: 1 },
    steps: { verify: 6, links: 2, deletion: 1, wait: 2, until: 1 },
    delays: { prompt: 1 },
  },
  lost: {
    keyCount: 2,
    keys: { linked: 2, linkedToo: 1 },
    steps: { verify: 6, links: 1, deletion: 1, wait: 2, disconnect: 2 },
    delays: { prompt: 1 },
  },
  refills: {
    keyCount: 1,
    keys: { credits: 1, refilled: 2, both: 1 },
    steps: { verify: 6, balance: 3, wait: 2, until: 1, pause: 1 },
    delays: { prompt: 1 },
  },
  deletions: {
    keys: { both: 1, credits: 1, unlimited: 1, linked: 2 },
    steps: { verify: 6, deletion: 3, wait: 2 },
    delays: { prompt: 1 },
  },
  smallSlices: {
    keyCount: 1,
    keys: { small: 1 },
    steps: { verify: 4, wait: 3, until: 2 },
    delays: { prompt: 1 },
  },
  hours: {
    keyCount: 1,
    keys: { unlimited: 2, limited: 1, credits: 1 },
    steps: { verify: 6, until: 3, wait: 3, disconnect: 1 },
    delays: { prompt: 4, slow: 1 },
  },
  counters: {
    keyCount: 1,
    keys: { shared: 1 },
    steps: { verify: 8, wait: 3, until: 3, change: 1, pause: 1 },
    delays: { prompt: 3, slow: 1 },
  },
  recalls: {
    keyCount: 1,
    keys: { limited: 1, credits: 1 },
    steps: { verify: 6, wait: 3, pause: 1, kill: 1, disconnect: 1 },
    delays: { prompt: 1 },
  },
  renewals: {
    keyCount: 1,
    keys: { limited: 2, credits: 1, unlimited: 1 },
    steps: { verify: 8, half: 4, wait: 2, change: 1, until: 1 },
    delays: { prompt: 4, slow: 1 },
  },
  distances: {
    keyCount: 2,
    keys: { unlimited: 1, limited: 1 },
    steps: { verify: 6, change: 2, wait: 3, pause: 2 },
    delays: { prompt: 1 },
  },
  restarts: {
    keys: { unlimited: 1 },
    steps: { verify: 4, change: 3, wait: 4, restart: 2 },
    delays: { prompt: 3, lost: 1 },
  },
  lives: {
    keys: { unlimited: 1 },
    looks: true,
    steps: { verify: 4, change: 4, wait: 4, restart: 2, kill: 3 },
    delays: { prompt: 3, lost: 1 },
  },
  terms: {
    keys: { limited: 1, expiring: 2, refilled: 1, both: 2 },
    steps: { verify: 4, until: 4, wait: 4 },
    delays: { prompt: 1 },
  },
  settlements: {
    keyCount: 1,
    keys: { unlimited: 3, credits: 1 },
    steps: { verify: 4, wait: 3, change: 2, settled: 2, disconnect: 2 },
    delays: { prompt: 1 },
  },
  holds: {
    keyCount: 2,
    keys: { limited: 1, credits: 1, refilled: 1, both: 1, linked: 2, linkedToo: 1, shared: 1 },
    steps: { verify: 6, hold: 4, endHold: 4, wait: 2, until: 1 },
    delays: { prompt: 1 },
  },
  heldChanges: {
    keyCount: 2,
    keys: { refilled: 1, both: 1, linked: 2, several: 1 },
    steps: { verify: 4, hold: 4, endHold: 4, limits: 1, links: 1, balance: 2, deletion: 1, wait: 2, until: 1 },
    delays: { prompt: 2, slow: 1 },
  },
} satisfies Record<string, Theme>;
export type ThemeName = keyof typeof themes;

function weighted<T>(of: Record<string, fc.Arbitrary<T>>, weights: Record<string, number>) {
  return fc.oneof(...Object.entries(weights).map(([name, weight]) => ({ weight, arbitrary: of[name]! })));
}

function scenariosOf(theme: Theme): fc.Arbitrary<Scenario> {
  return fc.noBias(
    fc.record({
      term: fc.constantFrom(100, 400),
      long: theme.isShort ? fc.constant(0) : fc.constantFrom(100, 400, 1_000),
      added: fc.array(theme.isShort ? fc.constant(0) : fc.constantFrom(0, 0, 80, 200, 5_000), {
        minLength: 1,
        maxLength: 4,
      }),
      reserve: fc.constantFrom(1, 4),
      looks: fc.constant(theme.looks ?? false),
      keys: fc.array(weighted<Scenario['keys'][number]>(keyKinds, theme.keys), {
        minLength: theme.keyCount ?? 1,
        maxLength: theme.keyCount ?? 2,
      }),
      identities: fc.constantFrom(
        [[{ name: 'a', limit: 200, duration: 25_600 }], []],
        [
          [
            { name: 'a', limit: 100, duration: 6_400 },
            { name: 'b', limit: 200, duration: 640 },
          ],
          [{ name: 'a', limit: 200, duration: 6_400 }],
        ],
      ),
      rates: fc.array(fc.constantFrom(1, 1.01), { minLength: 3, maxLength: 4 }),
      delays: fc.array(weighted(delay, theme.delays), { minLength: 1, maxLength: 12 }),
      steps: fc.array(weighted<Step>(step, theme.steps), { minLength: 1, maxLength: 30, size: 'max' }),
    }),
  );
}

/** Runs scenarios of a theme until one fails. */
export function explore(theme: ThemeName, chosen: Rules, parameters: fc.Parameters<[Scenario]>) {
  return fc.check(
    fc.property(scenariosOf(themes[theme]), (scenario) => new World(chosen, scenario).run()),
    parameters,
  );
}

/** What failed, its seed, and the shortest scenario with all that happened in it. */
export function failureOf(theme: ThemeName, numRuns: number, seed: number | undefined): string | undefined {
  const details = explore(theme, rules, { numRuns, ...(seed !== undefined && { seed }) });
  if (!details.failed) return undefined;
  const { message } = details.errorInstance as Error;
  return `${message} (theme ${theme}, seed ${details.seed})\n${traceOf(details.counterexample![0])}`;
}

/** The scenario and what happened in it, in order. */
function traceOf(scenario: Scenario): string {
  const world = new World(rules, scenario, true);
  try {
    world.run();
  } catch {}
  return [JSON.stringify({ ...scenario, steps: undefined }), ...world.trace].join('\n');
}
