// npm run bench: installs and builds what is missing, then measures. Each file of bench/ is one bench: `npm run bench`
// runs bench/compare.mjs, `npm run bench -- memory` runs bench/memory.mjs, and so on.
import { readdirSync } from 'node:fs';
import { fail, prepare, root } from './prepare.mjs';

const benches = readdirSync(`${root}/bench`)
  .filter((name) => name.endsWith('.mjs'))
  .map((name) => name.slice(0, -'.mjs'.length));
const [first] = process.argv.slice(2);
const isNamed = first !== undefined && !first.startsWith('-');
if (isNamed && !benches.includes(first)) fail(`unknown bench ${first}; there are ${benches.join(', ')}.`);
if (isNamed) process.argv.splice(2, 1);
// A running installation is measured from outside and needs no Redis here.
const isAgainst = process.argv.some((argument) => /^--against(=|$)/.test(argument));

await prepare({ dev: true, needsRedis: () => !isAgainst });

await import(`../bench/${isNamed ? first : isAgainst ? 'against' : 'compare'}.mjs`);
