// What a Redis says of itself: for `tollgate doctor`, which says what to change.

import { Cluster } from 'ioredis';
import { type ConnectOptions, connect, type RedisClient } from './redis.ts';

export interface RedisFacts {
  /** Of a Cluster, which node this is: host and port. */
  node?: string;
  /** A field of INFO; undefined when Redis does not tell. */
  info(field: string): string | undefined;
  /** A parameter of its configuration; undefined when Redis does not tell, as managed ones do not. */
  config(parameter: string): string | undefined;
  /** Redis's clock less ours, in milliseconds; positive when Redis's is ahead. */
  skewMs: number;
  /** The quickest of a few. */
  roundTripMs: number;
}

const parameters = [
  'appendfsync',
  'hash-max-listpack-entries',
  'hash-max-listpack-value',
  'lazyfree-lazy-expire',
  'lazyfree-lazy-server-del',
  'lazyfree-lazy-user-del',
  'min-replicas-to-write',
  'save',
  'zset-max-listpack-value',
];
const pings = 5;

/** Asks every Redis that a URL stands for: one, or the masters of a Cluster. Throws when none is reached. */
export async function readRedisFacts(url: string, options: ConnectOptions, nowMs: () => number): Promise<RedisFacts[]> {
  const redis = await connect(url, options);
  try {
    if (!((redis as unknown) instanceof Cluster)) return [await examine(redis, nowMs)];
    const nodes = (redis as unknown as Cluster).nodes('master');
    return await Promise.all(
      nodes.map(async (node) => {
        if (node.status === 'wait') await node.connect();
        return { node: `${node.options.host}:${node.options.port}`, ...(await examine(node, nowMs)) };
      }),
    );
  } finally {
    redis.disconnect();
  }
}

async function examine(redis: RedisClient, nowMs: () => number): Promise<RedisFacts> {
  let roundTripMs = Number.POSITIVE_INFINITY;
  let skewMs = 0;
  for (let ping = 0; ping < pings; ping++) {
    const [sentMs, startedAt] = [nowMs(), performance.now()];
    const [seconds, micros] = await redis.time();
    const tookMs = performance.now() - startedAt;
    if (tookMs >= roundTripMs) continue;
    // Redis read its clock somewhere within: most likely halfway.
    [roundTripMs, skewMs] = [tookMs, Number(seconds) * 1000 + Number(micros) / 1000 - sentMs - tookMs / 2];
  }
  const untold = () => undefined;
  const info = fieldsOf(await redis.info().catch(untold));
  const config = pairsOf((await redis.call('CONFIG', 'GET', ...parameters).catch(untold)) as string[] | undefined);
  return { info: (field) => info.get(field), config: (parameter) => config.get(parameter), skewMs, roundTripMs };
}

const fieldsOf = (text = '') =>
  new Map([...text.matchAll(/^([^#:\r\n]+):([^\r\n]*)/gm)].map((match) => [match[1]!, match[2]!]));

function pairsOf(words: string[] = []): Map<string, string> {
  const pairs = new Map<string, string>();
  for (let at = 0; at < words.length; at += 2) pairs.set(words[at]!, words[at + 1]!);
  return pairs;
}
