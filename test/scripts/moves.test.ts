// Data with an API that earlier commits moved to another workspace is refused, whatever its state.

import { beforeEach, expect, test } from 'vitest';
import { dataKey, workspaceKey } from '../../src/redis/names.ts';
import { exitCodeOf } from '../../src/scripts/dataVersion.ts';
import { openStore } from '../../src/store.ts';
import { testSettings } from '../support/harness.ts';
import { ownRedis } from '../support/ownRedis.ts';

const own = ownRedis();
const open = async () => (await openStore({ ...testSettings, url: own.url })).close();
const [before, after] = ['ws_1111111111111111', 'ws_2222222222222222'].map(workspaceKey) as [string, string];

beforeEach(() => own.redis.flushall());

test.each([
  [
    'that is being moved',
    `${before}:mv:11111111`,
    { api: 'api_1111111111111111', to: 'ws_2222222222222222', state: 'moving' },
  ],
  ['that has no keys left', `${before}:mv:11111111`, { api: 'api_1111111111111111', state: 'closed' }],
  ['that was moved, and is forwarded', `${before}:mv:11111111`, { api: 'api_1111111111111111', state: 'moved' }],
  ['that is received', `${after}:mi:11111111`, { from: 'ws_1111111111111111', part: '0' }],
])('an API %s', async (_state, name, record) => {
  for (let index = 0; index < 3000; index++) await own.redis.set(`other:${index}`, '');
  await own.redis.hset(name, record);
  const error = (await open().catch((error) => error)) as Error;
  expect(error.message).toContain(
    `(${name}), and this version cannot send its verifications on. With the version before it run \`api move\``,
  );
  expect(exitCodeOf(error)).toBe(78);
  await own.redis.del(name);
  await open();
});

test('other data is looked at once', async () => {
  await open();
  expect(await own.redis.hget(dataKey, 'moveless')).toBe('1');
  await own.redis.config('RESETSTAT');
  await open();
  expect(await own.redis.info('commandstats')).not.toContain('cmdstat_scan');
});
