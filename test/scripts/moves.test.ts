// Data with an API that earlier commits moved to another workspace is refused, whatever the state of the move.
// test/process/dataVersion.test.ts has the refusal of the start, of commands, and `tollgate doctor`.

import { beforeEach, expect, test } from 'vitest';
import { createId } from '../../src/domain/keyString.ts';
import { dataKey, keyRecordKey, rootKeyRecordKey, workspaceKey } from '../../src/redis/names.ts';
import { exitCodeOf } from '../../src/scripts/dataVersion.ts';
import { refuseMoves } from '../../src/scripts/moves.ts';
import { formerMoveStates, forwardingRootKeyId, writeFormerMove } from '../support/formerMoves.ts';
import { ownRedis } from '../support/ownRedis.ts';

const own = ownRedis();
const idOf = (prefix: string) => createId('ws', 1768478400000).replace('ws', prefix);
const newMove = () => ({ from: idOf('ws'), to: idOf('ws'), apiId: idOf('api') });

beforeEach(() => own.redis.flushdb());

const refusal = async (): Promise<string> => {
  const error = await refuseMoves(own.redis).catch((error) => error);
  expect(exitCodeOf(error)).toBe(78);
  return error.message;
};

test.each(Object.keys(formerMoveStates) as (keyof typeof formerMoveStates)[])('%s', async (state) => {
  const move = newMove();
  await writeFormerMove(own.redis, move, state);
  const parts: readonly string[] = formerMoveStates[state];
  const has = (...names: string[]) => names.some((name) => parts.includes(name));
  const api = `the API …${move.apiId.slice(-8)}`;
  const places = [
    has('moving', 'closed', 'moved', 'onTheWay', 'takenList', 'counts') && `${api} in ${move.from}`,
    has('receipt', 'arrived') && `${api} in ${move.to}`,
    has('rootKey') && `${forwardingRootKeyId} in ${move.to}`,
  ];
  const named = places.filter((place) => place !== false).sort();
  expect(await refusal()).toContain(
    `Redis has records of \`tollgate api move\`, which this release does not have: ${named.join(', ')}. With`,
  );
});

test('of many moves ten are named', async () => {
  const moves = Array.from({ length: 12 }, newMove);
  for (const move of moves) await writeFormerMove(own.redis, move, 'only counts');
  const found = await refusal();
  expect(found.match(/the API …/g)).toHaveLength(10);
  expect(found).toContain(' and 2 others. ');
});

test('nothing is found among other records, whatever their names', async () => {
  const { from, to, apiId } = newMove();
  const { redis } = own;
  const workspace = workspaceKey(from);
  const name = `forwards ${apiId} from ${to}`;
  // Of an operator, who has its string.
  await redis.hset(rootKeyRecordKey(workspace, Buffer.alloc(32, 1)), { id: idOf('root'), name, start: 'root_1Ab' });
  await redis.hset(rootKeyRecordKey(workspace, Buffer.alloc(32, 2)), { id: idOf('root'), start: '' });
  const odd = Buffer.from(`}:mv:${apiId.slice(-8)}`.padEnd(32, '\n'));
  await redis.hset(rootKeyRecordKey(workspace, odd), { id: idOf('root') });
  await redis.hset(keyRecordKey(workspace, odd), { state: 'x' });
  await redis.hset(`${workspace}:i:tg:{${to}}:mv:${apiId.slice(-8)}`, { state: 'x' });
  await redis.hset(`tg:{ws_short}:mv:${apiId.slice(-8)}`, { api: apiId });
  await redis.set(`${workspace}:w:${apiId.slice(4)}:86400000::mv:12345678`, 'x');
  await refuseMoves(redis);
});

test('records are found among very many names', async () => {
  const move = newMove();
  const names = Array.from({ length: 30_000 }, (_, index) => [`${workspaceKey(move.to)}:i:${index}`, 'x']);
  await own.redis.mset(...names.flat());
  await writeFormerMove(own.redis, move, 'only a receipt');
  expect(await refusal()).toContain(move.to);
});

test('data that cannot be looked at is not served', async () => {
  await writeFormerMove(own.redis, newMove(), 'only a receipt');
  await own.redis.acl('SETUSER', 'default', '-scan');
  try {
    await expect(refuseMoves(own.redis)).rejects.toMatchObject({ code: 'store_unavailable' });
  } finally {
    await own.redis.acl('SETUSER', 'default', '+scan');
  }
  expect(await refusal()).toContain('the API …');
});

test('other data is looked at once', async () => {
  await refuseMoves(own.redis);
  expect(await own.redis.hget(dataKey, 'moveless')).toBe('1');
  await own.redis.config('RESETSTAT');
  await refuseMoves(own.redis);
  expect(await own.redis.info('commandstats')).not.toContain('cmdstat_scan');
});
