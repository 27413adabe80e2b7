// Checks the rules of ARCHITECTURE.md. All files are read from the repository, so a new file is checked as well.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, posix, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { nearest, stepsFor } from '../bin/mutants/tests.mjs';
import { errorCatalogue } from '../src/errors.ts';
import { operations } from '../src/operations/index.ts';
import { luaLiterals, luaSignatures } from '../src/scripts/layout.ts';
import { buildLibrary, isModule, readLua, scriptNames as scriptNamesOf } from '../src/scripts/library.ts';
import { aside } from './support/aside.ts';
import { keyspace } from './support/keyspace.ts';
import { brokenReferences, hasProse, repositoryFiles } from './support/references.ts';

/** The rooms of the store: what runs scripts. */
const rooms = ['redis', 'scripts', 'decide', 'usage', 'records', 'migrations'];

const root = fileURLToPath(new URL('..', import.meta.url));
const read = (path: string) => readFileSync(join(root, path), 'utf8');
const filesBelow = (folder: string, ending: string) =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .map((path) => posix.join(folder, path.split(sep).join('/')))
    .filter((path) => path.endsWith(ending))
    .sort();

const sources = filesBelow('src', '.ts');
const scripts = filesBelow('lua', '.lua');
const includes = scripts.filter((path) => isModule(path.slice('lua/'.length)));
const scriptNames = scriptNamesOf(readLua());
/** Its variables are declared before all modules. */
const registers = 'lua/decide/registers.lua';
/** The folder or file of src/ that a source belongs to. */
const partOf = (path: string) => path.split('/')[1]!.replace(/\.ts$/, '');
/** A source without comments. */
const code = (path: string) => read(path).replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$|\s\/\/ .*$/gm, '');

test('there are sources, scripts and includes to check', () => {
  expect(sources.length).toBeGreaterThan(50);
  expect(scriptNames.length).toBeGreaterThan(15);
  expect(includes.length).toBeGreaterThan(8);
});

describe('dependencies point one way', () => {
  /**
   * The folders and files of src/ that each may import besides its own folder. Parts that are not listed may import
   * `common`.
   */
  const mayImport: Record<string, readonly string[]> = {
    domain: [],
    errors: ['domain'],
    // The rooms of the store, each above the ones that it imports.
    redis: ['domain', 'errors'],
    scripts: ['redis', 'domain', 'errors'],
    decide: ['scripts', 'redis', 'domain', 'errors'],
    usage: ['scripts', 'redis', 'domain', 'errors'],
    records: ['decide', 'usage', 'scripts', 'redis', 'domain', 'errors'],
    migrations: ['scripts', 'redis', 'domain', 'errors'],
    store: ['records', 'migrations', 'decide', 'usage', 'scripts', 'redis', 'domain', 'errors', 'version'],
    input: ['domain', 'errors'],
    operation: ['store', 'decide', 'domain', 'errors'],
    operations: ['operation', 'store', 'records', 'usage', 'decide', 'domain', 'errors', 'version'],
    http: ['operations', 'operation', 'input', 'metrics', 'store', 'decide', 'domain', 'errors', 'version'],
    metrics: ['redis', 'scripts', 'domain', 'version'],
    channel: [],
    version: [],
    config: ['domain'],
    migrator: ['migrations', 'store', 'domain'],
    endings: ['redis', 'store', 'domain'],
    console: ['domain', 'operations'],
  };
  const wiring = ['main', 'serve', 'worker', 'workers', 'cli'];
  const common = ['config', 'operation', 'store', 'domain', 'errors'];

  const importsOf = (path: string) =>
    [...read(path).matchAll(/(?:\bfrom|^import|\bimport\() ?'([^']+)'/gm)].map((match) => match[1]!);
  const oursOf = (path: string) =>
    importsOf(path)
      .filter((name) => name.startsWith('.'))
      .map((name) => posix.join(posix.dirname(path), name));

  test.each(sources)('%s', (path) => {
    const part = partOf(path);
    for (const imported of oursOf(path)) {
      expect(existsSync(join(root, imported)), `${imported} exists`).toBe(true);
      const other = partOf(imported);
      if (wiring.includes(part) || other === part) continue;
      expect(mayImport[part] ?? common, `${path} imports ${imported}`).toContain(other);
    }
  });

  test('no folder has more than a fifth of the lines of src/, the console a quarter', () => {
    const lines = new Map<string, number>();
    for (const path of [...sources, ...filesBelow('src', '.tsx')])
      lines.set(partOf(path), (lines.get(partOf(path)) ?? 0) + read(path).split('\n').length);
    const all = [...lines.values()].reduce((sum, count) => sum + count);
    expect([...lines].filter(([part, count]) => count > all / (part === 'console' ? 4 : 5))).toEqual([]);
  });

  test.each([
    [/^uws|uWebSockets|^@uwsjs/, /^src\/http\/uws\.ts$/],
    [/^ioredis/, /^src\/(redis|scripts)\//],
    [/^ajv/, /^src\/input\/validate\.ts$/],
    [/^commander/, /^src\/cli\//],
    [/^prom-client/, /^src\/metrics\.ts$/],
    [/^cli-progress/, /^src\/cli\/progress\.ts$/],
  ])('packages like %s only in %s', (name, where) => {
    const users = sources.filter((path) => importsOf(path).some((imported) => name.test(imported)));
    expect(users.filter((path) => !where.test(path))).toEqual([]);
    expect(users.length).toBeGreaterThan(0);
  });

  test.each([
    ['process.env', /^src\/config\.ts$/],
    // In the browser its own clock is the only one.
    ['Date.now', /^src\/(serve\.ts|(cli|console)\/.*)$/],
    ['new Date()', /^src\/(main\.ts|cli\/.*)$/],
    ['ufeff', /^src\/domain\/text\.ts$/],
    ['tg:', /^src\/redis\/names\.ts$/],
  ])('`%s` only in %s', (word, where) => {
    expect(sources.filter((path) => code(path).includes(word) && !where.test(path))).toEqual([]);
  });

  test('the pipeline names no operation', () => {
    const pipeline = code('src/http/pipeline.ts');
    const named = operations.filter(({ name }) => pipeline.includes(name));
    expect(named.map(({ name }) => name)).toEqual([]);
    expect(oursOf('src/http/pipeline.ts').filter((path) => partOf(path) === 'operations')).toEqual([]);
  });

  test('the console imports of operations only types, so that no code of the server is in its bundle', () => {
    const files = ['.ts', '.tsx'].flatMap((ending) => filesBelow('src/console', ending));
    const imports = files.flatMap((path) => read(path).match(/^.* from '.*\/operations\/.*$/gm) ?? []);
    expect(imports.map((line) => line.split(' {')[0])).toEqual(['import type']);
  });

  test('the command line imports only one file of http, the loader of uWebSockets.js', () => {
    const imported = sources.filter((path) => partOf(path) === 'cli').flatMap(oursOf);
    expect(imported.filter((path) => partOf(path) === 'http')).toEqual(['src/http/uws.ts']);
  });

  test('every export of src/ is imported by another file', () => {
    const programs = ['bench', 'bin', 'deploy'].flatMap((folder) => filesBelow(folder, '.mjs'));
    const imported = new Set(
      [
        ...sources,
        ...filesBelow('src', '.tsx'),
        ...filesBelow('test', '.ts'),
        ...filesBelow('test', '.mjs'),
        ...programs,
      ].flatMap(importedNames),
    );
    const unused = sources
      .flatMap((path) => exportedNames(path).map((name) => `${path} ${name}`))
      .filter((name) => !imported.has(name));
    expect(unused).toEqual([]);
  });

  test('no file has a vague name', () => {
    const vague = /(^|\/)(utils?|helpers?|common|shared|misc|types|interfaces|services|managers)(\/|\.)/i;
    const files = [...sources, ...scripts, ...filesBelow('test', '.ts'), ...filesBelow('bench', '.ts')];
    expect(files.filter((path) => vague.test(path))).toEqual([]);
  });
});

describe('operations', () => {
  const names = operations.map(({ name }) => name);

  test.each(operations.map(({ name }) => name))('%s is in the file of its name, with a test', (name) => {
    const path = name.replace('.', '/');
    expect(existsSync(join(root, `src/operations/${path}.ts`)), `src/operations/${path}.ts`).toBe(true);
    expect(read(`src/operations/${path}.ts`)).toContain(`name: '${name}'`);
    // Six similar operations share one test, and so do those of holds; a service may have one for all of its own.
    const tested = path
      .replace(/(?<=^keys\/)(add|remove|set)(Permissions|Roles)$/, 'permissionsAndRoles')
      .replace(/(?<=^keys\/)[a-z]+Holds?$/, 'holds');
    const [service] = path.split('/');
    const tests = [tested, `${service}/${service}`].map((test) => `test/operations/${test}.test.ts`);
    const found = tests.find((test) => existsSync(join(root, test)));
    expect(found, tests.join(' or ')).toBeDefined();
    expect(found === tests[0] || read(found!).includes(`'${name}'`), `${found} tests ${name}`).toBe(true);
  });

  test('names and aliases are unique', () => {
    const paths = operations.flatMap((operation) => [
      operation.name as string,
      ...('alias' in operation && operation.alias !== undefined ? [operation.alias as string] : []),
    ]);
    expect(new Set(paths).size).toBe(paths.length);
  });

  test('each file that defines one is in the registry', () => {
    const defined = sources
      .filter((path) => path.startsWith('src/operations/'))
      .flatMap((path) => [...read(path).matchAll(/^ {2}name: '(\w+\.\w+)',$/gm)].map((match) => match[1]!));
    expect(defined.sort()).toEqual([...names].sort());
  });
});

describe.each(scriptNames)('lua/%s.lua', (name) => {
  const path = `lua/${name}.lua`;
  const lines = read(path).split('\n');
  const flags = lines[0]!.startsWith('#!lua') ? 1 : 0;
  const end = lines.findIndex((line, index) => index >= flags && !line.startsWith('--'));
  const header = lines.slice(flags, end);
  // A statement that is wrapped is joined to one line.
  const body = lines
    .slice(end)
    .map((line) => line.replace(/--.*$/, ''))
    .join('\n')
    .replace(/([,=])\n\s+/g, '$1 ')
    .split('\n');
  const isNaming = (line: string) => /\b(KEYS|ARGV)\b/.test(line);

  const listed = header.flatMap((line) => /^-- (ARGV\[\d+…?\]) /.exec(line)?.[1] ?? []);
  const fixed = listed.filter((reference) => !reference.includes('…'));
  /** The actor and the time, which no header lists (lua/README.md). */
  const last = [/\bactor\b/, /\bnow_ms\b/]
    .filter((use) => use.test(body.join('\n')))
    .map((_, index) => `ARGV[${fixed.length + index + 1}]`);
  const documented = [...fixed, ...last, ...listed.slice(fixed.length)];
  const readInBody = body.flatMap((line) => line.match(/\b(?:KEYS|ARGV)(?:\[\w+\])?/g) ?? []);

  test('begins with a comment on its purpose, and what it returns', () => {
    expect(header[0]).toMatch(/^-- [A-Z].+/);
    expect(header.filter((line) => line.startsWith('-- returns  '))).toHaveLength(1);
  });

  test('documents exactly the ARGV that it reads, in order, and KEYS[1] if that is no workspace', () => {
    // `ARGV[5…]` means the rest of the list, which the script reads as ARGV itself.
    const written = documented.map((reference) => reference.replace(/\[\d+…\]/, ''));
    const takesSeveral = header.some((line) => line.startsWith('-- KEYS  '));
    expect([...new Set(readInBody)].sort()).toEqual([takesSeveral ? 'KEYS' : 'KEYS[1]', ...written].sort());
    const [named = 'workspace'] = header.flatMap((line) => /^-- KEYS\[1\] +(\w+)/.exec(line)?.[1] ?? []);
    const naming = takesSeveral ? /^local workspaces\b.* = KEYS,/ : new RegExp(`^local ${named}\\b.* = KEYS\\[1\\]`);
    expect(body.filter((line) => naming.test(line))).toHaveLength(1);
    const numbers = documented.map((reference) => Number(reference.match(/\d+/)));
    expect(numbers).toEqual(numbers.map((_, index) => index + 1));
  });

  test('names its inputs at the top, and does not touch KEYS and ARGV below', () => {
    const first = body.findIndex((line) => line.trim() !== '');
    const naming = body.slice(first).findIndex((line) => !isNaming(line));
    expect(naming).toBeGreaterThan(0);
    const top = body.slice(first, first + naming);
    expect(top.filter((line) => !line.startsWith('local '))).toEqual([]);
    expect(body.slice(first + naming).filter(isNaming)).toEqual([]);
  });

  test('takes the time as its last fixed argument', () => {
    const clock = body.join('\n').match(/now_ms\((ARGV\[\d+\])\)/)?.[1];
    expect(clock ?? 'none').toBe(body.join('\n').includes('now_ms') ? last.at(-1) : 'none');
  });

  test('its header lists the names that it derives', () => {
    const derives = body.some((line) => /\b\w+\(workspaces?\b/.test(line));
    expect(header.some((line) => line.startsWith('-- derives  '))).toBe(derives);
  });

  test('is run by the store', () => {
    const users = sources.filter(
      (file) => [...rooms, 'store'].includes(partOf(file)) && read(file).includes(`'${name}'`),
    );
    expect(users).not.toEqual([]);
  });

  test('neither scans nor walks all keys', () => {
    // The register of server processes and a leaf of sums are bounded.
    const walks = ['data/beat', 'analytics/sums'].includes(name)
      ? /'(H|S|Z)?SCAN'|'KEYS'/i
      : /'(H|S|Z)?SCAN'|'KEYS'|'HGETALL'|'SMEMBERS'/i;
    expect(body.filter((line) => walks.test(line))).toEqual([]);
  });
});

/** The names that an include defines for others. */
const declaredIn = (path: string): string[] =>
  [...read(path).matchAll(/^local (?:function (\w+)|([\w, ]+?)(?: =|$))/gm)].flatMap((match) =>
    (match[1] ?? match[2])!.split(', '),
  );

describe('lua/', () => {
  test('every module is in the library', () => {
    const text = buildLibrary();
    expect(includes.filter((path) => path !== registers && !text.includes(`-- ${path}\n`))).toEqual([]);
  });

  test('names in capitals are declared in src/scripts/layout.ts or in an include', () => {
    const declared = new Set([...luaLiterals.keys(), ...includes.flatMap(declaredIn), 'KEYS', 'ARGV']);
    const unknown = scripts.flatMap((path) => {
      const code = read(path)
        .replace(/--.*$/gm, '')
        .replace(/'(?:\\.|[^'\\])*'/g, "''");
      const own = [...code.matchAll(/\blocal ([A-Z][\w, ]*)/g)].flatMap((match) => match[1]!.trim().split(', '));
      const names = code.match(/(?<![.\w])[A-Z][A-Z0-9_]+\b(?! =[^=])/g) ?? [];
      return names.filter((name) => !declared.has(name) && !own.includes(name)).map((name) => `${path}: ${name}`);
    });
    expect(unknown).toEqual([]);
  });

  // Where it was written a second time, a 64th that is no whole number of milliseconds was another slice.
  test('only lua/include/windowLog.lua divides a time into slices', () => {
    const dividing = [...scripts, ...sources].flatMap((path) =>
      code(path)
        .split('\n')
        .map((line) => line.replace(/--.*$/, ''))
        .filter((line) => /[/%] ?(64|FINE_LIMIT)\b|FINE_LIMIT \+/.test(line))
        .map((line) => `${path}: ${line.trim()}`),
    );
    expect(dividing).toEqual([
      'lua/include/windowLog.lua: function window_log.slice_of(duration) return (duration - duration % 64) / 64 end',
      expect.stringMatching(/^lua.include.windowLog.lua: return window_log.slice_end/),
      // What an export gives back of holds, in counters that it has read.
      expect.stringMatching(/^src.records.heldUnits.ts: .* Math.floor.duration . 64. : 1;$/),
    ]);
  });

  test('every literal that src/scripts/layout.ts declares for Lua by name is used, and none is declared twice', () => {
    const text = scripts.map(read).join('\n');
    const twice = includes.flatMap(declaredIn).filter((name) => luaLiterals.has(name));
    expect(twice).toEqual([]);
    // All literals of a structure are declared, whether or not they are used.
    const structures = [...luaSignatures.keys()];
    const isOfStructure = (name: string) =>
      structures.some((structure) => name === structure || name.startsWith(`${structure}_`));
    const unused = [...luaLiterals.keys()].filter(
      (name) => !isOfStructure(name) && !new RegExp(`\\b${name}\\b`).test(text),
    );
    expect(unused).toEqual([]);
  });

  test.each(includes)('%s takes what it needs as arguments, and does nothing by itself', (path) => {
    const lines = read(path)
      .split('\n')
      .map((line) => line.replace(/--.*$/, ''));
    expect(read(path)).toMatch(/^-- [A-Z]/);
    expect(lines.filter((line) => /\b(KEYS|ARGV)\b/.test(line))).toEqual([]);
    // Only constants are outside of functions.
    expect(lines.filter((line) => /^[^\s]/.test(line) && !/^(local |function \w+\.|end\b|[)}])/.test(line))).toEqual(
      [],
    );
    expect(lines.filter((line) => /^local (?!function).*redis\.call/.test(line))).toEqual([]);
  });

  test('a variable of a module is changed by that module only, and a shared one by one module', () => {
    const isChangedIn = (name: string, path: string) =>
      new RegExp(`^\\s+(?:[\\w.]+,\\s+)*${name}(?:,\\s+[\\w.]+)* =[^=]`, 'm').test(read(path).replace(/--.*$/gm, ''));
    const changing = (name: string) => scripts.filter((path) => isChangedIn(name, path));
    const variables = includes.flatMap((path) =>
      declaredIn(path)
        .filter((name) => !/^[A-Z]/.test(name) && !new RegExp(`^local function ${name}\\b`, 'm').test(read(path)))
        .map((name) => ({ path, name })),
    );
    const changed = variables.flatMap(({ path, name }) => {
      const others = changing(name).filter((other) => other !== path);
      return others.slice(path === registers ? 1 : 0).map((other) => `${other}: ${name}`);
    });
    expect(changed).toEqual([]);
    const shared = declaredIn(registers);
    expect(shared.filter((name) => changing(name).length !== 1)).toEqual([]);
  });

  test('a table of functions is called as its file, and has all of them from there', () => {
    const tableOf = (path: string) =>
      posix.basename(path, '.lua').replace(/[A-Z]/g, (each) => `_${each.toLowerCase()}`);
    const declared = new Set(includes.flatMap(declaredIn));
    const strays = scripts.flatMap((path) =>
      [...read(path).matchAll(/\bfunction (\w+)\.\w|\b(\w+)\.\w+ = function\b/g)]
        .map(([, table, assigned]) => table ?? assigned!)
        .filter((table) => declared.has(table) && table !== tableOf(path))
        .map((table) => `${path}: ${table}`),
    );
    expect(strays).toEqual([]);
  });

  test('every function of a module is used', () => {
    // lua/library.lua names what it takes with `modules.`.
    const text = scripts.map((path) => read(path).replace(/--.*$|\bmodules\./gm, '')).join('\n');
    const counts = new Map<string, number>();
    for (const [name] of text.matchAll(/\b\w+(?:\.\w+)?\b/g)) counts.set(name, (counts.get(name) ?? 0) + 1);
    const functions = includes.flatMap((path) =>
      [...read(path).matchAll(/^(?:local )?function ([\w.]+)/gm)].map(([, name]) => name!),
    );
    expect(functions.filter((name) => counts.get(name)! < 2)).toEqual([]);
  });

  test('no file has more than 300 lines', () => {
    expect(scripts.filter((path) => read(path).split('\n').length > 301)).toEqual([]);
  });

  test('no function has more than 70 lines', () => {
    const long = scripts.flatMap((path) => {
      const lines = read(path).split('\n');
      return lines.flatMap((line, from) => {
        if (!/^(local )?function .*\)$/.test(line)) return [];
        const count = lines.indexOf('end', from) - from + 1;
        return count > 70 ? [`${path}: ${line}: ${count} lines`] : [];
      });
    });
    expect(long).toEqual([]);
  });

  test('nothing is global', () => {
    const offenders = scripts.flatMap((path) =>
      read(path)
        .split('\n')
        .filter((line) => /^\s*function \w+\(/.test(line))
        .map((line) => `${path}: ${line}`),
    );
    expect(offenders).toEqual([]);
  });

  test('names are made in include/nameOf.lua only', () => {
    const makes = (line: string) =>
      /\.\. *['"]:|['"]tg:|['"]:[a-z]+:?['"]|format\(['"][^'"]*%s:/.test(line.replace(/--.*$/, ''));
    const makers = scripts.filter((path) => read(path).split('\n').some(makes));
    expect(makers).toEqual(['lua/include/nameOf.lua']);
  });

  test('the names made are those that src/redis/keyspace.md describes', () => {
    const made = [...read('lua/include/nameOf.lua').matchAll(/return workspace \.\. '(:\w+)/g)].map(
      (match) => match[1],
    );
    const described = keyspace
      .filter(({ isOld }) => !isOld)
      .map(({ name }) => /^:\w+/.exec(name)?.[0])
      .filter((name) => name !== undefined);
    expect([...made].sort()).toEqual([...described].sort());
    expect(new Set(made).size).toBe(made.length);
  });
});

describe('errors', () => {
  /** Codes in the first column of tables with the heading `Code`, in all pages. */
  const tables = filesBelow('.', '.md')
    .filter((path) => !/(^|\/)(node_modules|dist)\//.test(path))
    .map((path) => ({ path, codes: codesIn(read(path)) }))
    .filter(({ codes }) => codes.length > 0);

  test.skipIf(tables.length === 0)('the tables of the documents list exactly the existing codes', () => {
    for (const { path, codes } of tables) {
      expect([path, ...codes.sort()]).toEqual([path, ...errorCatalogue.map(({ code: name }) => name).sort()]);
    }
  });

  test('every code is thrown somewhere', () => {
    const text = sources
      .filter((path) => path !== 'src/errors.ts')
      .map(read)
      .join('\n');
    const unused = errorCatalogue.map(({ code: name }) => name).filter((name) => !text.includes(`'${name}'`));
    expect(unused).toEqual([]);
  });
});

describe('references in comments and documents', () => {
  const files = repositoryFiles();
  const broken = (file: string, text: string) => brokenReferences(file, files, text).map((reference) => reference.text);

  test('every path, page, section, anchor and npm script exists', () => {
    const pages = files.filter(hasProse);
    expect(pages.length).toBeGreaterThan(200);
    expect(pages.flatMap((file) => brokenReferences(file, files))).toEqual([]);
  });

  // About 120 columns, with room for a name that becomes longer.
  test('prose in Markdown is wrapped', () => {
    const generated = ['bench/RESULTS.md', 'THIRD_PARTY.md'];
    const proseOf = (page: string) =>
      read(page)
        .replace(/^```[\s\S]*?^```$/gm, '')
        .split('\n')
        .filter((line) => !/^\s*\|/.test(line));
    const pages = files.filter((file) => file.endsWith('.md') && !generated.includes(file));
    const long = pages.flatMap((page) => proseOf(page).filter((line) => [...line].length > 132));
    expect(long).toEqual([]);
  });

  test('comments have at most 120 columns', () => {
    const isComment = (line: string) => /^\s*(\/\/|--|\*|\/\*\*) /.test(line) && !/biome-ignore/.test(line);
    const files = [...sources, ...filesBelow('src', '.tsx'), ...scripts, ...filesBelow('test', '.ts')];
    const long = files.flatMap((path) =>
      read(path)
        .split('\n')
        .filter((line) => isComment(line) && [...line].length > 120)
        .map((line) => `${path}: ${line.trim()}`),
    );
    expect(long).toEqual([]);
  });

  test.each([
    ['src/a.ts', ' * As in DESIGN.md.', ['DESIGN.md']],
    ['src/a.ts', ' * See decide/gone.lua and src/gone/.', ['src/gone', 'decide/gone.lua']],
    ['lua/a.lua', '-- See include/gone, and fields of decide/limitChecks/limitChecks.', ['include/gone']],
    ['lua/a.lua', '-- docs/contract.md §1 and §99, CONTRACT §2', ['§99', '§2']],
    ['lua/a.lua', '-- docs/limits.md#gone, docs/limits.md#algorithm', ['docs/limits.md#gone']],
    ['docs/a.md', '[one](gone.md), [two](limits.md#gone), [three](limits.md#algorithm)', ['gone.md', 'limits.md#gone']],
    ['docs/a.md', '`src/operations/<service>/<procedure>.ts` and `gone/<service>/…`', []],
    ['docs/a.md', '`npm run gone`, `npm run test:faults`', ['npm run gone']],
  ])('finds the broken ones: %s %s', (file, text, expected) => {
    expect(broken(file, text)).toEqual(expected);
  });
});

test('mutants of each file of lua/ have tests near it, and every pattern of bin/mutants/tests.mjs a file', () => {
  const tests = filesBelow('test', '.test.ts');
  const files = scripts.filter((path) => path !== 'lua/library.lua');
  expect(files.filter((path) => stepsFor(path, tests, true).length === 0)).toEqual([]);
  const patternOf = (path: string) => nearest.find(([pattern]) => pattern.test(path))?.[0];
  const used = new Set(files.map(patternOf));
  expect(nearest.map(([pattern]) => pattern).filter((pattern) => !used.has(pattern))).toEqual([]);
});

const exportedNames = (path: string) =>
  [...read(path).matchAll(/^export (?:async )?(?:const|function\*?|class|interface|type) (\w+)/gm)].map((m) => m[1]!);

/** The names that a file imports from src/ or its build, statically or not, as `<file> <name>`. */
function importedNames(path: string): string[] {
  const text = read(path);
  const statics = text.matchAll(/^(?:import|export) (?:type )?\{([^}]*)\} from '(\.[^']+)'/gm);
  const dynamics = text.matchAll(/const \{([^}]*)\} = await import\((?:new URL\()?'(\.[^']+)'/g);
  return [...statics, ...dynamics].flatMap(([, names, from]) => {
    const source = posix.join(posix.dirname(path), from!).replace(/^dist\/(.*)\.js$/, 'src/$1.ts');
    return names!.split(',').map(
      (name) =>
        `${source} ${
          name
            .trim()
            .replace(/^type /, '')
            .split(/ as |:/)[0]
        }`,
    );
  });
}

function codesIn(markdown: string): string[] {
  const codes: string[] = [];
  let within = false;
  for (const line of markdown.split('\n')) {
    if (!line.startsWith('|')) within = false;
    else if (/^\| *Code *\|/.test(line)) within = true;
    else if (within) codes.push(...(/^\| *`(\w+)`/.exec(line)?.slice(1) ?? []));
  }
  return codes;
}

const hasLuacheck = spawnSync('luacheck', ['--version'], { stdio: 'ignore' }).status === 0;

test.skipIf(!hasLuacheck)('luacheck (of Debian: lua-check) finds nothing in the library', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-lua-'));
  // The first line is for Redis, not Lua.
  writeFileSync(join(folder, 'library.lua'), buildLibrary().replace(/^#!.*/, ''));
  const { stdout } = spawnSync('luacheck', ['-q', '--no-color', '--config', '.luacheckrc', folder], {
    encoding: 'utf8',
  });
  rmSync(folder, { recursive: true });
  expect(stdout).toMatch(/^Total: 0 warnings \/ 0 errors in 1 file$/m);
});

test('the tests that npm test runs in part are in the table of test/support/aside.ts, with paths that exist', () => {
  const asks = /\b(?:isThorough|thorough|thoroughTest|sample)\b.*testIf\.ts/;
  const asking = filesBelow('test', '.test.ts').filter((path) => asks.test(read(path)));
  expect(asking.filter((path) => !(path in aside))).toEqual([]);
  const listed = Object.entries(aside).flatMap(([test, paths]) => [test, ...paths]);
  expect(listed.filter((path) => !existsSync(join(root, path)))).toEqual([]);
});
