// Loads the library of lua/ into Redis, and calls its functions, one for each script.

import { Command } from 'ioredis';
import { ApiError } from '../errors.ts';
import { atMostOnceIn } from '../redis/atMostOnce.ts';
import type { Breaker } from '../redis/breaker.ts';
import { mastersOf, type RedisClient, storeError } from '../redis/connection.ts';
import { absentKey } from '../redis/names.ts';
import type { StoreObserver } from '../redis/observer.ts';
import { refusalOf } from '../redis/refusedWrites.ts';
import { nodeOf } from '../redis/slots.ts';
import { library as currentLibrary, type Library, libraryPrefix, locate } from './loader.ts';
import { ReadPace, type Timed } from './readPace.ts';

export type Argument = string | number | Buffer;
type Arguments = readonly Argument[];
type Workspaces = readonly [string, ...string[]];

export interface Scripts {
  /** Runs a script on a workspace. Strings in the reply are text. */
  run(name: string, workspaceId: string, args: Arguments): Promise<unknown>;
  /** The same, for replies with packed bytes: strings are Buffers. `others`: further workspaces, not in a Cluster. */
  runPacked(name: string, workspaceId: string, args: Arguments, others?: readonly string[]): Promise<unknown>;
  readonly isCluster: boolean;
  /** Returns a function that names the Redis server that runs the scripts of a workspace now, '' without a Cluster. */
  nodeOf(workspaceId: string): () => string;
  /** An error message of a script, with the files and lines of lua/. */
  locate(message: string): string;
  /** Loads the library where Redis does not have it. Rejects when Redis does not reply. */
  load(): Promise<void>;
}

/** Called after each change, with the sessions that may hold leases; the change is answered when it resolves. */
export type Changed = (workspaceId: string, holders: readonly string[]) => Promise<void>;

interface ScriptsOptions {
  changed?: Changed | undefined;
  observe?: StoreObserver | undefined;
  breaker?: Breaker | undefined;
  /** A promise to wait for before a script; see src/migrations/heartbeat.ts. */
  fresh?: (() => Promise<void> | undefined) | undefined;
}

/** The scripts about the version of the data itself. */
const beforeStart = 'data/';

export async function loadScripts(
  redis: RedisClient,
  workspaceKey: (workspaceId: string) => string,
  { changed, observe, breaker, fresh }: ScriptsOptions = {},
): Promise<Scripts> {
  const library = currentLibrary();
  const { scripts } = library;
  const pace = new ReadPace();
  // All calls that find it missing wait for one load: its text has half a megabyte.
  const load = atMostOnceIn(0, () => loadLibrary(redis, library));
  await load();
  await removeOldLibraries(redis, library);

  /** `replyEncoding` is null where strings in the reply are Buffers. */
  function call(replyEncoding: Encoding, name: string, workspaceIds: Workspaces, args: Arguments): Promise<unknown> {
    const { isChange, isRead } = scripts.get(name)!;
    const [workspaceId] = workspaceIds;
    const callIt = () => callScript(replyEncoding, name, workspaceIds, args);
    if (isRead) return pace.run(workspaceId, name, callIt as () => Promise<Timed>);
    return isChange ? afterChange(workspaceId, callIt()) : callIt();
  }

  async function afterChange(workspaceId: string, reply: Promise<unknown>): Promise<unknown> {
    const [changeReply, holders] = (await reply) as [unknown, unknown[]];
    await changed?.(workspaceId, holders.map(String));
    return changeReply;
  }

  async function callScript(replyEncoding: Encoding, name: string, workspaceIds: Workspaces, args: Arguments) {
    // Awaited only when it has something to wait for, as every batch passes here.
    const checked = name.startsWith(beforeStart) ? undefined : fresh?.();
    if (checked) await checked;
    const { functionName, hasFull } = scripts.get(name)!;
    const workspace = workspaceKey(workspaceIds[0]);
    const keys = redis.isCluster ? [workspace, absentKey(workspace)] : workspaceIds.map(workspaceKey);
    const all = [`${keys.length}`, ...keys, ...args];
    const send: Send = (prefix = '') =>
      redis.sendCommand(
        new LibraryCall('fcall', [prefix + functionName, ...all], { replyEncoding }),
      ) as Promise<unknown>;
    // In a Cluster the workspaces of one node may hang while the others are served.
    const target = redis.isCluster ? workspace : '';
    breaker?.check(target);
    const startedAt = performance.now();
    try {
      let reply: unknown;
      try {
        reply = await send();
      } catch (cause) {
        reply = await sendAgain(send, hasFull, cause as Error);
      }
      observe?.ran(name, performance.now() - startedAt, true);
      return reply;
    } catch (cause) {
      const error = storeError(cause, (message) => locate(library, message));
      const isRefusal = error instanceof ApiError && error.code === 'too_many_records';
      observe?.ran(name, performance.now() - startedAt, isRefusal);
      if (isRefusal) observe?.recordsRefused();
      else breaker?.failed(target, cause as Error);
      throw error;
    }
  }

  /** After a failure of `send` that says it has not run; rejects with any other one. */
  async function sendAgain(send: Send, hasFull: boolean, cause: Error, loadsLeft = 3): Promise<unknown> {
    const refusal = hasFull && refusalOf(cause.message);
    if (refusal && refusal !== 'replica') return send('full_');
    if (!cause.message.includes('Function not found') || loadsLeft === 0) throw cause;
    // If loading fails, the last call reports why. Servers of another release that start remove it again.
    await load().catch(() => {});
    return send().catch((next: Error) => sendAgain(send, hasFull, next, loadsLeft - 1));
  }

  return {
    run: (name, workspaceId, args) => call('utf8', name, [workspaceId], args),
    runPacked: (name, workspaceId, args, others = []) => call(null, name, [workspaceId, ...others], args),
    isCluster: redis.isCluster,
    nodeOf: redis.isCluster ? (workspaceId) => nodeOf(redis, workspaceId) : () => () => '',
    locate: (message) => locate(library, message),
    load,
  };
}

type Encoding = 'utf8' | null;
type Send = (prefix?: string) => Promise<unknown>;

/**
 * FCALL without ioredis's function of that name, which collects and copies the arguments. Writes texts followed by
 * Buffers in one step, for one Buffer in 1.1 µs in place of 2.8: ioredis joins three parts for each argument.
 */
class LibraryCall extends Command {
  override toWritable(socket: object): string | Buffer {
    const { name, args } = this;
    const packed = args.filter(Buffer.isBuffer);
    const texts = args.slice(0, args.length - packed.length);
    let head = `*${args.length + 1}\r\n$${name.length}\r\n${name}\r\n`;
    for (const text of texts) {
      if (typeof text !== 'string') return super.toWritable(socket);
      head += `$${text.length}\r\n${text}\r\n`;
    }
    // Lengths are those of bytes.
    if (packed.length === 0 || Buffer.byteLength(head) !== head.length) return super.toWritable(socket);
    const written = Buffer.allocUnsafe(packed.reduce((sum, { length }) => sum + length + 16, head.length));
    let at = 0;
    for (const bytes of packed) {
      at += written.write(`${head}$${bytes.length}\r\n`, at, 'latin1');
      written.set(bytes, at);
      at += bytes.length;
      head = '\r\n';
    }
    at += written.write(head, at, 'latin1');
    return written.subarray(0, at);
  }
}

/**
 * Loads a library where it is missing. A full Redis and a replica refuse FUNCTION LOAD even if they have the library.
 */
async function loadLibrary(redis: RedisClient, library: Library): Promise<void> {
  const loaded = mastersOf(redis).map(async (server) => {
    const found = (await server.function('LIST', 'LIBRARYNAME', library.name)) as unknown[];
    if (found.length > 0) return;
    await server.function('LOAD', library.text).catch((cause: Error) => {
      // Another Tollgate server was first.
      if (cause.message.includes('already exists')) return;
      // Without the cause, whose message has the whole library.
      throw new Error(locate(library, cause.message));
    });
  });
  // A master that is down does not matter: the library is loaded there by the first call that finds it missing.
  const results = await Promise.allSettled(loaded);
  const [failed] = results.filter((result) => result.status === 'rejected');
  if (failed && results.every((result) => result.status === 'rejected')) throw failed.reason;
}

/** Removes the libraries of other versions. A server of such a version loads its library again with its next call. */
async function removeOldLibraries(redis: RedisClient, library: Library): Promise<void> {
  for (const server of mastersOf(redis)) {
    const listed = server.function('LIST', 'LIBRARYNAME', `${libraryPrefix}*`);
    // A master that is down keeps them.
    const reply = (await listed.catch(() => [])) as string[][];
    for (const [, name] of reply) {
      if (name === library.name) continue;
      // This fails when the library is already gone, and on a replica, where it takes only a little memory.
      await server.function('DELETE', name!).catch(() => {});
    }
  }
}
