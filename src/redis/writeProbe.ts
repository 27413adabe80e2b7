// Whether Redis accepts writes. One that refuses them replies to everything else, and notices a full disk only when a
// write has failed. So a write is tried: of one constant record, which takes 60 bytes of the append-only file.

import { Cluster } from 'ioredis';
import type { RedisClient } from './connection.ts';
import { probeKey, probeKeyOf } from './names.ts';
import { type Refusal, refusalOf } from './refusedWrites.ts';
import { slotOf } from './slots.ts';

/** The result of Redis, or of one master of a Cluster. */
export interface Probed {
  /** Host and port of the master of a Cluster. */
  node?: string;
  /** Why it refuses writes. */
  refusal?: Refusal | undefined;
  /** It did not carry out the write, for that reason or another. */
  error?: Error;
}

/** Never rejects. */
export async function probeWrites(redis: RedisClient): Promise<Probed[]> {
  const client: unknown = redis;
  if (!(client instanceof Cluster)) return [await probe(redis, probeKey)];
  const names = [...namesByMaster(client.slots)];
  return Promise.all(names.map(async ([node, name]) => ({ node, ...(await probe(redis, name)) })));
}

/** The first error if no master accepts writes. With one that does, some workspaces are served. */
export function probeError(probed: readonly Probed[]): Error | undefined {
  if (probed.some(({ error }) => error === undefined)) return undefined;
  return probed[0]?.error ?? new Error('No node of the Redis Cluster is connected.');
}

async function probe(redis: RedisClient, name: string): Promise<Probed> {
  try {
    await redis.set(name, '');
    return {};
  } catch (cause) {
    const error = cause as Error;
    return { error, refusal: error.name === 'ReplyError' ? refusalOf(error.message) : undefined };
  }
}

/** A master with few slots is found after as many names as there are slots, on average. */
const namesMax = 100_000;

/** For each master of a Cluster a name in one of its slots. `slots` has the nodes of each slot, the master first. */
export function namesByMaster(slots: readonly (readonly string[])[]): Map<string, string> {
  const masters = new Set(slots.flatMap(([master]) => master ?? []));
  const names = new Map<string, string>();
  for (let number = 0; names.size < masters.size && number < namesMax; number++) {
    const master = slots[slotOf(`${number}`)]?.[0];
    if (master !== undefined && !names.has(master)) names.set(master, probeKeyOf(number));
  }
  return names;
}
