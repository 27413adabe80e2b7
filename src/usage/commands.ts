// Reads many records with short commands, a bounded number at a time, so that neither Redis nor the server is blocked.

import { digestOf } from '../domain/keyString.ts';
import { chunks } from '../redis/chunks.ts';
import { orStoreError, type RedisClient, storeError } from '../redis/connection.ts';
import { CountsMoved, readsMax, tooMuch } from './query.ts';

type Commands = ReturnType<RedisClient['pipeline']>;

/** Commands sent together. */
const pipelineMax = 500;
/** Members of a sorted set that one command reads. */
export const membersStep = 1000;
/** Fields of a hash that one command reads: a name or a tag has up to 2 KB. */
const fieldsStep = 200;

/** Sends one command for each item. */
export async function readAll<Item, Reply>(
  redis: RedisClient,
  items: readonly Item[],
  add: (commands: Commands, item: Item) => void,
): Promise<Reply[]> {
  if (items.length > readsMax) throw tooMuch();
  const replies: Reply[] = [];
  for (const some of chunks(items, pipelineMax)) {
    const commands = redis.pipeline();
    for (const item of some) add(commands, item);
    for (const [error, reply] of (await orStoreError(commands.exec())) ?? []) {
      if (error) throw storeError(error);
      replies.push(reply as Reply);
    }
  }
  return replies;
}

/** The members of a sorted set, in no order. Some may be repeated. */
export async function* membersOf(redis: RedisClient, list: string): AsyncGenerator<Buffer> {
  for await (const [member] of scoredMembersOf(redis, list)) yield member;
}

/** The same with their scores. */
export async function* scoredMembersOf(
  redis: RedisClient,
  list: string,
): AsyncGenerator<readonly [member: Buffer, score: number]> {
  let cursor = '0';
  do {
    const [next, pairs] = await orStoreError(redis.zscanBuffer(list, cursor, 'COUNT', membersStep));
    cursor = next.toString();
    for (let at = 0; at < pairs.length; at += 2) yield [pairs[at]!, Number(pairs[at + 1]!.toString())];
  } while (cursor !== '0');
}

/** The field of a hash of counts that changes with each step of its roll-up (lua/sweep/rollCounts.lua). */
const stepsField = '';

/**
 * The counts in a hash by tag or identifier, some hundred at a time, each once. Throws CountsMoved if the sweeper moved
 * some of them meanwhile: what was read is then neither complete nor without doubles.
 */
export async function* countsOf(redis: RedisClient, hash: string): AsyncGenerator<[field: Buffer, value: Buffer][]> {
  const steps = await orStoreError(redis.hget(hash, stepsField));
  for await (const fields of fieldsOf(redis, hash)) yield fields.filter(([field]) => field.length > 0);
  if ((await orStoreError(redis.hget(hash, stepsField))) !== steps) throw new CountsMoved();
}

/** The fields of a hash with their values, some hundred at a time, each field once. */
export async function* fieldsOf(redis: RedisClient, hash: string): AsyncGenerator<[field: Buffer, value: Buffer][]> {
  // HSCAN may return a field twice. Digests instead of long names, which may have megabytes together.
  const seen = new Set<string>();
  let cursor = '0';
  do {
    const [next, pairs] = await orStoreError(redis.hscanBuffer(hash, cursor, 'COUNT', fieldsStep));
    cursor = next.toString();
    const found: [Buffer, Buffer][] = [];
    for (let at = 0; at < pairs.length; at += 2) {
      const field = pairs[at]!;
      const name = field.length <= 32 ? field.toString('latin1') : digestOf(field).toString('latin1');
      if (seen.has(name)) continue;
      seen.add(name);
      found.push([field, pairs[at + 1]!]);
    }
    yield found;
  } while (cursor !== '0');
}
