// npm run bench: makes everything ready on a fresh clone, then measures. Each file of bench/ answers one question:
// `npm run bench` is bench/compare.mjs, `npm run bench -- memory` is bench/memory.mjs, and so on.
import { readdirSync } from 'node:fs';
import { fail, prepare, root } from './prepare.mjs';

const questions = readdirSync(`${root}/bench`)
  .filter((name) => name.endsWith('.mjs'))
  .map((name) => name.slice(0, -'.mjs'.length));
const [first] = process.argv.slice(2);
const isNamed = first !== undefined && !first.startsWith('-');
if (isNamed && !questions.includes(first)) fail(`there is no bench ${first}, but ${questions.join(', ')}.`);
if (isNamed) process.argv.splice(2, 1);
// A running installation is measured from outside: that needs no Redis here.
const isAgainst = process.argv.some((argument) => /^--against(=|$)/.test(argument));

prepare({ dev: true, needsRedis: () => !isAgainst });

await import(`../bench/${isNamed ? first : isAgainst ? 'against' : 'compare'}.mjs`);
