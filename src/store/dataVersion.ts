// The version of the data in Redis. Data of another version is refused at the start: a server that cannot read all of it would
// find some keys and not others, and write its own beside them.

import { apisKey, dataVersionKey, keysKey, workspaceKey, workspacesKey } from './keyspace.ts';
import { dataVersion } from './layout.ts';
import { orStoreError, type RedisClient } from './redis.ts';

/** Rejects when the data is of another version; writes the version where that was not done yet. */
export async function checkDataVersion(redis: RedisClient, reads = String(dataVersion)): Promise<void> {
  const written = await orStoreError(redis.get(dataVersionKey));
  const found = written ?? (await unwrittenVersion(redis)) ?? reads;
  if (found !== reads) {
    throw new Error(
      `The data in Redis has version ${found}, and this Tollgate reads version ${reads}. Export it with the version that wrote it, ` +
        'and import it into an empty Redis: docs/running.md#upgrades.',
    );
  }
  // A Redis that is full or a replica may refuse it: then the next start writes it down.
  if (written === null) await redis.set(dataVersionKey, reads, 'NX').catch(() => {});
}

/** Where the hundredth stands: so many workspaces are looked at, and APIs of each. */
const last = '99';
/** Since form 2 an id takes 12 bytes of such a member instead of 16; a digest, 32, follows it. */
const form1MemberBytes = 48;

/**
 * The form of data that has none written down, as the versions of forms 1 and 2 wrote none at first; undefined for an empty
 * Redis. Without any key the two are alike.
 */
async function unwrittenVersion(redis: RedisClient): Promise<'1' | '2' | undefined> {
  const workspaceIds = await orStoreError(redis.zrange(workspacesKey, '0', last));
  for (const workspaceId of workspaceIds) {
    const workspace = workspaceKey(workspaceId);
    for (const api of await orStoreError(redis.zrange(apisKey(workspace), '0', last))) {
      const [member] = await orStoreError(redis.zrangeBuffer(keysKey(workspace, api), '0', '0'));
      if (member) return member.length === form1MemberBytes ? '1' : '2';
    }
  }
  return workspaceIds.length === 0 ? undefined : '2';
}
