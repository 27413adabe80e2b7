// TOLLGATE_DURABLE=1: a change is answered when Redis says that it is on disk (WAITAOF), so that a loss of power does not
// take it back. WAITAOF holds up its connection and speaks of the writes of that connection only. So what changes something
// goes by a connection of its own, and no verification ever waits behind it.

import { ApiError } from '../errors.ts';
import { workspaceKey } from './keyspace.ts';
import { assemble, scriptNames } from './luaSource.ts';
import { type ConnectOptions, connect, orStoreError, type RedisClient } from './redis.ts';
import { loadScripts, type Scripts } from './scripts.ts';

/** What changes something for a caller says so in the audit stream: that is what is waited for. */
export const changingScripts = (): ReadonlySet<string> =>
  new Set(scriptNames.filter((name) => assemble(name).lines.some((line) => line.startsWith('lua/include/audit.lua:'))));

export interface Durable {
  /** `scripts`, of which those that change something answer when the change is on disk. */
  scripts: Scripts;
  /** A change that is not a script, answered likewise. */
  change<Reply>(command: (redis: RedisClient) => Promise<Reply>): Promise<Reply>;
  close(): Promise<void>;
}

/** Refuses, in words, a Redis that does not write to its disk before it answers, or cannot say that it did. */
export async function openDurable(url: string, options: ConnectOptions, scripts: Scripts): Promise<Durable> {
  if (/^rediss?\+cluster:/.test(url)) {
    throw new Error('TOLLGATE_DURABLE=1 is not offered on a Redis Cluster: use one Redis, or Sentinel.');
  }
  // The other connection tells of what is lost and regained.
  const redis = await connect(url, { ...options, onEvent: undefined });
  let connection = 0;
  redis.on('close', () => connection++);

  // Before the command itself counts as unanswered.
  const waitMs = Math.floor(options.commandTimeoutMs * 0.8);

  /** Answers whether all that this connection has written is on disk. */
  const isOnDisk = async () => {
    const [here] = (await redis.call('WAITAOF', 1, 0, waitMs)) as [number, number];
    return here >= 1;
  };

  // Those who ask in one turn of the event loop share an answer.
  let asked: Promise<boolean> | undefined;
  function askedOnce(): Promise<boolean> {
    asked ??= new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
      asked = undefined;
      return isOnDisk();
    });
    return asked;
  }

  async function settled<Reply>(change: () => Promise<Reply>): Promise<Reply> {
    const before = connection;
    const reply = await change();
    const cause = await askedOnce().then(
      (yes) => (yes ? undefined : new Error('WAITAOF: Redis did not write to its disk in time')),
      (error: Error) => error,
    );
    // A new connection has written nothing, and would say that all of it is on disk.
    if (cause === undefined && connection === before) return reply;
    throw new ApiError('store_unavailable', 'The change was made, but may not be on disk.', {
      cause: cause ?? new Error('WAITAOF: the connection was lost before it'),
    });
  }

  try {
    await check(redis, isOnDisk);
    const changing = await loadScripts(redis, workspaceKey);
    const waitedFor = changingScripts();
    return {
      scripts: {
        ...scripts,
        run: (name, ...args) =>
          waitedFor.has(name) ? settled(() => changing.run(name, ...args)) : scripts.run(name, ...args),
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
  const refuse = (reason: string) => new Error(`TOLLGATE_DURABLE=1 cannot be kept by this Redis: ${reason}`);
  await isOnDisk().catch((error: Error) => {
    if (/unknown command/i.test(error.message)) throw refuse('it does not know WAITAOF; Redis 7.2 and Valkey 8 do.');
    if (/appendonly is disabled/i.test(error.message)) throw refuse('its append-only file is off (appendonly no).');
    throw refuse(error.message);
  });
  // Not everysec: there some versions answer WAITAOF before the disk has it, Valkey 8.0.1 for one (redis/redis#13793).
  const [, policy] = (await redis.config('GET', 'appendfsync').catch((error: Error) => {
    throw refuse(`it does not tell its setting appendfsync (${error.message}).`);
  })) as string[];
  if (policy !== 'always') throw refuse(`its appendfsync is ${policy}; it must be always.`);
}
