// The records of an API that an earlier commit moved to another workspace (`tollgate api move`), as that commit wrote
// them, in each state of the move.

import type { RedisClient } from '../../src/redis/connection.ts';
import { keyRecordKey, rootKeyRecordKey, workspaceKey } from '../../src/redis/names.ts';
import { keyFixed, never } from '../../src/scripts/layout.ts';

interface FormerMove {
  from: string;
  to: string;
  apiId: string;
}

export const forwardingRootKeyId = 'root_1AbCdEfGh2AbCdEf';
const rootDigest = Buffer.alloc(32, 0xfe);
const keyDigest = Buffer.alloc(32, 0xd1);
const packedId = Buffer.alloc(12, 7);
const keyMember = Buffer.concat([packedId, keyDigest]);

/** Functions that write the parts. */
function partsOf(redis: RedisClient, { from, to, apiId }: FormerMove) {
  const old = (kind: string) => `${workspaceKey(from)}:${kind}:${apiId.slice(-8)}`;
  const other = (kind: string) => `${workspaceKey(to)}:${kind}:${apiId.slice(-8)}`;
  const state = Buffer.alloc(keyFixed.bytes + 40);
  state.writeUIntBE(never - 1, keyFixed.at.expires, keyFixed.fields.expires.bytes);
  const move = (state: string) =>
    redis.hset(old('mv'), { api: apiId, to, root: rootDigest.toString('hex'), state, part: 0 });
  return {
    moving: () => move('moving'),
    closed: () => move('closed'),
    moved: () => move('moved'),
    receipt: () => redis.hset(other('mi'), { from, part: 0, count: 0 }),
    rootKey: () =>
      redis.hset(rootKeyRecordKey(workspaceKey(to), rootDigest), {
        id: forwardingRootKeyId,
        start: '',
        name: `forwards ${apiId} from ${from}`,
        grants: `api.${apiId}.verify_key`,
        enabled: '1',
        created: '1768478400000',
      }),
    rootKeyList: () =>
      redis.zadd(
        `${workspaceKey(to)}:rks`,
        0,
        Buffer.concat([Buffer.from(forwardingRootKeyId.slice('root_'.length)), rootDigest]),
      ),
    taken: () => redis.hset(keyRecordKey(workspaceKey(from), keyDigest), { state, moved: `${never} - a` }),
    onTheWay: () => redis.zadd(old('mp'), 0, keyMember),
    takenList: () => redis.zadd(old('ms'), 0, keyMember),
    arrived: () => redis.sadd(other('mk'), packedId),
    left: () => redis.hset(keyRecordKey(workspaceKey(from), keyDigest), { state }),
    counts: () => redis.rpush(old('mo'), 1, 'a', 20468, '491232VALID', 3),
  };
}

type Part = keyof ReturnType<typeof partsOf>;
const rootKey: Part[] = ['rootKey', 'rootKeyList'];

export const formerMoveStates = {
  'begun in the old workspace only': ['moving'],
  begun: ['moving', 'receipt', ...rootKey],
  'a key is on its way': ['moving', 'receipt', ...rootKey, 'taken', 'onTheWay', 'takenList'],
  'a key has arrived': ['moving', 'receipt', ...rootKey, 'left', 'takenList', 'arrived'],
  'closed, and counts are on their way': ['closed', 'receipt', ...rootKey, 'left', 'takenList', 'arrived', 'counts'],
  'ended in the old workspace only': ['moved', 'receipt', ...rootKey, 'left', 'takenList', 'arrived'],
  ended: ['moved', ...rootKey, 'left', 'takenList'],
  'ended, of an API without keys, and its root key was deleted': ['moved'],
  'the forwarding has ended, but for its root key': rootKey,
  // Of a Redis that lost some.
  'only a list of keys on their way': ['onTheWay'],
  'only a list of taken keys': ['takenList'],
  'only counts': ['counts'],
  'only a receipt': ['receipt'],
  'only a list of arrived keys': ['arrived'],
} as const satisfies Record<string, readonly Part[]>;

export async function writeFormerMove(redis: RedisClient, move: FormerMove, state: keyof typeof formerMoveStates) {
  const parts = partsOf(redis, move);
  for (const part of formerMoveStates[state] as readonly Part[]) await parts[part]();
}
