// Run by the build (bin/prepare.mjs): writes the library of Redis to dist/.

import { writeFileSync } from 'node:fs';
import { buildLibrary, readLua } from './library.ts';
import { checkSignatures } from './signatureCheck.ts';

const files = readLua();
checkSignatures(files);
writeFileSync(new URL('../tollgate.lua', import.meta.url), buildLibrary(files));
