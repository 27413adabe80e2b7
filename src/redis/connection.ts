// The connection to Redis. It fails fast: while the connection is lost, commands fail immediately instead of waiting.
// It never sends a command twice that may have run.

import tls, { type ConnectionOptions } from 'node:tls';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { type Account, type Address, parseRedisUrl } from '../domain/redisUrl.ts';
import { ApiError } from '../errors.ts';
import { connectionName } from './names.ts';
import type { StoreObserver } from './observer.ts';
import { refusalOf, writesRefused } from './refusedWrites.ts';
import { Trust, type TrustOptions } from './trust.ts';

export type RedisClient = Redis;

/** `legacy` replies are those of RESP2: ioredis's default, and the only ones that a Cluster supports. */
type Options = RedisOptions & { replyMapping?: 'legacy' };

// A TLS connection that we reject may emit two errors: ours, and then the alert of the other side. ioredis handles one
// error per connection (redis/ioredis#961), and an unhandled one ends the process. So every TLS connection gets a
// listener, including those that ioredis opens to Sentinels and nodes.
const { connect: connectByTls } = tls;
tls.connect = ((...args: [ConnectionOptions]) => connectByTls(...args).on('error', () => {})) as typeof tls.connect;

export interface ConnectOptions extends TrustOptions {
  /** A command without a reply after this time fails, though it may still run. */
  commandTimeoutMs: number;
  /** The certificates to trust for TLS, instead of those of the other options. Several connections may share them. */
  trust?: Trust | undefined;
  /** Receives a message when the connection is lost or back. */
  onEvent?: ((message: string) => void) | undefined;
  /** Called when a connection is ready: also the first ones, and of a Cluster that of each node. */
  onReady?: (() => void) | undefined;
  observe?: StoreObserver | undefined;
}

/**
 * Connects to a URL (src/domain/redisUrl.ts). Rejects with the cause when Redis cannot be reached. Once connected, it
 * reconnects by itself.
 */
export async function connect(url: string, connectOptions: ConnectOptions): Promise<RedisClient> {
  const { commandTimeoutMs, onEvent, onReady, observe } = connectOptions;
  const trust = connectOptions.trust ?? trustFor(url, connectOptions);
  const options: Options = {
    lazyConnect: true,
    // A Redis whose account may not use CLIENT SETNAME refuses it, and nothing else depends on it.
    connectionName,
    commandTimeout: commandTimeoutMs,
    connectTimeout: Math.max(commandTimeoutMs, 1000),
    enableOfflineQueue: false,
    // After disconnect(), the socket is destroyed if the other side does not close it within this time.
    disconnectTimeout: 200,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    retryStrategy: backoffMs,
  };
  // ioredis copies the members for each connection, so each one gets the certificates that are trusted at its time.
  if (trust) {
    options.tls = {
      get secureContext() {
        return trust.context;
      },
    };
  }
  const { redis, named } = open(url, options);

  /** Current errors by address, so that each is reported once, not at every attempt. */
  const errors = new Map<string, string>();
  /** All errors before the first connection. */
  let causes: Set<string> | undefined = new Set();
  const reportError = (where: string) => (error: Error) => {
    const message = `${where}${messageOf(error)}`;
    if (errors.get(where) !== message) onEvent?.(`Redis: ${message}`);
    errors.set(where, message);
    causes?.add(message);
  };
  const connected = (where: string) => {
    if (errors.delete(where)) onEvent?.(`Redis: ${where}connected again`);
    onReady?.();
  };
  redis.on('error', reportError(''));
  redis.on('sentinelError', reportError('Sentinel: '));
  redis.on('node error', (error: Error, node: string) => {
    // This message only repeats an error that another connection reports itself.
    if (error.message !== 'Connection is closed.') reportError(`${node}: `)(error);
  });
  redis.on('ready', () => {
    connected('');
    observe?.connected();
  });
  redis.on('+node', (node: Redis) => {
    node.on('ready', () => connected(`${node.options.host}:${node.options.port}: `));
    // Connects now. Connecting with the first command would delay it, and report errors late.
    if (!node.options.readOnly) node.connect().catch(() => {});
  });

  try {
    // With Sentinel and Cluster, ioredis retries forever and the promise would never reject.
    await untilConnected(redis);
    await pingAny(redis);
  } catch (cause) {
    redis.disconnect();
    // ioredis does not report the errors of the Sentinels or nodes that the URL names.
    if (named) await tryOnce({ ...options, ...named }).catch(reportError(`${named.host}: `));
    throw new Error(`Cannot reach Redis: ${[...causes].join(' ') || (cause as Error).message}`, { cause });
  }
  causes = undefined;
  return redis;
}

/** The certificates that a connection to this URL trusts; undefined without TLS. */
export const trustFor = (url: string, options: TrustOptions): Trust | undefined =>
  /^rediss/.test(url) ? new Trust(options) : undefined;

/** Rejects with the first error. */
function untilConnected(redis: Redis): Promise<void> {
  const failed = new Promise<never>((_, reject) => redis.once('error', reject));
  return Promise.race([redis.connect(), failed]);
}

/** The Redis servers that store the data: of a Cluster all masters. */
export function mastersOf(redis: RedisClient): RedisClient[] {
  const client: unknown = redis;
  return client instanceof Cluster ? client.nodes('master') : [redis];
}

/** Resolves when Redis has replied: of a Cluster any master, as others may be lost. */
async function pingAny(redis: Redis | Cluster): Promise<void> {
  if (!(redis instanceof Cluster)) await ping(redis);
  else await Promise.any(redis.nodes('master').map(ping));
}

/** A Redis that cannot write to its disk replies to PING with the reason. It serves reads. */
const ping = (redis: Redis) =>
  redis.ping().catch((error: Error) => {
    if (!refusalOf(error.message)) throw error;
  });

/** Connects and disconnects; rejects with the error of this connection. */
async function tryOnce(options: Options): Promise<void> {
  const redis = new Redis({ ...options, retryStrategy: () => null }).on('error', () => {});
  await untilConnected(redis).finally(() => redis.disconnect());
}

const untrusted = /SELF_SIGNED|UNABLE_TO_(VERIFY|GET_ISSUER)/;

/** The message of a connection error, with what to do about it. */
const messageOf = ({ message, code = '' }: Error & { code?: string }): string =>
  message.startsWith('NOAUTH')
    ? 'It asks for a password (NOAUTH), and REDIS_URL has none.'
    : untrusted.test(code)
      ? `${message} (set REDIS_CA_FILE to a file with the certificates to trust)`
      : message.replace(/ Retrying from scratch after [\d.]+ms\./, '');

/**
 * 100, 200, 400, 500, 500, … ms, each less a random part of up to a half, so that servers do not reconnect all
 * together.
 */
const backoffMs = (attempt: number) => Math.min(50 * 2 ** Math.min(attempt, 4), 500) * (0.5 + Math.random() / 2);

interface Opened {
  redis: Redis;
  /** The first Sentinel or node of a Cluster that the URL names. */
  named?: Options;
}

function open(url: string, options: Options): Opened {
  const parsed = parseRedisUrl(url);
  if (!parsed) throw new Error('The URL of Redis is not accepted.');
  if (parsed.kind === 'server') return { redis: new Redis(url, options) };
  if (parsed.kind === 'socket') return { redis: new Redis({ ...options, path: parsed.path, db: parsed.db }) };
  const { nodes, account } = parsed;
  if (parsed.kind === 'sentinel')
    return { redis: openSentinel(nodes, parsed.master, account, options), named: nodes[0]! };
  // A Cluster has the same commands. Here too, a command that may have run is never repeated: only one that a node
  // refused to run, at the node that it names (MOVED, ASK), or after a moment (TRYAGAIN).
  const cluster = new BoundedCluster(nodes, {
    lazyConnect: true,
    clusterRetryStrategy: backoffMs,
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    retryDelayOnTryAgain: 50,
    maxRedirections: 4,
    // A master that hangs does not redirect to the node that replaced it, so the slots are read again regularly.
    slotsRefreshInterval: 2000,
    // One failed node must not keep commands from the others.
    enableReadyCheck: false,
    // Certificates are issued for host names, so names are not resolved to addresses here.
    dnsLookup: (name, found) => found(null, name),
    redisOptions: { ...options, ...account },
  });
  return { redis: cluster as unknown as Redis, named: { ...nodes[0]!, ...account } };
}

function openSentinel(sentinels: Address[], name: string, account: Account, options: Options): Redis {
  const { tls, commandTimeout } = options;
  const redis = new Redis({
    ...options,
    ...account,
    sentinels,
    name,
    sentinelRetryStrategy: backoffMs,
    sentinelCommandTimeout: commandTimeout!,
    // A master that hangs keeps its connection open. After this time it is closed, and the Sentinels are asked for the
    // master.
    socketTimeout: Math.max(2 * commandTimeout!, 1000),
    ...(tls && { sentinelTLS: tls, enableTLSForSentinelMode: true }),
  });

  // A working master that is replaced continues to serve for seconds, and everything written to it is lost. So we
  // subscribe to the Sentinels. (ioredis's failoverDetector does too, but a message while it connects ends the client.)
  const listeners = sentinels.map((sentinel) => {
    const listener = new Redis({ ...options, ...sentinel }).on('error', () => {});
    listener.on('ready', () => listener.subscribe('+switch-master').catch(() => {}));
    listener.on('message', (_channel, message) => {
      const [master, , , host, port] = message.split(' ');
      if (master !== name) return;
      const disconnectFromOther = () => {
        // All Sentinels send it, some when we are already connected to the new master.
        const { remoteAddress, remotePort } = redis.stream;
        if (remoteAddress !== host || String(remotePort) !== port) redis.disconnect(true);
      };
      if (redis.status === 'ready') disconnectFromOther();
      else redis.once('ready', disconnectFromOther);
    });
    return listener;
  });
  redis.once('connecting', () => {
    for (const listener of listeners) listener.connect().catch(() => {});
  });
  redis.once('end', () => {
    for (const listener of listeners) listener.disconnect();
  });
  return redis;
}

/**
 * A Cluster client whose commands settle within the command timeout, and fail immediately when no node is connected:
 * ioredis would queue them until the Cluster is reachable again. The timeout includes connecting to a node and
 * following redirections.
 */
class BoundedCluster extends Cluster {
  override sendCommand(...sent: Parameters<Cluster['sendCommand']>): unknown {
    const [command] = sent;
    command.setTimeout(this.options.redisOptions!.commandTimeout!);
    if (this.status === 'ready') return super.sendCommand(...sent);
    command.reject(new Error('No node of the Redis Cluster is connected.'));
    return command.promise;
  }
}

/** Error replies of a Redis that cannot serve now. Any other error reply is a bug of Tollgate, or refuses writes. */
const unavailable = /^-?(LOADING|MASTERDOWN|NOAUTH|WRONGPASS|NOPERM|CLUSTERDOWN|TRYAGAIN|MOVED|ASK|BUSY|UNKILLABLE)\b/;

/** The error of require_room in lua/include/records.lua, with the limit. */
const recordsError = /^-?RECORDS (\d+)/;

export const tooManyRecords = (limit: string): ApiError =>
  new ApiError(
    'too_many_records',
    `The workspace may have at most ${limit} records (APIs, keys, identities, namespaces, overrides, permissions, roles, plans and root keys), ` +
      'and this call would create more. Delete some, or ask the operator to raise RECORDS_MAX.',
  );

/** The error of a failed command for the caller: Redis cannot serve (503), or a bug of ours (500). */
export function storeError(cause: unknown, locate: (message: string) => string = (message) => message): Error {
  if (cause instanceof ApiError) return cause;
  const error = cause as Error;
  const message = locate(error.message);
  const isReply = error.name === 'ReplyError';
  const [, recordsMax] = (isReply && recordsError.exec(error.message)) || [];
  if (recordsMax !== undefined) return tooManyRecords(recordsMax);
  const refusal = isReply ? refusalOf(error.message) : undefined;
  if (refusal) return writesRefused(refusal, new Error(message, { cause }));
  if (isReply && !unavailable.test(error.message)) return new Error(message, { cause });
  return new ApiError('store_unavailable', 'The store cannot be reached or did not reply in time.', {
    cause: new Error(message, { cause }),
  });
}

/**
 * The reason why Redis is not ready, for an operator. It has only the first word of an error reply: others may name
 * keys.
 */
export function notReady(cause: Error, timeoutMs: number): ApiError {
  const refusal = cause.name === 'ReplyError' ? refusalOf(cause.message) : undefined;
  if (refusal) return writesRefused(refusal, cause);
  const reason =
    cause.name === 'ReplyError'
      ? `Redis replies with an error: ${/^\w+/.exec(cause.message)?.[0]}.`
      : cause.message === 'Command timed out'
        ? `Redis did not reply within ${timeoutMs} ms.`
        : 'Redis cannot be reached.';
  return new ApiError('store_unavailable', reason, { cause });
}

/** The reply to a command outside of a script; rejects with storeError. */
export const orStoreError = <Reply>(reply: Promise<Reply>): Promise<Reply> =>
  reply.catch((cause) => Promise.reject(storeError(cause)));
