import { test } from 'vitest';

/** A test that does not apply is not declared, because `skipped` means that the machine lacks something. */
export const testIf = (applies: boolean) => (applies ? test : () => {});
