// Runs a few lines of Lua in the tests' Redis, so that tests can call functions that scripts share.

import { afterAll, beforeAll } from 'vitest';
import { connect, mastersOf, type RedisClient } from '../../src/redis/connection.ts';
import { buildLibrary, readLua } from '../../src/scripts/library.ts';
import { type Library, libraryOf, locate } from '../../src/scripts/loader.ts';
import { testRedisUrl } from './redis.ts';
import { strict } from './strict.ts';

const files = readLua();
/** Libraries of snippets by their text, because property tests run one thousands of times. */
const libraries = new Map<string, Library>();

/** Call it at the top level of a test file. */
export function snippets() {
  const state = {} as { redis: RedisClient };
  const loaded = new Set<Library>();
  beforeAll(async () => {
    state.redis = await connect(testRedisUrl(), { commandTimeoutMs: 10_000 });
  });
  afterAll(async () => {
    for (const { name } of loaded) for (const master of mastersOf(state.redis)) await master.function('DELETE', name);
    await state.redis.quit();
  });

  /** A library that no server removes as that of another version. */
  function libraryFor(text: string): Library {
    const known = libraries.get(text);
    if (known) return known;
    const source = buildLibrary(new Map([...files, ['snippet', text]]), strict, ['snippet']);
    const library = libraryOf(source.replaceAll('tollgate_', `snippet_${process.pid}_`));
    libraries.set(text, library);
    return library;
  }

  return {
    get redis() {
      return state.redis;
    },

    /** Runs `body`, which can use the names of modules, KEYS[1] (a workspace's name) and ARGV. */
    async run(body: string, workspace: string, args: readonly (string | number | Buffer)[]) {
      const library = libraryFor(body);
      try {
        if (!loaded.has(library)) {
          for (const master of mastersOf(state.redis)) await master.function('LOAD', 'REPLACE', library.text);
        }
        loaded.add(library);
        return await state.redis.fcall(library.scripts.get('snippet')!.functionName, 1, workspace, ...args);
      } catch (cause) {
        // Without its cause, which would print the whole library.
        throw new Error(locate(library, (cause as Error).message));
      }
    },
  };
}
