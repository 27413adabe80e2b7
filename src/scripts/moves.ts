// `api move` of earlier commits moved an API to another workspace, and the former one sent verifications on with a root
// key of the other one. Without that, keys on their way would be lost, moved keys would be NOT_FOUND for root keys of
// the former workspace, and the root keys that forwarded would stay valid. So data with a move, in any state, is
// refused.

import { mastersOf, orStoreError, type RedisClient } from '../redis/connection.ts';
import { dataKey, formerMoveNames } from '../redis/names.ts';
import { unsupported } from './dataVersion.ts';

const scannedAtOnce = 1000;
/** Places that the message names. */
const namedMax = 10;
/** The name of a root key that forwards. It has no `start`, as it never had a string. */
const forwardingName = /^forwards api_\w{16} from ws_\w{16}$/;

/** All names are looked at once: the record of the data notes that there was no move. */
export async function refuseMoves(redis: RedisClient): Promise<void> {
  if (await orStoreError(redis.hexists(dataKey, 'moveless'))) return;
  const places = new Set<string>();
  const looks = await Promise.allSettled(mastersOf(redis).map((master) => look(master, redis, places)));
  if (places.size > 0) {
    const named = [...places].sort().slice(0, namedMax).join(', ');
    const others = places.size > namedMax ? ` and ${places.size - namedMax} others` : '';
    throw unsupported(
      `Redis has records of \`tollgate api move\`, which this release does not have: ${named}${others}. With the commit ` +
        'that wrote them, run `api move` to its end and then `api end-forwarding`; then revoke root keys that are still ' +
        'named: docs/upgrade.md.',
    );
  }
  const failed = looks.find((each) => each.status === 'rejected');
  // While a master of a Cluster is lost, the others serve; the next start looks again.
  if (failed && redis.isCluster) return;
  if (failed) throw failed.reason;
  // A full Redis or a replica may refuse it: then the next start looks again.
  await redis.hset(dataKey, 'moveless', '1').catch(() => {});
}

async function look(master: RedisClient, redis: RedisClient, places: Set<string>) {
  let cursor = '0';
  do {
    const { pattern } = formerMoveNames;
    const [next, names] = await orStoreError(master.scanBuffer(cursor, 'MATCH', pattern, 'COUNT', scannedAtOnce));
    cursor = next.toString();
    for (const place of await Promise.all(names.map((name) => placeOf(redis, name)))) if (place) places.add(place);
  } while (cursor !== '0');
}

async function placeOf(redis: RedisClient, name: Buffer): Promise<string | undefined> {
  const [workspaceId, kind, api8] = formerMoveNames.parse(name) ?? [];
  if (workspaceId === undefined) return undefined;
  if (kind !== 'rk') return `the API …${api8} in ${workspaceId}`;
  const [id, rootKeyName, start] = await orStoreError(redis.hmget(name, 'id', 'name', 'start'));
  return !start && forwardingName.test(rootKeyName ?? '') ? `${id} in ${workspaceId}` : undefined;
}
