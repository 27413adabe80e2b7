// TOLLGATE_DURABLE=1: a change returns after Redis wrote it to its disk (WAITAOF), so that a power failure does not
// undo it. WAITAOF blocks its connection and covers the writes of that connection only. So changes have a connection of
// their own, and no verification waits for them.

import { ApiError } from '../errors.ts';
import { type ConnectOptions, connect, orStoreError, type RedisClient } from '../redis/connection.ts';
import { scriptKey } from '../redis/names.ts';
import { library } from './loader.ts';
import { type Changed, loadScripts, type Scripts } from './scripts.ts';

/** The scripts of changes: those that write to the audit stream. */
export const changingScripts = (): ReadonlySet<string> =>
  new Set([...library().scripts].filter(([, { isChange }]) => isChange).map(([name]) => name));

export interface Durable {
  /** The scripts; those of changes return when the change is on disk. */
  scripts: Scripts;
  /** The same for a change that is not a script. */
  change<Reply>(command: (redis: RedisClient) => Promise<Reply>): Promise<Reply>;
  close(): Promise<void>;
}

/** Rejects if Redis does not write to its disk before it replies, or has no WAITAOF. */
export async function openDurable(
  url: string,
  options: ConnectOptions,
  scripts: Scripts,
  { changed, fresh }: { changed: Changed; fresh: () => Promise<void> | undefined },
): Promise<Durable> {
  if (/^rediss?\+cluster:/.test(url)) {
    throw new Error('TOLLGATE_DURABLE=1 is not supported on a Redis Cluster: use one Redis, or Sentinel.');
  }
  // The other connection reports losses of the connection.
  const redis = await connect(url, { ...options, onEvent: undefined });
  let connection = 0;
  redis.on('close', () => connection++);

  // Shorter than the command timeout, so that WAITAOF replies before it.
  const waitMs = Math.floor(options.commandTimeoutMs * 0.8);

  /** Whether everything that this connection has written is on disk. */
  const isOnDisk = async () => {
    const [here] = (await redis.call('WAITAOF', 1, 0, waitMs)) as [number, number];
    return here >= 1;
  };

  // Changes of one turn of the event loop share a WAITAOF.
  let pending: Promise<boolean> | undefined;
  function isOnDiskOnce(): Promise<boolean> {
    pending ??= new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      pending = undefined;
      return isOnDisk();
    });
    return pending;
  }

  async function settled<Reply>(change: () => Promise<Reply>): Promise<Reply> {
    const before = connection;
    const reply = await change();
    const cause = await isOnDiskOnce().then(
      (yes) => (yes ? undefined : new Error('WAITAOF: Redis did not write to its disk in time')),
      (error: Error) => error,
    );
    // After a reconnect, WAITAOF is about the new connection, which has written nothing.
    if (cause === undefined && connection === before) return reply;
    throw new ApiError('store_unavailable', 'The change was made, but may not be on disk.', {
      cause: cause ?? new Error('WAITAOF: the connection was lost before it'),
    });
  }

  try {
    await check(redis, isOnDisk);
    const changing = await loadScripts(redis, scriptKey, { changed, fresh });
    const changes = changingScripts();
    return {
      scripts: {
        ...scripts,
        run: (name, ...args) =>
          changes.has(name) ? settled(() => changing.run(name, ...args)) : scripts.run(name, ...args),
      },
      change: (command) => settled(() => orStoreError(command(redis))),
      close: async () => void (await redis.quit().catch(() => redis.disconnect())),
    };
  } catch (error) {
    redis.disconnect();
    throw error;
  }
}

async function check(redis: RedisClient, isOnDisk: () => Promise<boolean>) {
  const refuse = (reason: string) => new Error(`This Redis does not support TOLLGATE_DURABLE=1: ${reason}`);
  await isOnDisk().catch((error: Error) => {
    if (/unknown command/i.test(error.message)) throw refuse('it has no WAITAOF; Redis 7.2 and Valkey 8 have it.');
    if (/appendonly is disabled/i.test(error.message)) throw refuse('its append-only file is off (appendonly no).');
    throw refuse(error.message);
  });
  // With everysec some versions, such as Valkey 8.0.1, reply to WAITAOF before the write is on disk
  // (redis/redis#13793).
  const [, policy] = (await redis.config('GET', 'appendfsync').catch((error: Error) => {
    throw refuse(`its setting appendfsync cannot be read (${error.message}).`);
  })) as string[];
  if (policy !== 'always') throw refuse(`its appendfsync is ${policy}; it must be always.`);
}
