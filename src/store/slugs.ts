// The slugs of a key, where a script answered their numbers instead.

import { permissionSlugsKey, workspaceKey } from './keyspace.ts';
import { pieces } from './pieces.ts';
import { numbersIn } from './rbac.ts';
import { answered, type RedisClient } from './redis.ts';

/** How many are asked for at once: what Redis does in less than a millisecond. */
const stepMax = 1000;

/** Are these lists of numbers? See effective_slugs in lua/include/permissions.lua. */
export const areNumbers = (slugs: readonly string[]): boolean => slugs[0]?.startsWith(',') === true;

/**
 * The slugs themselves, each once. Not one script, as it would keep Redis from everybody else; a permission that is deleted
 * meanwhile is left out.
 */
export async function slugsOf(redis: RedisClient, workspaceId: string, lists: readonly string[]): Promise<string[]> {
  const numbers = [...new Set(lists.flatMap(numbersIn))];
  const key = permissionSlugsKey(workspaceKey(workspaceId));
  const found: string[] = [];
  for (const some of pieces(numbers, stepMax)) {
    for (const slug of await answered(redis.hmget(key, ...some))) {
      if (slug !== null) found.push(slug);
    }
  }
  return found;
}
