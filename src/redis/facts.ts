// Reads facts about a Redis for `tollgate doctor` and system.getStatus.

import { Cluster } from 'ioredis';
import { type ConnectOptions, connect, mastersOf, type RedisClient } from './connection.ts';
import { echoChannel } from './names.ts';
import type { Refusal } from './refusedWrites.ts';
import { type Probed, probeWrites } from './writeProbe.ts';

export interface RedisFacts {
  /** Host and port of a node of a Cluster. */
  node?: string;
  /** A field of INFO; undefined when Redis does not return it. */
  info(field: string): string | undefined;
  /** A parameter of its configuration; undefined when Redis does not return it, as managed services do not. */
  config(parameter: string): string | undefined;
  /** Redis's clock minus ours, in milliseconds; positive when Redis's clock is ahead. */
  skewMs: number;
  /** Shortest of a few round trips. */
  roundTripMs: number;
  /** Whether the account may use the channels on which servers talk to each other. */
  hasChannels: boolean;
  /** Why it does not accept writes; undefined if it does, or if the write failed for another reason. */
  refusal?: Refusal | undefined;
  /** Slots of the Cluster whose master replies, in the view of this node. */
  slotsServed?: number | undefined;
}

const parameters = [
  'aof-timestamp-enabled',
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

/** A master of a Cluster that does not reply. */
export interface LostNode {
  node: string;
  error: Error;
}

export const isLost = (node: RedisFacts | LostNode): node is LostNode => 'error' in node;
export const isReached = (node: RedisFacts | LostNode): node is RedisFacts => !isLost(node);

/** Reads the facts of the Redis at a URL, or of all masters of a Cluster. Throws when none can be reached. */
export async function readRedisFacts(
  url: string,
  options: ConnectOptions,
  nowMs: () => number,
): Promise<(RedisFacts | LostNode)[]> {
  const redis = await connect(url, options);
  try {
    return await factsOfAll(redis, nowMs);
  } finally {
    redis.disconnect();
  }
}

/** The facts of a connected Redis, or of all masters of a Cluster. Rejects when none replies. */
export async function factsOfAll(
  redis: RedisClient,
  nowMs: () => number,
  probe: () => Promise<Probed[]> = () => probeWrites(redis),
): Promise<(RedisFacts | LostNode)[]> {
  const probed = await probe();
  if (!((redis as unknown) instanceof Cluster)) {
    return [{ ...(await factsOf(redis, nowMs)), refusal: probed[0]?.refusal }];
  }
  const read = await Promise.all(
    mastersOf(redis).map(async (redis) => {
      const node = `${redis.options.host}:${redis.options.port}`;
      try {
        if (redis.status === 'wait') await redis.connect();
        const facts = await factsOf(redis, nowMs);
        const slots = fieldsOf((await redis.cluster('INFO').catch(() => '')) as string).get('cluster_slots_ok');
        const refusal = probed.find((master) => master.node === node)?.refusal;
        return { node, ...facts, refusal, slotsServed: slots === undefined ? undefined : Number(slots) };
      } catch (error) {
        return { node, error: error as Error };
      }
    }),
  );
  if (read.every(isLost)) throw read[0]?.error ?? new Error('No node of the Redis Cluster is connected.');
  return read;
}

async function factsOf(redis: RedisClient, nowMs: () => number): Promise<RedisFacts> {
  let roundTripMs = Number.POSITIVE_INFINITY;
  let skewMs = 0;
  for (let ping = 0; ping < pings; ping++) {
    const [sentMs, startedAt] = [nowMs(), performance.now()];
    const [seconds, micros] = await redis.time();
    const tookMs = performance.now() - startedAt;
    if (tookMs >= roundTripMs) continue;
    // Redis read its clock during the round trip, most likely in its middle.
    [roundTripMs, skewMs] = [tookMs, Number(seconds) * 1000 + Number(micros) / 1000 - sentMs - tookMs / 2];
  }
  const notReturned = () => undefined;
  const info = fieldsOf(await redis.info().catch(notReturned));
  const config = pairsOf((await redis.call('CONFIG', 'GET', ...parameters).catch(notReturned)) as string[] | undefined);
  const hasChannels = await redis.publish(echoChannel('check'), '').then(
    () => true,
    (error: Error) => !error.message.startsWith('NOPERM'),
  );
  return {
    info: (field) => info.get(field),
    config: (parameter) => config.get(parameter),
    skewMs,
    roundTripMs,
    hasChannels,
  };
}

/** The fields of INFO. */
export const fieldsOf = (text = ''): ReadonlyMap<string, string> =>
  new Map([...text.matchAll(/^([^#:\r\n]+):([^\r\n]*)/gm)].map((match) => [match[1]!, match[2]!]));

function pairsOf(flat: string[] = []): Map<string, string> {
  const pairs = new Map<string, string>();
  for (let at = 0; at < flat.length; at += 2) pairs.set(flat[at]!, flat[at + 1]!);
  return pairs;
}
