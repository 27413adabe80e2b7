// Checks, when Tollgate is built, that the head of each script says what src/scripts/calls.ts declares.

import { type Signature, signatures } from './calls.ts';
import { isScript, type LuaFiles } from './library.ts';

/**
 * Throws if the header of a script names other arguments or outcomes than its signature, or the script returns another
 * outcome. The arguments of lua/decide.lua are packed by src/decide/.
 */
export function checkSignatures(files: LuaFiles) {
  for (const [name, source] of files) {
    if (!isScript(name) || name === 'decide') continue;
    const signature = (signatures as Record<string, Signature<readonly string[], unknown>>)[name];
    const named = signature?.names.join(', ');
    const documented = argumentsIn(source).join(', ');
    if (named !== documented)
      throw new Error(`lua/${name}.lua takes ${documented || 'nothing'}; src/scripts/calls.ts has ${named}`);
    if (signature?.outcomes) checkOutcomes(name, source, signature.outcomes);
  }
}

function checkOutcomes(name: string, source: string, outcomes: readonly string[]) {
  const [header = ''] = /^-- returns.*(?:\n--.*)*/m.exec(source) ?? [];
  const documented = [...header.matchAll(/\{'(\w+)'/g)].map((match) => match[1]!);
  const returned = [...source.matchAll(/return \{ '(\w+)'/g)].map((match) => match[1]!);
  const found = [...new Set([...documented, ...returned])].sort().join(', ');
  const declared = [...outcomes].sort().join(', ');
  if (found !== declared || documented.length !== outcomes.length)
    throw new Error(`lua/${name}.lua returns ${found}; src/scripts/calls.ts has ${declared}`);
}

const camel = (name: string) =>
  name.replace(/_ms$/, 'Ms').replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

/**
 * The arguments of a script: the names in its header (`ARGV[1]  key_id  …` is keyId), and after the fixed ones those
 * that no header lists (lua/README.md).
 */
function argumentsIn(source: string): string[] {
  const listed = [...source.matchAll(/^-- ARGV\[\d+(…?)\] +(\w+)/gm)].map(([, all, name]) => all! + camel(name!));
  const code = source.replace(/--.*$/gm, '');
  const last = [/\bactor\b/, /\bnow(?=_ms\()/].flatMap((use) => use.exec(code)?.[0] ?? []);
  const rest = listed.filter((name) => name.startsWith('…'));
  return [...listed.slice(0, listed.length - rest.length), ...last, ...rest.map((name) => name.replace('…', '...'))];
}
