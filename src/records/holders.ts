// The workspaces whose keys may read themselves (`GET /v2/me`), and the workspace of such a key. The string of a key
// does not name its workspace, so it is looked up in each of them: they are few. In a Cluster they are on several
// nodes, so each lookup is a command of its own. The setting is a field of the workspace; the list says where to look.

import { ApiError } from '../errors.ts';
import { atMostOnceIn } from '../redis/atMostOnce.ts';
import { orStoreError } from '../redis/connection.ts';
import { holdersKey, keyRecordKey, workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';

/** Limit of the workspaces. */
export const holdersMax = 100;
/** How long a server uses the list again. */
const listedMs = 1000;

export function openHolders({ redis, change }: Pick<StoreContext, 'redis' | 'change'>) {
  return {
    /** The workspaces in order of creation, at most a second ago. */
    workspaces: atMostOnceIn(listedMs, async () => (await orStoreError(redis.smembers(holdersKey))).sort()),

    /** The first of these workspaces that has a key with this digest, also a deleted one, and that `accepts` it. */
    async find(
      workspaceIds: readonly string[],
      digest: Buffer,
      accepts: (workspaceId: string) => Promise<boolean>,
    ): Promise<string | undefined> {
      const found = await Promise.allSettled(
        workspaceIds.map((id) => orStoreError(redis.exists(keyRecordKey(workspaceKey(id), digest)))),
      );
      for (const [index, each] of found.entries())
        if (each.status === 'fulfilled' && each.value === 1 && (await accepts(workspaceIds[index]!)))
          return workspaceIds[index];
      // One that cannot be asked now may have it: of a Cluster, another master has the workspace.
      const failed = found.find((each) => each.status === 'rejected');
      if (failed) throw failed.reason;
      return undefined;
    },

    async add(workspaceId: string): Promise<void> {
      if ((await change((redis) => redis.sadd(holdersKey, workspaceId))) === 0) return;
      if ((await orStoreError(redis.scard(holdersKey))) <= holdersMax) return;
      await change((redis) => redis.srem(holdersKey, workspaceId));
      const detail = `${holdersMax} workspaces of this installation have \`me\`, which is the maximum.`;
      throw new ApiError('precondition_failed', detail);
    },

    /** Lists a workspace if it has the setting, and else not. Another change may come between two commands. */
    async settle(workspaceId: string): Promise<void> {
      const isOn = () => orStoreError(redis.hexists(workspaceKey(workspaceId), 'me'));
      let listed: number | undefined;
      for (let on = await isOn(); on !== listed; on = await isOn()) {
        await change((redis) => (on === 1 ? redis.sadd(holdersKey, workspaceId) : redis.srem(holdersKey, workspaceId)));
        listed = on;
      }
    },

    remove: (workspaceId: string) => change((redis) => redis.srem(holdersKey, workspaceId)),
  };
}
