// The loader of lua/: an include is inserted once, and every error has our files and lines.

import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { cliActor } from '../../src/records/rootKeys.ts';
import { workspaceKey } from '../../src/redis/names.ts';
import { luaLiterals } from '../../src/scripts/layout.ts';
import { assemble, locate, scriptNames } from '../../src/scripts/loader.ts';
import { loadScripts } from '../../src/scripts/scripts.ts';
import { harness } from '../support/harness.ts';
import { ownRedis } from '../support/ownRedis.ts';
import { snippets } from '../support/snippet.ts';

const h = harness();
const lua = snippets();

/** Files of an invented lua/. */
const from = (files: Record<string, string>) => (path: string) => {
  const text = files[path];
  if (text === undefined) throw new Error(`no ${path}`);
  return text;
};

describe('assemble', () => {
  test('inserts an include where it is first named, once', () => {
    const read = from({
      script: '-- Script.\n-- @include "include/a"\n-- @include "include/b"\nreturn a + b',
      'include/a': 'local a = 1',
      'include/b': '-- @include "include/a"\nlocal b = a',
    });
    expect(assemble('script', read)).toEqual({
      name: 'script',
      source: '-- Script.\nlocal a = 1\nlocal b = a\nreturn a + b',
      lines: ['lua/script.lua:1', 'lua/include/a.lua:1', 'lua/include/b.lua:2', 'lua/script.lua:4'],
      isChange: false,
      isRead: false,
    });
  });

  test('keeps a first line of flags first', () => {
    const read = from({
      script: '#!lua flags=no-writes\n-- @include "include/a"\nreturn a',
      'include/a': 'local a = 1',
    });
    const { source, lines, isRead } = assemble('script', read);
    const all = source.split('\n');
    expect(all[0]).toBe('#!lua flags=no-writes');
    expect(source).toContain('\nlocal a = 1\nreturn a\nend\n');
    expect([lines[0], lines[all.indexOf('return a')]]).toEqual(['lua/script.lua:1', 'lua/script.lua:3']);
    expect(lines.length).toBe(all.length);
    expect(isRead).toBe(true);
  });

  test('a script that reads and includes nothing has literals, too', () => {
    const { source } = assemble('script', from({ script: '#!lua flags=no-writes\nreturn NEVER' }));
    expect(source).toContain(`\nreturn ${luaLiterals.get('NEVER')}\nend\n`);
  });

  test.each([
    'local text = "-- @include "include/a""',
    '  -- @include "include/a"',
    '-- @include include/a',
    '-- @include "include/a" and more',
  ])('does not change a line that is no include: %s', (line) => {
    expect(assemble('script', from({ script: line })).source).toBe(line);
  });

  test('refuses a cycle, naming its path', () => {
    const read = from({
      script: '-- @include "include/a"',
      'include/a': '-- @include "include/b"',
      'include/b': '-- @include "include/c"',
      'include/c': '-- @include "include/a"',
    });
    expect(() => assemble('script', read)).toThrow(
      'lua: script includes include/a includes include/b includes include/c includes include/a',
    );
  });

  test('refuses a file that includes itself', () => {
    const read = from({ script: '-- @include "include/a"', 'include/a': '-- @include "include/a"' });
    expect(() => assemble('script', read)).toThrow('lua: script includes include/a includes include/a');
  });

  test('refuses an include that does not exist', () => {
    expect(() => assemble('script')).toThrow(/script\.lua/);
  });
});

describe('locate', () => {
  const script = assemble(
    'script',
    from({ script: '-- @include "include/a"\nreturn a.b.c', 'include/a': '-- A.\nlocal a = {}' }),
  );

  test.each([
    ['ERR user_script:3: attempt to index', 'ERR lua/script.lua:2: attempt to index'],
    ['ERR @user_script:2: bad', 'ERR lua/include/a.lua:2: bad'],
    ['at user_script:1 and user_script:3', 'at lua/include/a.lua:1 and lua/script.lua:2'],
    ['ERR user_script:99: no such line', 'ERR user_script:99: no such line'],
    ['ERR something else', 'ERR something else'],
  ])('%s', (message, located) => {
    expect(locate(script, message)).toBe(located);
  });
});

describe('in Redis', () => {
  test.each(scriptNames)('%s compiles', async (name) => {
    const { source, library } = assemble(name);
    if (library) expect(await lua.redis.function('LOAD', 'REPLACE', source)).toBe(library);
    else expect(await lua.redis.script('LOAD', source)).toMatch(/^[0-9a-f]{40}$/);
  });

  test('a script that does not compile is an error with file and line', async () => {
    const script = assemble(
      'script',
      from({ script: '-- @include "include/a"\nreturn 1', 'include/a': '\n\nlocal = 1' }),
    );
    const error = await lua.redis.script('LOAD', script.source).catch((cause: Error) => cause);
    expect(locate(script, (error as Error).message)).toMatch(/lua\/include\/a\.lua:3/);
  });

  test('a runtime error has file and line, also of an include', async () => {
    const broken = h.store.apis.create(h.workspaceId, 'test', { ...cliActor, rootKeyId: undefined as never });
    await expect(broken).rejects.toThrow(/lua\/include\/audit\.lua:\d+/);
    const audit = readFileSync(new URL('../../lua/include/audit.lua', import.meta.url), 'utf8').split('\n');
    const message = await broken.catch((error: Error) => error.message);
    const line = Number(/lua\/include\/audit\.lua:(\d+)/.exec(message as string)![1]);
    expect(audit[line - 1]).toMatch(/redis\.call\(|requestId/);
  });

  test('replies are text, or bytes where asked for', async () => {
    const scripts = await loadScripts(lua.redis, workspaceKey);
    const args = ['name', 1, 1, ''];
    expect(await scripts.run('workspaces/create', 'ws_scripts', args)).toMatch(/^\d+$/);
    expect(await scripts.runPacked('workspaces/create', 'ws_scripts', args)).toBeInstanceOf(Buffer);
    await lua.redis.unlink(workspaceKey('ws_scripts'));
  });
});

// A Redis of its own, to which no other test sends commands.
describe('at the start', () => {
  const own = ownRedis();

  /** How many of these commands Redis ran since the last call. */
  async function ran(...commands: string[]) {
    const stats = await own.redis.info('commandstats');
    await own.redis.config('RESETSTAT');
    return commands.map((name) => Number(new RegExp(`^cmdstat_${name}:calls=(\\d+)`, 'm').exec(stats)?.[1] ?? 0));
  }
  /** The largest number of scripts that were on their way at once. */
  async function atOnce(): Promise<number> {
    let most = 0;
    let loading = 0;
    const script = own.redis.script.bind(own.redis) as (...args: unknown[]) => Promise<unknown>;
    const counted = async (...args: unknown[]) => {
      most = Math.max(most, ++loading);
      return script(...args).finally(() => loading--);
    };
    await loadScripts(Object.assign(Object.create(own.redis), { script: counted }), workspaceKey);
    return most;
  }
  const loads = () => ran('script\\|load', 'function\\|load');

  test('scripts are loaded some at a time, and only those that Redis does not have', async () => {
    await own.redis.config('RESETSTAT');
    expect(await atOnce()).toBe(8);
    const libraries = scriptNames.filter((name) => assemble(name).library).length;
    expect(await loads()).toEqual([scriptNames.length - libraries, libraries]);
    const scripts = await loadScripts(own.redis, workspaceKey);
    expect(await loads()).toEqual([0, 0]);
    await own.redis.script('FLUSH');
    await own.redis.function('FLUSH');
    await scripts.load();
    expect(await loads()).toEqual([scriptNames.length - libraries, libraries]);
  });
});
