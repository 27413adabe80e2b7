import { test } from 'vitest';

/** A test that does not apply is not declared, because `skipped` means that the machine lacks something. */
export const testIf = (applies: boolean) => (applies ? test : () => {});

/** npm run test:faults, which has time for more. */
export const isLong = process.env.FAULTS_RESULTS !== undefined;
/** A test that only npm run test:faults has time for. */
export const longTest = testIf(isLong);

/** Not in the project `programs-cluster`. */
export const hasVolume = process.env.TEST_VOLUME !== 'none';
/**
 * A test of volume or of random histories. On a Cluster it would find no more than the plain tests of its file: the
 * project `programs-cluster` leaves it out, and the fault program cluster.long.test.ts runs it on one, too.
 */
export const volumeTest = testIf(hasVolume);
