import { test } from 'vitest';
import { seed } from './random.ts';

/** A test that does not apply is not declared, because `skipped` means that the machine lacks something. */
export const testIf = (applies: boolean) => (applies ? test : () => {});

/** npm run test:faults, which has time for more. */
export const isLong = process.env.FAULTS_RESULTS !== undefined;
/** A test that only npm run test:faults has time for. */
export const longTest = testIf(isLong);

/**
 * Whether this file runs whole: in npm run test:faults, and in `npm test` when what it is about has changed. Files that
 * ask are in the table of aside.ts.
 */
export const isThorough = isLong || process.env.TEST_THOROUGH === '1';
export const thoroughTest = testIf(isThorough);
/** `many` where this file runs whole, or else `few`. */
export const thorough = <T>(many: T, few: T): T => (isThorough ? many : few);

/** All where this file runs whole, or else every third: by the seed, so that another run has others. */
export const sample = <T>(all: readonly T[]): T[] => all.filter((_, at) => isThorough || at % 3 === seed % 3);

/** Not in the project `programs-cluster`. */
export const hasVolume = process.env.TEST_VOLUME !== 'none';
/**
 * A test of volume or of random histories. On a Cluster it would find no more than the plain tests of its file: the
 * project `programs-cluster` leaves it out, and the fault program cluster.long.test.ts runs it on one, too.
 */
export const volumeTest = testIf(hasVolume);
