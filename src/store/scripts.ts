// Loads and runs lua/. `-- @include "include/name"` on a line of its own is replaced by that file, once per script;
// nothing else is rewritten, so every line of an assembled script is known by file and number.

import { readdirSync, readFileSync } from 'node:fs';
import { sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { absentKey } from './keyspace.ts';
import type { RedisClient } from './redis.ts';
import { storeError } from './redis.ts';

const root = fileURLToPath(new URL('../../lua/', import.meta.url));

export interface Script {
  name: string;
  source: string;
  /** Where each line came from, `lua/include/window.lua:4`. */
  lines: string[];
}

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
  return { name, ...withoutUnused(source, lines) };
}

/**
 * Leaves out the functions of includes that the script does not use. A script makes its functions anew with every call, and
 * what a call costs Redis grows faster than their number.
 */
function withoutUnused(source: readonly string[], lines: readonly string[]): { source: string; lines: string[] } {
  const functions: { name: string; first: number; last: number }[] = [];
  for (const [first, line] of source.entries()) {
    const name = /^local function (\w+)/.exec(line)?.[1];
    if (name === undefined || !lines[first]!.startsWith('lua/include/')) continue;
    const last = line.endsWith(' end') ? first : source.indexOf('end', first);
    functions.push({ name, first, last });
  }
  const left = new Set(source.keys());
  for (let removed = true; removed; ) {
    removed = false;
    for (const { name, first, last } of functions) {
      if (!left.has(first)) continue;
      const use = new RegExp(`\\b${name}\\b`);
      const isUsed = [...left].some((at) => (at < first || at > last) && use.test(source[at]!.replace(/--.*/, '')));
      if (isUsed) continue;
      for (let at = first; at <= last; at++) left.delete(at);
      removed = true;
    }
  }
  const kept = [...left];
  return { source: kept.map((at) => source[at]).join('\n'), lines: kept.map((at) => lines[at]!) };
}

/** An error text of Redis, with the lines of the assembled script told as lines of our files. */
export const locate = (script: Script, message: string): string =>
  message.replaceAll(/@?user_script:(\d+)/g, (place, line: string) => script.lines[Number(line) - 1] ?? place);

export type Argument = string | number | Buffer;

export interface Scripts {
  /** Runs a script on a workspace; strings in the reply are text. */
  run(name: string, workspaceId: string, args: readonly Argument[]): Promise<unknown>;
  /** The same for replies that hold packed bytes: strings are Buffers. */
  runPacked(name: string, workspaceId: string, args: readonly Argument[]): Promise<unknown>;
  locate(name: string, message: string): string;
}

export async function loadScripts(redis: RedisClient, workspaceKey: (workspaceId: string) => string): Promise<Scripts> {
  const scripts = new Map<string, Script>();
  for (const name of scriptNames) {
    const script = assemble(name);
    scripts.set(name, script);
    redis.defineCommand(name, { lua: script.source });
  }
  // A script that does not compile stops the server here, not a request later.
  for (const script of scripts.values()) {
    await redis.script('LOAD', script.source).catch((cause: Error) => {
      throw new Error(locate(script, cause.message), { cause });
    });
  }

  const commands = redis as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
  async function call(command: string, name: string, workspaceId: string, args: readonly Argument[]): Promise<unknown> {
    const workspace = workspaceKey(workspaceId);
    try {
      if (redis.isCluster) return await commands[command]!(2, workspace, absentKey(workspace), ...args);
      return await commands[command]!(1, workspace, ...args);
    } catch (cause) {
      throw storeError(cause, (message) => locate(scripts.get(name)!, message));
    }
  }

  return {
    run: (name, workspaceId, args) => call(name, name, workspaceId, args),
    runPacked: (name, workspaceId, args) => call(`${name}Buffer`, name, workspaceId, args),
    locate: (name, message) => locate(scripts.get(name)!, message),
  };
}
