// The version of the data in Redis. A server refuses to start with data of another version: it would read only a part
// of it, find some keys and not others, and write data of its own version.

import { orStoreError, type RedisClient } from '../redis/connection.ts';
import { apisKey, dataVersionKey, keysKey, workspaceKey, workspacesKey } from '../redis/names.ts';
import { dataVersion } from './layout.ts';

/** Rejects when the data has another version. Writes the version if Redis has none. */
export async function checkDataVersion(redis: RedisClient, reads = String(dataVersion)): Promise<void> {
  const written = await orStoreError(redis.get(dataVersionKey));
  const found = written ?? (await unwrittenVersion(redis)) ?? reads;
  if (found !== reads) {
    throw new Error(
      `The data in Redis has version ${found}, and this Tollgate reads version ${reads}. Export it with the version that wrote it, ` +
        'and import it into an empty Redis: docs/running.md#upgrades.',
    );
  }
  // A full Redis or a replica may refuse it: then the next start writes it.
  if (written === null) await redis.set(dataVersionKey, reads, 'NX').catch(() => {});
}

/** Rank of the last workspace that is examined, and of the last API of each. */
const lastRank = '99';
/**
 * A member of an API's list of keys in version 1: an id (16) and a digest (32). Since version 2 the id has 12 bytes.
 */
const version1MemberBytes = 48;

/**
 * The version of data without a stored version: 1 or 2, because early servers of these stored none. Undefined for an
 * empty Redis. Without keys the two versions are the same.
 */
async function unwrittenVersion(redis: RedisClient): Promise<'1' | '2' | undefined> {
  const workspaceIds = await orStoreError(redis.zrange(workspacesKey, '0', lastRank));
  for (const workspaceId of workspaceIds) {
    const workspace = workspaceKey(workspaceId);
    for (const api of await orStoreError(redis.zrange(apisKey(workspace), '0', lastRank))) {
      const [member] = await orStoreError(redis.zrangeBuffer(keysKey(workspace, api), '0', '0'));
      if (member) return member.length === version1MemberBytes ? '1' : '2';
    }
  }
  return workspaceIds.length === 0 ? undefined : '2';
}
