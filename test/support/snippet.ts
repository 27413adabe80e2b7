// Runs a few lines of Lua with includes in the tests' Redis, so that tests can call functions that scripts share.

import { readFileSync } from 'node:fs';
import { afterAll, beforeAll } from 'vitest';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { assemble, locate, type Script } from '../../src/scripts/loader.ts';
import { testRedisUrl } from './redis.ts';

const lua = (path: string) => readFileSync(new URL(`../../lua/${path}.lua`, import.meta.url), 'utf8');

/** Assembled snippets by their text, because property tests run one thousands of times. */
const assembled = new Map<string, Script>();

function scriptOf(text: string): Script {
  const script = assembled.get(text) ?? assemble('snippet', (path) => (path === 'snippet' ? text : lua(path)));
  assembled.set(text, script);
  return script;
}

/** Call it at the top level of a test file. */
export function snippets() {
  const state = {} as { redis: RedisClient };
  beforeAll(async () => {
    state.redis = await connect(testRedisUrl(), { commandTimeoutMs: 10_000 });
  });
  afterAll(async () => void (await state.redis.quit()));

  return {
    get redis() {
      return state.redis;
    },

    /** Runs `body`, which can use the includes, KEYS[1] (a workspace's name) and ARGV. */
    async run(
      includes: readonly string[],
      body: string,
      workspace: string,
      args: readonly (string | number | Buffer)[],
    ) {
      const text = [...includes.map((name) => `-- @include "include/${name}"`), body].join('\n');
      const script = scriptOf(text);
      try {
        return await state.redis.eval(script.source, 1, workspace, ...args);
      } catch (cause) {
        // Without its cause, which would print the whole script.
        throw new Error(locate(script, (cause as Error).message));
      }
    },
  };
}
