// Run by the build (bin/prepare.mjs): writes the library of Redis to dist/.

import { writeFileSync } from 'node:fs';
import { checkSignatures } from './calls.ts';
import { buildLibrary, readLua } from './library.ts';

const files = readLua();
checkSignatures(files);
writeFileSync(new URL('../tollgate.lua', import.meta.url), buildLibrary(files));
