// The model of leases (test/decide/leases/model.ts) in many more random scenarios than `npm test` has time for. FC_RUNS
// sets their number, and SEED repeats a failure.
import { expect, test } from 'vitest';
import { failureOf, type ThemeName, themes } from '../decide/leases/explore.ts';

const numRuns = Number(process.env.FC_RUNS ?? 20_000);
const seed = process.env.SEED === undefined ? undefined : Number(process.env.SEED);

test.each(Object.keys(themes) as ThemeName[])(
  'the protocol of leases keeps its promises: %s',
  { timeout: 120_000 + 20 * numRuns },
  (theme) => {
    const failure = failureOf(theme, numRuns, seed);
    if (failure) expect.fail(failure);
  },
);
