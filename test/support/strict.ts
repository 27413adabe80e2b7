// vitest's setupFiles: scripts fail where they would otherwise lose units.

import { luaLiterals } from '../../src/scripts/layout.ts';

(luaLiterals as Map<string, string>).set('IN_TESTS', 'true');
