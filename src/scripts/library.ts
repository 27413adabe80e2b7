// Builds the library of Redis from the files of lua/, when Tollgate is built:
//
//   a file of include/ or decide/   is a module: a block that begins with the names that it takes from other modules,
//                                   and ends with those that it gives. A name belongs to one module, so a file needs
//                                   only to use it
//   any other file                  is a script: a function of KEYS and ARGV, which Redis calls by its path
//   decide/registers                has the variables that all modules share
//   NAMES_IN_CAPITALS               that src/scripts/layout.ts declares become literals
//   struct.pack, struct.unpack      of a declared structure are checked against its fields (structureCheck.ts)
//
// Lines stay lines, so that the library itself says where one of them comes from (loader.ts).

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { luaLiterals } from './layout.ts';
import { libraryPrefix } from './loader.ts';
import { checkStructures } from './structureCheck.ts';

const root = fileURLToPath(new URL('../../lua/', import.meta.url));
const frame = 'library';
const registers = 'decide/registers';

/** The texts of the files of lua/ by their path without extension. */
export type LuaFiles = ReadonlyMap<string, string>;

export const readLua = (): LuaFiles =>
  new Map(
    readdirSync(root, { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.lua'))
      .map((path) => path.split(sep).join('/').slice(0, -'.lua'.length))
      .sort()
      .map((path) => [path, readFileSync(`${root}${path}.lua`, 'utf8')]),
  );

/** A path in lua/ of a module. */
export const isModule = (path: string): boolean => /^(include|decide)\//.test(path);
export const isScript = (path: string): boolean => !isModule(path) && path !== frame;
export const scriptNames = (files: LuaFiles): string[] => [...files.keys()].filter(isScript);

interface File {
  path: string;
  /** Without comments, with literals. */
  lines: string[];
  /** The names that it uses, without its own. */
  uses: readonly string[];
  /** The names that it declares for others, if it is a module. */
  declares: ReadonlySet<string>;
  flags: string;
  /** The flag of its second function, called while Redis refuses writes. */
  full: string;
}

/** How a token begins that is a comment or a string. */
const token = /--.*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[A-Za-z_][\w.]*/g;
const declaration = /^local (?:function (\w+)|([\w, ]+?)(?: =|$))/;
/** Names that a file has itself: locals, parameters, and variables of loops. */
const own = /\blocal (?!function\b)([\w, ]+)|\bfunction ?([.\w]*)\(([^)]*)\)|\bfor ([\w, ]+?) (?:in|=)/g;
/** A name, but not a member or a field of a table. */
const use = /(?<![.\w])[A-Za-z_]\w*\b(?!\s*=[^=])/g;

const globals = [
  ...['redis.call', 'redis.pcall', 'struct.pack', 'struct.unpack', 'string.byte', 'string.sub', 'table.concat'],
  ...['math.floor', 'math.min', 'ipairs', 'pairs', 'pcall', 'tonumber', 'unpack'],
];
const localOf = (name: string) => `local_${name.replace('.', '_')}`;
const localised = new Map(globals.map((name) => [name, localOf(name)]));

function fileOf(path: string, text: string, literals: ReadonlyMap<string, string>): File {
  checkStructures(text, `lua/${path}.lua`);
  const source = text.split('\n');
  const replaced = (word: string) => (word.startsWith('--') ? '' : (localised.get(word) ?? literals.get(word) ?? word));
  const [, flags = '', full = ''] = /^#!lua (?:flags=(\S+)|full=(\S+))$/.exec(source[0]!) ?? [];
  if (source[0]!.startsWith('#!')) source[0] = '';
  const names = source.flatMap((line) => declaration.exec(line)?.slice(1).join('').split(', ') ?? []);
  const code = source.join('\n').replace(token, (word) => (/^(?:--|['"])/.test(word) ? '' : word));
  const owned = new Set(
    [...code.matchAll(own)].flatMap((match) =>
      match
        .slice(1)
        .join()
        .trim()
        .split(/\s*,\s*/),
    ),
  );
  return {
    path,
    lines: source.map((line) => line.replace(token, replaced).trimEnd()),
    uses: [...new Set(code.match(use))].filter((name) => !owned.has(name)),
    declares: new Set(isModule(path) && path !== registers ? names : []),
    flags: flags && `'${flags}'`,
    full: full ? `'${full}'` : 'nil',
  };
}

/** Files and the modules that they need, by path: each once, after those that it needs. */
function closureOf(needs: ReadonlyMap<string, readonly string[]>, ...paths: string[]): string[] {
  const found = new Set<string>();
  function visit(path: string, chain: readonly string[]) {
    if (chain.includes(path)) throw new Error(`lua: ${[...chain, path].join(' needs ')}`);
    if (found.has(path)) return;
    for (const each of needs.get(path)!) visit(each, [...chain, path]);
    found.add(path);
  }
  for (const path of paths) visit(path, []);
  return [...found];
}

/** Modules by the names that they declare. */
function ownersOf(files: Iterable<File>): Map<string, File> {
  const owners = new Map<string, File>();
  for (const file of files) {
    for (const name of file.declares) {
      const other = owners.get(name);
      if (other) throw new Error(`lua: ${other.path} and ${file.path} declare ${name}`);
      owners.set(name, file);
    }
  }
  return owners;
}

/** The text before and after the lines of a file, on its first and last line. */
type Around = (file: File) => { before: string; after: string };

function textOf(file: File, { before, after }: ReturnType<Around>): string {
  const [first, ...rest] = file.lines;
  return [`-- lua/${file.path}.lua`, `${before} ${first}`.trimEnd(), ...rest, after].join('\n');
}

const version = '@version@';

/** The name of the function of a script. */
const functionOf = (script: string, library: string) =>
  `${libraryPrefix}${script.replaceAll('/', '_')}${library.slice(libraryPrefix.length - 1)}`;

/** The library of all files, or of some scripts and their modules. */
export function buildLibrary(
  sources: LuaFiles = readLua(),
  literals: ReadonlyMap<string, string> = luaLiterals,
  scripts = scriptNames(sources),
): string {
  const files = new Map([...sources].map(([path, text]) => [path, fileOf(path, text, literals)]));
  const owners = ownersOf(files.values());
  const takenBy = (file: File) => file.uses.filter((name) => owners.has(name));
  const needs = new Map(
    [...files].map(([path, file]) => [
      path,
      takenBy(file)
        .map((name) => owners.get(name)!.path)
        .sort(),
    ]),
  );
  const ordered = closureOf(needs, ...ofFrame.keys(), ...scripts).map((path) => files.get(path)!);
  const taken = new Set(ordered.flatMap(takenBy));
  const taking = (file: File) => {
    const names = takenBy(file);
    return names.length === 0
      ? 'do'
      : `do local ${names.join(', ')} = ${names.map((name) => `modules.${name}`).join(', ')}`;
  };
  const isDry = ({ path }: File) => isScript(path) && closureOf(needs, path).includes('include/dryRun');
  const begins = new Map(ordered.map((file) => [file, taking(file)]));
  const isTwice = new Set(closureOf(needs, ...ordered.filter(isDry).map(({ path }) => path)));
  const aroundModule: Around = (file) => {
    const given = [...file.declares].filter((name) => taken.has(name) || ofFrame.get(file.path) === name);
    const after =
      given.length === 0 ? 'end' : `${given.map((name) => `modules.${name}`).join(', ')} = ${given.join(', ')} end`;
    const before = begins.get(file)!;
    return isTwice.has(file.path) ? { before, after } : { before: before.replace('do', 'if not is_dry then'), after };
  };
  const aroundScript: Around = (file) => {
    const isChange = closureOf(needs, file.path).includes('include/audit');
    const kind = isChange ? 'register_change' : file.flags === "'no-writes'" ? 'register_read' : 'register';
    const name = `'${functionOf(file.path, `${libraryPrefix}${version}`)}'`;
    const where = isDry(file) ? 'is_dry' : 'not is_dry';
    return {
      before: `${begins.get(file)!} if ${where} then ${kind}(${name}, { ${file.flags} }, ${file.full}, function(KEYS, ARGV)`,
      after: 'end) end end',
    };
  };
  const partOf: Record<string, () => string> = {
    locals: () => `local ${[...localised.values()].join(', ')}`,
    globals: () => `${[...localised.values()].join(', ')} = ${globals.join(', ')}`,
    registers: () => textOf(files.get(registers)!, { before: '', after: '' }),
    modules: () =>
      ordered
        .filter(({ path }) => isModule(path))
        .map((file) => textOf(file, aroundModule(file)))
        .join('\n'),
    scripts: () =>
      ordered
        .filter(({ path }) => !isModule(path))
        .map((file) => textOf(file, aroundScript(file)))
        .join('\n'),
  };
  const text = sources.get(frame)!.replace(/^ *-- @(\w+)$/gm, (_line, part: string) => partOf[part]!());
  const body = text.replace(/^ *--(?! lua\/).*\n/gm, '');
  const library = `${libraryPrefix}${createHash('sha1').update(body).digest('hex').slice(0, 16)}`;
  return `#!lua name=${library}\n${body.replaceAll(`_${version}`, library.slice(libraryPrefix.length - 1))}`;
}

/** The modules that lua/library.lua uses, and the names that it takes from them. */
const ofFrame: ReadonlyMap<string, string> = new Map([
  ['include/change', 'leaseholders'],
  ['include/fullMemory', 'full_memory'],
  ['include/holdBuckets', 'hold_buckets'],
]);
