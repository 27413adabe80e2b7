// `api move` of earlier commits moved an API to another workspace, to which the first one sent verifications on.
// Without that, its keys would be NOT_FOUND for root keys of the first one. So data with a move, in any state, is
// refused.

import { mastersOf, orStoreError, type RedisClient } from '../redis/connection.ts';
import { dataKey, movesPattern } from '../redis/names.ts';
import { unsupported } from './dataVersion.ts';

const scannedAtOnce = 1000;

/** All names are looked at once: the record of the data notes that there was no move. */
export async function refuseMoves(redis: RedisClient): Promise<void> {
  if (await orStoreError(redis.hexists(dataKey, 'moveless'))) return;
  for (const master of mastersOf(redis)) {
    let cursor = '0';
    do {
      const [next, [found]] = await orStoreError(master.scan(cursor, 'MATCH', movesPattern, 'COUNT', scannedAtOnce));
      if (found)
        throw unsupported(
          `An API is or was moved between workspaces (${found}), and this version cannot send its verifications on. With the ` +
            'version before it run `api move` to its end, then `api end-forwarding`: docs/scaling.md#a-workspace-on-another-node.',
        );
      cursor = next;
    } while (cursor !== '0');
  }
  // A full Redis or a replica may refuse it: then the next start looks again.
  await redis.hset(dataKey, 'moveless', '1').catch(() => {});
}
