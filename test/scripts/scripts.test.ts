// The library of lua/: what the build refuses, how Redis gets it, and every error has our files and lines.

import { readFileSync } from 'node:fs';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { cliActor } from '../../src/records/rootKeys.ts';
import { workspaceKey } from '../../src/redis/names.ts';
import { buildLibrary, readLua, scriptNames } from '../../src/scripts/library.ts';
import { library, libraryOf, locate } from '../../src/scripts/loader.ts';
import { loadScripts } from '../../src/scripts/scripts.ts';
import { checkSignatures } from '../../src/scripts/signatureCheck.ts';
import { harness } from '../support/harness.ts';
import { ownRedis } from '../support/ownRedis.ts';
import { snippets } from '../support/snippet.ts';

const h = harness();
const lua = snippets();

/** Builds a script of these files, and what the frame needs. */
const built = (files: Record<string, string>) =>
  libraryOf(
    buildLibrary(new Map([...readLua(), ...Object.entries(files)]), undefined, ['script']).replaceAll(
      'tollgate_',
      'test_',
    ),
  );

describe('the build', () => {
  test.each([
    [
      { 'include/a': 'local a1 = b1', 'include/b': 'local b1 = c1', 'include/c': 'local c1 = a1' },
      'include/a needs include/b needs include/c needs include/a',
    ],
    [{ 'include/a': 'local one = 1', 'include/b': 'local one = 2' }, 'lua: include/a and include/b declare one'],
  ])('refuses %o', (files, message) => {
    expect(() => built({ ...files, script: 'return a1, one' })).toThrow(message);
  });

  test('gives a file the names of modules that it uses, but not one that it has itself', () => {
    const files = { 'include/a': 'local one, two, three, four = 1, 2, 3, 4' };
    const script = 'local function run(two) return one + two.three end return run({ four = 4 })';
    const { text } = built({ ...files, script });
    expect(text).toContain('do local one = modules.one if not is_dry then register(');
  });

  test('refuses a script whose header has other arguments than its signature', () => {
    expect(() => checkSignatures(readLua())).not.toThrow();
    const wrong = new Map([['keys/read', '-- Read.\n--\n-- ARGV[1]  one  a\n-- returns  nothing']]);
    expect(() => checkSignatures(wrong)).toThrow('lua/keys/read.lua takes one; src/scripts/calls.ts has ');
  });

  test('has a function of each script: reads, changes and others', () => {
    const { scripts } = library();
    expect([...scripts.keys()]).toEqual(scriptNames(readLua()).sort());
    expect(scripts.get('keys/read')).toMatchObject({ isRead: true, isChange: false, hasFull: false });
    expect(scripts.get('keys/update')).toMatchObject({ isRead: false, isChange: true, hasFull: true });
    expect(scripts.get('decide')).toMatchObject({ isRead: false, isChange: false, hasFull: false });
  });
});

describe('in Redis', () => {
  const files = { 'include/a': '-- A.\n\nlocal a = {}', script: '\nreturn a.b.c' };

  test('an error has file and line', async () => {
    const script = built(files);
    await lua.redis.function('LOAD', 'REPLACE', script.text);
    const error = await lua.redis
      .fcall(script.scripts.get('script')!.functionName, 1, '')
      .catch((cause: Error) => cause);
    expect(locate(script, (error as Error).message)).toMatch(/lua\/script\.lua:2/);
    await lua.redis.function('DELETE', script.name);
    expect(locate(script, 'ERR user_function:999999: no such line')).toBe('ERR user_function:999999: no such line');
    expect(locate(script, 'ERR something else')).toBe('ERR something else');
  });

  test('so has a library that does not compile', async () => {
    const script = built({ ...files, 'include/a': 'local a = {}\n\nlocal = 1' });
    const error = await lua.redis.function('LOAD', script.text).catch((cause: Error) => cause);
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
  const loads = () => ran('function\\|load', 'function\\|delete');

  test('the library is loaded where Redis does not have it, and that of another version is removed', async () => {
    await own.redis.config('RESETSTAT');
    await own.redis.function(
      'LOAD',
      '#!lua name=tollgate_old\nredis.register_function("tollgate_old", function() end)',
    );
    expect(await loads()).toEqual([1, 0]);
    const scripts = await loadScripts(own.redis, workspaceKey);
    expect(await loads()).toEqual([1, 1]);
    await loadScripts(own.redis, workspaceKey);
    expect(await loads()).toEqual([0, 0]);
    await own.redis.function('FLUSH');
    // Its text has half a megabyte: calls that find it missing together send it once.
    const asked = Array.from({ length: 20 }, () => scripts.run('workspaces/status', 'ws_scripts', ['']));
    for (const reply of await Promise.all(asked)) expect(reply).toBeTruthy();
    expect(await loads()).toEqual([1, 0]);
  });

  test('servers of another release that start remove the library again and again', async () => {
    const scripts = await loadScripts(own.redis, workspaceKey);
    const call = own.redis.function.bind(own.redis) as unknown as (...args: string[]) => Promise<unknown>;
    let removals = 2;
    await own.redis.function('FLUSH');
    const spy = vi.spyOn(own.redis, 'function').mockImplementation((async (...args: string[]) => {
      const reply = await call(...args);
      if (args[0] === 'LOAD' && removals-- > 0) await call('FLUSH');
      return reply;
    }) as unknown as typeof own.redis.function);
    onTestFinished(() => spy.mockRestore());
    expect(await scripts.run('workspaces/status', 'ws_scripts', [''])).toBeTruthy();
    expect(removals).toBe(-1);
  });
});
