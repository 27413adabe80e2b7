// The connection to Redis. It fails fast and never sends a command twice: what may have run is not repeated, and
// nothing queues up while the connection is away.

import { Redis, type RedisOptions } from 'ioredis';
import { ApiError } from '../errors.ts';

export type RedisClient = Redis;

export interface ConnectOptions {
  /** A command not answered by then has failed, though it may yet run. */
  commandTimeoutMs: number;
  /** Told of lost and regained connections. */
  onEvent?: ((message: string) => void) | undefined;
}

/** `redis://…`, `rediss://…`, or `unix:/path/to/socket`, with `?db=n` if wanted. */
export async function connect(url: string, { commandTimeoutMs, onEvent }: ConnectOptions): Promise<RedisClient> {
  const options: RedisOptions = {
    lazyConnect: true,
    commandTimeout: commandTimeoutMs,
    connectTimeout: Math.max(commandTimeoutMs, 1000),
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    retryStrategy: (attempt) => Math.min(50 * 2 ** Math.min(attempt, 4), 500) * (0.5 + Math.random() / 2),
  };
  let redis: Redis;
  if (url.startsWith('unix:')) {
    const [path, query] = url.slice('unix:'.length).replace(/^\/\//, '').split('?') as [string, string | undefined];
    redis = new Redis({ ...options, path, db: Number(new URLSearchParams(query).get('db') ?? 0) });
  } else {
    redis = new Redis(url, options);
  }
  let lastMessage = '';
  redis.on('error', (error) => {
    // One line per cause, not one per attempt.
    if (error.message !== lastMessage) onEvent?.(`Redis: ${error.message}`);
    lastMessage = error.message;
  });
  redis.on('ready', () => {
    if (lastMessage !== '') onEvent?.('Redis: connected again');
    lastMessage = '';
  });
  try {
    await redis.connect();
  } catch (cause) {
    redis.disconnect();
    throw new Error(`Cannot reach Redis: ${(cause as Error).message}`, { cause });
  }
  return redis;
}

/** Replies that say that Redis cannot serve now, rather than that we asked it something wrong. */
const unavailable =
  /^-?(LOADING|READONLY|OOM|MASTERDOWN|NOAUTH|WRONGPASS|NOPERM|CLUSTERDOWN|TRYAGAIN|BUSY|MISCONF|NOREPLICAS|UNKILLABLE)\b/;

/** What a failed command means to the caller: Redis cannot serve (503), or a bug of ours (500). */
export function storeError(cause: unknown, locate: (message: string) => string = (message) => message): Error {
  if (cause instanceof ApiError) return cause;
  const error = cause as Error;
  const message = locate(error.message);
  const isReply = error.name === 'ReplyError';
  if (isReply && !unavailable.test(error.message)) return new Error(message, { cause });
  return new ApiError('store_unavailable', 'The store cannot be reached or did not answer in time.', {
    cause: new Error(message, { cause }),
  });
}
