// The slugs of a key, for which a script returned the numbers instead (lua/include/permissions.lua).

import { chunks } from './chunks.ts';
import { permissionSlugsKey, workspaceKey } from './keyspace.ts';
import { orStoreError, type RedisClient } from './redis.ts';

/** How many are asked for at once: what Redis does in less than a millisecond. */
const stepMax = 1000;

/** The numbers in `,3,17,` and the like, each once. There may be a hundred thousand: as texts they took 28 times as long. */
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
 * The slugs themselves, each once. Not one script, as it would keep Redis from everybody else; a permission that is deleted
 * meanwhile is left out.
 */
export async function slugsOf(redis: RedisClient, workspaceId: string, lists: readonly string[]): Promise<string[]> {
  const numbers = [...distinctNumbers(lists)];
  const key = permissionSlugsKey(workspaceKey(workspaceId));
  const found: string[] = [];
  for (const some of chunks(numbers, stepMax)) {
    for (const slug of await orStoreError(redis.hmget(key, ...some.map(String)))) {
      if (slug !== null) found.push(slug);
    }
  }
  return found;
}
