import type { StoreContext } from '../scripts/context.ts';
import { dataVersion as newestVersion } from '../scripts/layout.ts';

/**
 * The arguments of a script that deletes an API or an identity. Unless `permanent`, it can be restored for the
 * retention time; not while the data has an earlier version, because a migration and the servers of that version do not
 * support this.
 */
export function deletion({ keyRetentionMs, dataVersion }: StoreContext, permanent = false) {
  const isForGood = permanent || keyRetentionMs === 0 || dataVersion.current < newestVersion;
  return { permanent: isForGood ? 1 : 0, retentionMs: keyRetentionMs };
}
