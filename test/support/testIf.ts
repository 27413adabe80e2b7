import { test } from 'vitest';

/** A test that does not apply is not there at all: `skipped` means that a machine lacks something. */
export const testIf = (applies: boolean) => (applies ? test : () => {});
