// vitest's setupFiles: scripts fail where they would otherwise lose units.

import { luaLiterals } from '../../src/scripts/layout.ts';
import { buildLibrary, readLua } from '../../src/scripts/library.ts';
import { useLibrary } from '../../src/scripts/loader.ts';

/** The literals of lua/ in tests. */
export const strict: ReadonlyMap<string, string> = new Map([...luaLiterals, ['IN_TESTS', 'true']]);

useLibrary(buildLibrary(readLua(), strict));
