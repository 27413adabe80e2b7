// Checks how the files of lua/ pack and unpack the structures of layout.ts, when the library is built.

import { luaSignatures } from './layout.ts';
import { snake } from './struct.ts';

const unpacking = /\b((?:[\w.]+\s*,\s*)*[\w.]+)\s*=\s*struct\.unpack\(\s*([A-Z]\w*)/g;
const packing = /struct\.pack\(\s*(?:\w+ and )?([A-Z]\w*)/g;

/**
 * Throws if a declared structure is unpacked into other names than its fields, or packed from another number of values.
 */
export function checkStructures(text: string, file: string) {
  const source = text.replace(/--.*/g, '');
  const fail = (at: number, problem: string) => {
    throw new Error(`${file}:${source.slice(0, at).split('\n').length}: ${problem} (src/scripts/layout.ts)`);
  };
  for (const { 0: text, 1: names, 2: struct, index } of source.matchAll(unpacking)) {
    const fields = luaSignatures.get(struct!)?.map(({ name }) => name);
    const at = index + text.length;
    if (!fields) continue;
    const found = names!.split(/\s*,\s*/).map((name) => name.replace(/^\w+\./, ''));
    // After the fields, struct.unpack returns the position after the structure.
    if (found.length === fields.length + 1 && /^(position|fields)$/.test(found.at(-1)!)) found.pop();
    // A variable has the name of its field, with a prefix such as `key_` in some files, or is `_`. Members that a
    // request has, too, are written as there.
    const isNamed = (name: string, place: number) => name === '_' || `_${snake(name)}`.endsWith(`_${fields[place]!}`);
    const fits = found.length === fields.length && found.every(isNamed);
    if (!fits) fail(at, `${struct} is unpacked as ${found.join(', ')}; its fields are ${fields.join(', ')}`);
  }
  for (const { 0: text, 1: struct, index } of source.matchAll(packing)) {
    const fields = luaSignatures.get(struct!);
    if (!fields) continue;
    const expected = fields.reduce((sum, { packed }) => sum + packed, 0);
    const [, ...given] = argumentsOf(source, index + 'struct.pack'.length);
    // The number of values is only known at run time.
    if (/^(\.\.\.|unpack\(.*)$/.test(given.at(-1)!)) continue;
    if (given.length !== expected) {
      fail(index + text.length, `${struct} is packed from ${given.length} values, and takes ${expected}`);
    }
  }
}

/** The arguments of the call whose opening parenthesis is at `open`. */
function argumentsOf(source: string, open: number): string[] {
  let depth = 0;
  let from = open + 1;
  const found: string[] = [];
  for (const { 0: character, index } of source.slice(open).matchAll(/'(?:\\.|[^'\\])*'|[(){},]/g)) {
    if (character === '(' || character === '{') depth++;
    if (character === ')' || character === '}') depth--;
    if (depth === 0 || (character === ',' && depth === 1)) {
      found.push(source.slice(from, open + index).trim());
      from = open + index + 1;
    }
    if (depth === 0) break;
  }
  return found;
}
