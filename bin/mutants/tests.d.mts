// For the tests.

/** Tests by a pattern of files. */
export const nearest: readonly (readonly [pattern: RegExp, tests: readonly string[]])[];

/** The test files for a mutant of a file, in steps. */
export function stepsFor(file: string, all: readonly string[], onlyNear: boolean): string[][];
