// Reads the slugs of keys with so many permissions that scripts return their numbers instead
// (lua/include/permissions.lua).

import { JsonText } from '../domain/json.ts';
import { chunks } from '../redis/chunks.ts';
import { orStoreError, type RedisClient } from '../redis/connection.ts';
import { permissionSlugsKey, workspaceKey } from '../redis/names.ts';

/** Slugs that one command reads, in less than a millisecond of Redis's time. */
const stepMax = 1000;

/**
 * The distinct numbers in lists such as `,3,17,`. There may be a hundred thousand; as strings they took 28 times as
 * long.
 */
function distinctNumbers(lists: readonly string[]): Set<number> {
  const numbers = new Set<number>();
  for (const list of new Set(lists)) {
    let number = 0;
    for (let at = 1; at < list.length; at++) {
      const code = list.charCodeAt(at);
      if (code === comma) {
        numbers.add(number);
        number = 0;
      } else {
        number = number * 10 + code - zero;
      }
    }
  }
  return numbers;
}
const comma = 44;
const zero = 48;

/**
 * The distinct slugs of lists of permission numbers. Many short commands instead of one script, which would block
 * Redis. A permission that is deleted in the meantime is left out.
 */
export async function slugsOf(redis: RedisClient, workspaceId: string, lists: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for await (const slugs of inSteps(redis, workspaceId, lists)) found.push(...slugs);
  return found;
}

/**
 * The slugs that slugsOf returns as JSON, printed step by step: a key may have a hundred thousand slugs, and printing
 * them in one step would hold the event loop for 60 ms and the strings in memory.
 */
export async function printedSlugsOf(
  redis: RedisClient,
  workspaceId: string,
  lists: readonly string[],
): Promise<JsonText> {
  const parts: string[] = [];
  for await (const slugs of inSteps(redis, workspaceId, lists)) {
    if (slugs.length > 0) parts.push(JSON.stringify(slugs).slice(1, -1));
  }
  return new JsonText(`[${parts.join(',')}]`);
}

async function* inSteps(redis: RedisClient, workspaceId: string, lists: readonly string[]): AsyncGenerator<string[]> {
  const numbers = [...distinctNumbers(lists)];
  const key = permissionSlugsKey(workspaceKey(workspaceId));
  for (const some of chunks(numbers, stepMax)) {
    const slugs = await orStoreError(redis.hmget(key, ...some.map(String)));
    yield slugs.filter((slug) => slug !== null);
  }
}
