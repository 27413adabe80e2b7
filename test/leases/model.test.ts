// Explores the model of leases (model.ts). FC_RUNS and SEED choose another number of runs and another seed.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Rules, rules } from './model.ts';
import { lostDelay, type Scenario, startMs, type Step, World } from './world.ts';

const numRuns = Number(process.env.FC_RUNS ?? 4_000);
const seed = process.env.SEED === undefined ? undefined : Number(process.env.SEED);

const server = fc.nat(2);
const key = fc.nat(1);
const term = 100;

const steps = fc.array(
  fc.oneof(
    {
      weight: 10,
      arbitrary: fc.record({
        do: fc.constant('verify' as const),
        server,
        key,
        times: fc.constantFrom(1, 2, 5, 12),
        wanted: fc.constantFrom(16, 4, 0),
      }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
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
    },
    { weight: 6, arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(0, 1, 5, 20, 60, 99, 101, 300) }) },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('waitUntil' as const),
        what: fc.constantFrom('leaseEnds' as const, 'sliceEnds' as const, 'unitsFree' as const, 'refill' as const),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('pause' as const, 'resume' as const), server }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('kill' as const), server }) },
    {
      weight: 1,
      arbitrary: fc.record({
        do: fc.constant('disconnect' as const),
        server,
        arrivesAfter: fc.constantFrom(undefined, 10, 150),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('restartRedis' as const), lost: fc.constantFrom(0, 1, 3, 10) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('stepClock' as const), ms: fc.constantFrom(-3_600_000, -60, -10, 60, 3_600_000) }) },
  ) satisfies fc.Arbitrary<Step>,
  { minLength: 1, maxLength: 30, size: 'max' },
);

const duration = fc.constantFrom(640, 1_280, 6_400);
const limit = fc.record({ limit: fc.constantFrom(100, 200), duration });
const enabled = fc.constant(true);
const cost = fc.constant(20);
const refill = fc.record({ at: fc.constant(startMs + 330), every: fc.constant(500), amount: fc.constant(8) });
const keys = fc.array(
  fc.oneof(
    fc.record({ enabled, cost }),
    fc.record({ enabled, cost, limit }),
    fc.record({ enabled, cost, credits: fc.constantFrom(6, 20) }),
    fc.record({ enabled, cost, credits: fc.constant(8), refill }),
    fc.record({ enabled, cost, limit, credits: fc.constant(10) }),
    fc.record({ enabled, cost, expires: fc.constant(startMs + 350) }),
  ),
  { minLength: 1, maxLength: 2 },
);

const scenarios: fc.Arbitrary<Scenario> = fc.record({
  term: fc.constant(term),
  reserve: fc.constantFrom(1, 4),
  keys,
  rates: fc.array(fc.constantFrom(1, 1.01), { minLength: 3, maxLength: 4 }),
  delays: fc.array(
    fc.oneof({ weight: 8, arbitrary: fc.constantFrom(0, 1, 3) }, { weight: 1, arbitrary: fc.constantFrom(30, 120, lostDelay) }),
    { minLength: 1, maxLength: 12 },
  ),
  steps,
});

function explore(without?: keyof Rules) {
  const chosen = { ...rules, ...(without && { [without]: false }) };
  return fc.check(
    fc.property(scenarios, (scenario) => new World(chosen, scenario).run()),
    { numRuns, ...(seed !== undefined && { seed }) },
  );
}

/** The scenario and what happened in it, in order. */
function traceOf(scenario: Scenario, chosen: Rules = rules): string {
  const world = new World(chosen, scenario, true);
  try {
    world.run();
  } catch {}
  return [JSON.stringify({ ...scenario, steps: undefined }), ...world.trace].join('\n');
}

test('the protocol keeps its promises', { timeout: 60_000 + 20 * numRuns }, () => {
  const { failed, counterexample, errorInstance, seed } = explore();
  if (failed) expect.fail(`${(errorInstance as Error).message} (seed ${seed})\n${traceOf(counterexample![0])}`);
});

const mutants: { [Rule in keyof Rules]: RegExp } = {
  epoch: /./,
  dropFirst: /./,
  compareBeforeRemoval: /./,
  removalKeepsNumbers: /./,
  setClears: /./,
  refillClears: /./,
  endsWithSlice: /./,
  driftOfTerm: /./,
  driftOfChange: /./,
  waitAfterConnect: /./,
  clockBeforeAsk: /./,
  wholeTerm: /./,
  ownNumbers: /./,
  countOnce: /./,
  removeRecalled: /./,
  returnInFlight: /./,
  recallUnits: /./,
  settleBeforeAck: /./,
  stepClears: /./,
};

test.each(Object.entries(mutants))('without %s it is broken', { timeout: 60_000 + 20 * numRuns }, (rule, promise) => {
  const { failed, counterexample, errorInstance, numRuns: runs, numShrinks } = explore(rule as keyof Rules);
  expect(failed, `no run of ${numRuns} failed`).toBe(true);
  if (process.env.TRACE) {
    console.log(rule, runs, numShrinks, (errorInstance as Error).message);
    console.log(traceOf(counterexample![0], { ...rules, [rule]: false }));
  }
  expect((errorInstance as Error).message).toMatch(promise);
});
