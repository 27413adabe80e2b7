// Random scenarios for the model of leases, by themes.
import fc from 'fast-check';
import { type Rules, rules } from './model.ts';
import { lostDelay, type Scenario, type Step, startMs, World } from './world.ts';

const server = fc.nat(2);
const key = fc.nat(1);

const step = {
  verify: fc.record({
    do: fc.constant('verify' as const),
    server,
    key,
    request: fc.nat(2),
    times: fc.constantFrom(1, 2, 5, 12),
    wanted: fc.constantFrom(16, 4, 0),
  }),
  change: fc.record({
    do: fc.constant('change' as const),
    server,
    key,
    mutation: fc.oneof(
      fc.record({ set: fc.constant('enabled' as const), value: fc.boolean() }),
      fc.record({ set: fc.constant('credits' as const), value: fc.constantFrom(0, 1, 12) }),
      fc.record({ set: fc.constant('moreCredits' as const), value: fc.constant(5) }),
      fc.record({ set: fc.constant('limit' as const), value: fc.constantFrom(100, 200) }),
    ),
  }),
  wait: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(0, 1, 5, 20, 60, 99, 101, 300) }),
  until: fc.record({
    do: fc.constant('waitUntil' as const),
    what: fc.constantFrom(
      'leaseEnds' as const,
      'sliceEnds' as const,
      'unitsFree' as const,
      'refill' as const,
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
  settled: fc.constant({ do: 'waitUntil' as const, what: 'settled' as const }),
  restart: fc.record({ do: fc.constant('restartRedis' as const), lost: fc.constantFrom(0, 1, 3, 10) }),
  clock: fc.record({
    do: fc.constant('stepClock' as const),
    ms: fc.constantFrom(-3_600_000, -60, -10, 60, 3_600_000),
  }),
} satisfies Record<string, fc.Arbitrary<Step>>;

const duration = fc.constantFrom(640, 6_400, 25_600);
const limit = fc.record({ limit: fc.constantFrom(100, 200), duration });
const enabled = fc.constant(true);
const requests = fc.constant([{ cost: 20 }]);
/** Of a counter of a namespace. */
const severalRequests = fc.constant([{ cost: 20 }, { cost: 7 }, { cost: 11, limit: 150 }]);
const refill = fc.record({ at: fc.constant(startMs + 600), every: fc.constant(500), amount: fc.constant(8) });
const keyKinds = {
  unlimited: fc.record({ enabled, requests }),
  limited: fc.record({ enabled, requests, limit }),
  credits: fc.record({ enabled, requests, credits: fc.constantFrom(6, 20) }),
  refilled: fc.record({ enabled, requests, credits: fc.constant(8), refill }),
  shared: fc.record({ enabled, requests: severalRequests, limit }),
  both: fc.record({ enabled, requests, limit, credits: fc.constant(10) }),
  expiring: fc.record({ enabled, requests, expires: fc.constant(startMs + 500) }),
};

const delay = { prompt: fc.constantFrom(0, 1, 3), slow: fc.constantFrom(30, 120), lost: fc.constant(lostDelay) };

/** A theme is about some keys, steps and delays, by weight: what must come together then does so more often. */
interface Theme {
  keyCount?: number;
  keys: Partial<Record<keyof typeof keyKinds, number>>;
  steps: Partial<Record<keyof typeof step, number>>;
  delays: Partial<Record<keyof typeof delay, number>>;
}

export const themes = {
  everything: {
    keys: { unlimited: 1, limited: 1, shared: 1, credits: 1, refilled: 1, both: 1, expiring: 1 },
    steps: { verify: 10, change: 4, wait: 6, until: 4, pause: 2, kill: 1, disconnect: 1, restart: 1, clock: 1 },
    delays: { prompt: 8, slow: 1, lost: 1 },
  },
  slices: { keyCount: 1, keys: { limited: 1 }, steps: { verify: 4, until: 4, wait: 1 }, delays: { prompt: 1 } },
  clocks: {
    keyCount: 1,
    keys: { limited: 3, both: 1 },
    steps: { verify: 6, until: 3, wait: 3, clock: 2 },
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
  restarts: {
    keys: { unlimited: 1 },
    steps: { verify: 4, change: 3, wait: 4, restart: 2 },
    delays: { prompt: 3, lost: 1 },
  },
  terms: {
    keys: { limited: 1, expiring: 2, refilled: 1 },
    steps: { verify: 4, until: 4, wait: 4 },
    delays: { prompt: 1 },
  },
  settlements: {
    keyCount: 1,
    keys: { unlimited: 3, credits: 1 },
    steps: { verify: 4, wait: 3, change: 2, settled: 2, disconnect: 2 },
    delays: { prompt: 1 },
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
      reserve: fc.constantFrom(1, 4),
      keys: fc.array(weighted<Scenario['keys'][number]>(keyKinds, theme.keys), {
        minLength: theme.keyCount ?? 1,
        maxLength: theme.keyCount ?? 2,
      }),
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
