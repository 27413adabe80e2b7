// The connection to Redis. It fails fast and never sends a command twice: what may have run is not repeated, and
// nothing queues up while the connection is away.

import { readFileSync } from 'node:fs';
import type { ConnectionOptions } from 'node:tls';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { ApiError } from '../errors.ts';
import type { StoreObserver } from './store.ts';

export type RedisClient = Redis;

export interface ConnectOptions {
  /** A command not answered by then has failed, though it may yet run. */
  commandTimeoutMs: number;
  /** A file of certificates to trust, for TLS. */
  caFile?: string | undefined;
  /** Told of lost and regained connections. */
  onEvent?: ((message: string) => void) | undefined;
  observe?: StoreObserver | undefined;
}

/**
 * `redis://…`, `rediss://…`, or `unix:/path/to/socket`, with `?db=n` if wanted; `redis+cluster://a:6379,b:6379` names some
 * nodes of a Cluster, `redis+sentinel://a:26379,b:26379/mymaster` Sentinels and the master they watch. `rediss+` is with TLS.
 */
export async function connect(
  url: string,
  { commandTimeoutMs, caFile, onEvent, observe }: ConnectOptions,
): Promise<RedisClient> {
  const options: RedisOptions = {
    lazyConnect: true,
    commandTimeout: commandTimeoutMs,
    connectTimeout: Math.max(commandTimeoutMs, 1000),
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    retryStrategy: backoffMs,
  };
  const tls: ConnectionOptions | undefined = /^rediss/.test(url)
    ? caFile
      ? { ca: readFileSync(caFile) }
      : {}
    : undefined;
  const redis = open(url, { ...options, ...(tls && { tls }) });
  let lastMessage = '';
  redis.on('error', (error) => {
    // One line per cause, not one per attempt.
    if (error.message !== lastMessage) onEvent?.(`Redis: ${error.message}`);
    lastMessage = error.message;
  });
  redis.on('ready', () => {
    observe?.connected();
    if (lastMessage !== '') onEvent?.('Redis: connected again');
    lastMessage = '';
  });
  try {
    await redis.connect();
  } catch (cause) {
    redis.disconnect();
    throw new Error(`Cannot reach Redis: ${lastMessage || (cause as Error).message}`, { cause });
  }
  return redis;
}

/** Half to all of 100, 200, 400, 500, 500, … ms: servers that lost Redis together do not come back together. */
const backoffMs = (attempt: number) => Math.min(50 * 2 ** Math.min(attempt, 4), 500) * (0.5 + Math.random() / 2);

function open(url: string, options: RedisOptions): Redis {
  if (url.startsWith('unix:')) {
    const [path, query] = url.slice('unix:'.length).split('?') as [string, string | undefined];
    return new Redis({ ...options, path, db: Number(new URLSearchParams(query).get('db') ?? 0) });
  }
  const many = /^rediss?\+(cluster|sentinel):\/\/(?:([^:@]*)(?::([^@]*))?@)?([^/]+)\/?(.*)$/.exec(url);
  if (!many) return new Redis(url, options);

  const [, kind, username, password, hosts, master] = many;
  const nodes = hosts!.split(',').map((node) => {
    const [, host, port] = /^(.*?)(?::(\d+))?$/.exec(node)!;
    return { host: host!, port: Number(port ?? (kind === 'cluster' ? 6379 : 26_379)) };
  });
  const account = {
    ...(username && { username: decodeURIComponent(username) }),
    ...(password && { password: decodeURIComponent(password) }),
  };
  if (kind === 'sentinel') return new Redis({ ...options, ...account, sentinels: nodes, name: master || 'mymaster' });
  // A Cluster takes the same commands. What a lost connection may have run is not sent again here either.
  return new Cluster(nodes, {
    lazyConnect: true,
    enableOfflineQueue: false,
    clusterRetryStrategy: backoffMs,
    retryDelayOnFailover: 0,
    redisOptions: { ...options, ...account },
  }) as unknown as Redis;
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

/** Why Redis is not ready, in words for an operator; nothing of Redis's own texts but the first word of an error. */
export function notReady(cause: Error, timeoutMs: number): ApiError {
  const reason =
    cause.name === 'ReplyError'
      ? `Redis answers, but cannot serve: ${/^\w+/.exec(cause.message)?.[0]}.`
      : cause.message === 'Command timed out'
        ? `Redis did not answer within ${timeoutMs} ms.`
        : 'Redis cannot be reached.';
  return new ApiError('store_unavailable', reason, { cause });
}

/** The reply to a command sent outside of a script; a failure means what storeError says. */
export const answered = <Reply>(reply: Promise<Reply>): Promise<Reply> =>
  reply.catch((cause) => Promise.reject(storeError(cause)));
