// Whether Redis accepts writes, of one Redis and of a Cluster whose masters differ.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ApiError } from '../../src/errors.ts';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { probeKey, probeKeyOf, workspaceKey } from '../../src/redis/names.ts';
import { nodeOf, slotOf } from '../../src/redis/slots.ts';
import { namesByMaster, probeError, probeWrites } from '../../src/redis/writeProbe.ts';
import { openStore, type Store } from '../../src/store.ts';
import { testSettings } from '../support/harness.ts';
import { ownRedis } from '../support/ownRedis.ts';
import { redisNodes, until } from '../support/redisNodes.ts';

describe('one Redis', () => {
  const own = ownRedis();

  test('a probe writes one record, however often', async () => {
    for (let time = 0; time < 3; time++) expect(await probeWrites(own.redis)).toEqual([{}]);
    expect(await own.redis.keys('*')).toEqual([probeKey]);
    expect(await own.redis.get(probeKey)).toBe('');
  });

  test('a store asks Redis once a second, however often it is asked', async () => {
    const store = await openStore({ ...testSettings, url: own.url });
    await own.redis.config('RESETSTAT');
    const startedAt = performance.now();
    for (let time = 0; time < 200; time++) await store.ready();
    const seconds = (performance.now() - startedAt) / 1000;
    const sets = Number(/cmdstat_set:calls=(\d+)/.exec(await own.redis.info('commandstats'))![1]);
    expect(sets).toBeGreaterThan(0);
    expect(sets).toBeLessThanOrEqual(seconds + 1);
    await store.close();
  });

  test.each([
    ['NOPERM', ['-set'], undefined],
    ['NOPERM', ['resetkeys', '~other:*'], undefined],
  ] as const)('an account that may not write: %s %s', async (word, rules, refusal) => {
    await own.redis.call('ACL', 'SETUSER', 'default', ...rules);
    const [probed] = await probeWrites(own.redis);
    await own.redis.call('ACL', 'SETUSER', 'default', '+set', 'allkeys');
    expect(probed).toEqual({ refusal, error: expect.objectContaining({ message: expect.stringContaining(word) }) });
    expect(probeError([probed!])).toBe(probed!.error);
  });
});

describe('a Cluster', () => {
  const nodes = redisNodes();
  let masters: Awaited<ReturnType<typeof nodes.startCluster>>['masters'];
  let store: Store;
  let redis: RedisClient;
  beforeAll(async () => {
    const cluster = await nodes.startCluster();
    ({ masters } = cluster);
    redis = await connect(cluster.url, { commandTimeoutMs: 5000 });
    store = await openStore({ ...testSettings, url: cluster.url });
  });
  afterAll(async () => {
    redis.disconnect();
    await store.close();
    await nodes.stop();
  });
  const nameOf = ({ port }: { port: number }) => `127.0.0.1:${port}`;
  const setMemory = (some: typeof masters, bytes: string) =>
    Promise.all(some.map(({ admin }) => admin.config('SET', 'maxmemory', bytes)));

  test('slots are those of Redis', async () => {
    for (let number = 0; number < 300; number++) {
      expect(slotOf(`${number}`)).toBe(await masters[0]!.admin.cluster('KEYSLOT', probeKeyOf(number)));
    }
  });

  test('a workspace is on the node of its slot', async () => {
    const found = new Set<string>();
    for (let number = 0; number < 20; number++) {
      const workspaceId = `ws_${number}`;
      await redis.set(workspaceKey(workspaceId), '');
      const node = masters.find((master) => nameOf(master) === nodeOf(redis, workspaceId)())!;
      expect(await node.admin.del(workspaceKey(workspaceId))).toBe(1);
      found.add(nameOf(node));
    }
    expect(found.size).toBe(masters.length);
  });

  test('each master gets a record of its own, however often it is probed', async () => {
    const probed = await probeWrites(redis);
    await probeWrites(redis);
    expect(probed.map(({ node }) => node).sort()).toEqual(masters.map(nameOf).sort());
    expect(probed.filter(({ error }) => error)).toEqual([]);
    for (const { admin } of masters) expect(await admin.keys('tg:probe*')).toHaveLength(1);
  });

  test('one full master: it is named, and the server is ready for the workspaces of the others', async () => {
    const [full, ...others] = masters;
    await setMemory([full!], '1');
    const probed = await probeWrites(redis);
    expect(probed.filter(({ refusal }) => refusal)).toMatchObject([{ node: nameOf(full!), refusal: 'memory_full' }]);
    expect(probeError(probed)).toBeUndefined();
    await until('the gauge', 10_000, async () => (await store.status.gauges()).refusing.get('memory_full') === 1);
    await store.ready();
    const { memory } = await store.status.gauges();
    expect(memory).toMatchObject({ maxBytes: 1 });

    await setMemory(others, '1');
    await until('none is ready', 10_000, () => store.ready().then(() => false, isFull));
    await setMemory(masters, '0');
    await until('all are ready', 10_000, () => store.ready().then(() => true));
  });
});

const isFull = (error: unknown) => error instanceof ApiError && error.code === 'store_full';

test('a master is found that has one slot only', () => {
  const slots = Array.from({ length: 16_384 }, (_, slot) => [slot === 9189 ? 'b' : 'a', 'replica']);
  expect([...namesByMaster(slots).keys()].sort()).toEqual(['a', 'b']);
  expect(namesByMaster([])).toEqual(new Map());
});
