// Usage logs of keys in the format of lua/include/usage.lua, for tests that cannot wait until the server writes them.

import type { RedisClient } from '../../src/redis/connection.ts';
import { usedKeysKey, workspaceKey } from '../../src/redis/names.ts';
import { spentPlace, weekDays } from '../../src/scripts/layout.ts';

/** An hour with 3 VALID, each for one credit, and 1 DISABLED, without an identity. */
function hourEntry(hour: number): Buffer {
  const entry = Buffer.alloc(21);
  entry.writeUInt32BE(hour, 0);
  entry[4] = 1 + 2 + 2 ** spentPlace;
  entry.writeUInt32BE(3, 5);
  entry.writeUInt32BE(1, 9);
  entry.writeUInt32BE(3, 16);
  return entry;
}

/** The log of a key with these hours (since 1970), and its name. */
export const keyLogOf = (workspaceId: string, keyId: string, hours: readonly number[]) => ({
  name: `${workspaceKey(workspaceId)}:uk:${keyId.slice('key_'.length)}`,
  log: Buffer.concat(hours.map(hourEntry)),
});

/**
 * Adds keys of an API to the lists of the keys that were used in these weeks, as the sweeper of an earlier version
 * does: without sums by customer.
 */
export async function addUsedKeys(
  redis: RedisClient,
  workspaceId: string,
  keyIds: readonly string[],
  hours: readonly number[],
) {
  const weeks = new Set(hours.map((hour) => Math.floor(hour / 24 / weekDays)));
  const ids = keyIds.map((keyId) => keyId.slice(4, 20));
  await redis.hdel(workspaceKey(workspaceId), 'summed', 'daysTo');
  for (const week of weeks) {
    await redis.rpush(usedKeysKey(workspaceKey(workspaceId), keyIds[0]!.slice(-8), 'week', week), ...ids);
  }
}
