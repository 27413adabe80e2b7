// Loads the scripts of lua/ into Redis, and runs them.
//
// A script that begins with `#!lua name=` is a library: Redis keeps it with its functions (FUNCTION LOAD, FCALL), where of
// any other it keeps the compiled text only (SCRIPT LOAD, EVALSHA) and makes the functions again with every call.

import { Cluster, type Redis } from 'ioredis';
import { ApiError } from '../errors.ts';
import type { Breaker } from './breaker.ts';
import { absentKey } from './keyspace.ts';
import { assemble, libraryPrefix, locate, type Script, scriptNames } from './luaSource.ts';
import type { StoreObserver } from './observer.ts';
import { type RedisClient, storeError } from './redis.ts';

export type Argument = string | number | Buffer;

export interface Scripts {
  /** Runs a script on a workspace; strings in the reply are text. */
  run(name: string, workspaceId: string, args: readonly Argument[]): Promise<unknown>;
  /** The same for replies that hold packed bytes: strings are Buffers. */
  runPacked(name: string, workspaceId: string, args: readonly Argument[]): Promise<unknown>;
  locate(name: string, message: string): string;
  /** Loads those that Redis has forgotten. Rejects when it does not answer. */
  load(): Promise<void>;
}

export async function loadScripts(
  redis: RedisClient,
  workspaceKey: (workspaceId: string) => string,
  observe?: StoreObserver,
  breaker?: Breaker,
): Promise<Scripts> {
  const scripts = new Map(scriptNames.map((name) => [name, assemble(name)]));
  const libraries = [...scripts.values()].filter(({ library }) => library !== undefined);
  const digests = new Map<string, Script>();
  // A script that does not compile stops the server here, not a request later.
  for (const script of scripts.values()) {
    const digest = await (script.library ? loadLibrary(redis, script) : redis.script('LOAD', script.source)).catch(
      (cause: Error) => {
        // Not with its cause, which holds the whole script.
        throw new Error(locate(script, cause.message));
      },
    );
    if (script.library) continue;
    digests.set(digest as string, script);
    redis.defineCommand(script.name, { lua: script.source });
  }
  await removeOldLibraries(redis, libraries);

  async function load() {
    const known = (await redis.script('EXISTS', ...digests.keys())) as number[];
    for (const [index, script] of [...digests.values()].entries()) {
      if (known[index] !== 1) await redis.script('LOAD', script.source);
    }
    for (const library of libraries) await loadLibrary(redis, library);
  }

  const commands = redis as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;

  /** `kind` is '' or 'Buffer', as ioredis ends the names of commands whose strings are Buffers. */
  async function call(kind: '' | 'Buffer', name: string, workspaceId: string, args: readonly Argument[]) {
    const script = scripts.get(name)!;
    const workspace = workspaceKey(workspaceId);
    const all = redis.isCluster ? [2, workspace, absentKey(workspace), ...args] : [1, workspace, ...args];
    const send = (): Promise<unknown> =>
      script.library ? commands[`fcall${kind}`]!(script.library, ...all) : commands[name + kind]!(...all);
    // In a Cluster the workspaces of one node may hang while the others are served.
    const target = redis.isCluster ? workspace : '';
    breaker?.check(target);
    const startedAt = performance.now();
    try {
      const reply = await send().catch(async (cause: Error) => {
        // As NOSCRIPT is for scripts, which ioredis sees to: it has not run, so it may be sent again.
        if (!cause.message.includes('Function not found')) throw cause;
        // Should that fail, what is sent again says why.
        await loadLibrary(redis, script).catch(() => {});
        return send();
      });
      observe?.ran(name, performance.now() - startedAt, true);
      return reply;
    } catch (cause) {
      const error = storeError(cause, (message) => locate(script, message));
      const isRefusal = error instanceof ApiError && error.code === 'too_many_records';
      observe?.ran(name, performance.now() - startedAt, isRefusal);
      if (isRefusal) observe?.recordsRefused();
      else breaker?.failed(target, cause as Error);
      throw error;
    }
  }

  return {
    run: (name, workspaceId, args) => call('', name, workspaceId, args),
    runPacked: (name, workspaceId, args) => call('Buffer', name, workspaceId, args),
    locate: (name, message) => locate(scripts.get(name)!, message),
    load,
  };
}

/** Every Redis that keeps libraries of its own: the masters of a cluster. */
function holders(redis: RedisClient): Redis[] {
  const client: unknown = redis;
  return client instanceof Cluster ? client.nodes('master') : [redis];
}

/** Asked before it is sent, as a Redis that is full or a replica refuses what it has already. */
async function loadLibrary(redis: RedisClient, { library, source }: Script): Promise<void> {
  const loaded = holders(redis).map(async (holder) => {
    const known = (await holder.function('LIST', 'LIBRARYNAME', library!)) as unknown[];
    if (known.length > 0) return;
    await holder.function('LOAD', source).catch((cause: Error) => {
      // Another server was first.
      if (!cause.message.includes('already exists')) throw cause;
    });
  });
  // One of many that is down keeps the others from nothing; it is loaded there by whoever misses it.
  const results = await Promise.allSettled(loaded);
  const [failed] = results.filter((result) => result.status === 'rejected');
  if (failed && results.every((result) => result.status === 'rejected')) throw failed.reason;
}

/** What earlier versions left. A server of such a version that still runs loads its own again when it finds it gone. */
async function removeOldLibraries(redis: RedisClient, libraries: readonly Script[]): Promise<void> {
  for (const holder of holders(redis)) {
    const reply = (await holder.function('LIST', 'LIBRARYNAME', `${libraryPrefix}*`)) as string[][];
    for (const [, name] of reply) {
      if (libraries.some(({ library }) => library === name)) continue;
      await holder.function('DELETE', name!).catch(() => {}); // Gone already, or a replica: it costs a little memory.
    }
  }
}
