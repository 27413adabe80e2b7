// Loads and runs lua/. `-- @include "include/name"` on a line of its own is replaced by that file, once per script, so
// every line of an assembled script is known by file and number.
//
// A script that begins with `#!lua name=` is a library: Redis keeps it with its functions (FUNCTION LOAD, FCALL), where of
// any other it keeps the compiled text only (SCRIPT LOAD, EVALSHA) and makes the functions anew with every call.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Cluster, type Redis } from 'ioredis';
import { ApiError } from '../errors.ts';
import type { Breaker } from './breaker.ts';
import { absentKey } from './keyspace.ts';
import type { RedisClient } from './redis.ts';
import { storeError } from './redis.ts';
import type { StoreObserver } from './store.ts';

const root = fileURLToPath(new URL('../../lua/', import.meta.url));

export interface Script {
  name: string;
  source: string;
  /** Where each line came from, `lua/include/window.lua:4`. */
  lines: string[];
  /** The name that Redis knows a library and its one function by; undefined for any other script. */
  library?: string;
}

const libraryPrefix = 'tollgate_';

/** Every script, by its path below lua/ without the ending: includes are not scripts. */
export const scriptNames = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .map((path) => path.split(sep).join('/'))
  .filter((path) => path.endsWith('.lua') && !path.startsWith('include/'))
  .map((path) => path.slice(0, -'.lua'.length))
  .sort();

export function assemble(name: string, read = (path: string) => readFileSync(`${root}${path}.lua`, 'utf8')): Script {
  const source: string[] = [];
  const lines: string[] = [];
  const included = new Set<string>();

  function append(path: string, from: readonly string[]) {
    const way = [...from, path];
    for (const [index, line] of read(path).split('\n').entries()) {
      const include = /^-- @include "(.+)"$/.exec(line)?.[1];
      if (include === undefined) {
        source.push(line);
        lines.push(`lua/${path}.lua:${index + 1}`);
      } else if (way.includes(include)) {
        throw new Error(`lua: ${[...way, include].join(' includes ')}`);
      } else if (!included.has(include)) {
        included.add(include);
        append(include, way);
      }
    }
  }

  append(name, []);
  const script: Script = { name, ...withoutUnused(source, lines) };
  return source[0]!.startsWith('#!lua name=') ? asLibrary(script) : script;
}

/**
 * What a library does most. Its globals lie behind another table, and looking them up there was a twentieth of a verification:
 * so each has a local name, which it is given when the library is called, as it cannot be had while it is loaded.
 */
const localised = ['redis.call', 'struct.pack', 'struct.unpack', 'string.byte', 'string.sub'];

/** Names a library by its contents: while one server is upgraded and another is not yet, each calls its own. */
function asLibrary(script: Script): Script {
  const version = createHash('sha1').update(script.source).digest('hex').slice(0, 16);
  const library = `${libraryPrefix}${script.name}_${version}`;
  const locals = localised.map((name) => name.replace('.', '_'));
  const source = localised
    .reduce((text, name, index) => text.replaceAll(name, locals[index]!), script.source)
    .replace(`name=${script.name}\n`, `name=${library}\nlocal ${locals} `)
    .replace(
      /register_function\('\w+', (.+)\)$/m,
      `register_function('${library}', function(...) ${locals} = ${localised} return ($1)(...) end)`,
    );
  return { ...script, source, library };
}

/**
 * Leaves out the functions and constants of includes that the script does not use. A script makes its functions anew with every
 * call, and what a call costs Redis grows faster than their number; and Lua allows 200 locals.
 */
function withoutUnused(source: readonly string[], lines: readonly string[]): { source: string; lines: string[] } {
  // Those of includes by their names, as the numbers of their lines, until they are found to be used.
  const unused = new Map<string, number[]>();
  const used: number[] = [];
  let within: number[] | undefined;
  for (const [at, line] of source.entries()) {
    // A constant, in capitals, is on a line of its own.
    const constant = /^local ([A-Z][A-Z0-9_]*) = .*[^{]$/.exec(line)?.[1];
    const name = constant ?? /^local function (\w+)/.exec(line)?.[1];
    if (name !== undefined && lines[at]!.startsWith('lua/include/')) {
      within = [];
      unused.set(name, within);
    }
    (within ?? used).push(at);
    if (constant || line === 'end' || (name !== undefined && line.endsWith(' end'))) within = undefined;
  }
  // It grows while it is gone through.
  for (const at of used) {
    for (const word of source[at]!.replace(/--.*/, '').match(/\w+/g) ?? []) {
      used.push(...(unused.get(word) ?? []));
      unused.delete(word);
    }
  }
  used.sort((a, b) => a - b);
  return { source: used.map((at) => source[at]).join('\n'), lines: used.map((at) => lines[at]!) };
}

/** An error text of Redis, with the lines of the assembled script told as lines of our files. */
export const locate = (script: Script, message: string): string =>
  message.replaceAll(
    /@?user_(?:script|function):(\d+)/g,
    (place, line: string) => script.lines[Number(line) - 1] ?? place,
  );

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
