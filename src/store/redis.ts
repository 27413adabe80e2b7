// The connection to Redis. It fails fast and never sends a command twice: what may have run is not repeated, and
// nothing queues up while the connection is away.

import { X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import tls, { type ConnectionOptions } from 'node:tls';
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import { type Account, type Address, parseRedisUrl } from '../domain/redisUrl.ts';
import { ApiError } from '../errors.ts';
import type { StoreObserver } from './observer.ts';

export type RedisClient = Redis;

/** With replies as they were before RESP3, which is all that a Cluster takes and ioredis's default. */
type Options = RedisOptions & { replyMapping?: 'legacy' };

// A TLS connection that we refuse may have two errors: ours, and then the other side's alert. ioredis listens for one of each
// connection (redis/ioredis#961), and an error that nobody hears ends the process: so all of them are heard, wherever ioredis
// makes a connection of its own to Sentinels and nodes.
const { connect: connectByTls } = tls;
tls.connect = ((...args: [ConnectionOptions]) => connectByTls(...args).on('error', () => {})) as typeof tls.connect;

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
 * To what a URL says (domain/redisUrl). Rejects, saying why, when Redis is not there; once connected, it comes back by itself.
 */
export async function connect(
  url: string,
  { commandTimeoutMs, caFile, onEvent, observe }: ConnectOptions,
): Promise<RedisClient> {
  const options: Options = {
    lazyConnect: true,
    commandTimeout: commandTimeoutMs,
    connectTimeout: Math.max(commandTimeoutMs, 1000),
    enableOfflineQueue: false,
    // A connection that is given up is given up, whether or not the other side hears of it.
    disconnectTimeout: 200,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    retryStrategy: backoffMs,
  };
  if (/^rediss/.test(url)) options.tls = caFile ? { ca: readCertificates(caFile) } : {};
  const { redis, named } = open(url, options);

  /** What is wrong, by the address it is wrong with: one line per cause, not one per attempt. */
  const troubles = new Map<string, string>();
  /** All that was wrong until it was connected. */
  let causes: Set<string> | undefined = new Set();
  const noteTrouble = (where: string) => (error: Error) => {
    const words = `${where}${inWords(error)}`;
    if (troubles.get(where) !== words) onEvent?.(`Redis: ${words}`);
    troubles.set(where, words);
    causes?.add(words);
  };
  const noteWell = (where: string) => () => {
    if (troubles.delete(where)) onEvent?.(`Redis: ${where}connected again`);
  };
  redis.on('error', noteTrouble(''));
  redis.on('ready', noteWell(''));
  redis.on('sentinelError', noteTrouble('Sentinel: '));
  redis.on('node error', (error: Error, node: string) => {
    // Which says only that there was another error, told by the connection that had it.
    if (error.message !== 'Connection is closed.') noteTrouble(`${node}: `)(error);
  });
  redis.on('ready', () => observe?.connected());
  redis.on('+node', (node: Redis) => {
    node.once('ready', noteWell(`${node.options.host}:${node.options.port}: `));
    // At once rather than with its first command: that would wait, and what is wrong with it would be told late.
    if (!node.options.readOnly) node.connect().catch(() => {});
  });

  try {
    // Sentinel and Cluster would go on trying, and the promise wait for it.
    await untilConnected(redis);
    await redis.ping();
  } catch (cause) {
    redis.disconnect();
    // What is wrong with the Sentinels or nodes that the URL names, ioredis keeps to itself.
    if (named) await tryOnce({ ...options, ...named }).catch(noteTrouble(`${named.host}: `));
    throw new Error(`Cannot reach Redis: ${[...causes].join(' ') || (cause as Error).message}`, { cause });
  }
  causes = undefined;
  return redis;
}

/** Rejects with the first error there is. */
function untilConnected(redis: Redis): Promise<void> {
  const failed = new Promise<never>((_, reject) => redis.once('error', reject));
  return Promise.race([redis.connect(), failed]);
}

/** Rejects with what is wrong with this connection. */
async function tryOnce(options: Options): Promise<void> {
  const redis = new Redis({ ...options, retryStrategy: () => null }).on('error', () => {});
  await untilConnected(redis).finally(() => redis.disconnect());
}

function readCertificates(file: string): string {
  let pem: string;
  try {
    pem = readFileSync(file, 'latin1');
  } catch (cause) {
    throw new Error(`The file of REDIS_CA_FILE cannot be read: ${(cause as Error).message}`, { cause });
  }
  // TLS would pass over a file without any, and then trust nothing.
  if (!holdsCertificate(pem)) throw new Error(`The file of REDIS_CA_FILE holds no certificate: ${file}`);
  return pem;
}

function holdsCertificate(pem: string): boolean {
  try {
    // Which takes other forms than PEM too; TLS does not.
    return pem.includes('-----BEGIN') && new X509Certificate(pem).subject !== undefined;
  } catch {
    return false;
  }
}

const untrusted = /SELF_SIGNED|UNABLE_TO_(VERIFY|GET_ISSUER)/;

/** An error of a connection, with what can be done about it where the error itself does not say it. */
const inWords = ({ message, code = '' }: Error & { code?: string }): string =>
  untrusted.test(code)
    ? `${message} (REDIS_CA_FILE names the certificates to trust)`
    : message.replace(/ Retrying from scratch after [\d.]+ms\./, '');

/** Half to all of 100, 200, 400, 500, 500, … ms: servers that lost Redis together do not come back together. */
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
  // A Cluster takes the same commands. What a lost connection may have run is not sent again here either: only what a node
  // refused to run is, to the node it named (MOVED, ASK), or a moment later (TRYAGAIN).
  const cluster = new BoundedCluster(nodes, {
    lazyConnect: true,
    clusterRetryStrategy: backoffMs,
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    retryDelayOnTryAgain: 50,
    maxRedirections: 4,
    // A master that is silent rather than gone names no other node: who has taken its place is asked now and then.
    slotsRefreshInterval: 2000,
    // Whether all of it is well is each command's own question.
    enableReadyCheck: false,
    // Certificates are for names, not for what these resolve to.
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
    // A master that is silent rather than gone keeps its connection: it is left, and the Sentinels are asked again.
    socketTimeout: Math.max(2 * commandTimeout!, 1000),
    ...(tls && { sentinelTLS: tls, enableTLSForSentinelMode: true }),
  });

  // A master that is replaced while it is well serves on for seconds, and all it is told is lost. So the Sentinels are
  // listened to. (ioredis's failoverDetector does so too, but what it hears while connecting ends the client for good.)
  const listeners = sentinels.map((sentinel) => {
    const listener = new Redis({ ...options, ...sentinel }).on('error', () => {});
    listener.on('ready', () => listener.subscribe('+switch-master').catch(() => {}));
    listener.on('message', (_channel, message) => {
      const [master, , , host, port] = message.split(' ');
      if (master !== name) return;
      const leaveOther = () => {
        // All the Sentinels say it, some of them when the new one is connected already.
        const { remoteAddress, remotePort } = redis.stream;
        if (remoteAddress !== host || String(remotePort) !== port) redis.disconnect(true);
      };
      if (redis.status === 'ready') leaveOther();
      else redis.once('ready', leaveOther);
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
 * Every command is answered within the command timeout, and at once when no node is connected: ioredis would keep it until the
 * Cluster is there again, however long that takes. Waiting for the connection to one node counts, and so does going on to
 * another.
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

/** Replies that say that Redis cannot serve now, rather than that we asked it something wrong. */
const unavailable =
  /^-?(LOADING|READONLY|OOM|MASTERDOWN|NOAUTH|WRONGPASS|NOPERM|CLUSTERDOWN|TRYAGAIN|MOVED|ASK|BUSY|MISCONF|NOREPLICAS|UNKILLABLE)\b/;

/** A script that found no room, see require_room in lua/include/records.lua. */
const noRoom = /^-?RECORDS (\d+)/;

export const tooManyRecords = (most: string): ApiError =>
  new ApiError(
    'too_many_records',
    `The workspace may have ${most} records (APIs, keys, identities, namespaces, overrides, permissions, roles and root keys), ` +
      'and has no room for what this call would create. Delete some, or ask the operator to raise RECORDS_MAX.',
  );

/** What a failed command means to the caller: Redis cannot serve (503), or a bug of ours (500). */
export function storeError(cause: unknown, locate: (message: string) => string = (message) => message): Error {
  if (cause instanceof ApiError) return cause;
  const error = cause as Error;
  const message = locate(error.message);
  const isReply = error.name === 'ReplyError';
  const [, most] = (isReply && noRoom.exec(error.message)) || [];
  if (most !== undefined) return tooManyRecords(most);
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
export const orStoreError = <Reply>(reply: Promise<Reply>): Promise<Reply> =>
  reply.catch((cause) => Promise.reject(storeError(cause)));
