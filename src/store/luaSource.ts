// Assembles scripts from the files of lua/:
//
//   `-- @include "include/name"`  on a line of its own is replaced by that file, once per script; includes may include others
//   NAMES_IN_CAPITALS             that src/store/layout.ts declares are replaced by literals
//   an include                    becomes a block in a library, because Lua allows 200 locals at a time
//   struct.pack, struct.unpack    of a declared structure are checked against its fields: names and number of values
//
// `lines` has the file and number of each line of an assembled script.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { luaLiterals, luaSignatures } from './layout.ts';

const root = fileURLToPath(new URL('../../lua/', import.meta.url));

export interface Script {
  name: string;
  source: string;
  /** The origin of each line, such as `lua/include/window.lua:4`. */
  lines: string[];
  /** It writes to the audit log. Then it returns its reply, and the sessions that may hold leases (lua/include/change.lua). */
  isChange: boolean;
  /** The name in Redis of a library and of its function; undefined for any other script. */
  library?: string;
}

export const libraryPrefix = 'tollgate_';

/** All scripts by their path in lua/, without extension. Includes are not scripts. */
export const scriptNames = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .map((path) => path.split(sep).join('/'))
  .filter((path) => path.endsWith('.lua') && !path.startsWith('include/'))
  .map((path) => path.slice(0, -'.lua'.length))
  .sort();

const declaration = /^local (?:function (\w+)|([\w, ]+?)(?: =|$))/;

interface Line {
  text: string;
  /** `lua/include/window.lua:4` */
  from: string;
}

export function assemble(name: string, read = (path: string) => readFileSync(`${root}${path}.lua`, 'utf8')): Script {
  const own = included([name], read);
  const isChange = own.some(({ from }) => from.startsWith('lua/include/audit.lua:'));
  const lines = withoutUnused(isChange ? asChange(name, read) : own);
  checkStructures(lines);
  const isLibrary = lines[0]!.text.startsWith('#!lua name=');
  const texts = (isLibrary ? inBlocks(lines) : lines).map(({ text }) => withLiterals(text, isLibrary));
  const script: Script = { name, source: texts.join('\n'), lines: lines.map(({ from }) => from), isChange };
  return isLibrary ? asLibrary(script) : script;
}

/** A script of a change, with what follows every change. The script is a function, because it may return in many places. */
function asChange(name: string, read: (path: string) => string): Line[] {
  const lines = included(['include/change', name], read);
  const at = lines.findIndex(({ from }) => from === `lua/${name}.lua:1`);
  const from = 'src/store/luaSource.ts';
  return [
    ...lines.slice(0, at),
    { text: 'local function make_change()', from },
    ...lines.slice(at),
    { text: 'end', from },
    { text: 'local reply = make_change()', from },
    { text: 'return { reply == nil and false or reply, leaseholders(KEYS[1]) }', from },
  ];
}

/** The lines of files and their includes. Each include is inserted once, in the place of the first line that names it. */
function included(names: readonly string[], read: (path: string) => string): Line[] {
  const lines: Line[] = [];
  const seen = new Set<string>();

  function append(path: string, from: readonly string[]) {
    const chain = [...from, path];
    for (const [index, text] of read(path).split('\n').entries()) {
      const include = /^-- @include "(.+)"$/.exec(text)?.[1];
      if (include === undefined) {
        lines.push({ text, from: `lua/${path}.lua:${index + 1}` });
      } else if (chain.includes(include)) {
        throw new Error(`lua: ${[...chain, include].join(' includes ')}`);
      } else if (!seen.has(include)) {
        seen.add(include);
        append(include, chain);
      }
    }
  }

  for (const name of names) append(name, []);
  return lines;
}

/**
 * Removes the functions and constants of includes that the script does not use, because a script creates its functions again with
 * every call, and because Lua allows 200 locals.
 */
function withoutUnused(lines: readonly Line[]): Line[] {
  // The line numbers of each function and constant of an include that no line used yet.
  const unused = new Map<string, number[]>();
  const used: number[] = [];
  let within: number[] | undefined;
  let closing = '';
  for (const [at, { text, from }] of lines.entries()) {
    const declared = declaration.exec(text);
    if (declared && from.startsWith('lua/include/')) {
      within = [];
      for (const name of (declared[1] ?? declared[2])!.split(', ')) unused.set(name, within);
      closing = closingOf(text);
    }
    (within ?? used).push(at);
    if (closing === '' || text === closing) within = undefined;
  }
  // The list grows during the loop.
  for (const at of used) {
    for (const word of wordsIn(lines[at]!.text)) {
      used.push(...(unused.get(word) ?? []));
      unused.delete(word);
    }
  }
  return [...new Set(used)].sort((a, b) => a - b).map((at) => lines[at]!);
}

/** The last line of a declaration that begins with this line; '' when it is this line. It relies on the format of StyLua. */
function closingOf(text: string): string {
  if (text.startsWith('local function') && !text.endsWith(' end')) return 'end';
  return text.endsWith('{') ? '}' : '';
}

/**
 * Puts each include into a block, and declares only the names that other files use outside of it, because Lua allows 200 locals
 * at a time. The block begins in the place of the include's first comment or blank line, and ends in that of its last line.
 */
function inBlocks(lines: readonly Line[]): Line[] {
  const fileOf = ({ from }: Line) => from.slice(0, from.lastIndexOf(':'));
  const wordsOf = new Map<string, Set<string>>();
  for (const line of lines) {
    const words = wordsOf.get(fileOf(line)) ?? new Set();
    for (const word of wordsIn(line.text)) words.add(word);
    wordsOf.set(fileOf(line), words);
  }
  const isUsedElsewhere = (name: string, file: string) =>
    [...wordsOf].some(([other, words]) => other !== file && words.has(name));

  const result = [...lines];
  for (let from = 0, to = 0; from < lines.length; from = to) {
    const file = fileOf(lines[from]!);
    while (to < lines.length && fileOf(lines[to]!) === file) to++;
    if (!file.startsWith('lua/include/')) continue;
    const exported: string[] = [];
    for (let at = from; at < to; at++) {
      const { text } = lines[at]!;
      const [, name, names] = declaration.exec(text) ?? [];
      const declared = name ? [name] : (names?.split(', ') ?? []);
      if (!declared.some((each) => isUsedElsewhere(each, file))) continue;
      exported.push(...declared);
      // `local` is before the block. A declaration without a value needs nothing else.
      result[at] = { ...lines[at]!, text: name || text.includes('=') ? text.slice('local '.length) : '' };
    }
    if (exported.length === 0) continue;
    result[from] = { ...lines[from]!, text: `local ${exported.join(', ')} do` };
    result[to - 1] = { ...lines[to - 1]!, text: 'end' };
  }
  return result;
}

/** The names in a line, without its strings and comment. */
const wordsIn = (text: string): string[] =>
  text.replace(/--.*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"/g, ' ').match(/\w+/g) ?? [];

const token = /--.*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[A-Za-z_][\w.]*/g;

/**
 * The globals that a library calls most. Looking them up was a twentieth of a verification, because a library's globals are behind
 * another table. So each gets a local name, which is set by the first call, because they do not exist while it is loaded.
 */
const localised = [
  'redis.call',
  'struct.pack',
  'struct.unpack',
  'string.byte',
  'string.sub',
  'table.concat',
  'math.floor',
  'ipairs',
  'pairs',
  'tonumber',
  'unpack',
];
const localNameOf = (name: string): string => `local_${name.replace('.', '_')}`;

/** A line with literals instead of names in capitals; in a library also with local names for `localised`. */
function withLiterals(line: string, isLibrary: boolean): string {
  return line.replace(token, (word) => {
    if (isLibrary && localised.includes(word)) return localNameOf(word);
    return luaLiterals.get(word) ?? word;
  });
}

/** Names a library by the hash of its contents, so that servers of two versions use their own library in one Redis. */
function asLibrary(script: Script): Script {
  const version = createHash('sha1').update(script.source).digest('hex').slice(0, 16);
  const library = `${libraryPrefix}${script.name}_${version}`;
  const locals = localised.map(localNameOf);
  const source = script.source
    .replace(`name=${script.name}\n`, `name=${library}\nlocal ${locals} `)
    .replace(
      /register_function\('\w+', (.+)\)$/m,
      `register_function('${library}', function(...) if not ${locals[0]} then ${locals} = ${localised} end return ($1)(...) end)`,
    );
  return { ...script, source, library };
}

/** An error message of Redis, with the files and lines of lua/ instead of lines of the assembled script. */
export const locate = (script: Script, message: string): string =>
  message.replaceAll(
    /@?user_(?:script|function):(\d+)/g,
    (place, line: string) => script.lines[Number(line) - 1] ?? place,
  );

const unpacking = /((?:[\w.]+\s*,\s*)*[\w.]+)\s*=\s*struct\.unpack\(\s*([A-Z]\w*)/g;
const packing = /struct\.pack\(\s*(?:\w+ and )?([A-Z]\w*)/g;

/** Throws if a declared structure is unpacked into other names than its fields, or packed from another number of values. */
function checkStructures(lines: readonly Line[]) {
  const source = lines.map(({ text }) => text.replace(/--.*/, '')).join('\n');
  const fail = (at: number, problem: string) => {
    const { from } = lines[source.slice(0, at).split('\n').length - 1]!;
    throw new Error(`${from}: ${problem} (src/store/layout.ts)`);
  };
  for (const { 0: text, 1: names, 2: struct, index } of source.matchAll(unpacking)) {
    const fields = luaSignatures.get(struct!)?.map(({ name }) => name);
    const at = index + text.length;
    if (!fields) continue;
    const found = names!.split(/\s*,\s*/).map((name) => name.replace(/^\w+\./, ''));
    // After the fields, struct.unpack returns the position after the structure.
    if (found.length === fields.length + 1 && /^(position|fields)$/.test(found.at(-1)!)) found.pop();
    const fits = found.length === fields.length && found.every((name, place) => isNamed(name, fields[place]!));
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

/** Whether a variable may have a field's value: it has the field's name, with a prefix such as `key_` in some files, or is `_`. */
const isNamed = (variable: string, field: string): boolean =>
  variable === '_' || variable === field || variable.endsWith(`_${field}`);

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
