// What is known of a life of Redis: its age by a monotonic clock, and that it ends when a master becomes a replica.

import { expect, test } from 'vitest';
import { allEndedMs } from '../../src/domain/leaseTerms.ts';
import { connect } from '../../src/redis/connection.ts';
import { RedisLife } from '../../src/redis/life.ts';
import { ownRedis } from '../support/ownRedis.ts';

const own = ownRedis();
const other = ownRedis();

test('a life has a name for all processes, and an age for those that have seen it', async () => {
  let nowMs = 1000;
  const life = new RedisLife(own.redis, { monotonicMs: () => nowMs });
  expect([life.name, life.ms]).toEqual([undefined, 0]);
  await life.look();
  expect([life.name, life.ms]).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/), 0]);
  nowMs += 1500.9;
  await life.look();
  expect(life.ms).toBe(1500);

  const later = new RedisLife(own.redis);
  await later.look();
  expect([later.name, later.ms]).toEqual([life.name, 0]);
  const elsewhere = new RedisLife(other.redis);
  await elsewhere.look();
  expect(elsewhere.name).not.toBe(life.name);
});

test('the first life of a Redis that has every write is as old as any lease, and later ones are not', async () => {
  let nowMs = 0;
  const life = new RedisLife(own.redis, { monotonicMs: () => nowMs, isComplete: () => true });
  await life.look();
  expect(life.ms).toBe(allEndedMs);
  nowMs += allEndedMs + 5;
  await life.look();
  expect(life.ms).toBe(allEndedMs + 5);
  await own.redis.replicaof('127.0.0.1', '1');
  await life.look();
  await own.redis.replicaof('NO', 'ONE');
  await life.look();
  expect([life.name, life.ms]).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/), 0]);

  const lacking = new RedisLife(own.redis, { monotonicMs: () => nowMs, isComplete: () => false });
  await lacking.look();
  expect(lacking.ms).toBe(0);
});

test('a time without a look counts only if the life is the same at its end', async () => {
  let nowMs = 0;
  const life = new RedisLife(own.redis, { monotonicMs: () => nowMs });
  await life.look();
  const before = life.name;
  nowMs += 5000;
  await life.look();
  expect(life.ms).toBe(5000);
  // A replica gets the data of another, without writes of its own.
  await own.redis.replicaof('127.0.0.1', '1');
  await life.look();
  expect([life.name, life.ms]).toEqual([undefined, 0]);
  await own.redis.replicaof('NO', 'ONE');
  nowMs += 5000;
  await life.look();
  expect(life.name).toMatch(/^[0-9a-f]{32}$/);
  expect(life.name).not.toBe(before);
  expect(life.ms).toBe(0);
});

test('it is unknown in a Cluster, without the right to ask, and while Redis is away', async () => {
  const life = new RedisLife({ info: own.redis.info.bind(own.redis), isCluster: true });
  await life.look();
  expect(life.name).toBeUndefined();

  await own.redis.call('ACL', 'SETUSER', 'limited', 'on', '>any', '~*', '+@all', '-info');
  const limited = own.redis.duplicate({ username: 'limited', password: 'any', enableReadyCheck: false });
  await limited.connect();
  const refused = new RedisLife(limited);
  await refused.look();
  expect(refused.name).toBeUndefined();
  expect(await limited.ping()).toBe('PONG');
  limited.disconnect();

  const lost = await connect(own.url, { commandTimeoutMs: 5000 });
  const known = new RedisLife(lost);
  await known.look();
  expect(known.name).toBeDefined();
  lost.disconnect();
  await known.look();
  expect(known.name).toBeUndefined();
});
