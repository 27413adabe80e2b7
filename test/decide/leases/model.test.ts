// The model of leases (model.ts) keeps its promises in random scenarios, and does not without any one of its rules.
// FC_RUNS and SEED choose another number of runs and another seed.
import { expect, test } from 'vitest';
import { thorough } from '../../support/testIf.ts';
import { explore, failureOf, type ThemeName, themes } from './explore.ts';
import { type Rules, rules } from './model.ts';

const numRuns = Number(process.env.FC_RUNS ?? thorough(200, 50));
const seed = process.env.SEED === undefined ? undefined : Number(process.env.SEED);
const timeout = 60_000 + 20 * numRuns;

test.each(Object.keys(themes) as ThemeName[])('the protocol keeps its promises: %s', { timeout }, (theme) => {
  const failure = failureOf(theme, numRuns, seed);
  if (failure) expect.fail(failure);
});

/**
 * The theme in which a mutant is found, and the promises that it breaks. Without the rules from `refillRenumbers` to
 * `endsWithUnits` the protocol is the one that lost units, credits and counts (issue 28).
 */
const mutants: { [Rule in keyof Rules]: [ThemeName, RegExp] } = {
  epoch: ['changes', /old state|spent and given back/],
  dropFirst: ['changes', /old state/],
  compareBeforeRemoval: ['changes', /old state/],
  removalKeepsNumbers: ['settlements', /Usage is not/],
  setClears: ['balances', /Credits left are not/],
  refillClears: ['balances', /Credits left are not/],
  endsWithSlice: ['slices', /outlasts|more than the limit/],
  driftOfTerm: ['slices', /outlasts/],
  millisecondOver: ['terms', /outlasts/],
  driftOfChange: ['changes', /old state/],
  waitAfterConnect: ['restarts', /old state/],
  clockBeforeAsk: ['changes', /old state|outlasts/],
  longestTerm: ['changes', /old state/],
  termOfHolder: ['changes', /old state/],
  waitsForEach: ['distances', /change waits longer/],
  boundedTerm: ['changes', /waits longer/],
  longestAfterConnect: ['restarts', /old state/],
  sameLife: ['lives', /old state/],
  oldLife: ['lives', /old state/],
  longestRecall: ['recalls', /still decides/],
  renewalReturns: ['renewals', /idle session|not given back|units are out/],
  renewalReplaces: ['renewals', /spent and given back/],
  renewalEnds: ['renewals', /old state|more than the limit|counts less|Usage is not/],
  ownNumbers: ['everything', /units are out|idle session are out|outlasts|given back|negative/],
  countOnce: ['settlements', /Usage is not/],
  markRecalled: ['recalls', /without end|idle session/],
  lateReturn: ['recalls', /not given back/],
  overdueRefusals: ['balances', /credits are left/],
  sameRequest: ['counters', /counts less|more than the limit|spent and given back|units are free|units are out/],
  chargedCost: ['counters', /Units of a window are not/],
  returnInFlight: ['recalls', /units are out|idle session/],
  recallUnits: ['recalls', /units are out/],
  settleBeforeAck: ['recalls', /units are out/],
  pauseAfterRecall: ['counters', /waits longer/],
  refillRenumbers: ['refills', /Credits left are not/],
  renumbersCurrent: ['refills', /Credits left are not/],
  decrementRecalls: ['refills', /while credits are out/],
  clampClears: ['refills', /Credits left are not/],
  windowsByName: ['limits', /Units of a window are not/],
  keptWindows: ['limits', /Units of a window are not/],
  identityByName: ['identities', /idle session|not given back|units are out/],
  lostToLink: ['lost', /idle session|not given back/],
  deletedKeeps: ['deletions', /idle session|not given back|units are out/],
  countsDeleted: ['deletions', /Usage/],
  tallyNamesKey: ['deletions', /Usage/],
  endsWithHour: ['hours', /outlasts|Usage/],
  usedAtOfDecision: ['hours', /Usage/],
  endsWithUnits: ['terms', /outlasts/],
  oldestSlice: ['smallSlices', /Units of a window are not/],
  chargedSlice: ['slices', /Units of a window are not|entry is negative/],
  heldRefusals: ['holds', /Refused by a lease though/],
  heldBalance: ['heldChanges', /Credits left are not/],
  heldSlice: ['holds', /Units of a window are not/],
  heldOwner: ['heldChanges', /Units of a window are not/],
  heldOnce: ['holds', /A hold ends twice/],
  stepClears: ['stepsBack', /counts less|more than the limit/],
};

// The seed is fixed, so that it is known that the runs are enough.
test.each(thorough(Object.keys(mutants) as (keyof Rules)[], []))(
  'without %s the protocol is broken',
  { timeout },
  (rule) => {
    const [theme, promise] = mutants[rule];
    const { failed, errorInstance } = explore(
      theme,
      { ...rules, [rule]: false },
      { numRuns: 4_000, seed: seed ?? 2, endOnFailure: true },
    );
    expect(failed, 'a run failed').toBe(true);
    expect((errorInstance as Error).message).toMatch(promise);
  },
);
