// Assembles scripts from the files of lua/:
//
//   `-- @include "include/name"`  on a line of its own is replaced by that file of lua/include/ or lua/decide/, once
//                                 per script; includes may include others
//   NAMES_IN_CAPITALS             that src/scripts/layout.ts declares are replaced by literals
//   an include                    becomes a block in a library or dry run, because Lua allows 200 locals at a time
//   redis.call, redis.pcall       become dry_call in a script that includes lua/include/dryRun.lua
//   struct.pack, struct.unpack    of a declared structure are checked against its fields (structureCheck.ts)
//
// `lines` has the file and number of each line of an assembled script.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { luaLiterals } from './layout.ts';
import { checkStructures } from './structureCheck.ts';

const root = fileURLToPath(new URL('../../lua/', import.meta.url));

export interface Script {
  name: string;
  source: string;
  /** The origin of each line, such as `lua/include/window.lua:4`; made when it is read, as only errors need it. */
  readonly lines: string[];
  /**
   * It writes to the audit log. Then it returns its reply, and the sessions that may hold leases
   * (lua/include/change.lua).
   */
  isChange: boolean;
  /** It only reads. Then it returns the microseconds that it took, and its reply (src/scripts/readPace.ts). */
  isRead: boolean;
  /** The name in Redis of a library and of its function; undefined for any other script. */
  library?: string;
}

export const libraryPrefix = 'tollgate_';

/** A path in lua/ of a file that scripts include: what many share, or a part of decide.lua. */
export const isInclude = (path: string): boolean => /^(include|decide)\//.test(path);

/** All scripts by their path in lua/, without extension. Includes are not scripts. */
export const scriptNames = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .map((path) => path.split(sep).join('/'))
  .filter((path) => path.endsWith('.lua') && !isInclude(path))
  .map((path) => path.slice(0, -'.lua'.length))
  .sort();

/** A function `table.name` is a field of a table that the include declares. */
const declaration = /^(?:local )?(?:function ([\w.]+)|(?<=local )([\w, ]+?)(?: =|$))/;
/** The names of the declaration that begins with this line, if one does. */
const declaredBy = (line: string): string[] => declaration.exec(line)?.slice(1).join('').split(', ') ?? [];

/** Consecutive lines of a file: a declaration of an include, or the lines up to the next declaration. */
interface Part {
  /** `lua/include/window.lua` */
  file: string;
  lines: readonly string[];
  /** The number of the first line; undefined for lines that this file adds. */
  first: number | undefined;
  /** The names that the declaration makes. A script that uses none of them does not need the part. */
  declares: readonly string[];
  words: ReadonlySet<string>;
  /** The lines with literals instead of names in capitals. */
  source: string;
}

/** What a file consists of, in order: parts, and the paths of its includes. */
type File = readonly (Part | string)[];

type Read = (path: string) => string;
const readLua: Read = (path) => readFileSync(`${root}${path}.lua`, 'utf8');

let scripts: ReadonlyMap<string, Script> | undefined;

/** All scripts by name. They are assembled once per process. */
export function allScripts(): ReadonlyMap<string, Script> {
  if (!scripts) {
    const open = fileReader(readLua);
    scripts = new Map(scriptNames.map((name) => [name, assembleFrom(name, open)]));
  }
  return scripts;
}

export const assemble = (name: string, read = readLua): Script => assembleFrom(name, fileReader(read));

function assembleFrom(name: string, open: (path: string) => File): Script {
  const own = included([name], open);
  const files = new Set(own.map(({ file }) => file));
  const includes = (path: string) => files.has(`lua/${path}.lua`);
  const isChange = includes('include/audit');
  const isRead = own[0]!.lines[0]!.startsWith('#!lua flags=no-writes');
  const around = isChange ? aroundChange : isRead ? aroundRead : undefined;
  const all = isChange ? included(['include/change', name], open) : own;
  const parts = withoutUnused(around ? asFunction(name, all, around) : all);
  const script = (source: string): Script => ({
    name,
    source,
    get lines() {
      return originsOf(parts);
    },
    isChange,
    isRead,
  });
  if (parts[0]!.lines[0]!.startsWith('#!lua name=')) return asLibrary(script(withLiterals(inBlocks(parts), localised)));
  // A script that decides without changing anything has all rules, and so more than 200 names of its own.
  const isDryRun = includes('include/dryRun');
  return script(isDryRun ? withLiterals(inBlocks(parts), dryCalls) : parts.map(({ source }) => source).join('\n'));
}

/** Of each line. */
const originsOf = (parts: readonly Part[]): string[] =>
  parts.flatMap(({ file, first, lines }) =>
    lines.map((_, index) => (first === undefined ? file : `${file}:${first + index}`)),
  );

const dryCalls = new Map([
  ['redis.call', 'dry_call'],
  ['redis.pcall', 'dry_call'],
]);

/** Lines before and after a script, whose result is `reply`. */
type Around = Record<'before' | 'after', readonly string[]>;

const changed = 'return { reply == nil and false or reply, leaseholders(KEYS[1]) }';
const aroundChange: Around = { before: [], after: [changed] };
/**
 * The time of a read by Redis's clock. Where a Redis stops the clock for scripts, it is 0, and nothing is paced. The
 * call is written so that it is not replaced by that of a dry run, which is declared later.
 */
const aroundRead: Around = {
  before: ["local started = redis['pcall']('TIME')"],
  after: [
    "local ended = redis['pcall']('TIME')",
    'return { (ended[1] - started[1]) * 1000000 + ended[2] - started[2], reply == nil and false or reply }',
  ],
};

/** A script as a function, because it may return in many places, and what is before and after it. */
function asFunction(name: string, parts: readonly Part[], { before, after }: Around): Part[] {
  const at = parts.findIndex(({ file }) => file === `lua/${name}.lua`);
  const { lines } = parts[at]!;
  // A line for Redis (`#!`) stays the first one.
  const head = lines[0]!.startsWith('#!') ? 1 : 0;
  const own = (from: number, to: number) => (from < to ? [partOf(name, lines.slice(from, to), from + 1)] : []);
  const added = (line: string): Part => ({ ...partOf(name, [line]), file: 'src/scripts/loader.ts' });
  return [
    ...own(0, head),
    ...parts.slice(0, at),
    ...[...before, 'local function run_script()'].map(added),
    ...own(head, lines.length),
    ...parts.slice(at + 1),
    ...['end', 'local reply = run_script()', ...after].map(added),
  ];
}

/** Returns a function that reads and checks a file once, as most includes are part of most scripts. */
function fileReader(read: Read): (path: string) => File {
  const files = new Map<string, File>();
  return (path) => {
    const known = files.get(path);
    if (known) return known;
    const text = read(path);
    checkStructures(text, `lua/${path}.lua`);
    const file = partsOf(text.split('\n'), path);
    files.set(path, file);
    return file;
  };
}

function partsOf(lines: readonly string[], path: string): File {
  const found: (Part | string)[] = [];
  let from = 0;
  const endAt = (to: number, declares: readonly string[] = []) => {
    if (to > from) found.push(partOf(path, lines.slice(from, to), from + 1, declares));
    from = to;
  };
  for (let at = 0; at < lines.length; at++) {
    const text = lines[at]!;
    const include = /^-- @include "(.+)"$/.exec(text)?.[1];
    const declares = isInclude(path) ? declaredBy(text) : [];
    if (include !== undefined) {
      endAt(at);
      found.push(include);
      from = at + 1;
    } else if (declares.length > 0) {
      endAt(at);
      const closing = closingOf(text);
      while (closing !== '' && at < lines.length && lines[at] !== closing) at++;
      endAt(at + 1, declares);
    }
  }
  endAt(lines.length);
  return found;
}

function partOf(path: string, lines: readonly string[], first?: number, declares: readonly string[] = []): Part {
  const words = new Set<string>();
  const source = withLiterals(lines.join('\n'), new Map(), words);
  return { file: `lua/${path}.lua`, lines, first, declares, words, source };
}

/**
 * The parts of files and their includes. Each include is inserted once, in the place of the first line that names it.
 */
function included(names: readonly string[], open: (path: string) => File): Part[] {
  const parts: Part[] = [];
  const seen = new Set<string>();

  function append(path: string, from: readonly string[]) {
    const chain = [...from, path];
    for (const part of open(path)) {
      if (typeof part !== 'string') {
        parts.push(part);
      } else if (chain.includes(part)) {
        throw new Error(`lua: ${[...chain, part].join(' includes ')}`);
      } else if (!seen.has(part)) {
        seen.add(part);
        append(part, chain);
      }
    }
  }

  for (const name of names) append(name, []);
  return parts;
}

/**
 * Removes the functions and constants of includes that the script does not use, because a script creates its functions
 * again with every call, and because Lua allows 200 locals.
 */
function withoutUnused(parts: readonly Part[]): Part[] {
  const declaring = new Map<string, Part>();
  for (const part of parts) for (const name of part.declares) declaring.set(name, part);
  const used = new Set(parts.filter(({ declares }) => declares.length === 0));
  // The set grows during the loop.
  for (const { words } of used) {
    for (const word of words) {
      const part = declaring.get(word);
      if (part) used.add(part);
    }
  }
  return parts.filter((part) => used.has(part));
}

/**
 * The last line of a declaration that begins with this line; '' when it is this line. It relies on the format of
 * StyLua.
 */
function closingOf(text: string): string {
  if (/^(local )?function/.test(text) && !text.endsWith(' end')) return 'end';
  return text.endsWith('{') ? '}' : '';
}

/**
 * Puts each include into a block, and declares only the names that other files use outside of it, because Lua allows
 * 200 locals at a time. The block begins in the place of the include's first comment or blank line, and ends in that of
 * its last line.
 */
function inBlocks(parts: readonly Part[]): string {
  const filesWith = new Map(
    parts.flatMap(({ declares }) => declares.map((name) => [name, new Set<string>()] as const)),
  );
  for (const { file, words } of parts) {
    for (const word of words) filesWith.get(word)?.add(file);
  }
  const isExported = ({ declares }: Part) =>
    declares.some((name) => !name.includes('.') && filesWith.get(name)!.size > 1);

  const lines: string[] = [];
  for (let from = 0, to = 0; from < parts.length; from = to) {
    while (to < parts.length && parts[to]!.file === parts[from]!.file) to++;
    const block = parts.slice(from, to);
    const exported = block.filter(isExported).flatMap(({ declares }) => declares);
    const texts = block.flatMap((part) => (isExported(part) ? assigned(part.lines) : part.lines));
    if (exported.length > 0) {
      texts[0] = `local ${exported.join(', ')} do`;
      texts[texts.length - 1] = 'end';
    }
    lines.push(...texts);
  }
  return lines.join('\n');
}

/** A declaration whose `local` is before the block. Without a value it needs nothing else. */
function assigned([head, ...rest]: readonly string[]): readonly string[] {
  const hasValue = head!.startsWith('local function') || head!.includes('=');
  return [hasValue ? head!.slice('local '.length) : '', ...rest];
}

/** How a token begins that is a comment or a string. */
const notName = new Set(['-', "'", '"']);
const token = /--.*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[A-Za-z_][\w.]*/g;

/**
 * The globals that a library calls most. Looking them up was a twentieth of a verification, because a library's globals
 * are behind another table. So each gets a local name, which is set by the first call, because they do not exist while
 * it is loaded.
 */
const localised = new Map(
  'redis.call struct.pack struct.unpack string.byte string.sub table.concat math.floor ipairs pairs tonumber unpack'
    .split(' ')
    .map((name) => [name, `local_${name.replace('.', '_')}`]),
);

/**
 * Replaces names outside of comments and strings: names in capitals by literals, and those of `names`. Adds all names
 * to `words`, those with points as several.
 */
function withLiterals(text: string, names: ReadonlyMap<string, string>, words = new Set<string>()): string {
  return text.replace(token, (name) => {
    if (notName.has(name[0]!)) return name;
    words.add(name);
    if (name.includes('.')) for (const word of name.split('.')) words.add(word);
    return names.get(name) ?? luaLiterals.get(name) ?? name;
  });
}

/** Names a library by the hash of its contents, so that servers of two versions use their own library in one Redis. */
function asLibrary(script: Script): Script {
  const version = createHash('sha1').update(script.source).digest('hex').slice(0, 16);
  const library = `${libraryPrefix}${script.name}_${version}`;
  const locals = [...localised.values()];
  const source = script.source
    .replace(`name=${script.name}\n`, `name=${library}\nlocal ${locals} `)
    .replace(
      /register_function\('\w+', (.+)\)$/m,
      `register_function('${library}', function(...) if not ${locals[0]} then ${locals} = ${[...localised.keys()]} end return ($1)(...) end)`,
    );
  return { ...script, source, library };
}

/** An error message of Redis, with the files and lines of lua/ instead of lines of the assembled script. */
export const locate = (script: Script, message: string): string =>
  message.replaceAll(
    /@?user_(?:script|function):(\d+)/g,
    (place, line: string) => script.lines[Number(line) - 1] ?? place,
  );
