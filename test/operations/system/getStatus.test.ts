import { describe, expect, test, vi } from 'vitest';
import { redisChecks } from '../../../src/redis/checks.ts';
import { connect } from '../../../src/redis/connection.ts';
import { dataVersion, longestTerm } from '../../../src/scripts/layout.ts';
import { buildVersion } from '../../../src/version.ts';
import { harness, testSettings } from '../../support/harness.ts';
import { testRedisUrl } from '../../support/redis.ts';

const tollgate = harness();
const { call, clock, createWorkspace } = tollgate;
/** With decisions of its own. */
const own = harness();
const dayMs = 86_400_000;

const statusOf = async (rootKey: string) => (await call('system.getStatus', {}, rootKey)).data;

test('system.getStatus: a new workspace stores one root key, and nothing is overdue', async () => {
  const { rootKey } = await createWorkspace();
  expect(await statusOf(rootKey)).toMatchObject({
    time: clock.now,
    sweeper: { refills: none, purges: none, rollups: none },
    stored: { keys: 0, deletedKeys: 0, apis: 0, identities: 0, overrides: 0, rootKeys: 1 },
    leases: { sessions: 0, silent: 0 },
  });
});
const none = { overdue: 0, lateMs: 0 };

test('system.getStatus: versions, process and Redis are those of this machine', async () => {
  const { rootKey } = await createWorkspace();
  const { versions, process: ofServer, redis } = await statusOf(rootKey);
  expect(versions).toMatchObject({ tollgate: buildVersion, node: process.versions.node, data: dataVersion });
  expect(versions.redis).toMatch(/^(Redis|Valkey) \d+\.\d+/);
  expect(ofServer.memoryBytes).toBeGreaterThan(10_000_000);
  expect(ofServer.uptimeMs).toBeGreaterThan(0);
  const nodes = process.env.TEST_REDIS === 'cluster' ? 3 : 1;
  expect(redis).toMatchObject({ nodes, roundTripMs: expect.any(Number) });
  expect(redis.usedBytes).toBeGreaterThan(100_000);
  expect(redis.maxBytes).toBeGreaterThan(redis.usedBytes!);
  const ofNode = [
    ...['version', 'role', 'writes', 'persistence', 'eviction', 'memory', 'encodings', 'freeing', 'channels', 'clock'],
  ];
  expect(ofNode).toHaveLength(redisChecks.length);
  const names = redis.checks.map(({ check }) => check);
  expect(names).toEqual([...(nodes > 1 ? ['cluster'] : []), ...Array.from({ length: nodes }, () => ofNode).flat()]);
});

test('system.getStatus: the times of recent decisions of the process, and not of other operations', async () => {
  const { rootKey } = await own.createWorkspace();
  const decisionsOf = async () => (await own.call('system.getStatus', {}, rootKey)).data.process.decisions!;
  expect(await decisionsOf()).toEqual({ periodMs: expect.any(Number), count: 0 });
  for (let count = 0; count < 5; count++) await own.call('keys.verifyKey', { key: 'unknown' }, rootKey);
  await own.call('ratelimits.limit', { namespace: 'mails', identifier: 'a', limit: 1, duration: 1000 }, rootKey);
  await own.call('apis.createApi', { name: 'one' }, rootKey);
  const { count, periodMs, p50Ms, p99Ms } = await decisionsOf();
  expect(count).toBe(6);
  expect(periodMs).toBeGreaterThan(0);
  expect(p50Ms).toBeGreaterThan(0);
  expect(p99Ms).toBeGreaterThanOrEqual(p50Ms!);
  expect(p99Ms).toBeLessThan(5000);
});

test('system.getStatus: counts what the workspace stores, and not what others do', async () => {
  const { rootKey } = await createWorkspace();
  const { apiId } = (await call('apis.createApi', { name: 'one' }, rootKey)).data;
  const other = (await call('apis.createApi', { name: 'two' }, rootKey)).data;
  const key = { apiId, externalId: 'customer', permissions: ['documents.read'], roles: [] };
  const [first] = [
    (await call('keys.createKey', key, rootKey)).data,
    (await call('keys.createKey', { ...key, externalId: 'other' }, rootKey)).data,
    (await call('keys.createKey', { apiId: other.apiId }, rootKey)).data,
  ];
  await call('keys.deleteKey', { keyId: first.keyId }, rootKey);
  await call('apis.deleteApi', { apiId: other.apiId }, rootKey);
  await call('identities.deleteIdentity', { identity: 'other' }, rootKey);
  await call('permissions.createRole', { name: 'reader' }, rootKey);
  await call('ratelimits.setOverride', { namespace: 'n.a', identifier: '*', limit: 1, duration: 60_000 }, rootKey);
  const theirs = await createWorkspace();
  await call('apis.createApi', { name: 'theirs' }, theirs.rootKey);
  const events = (await call('audit.listEvents', {}, rootKey)).data.length;
  expect((await statusOf(rootKey)).stored).toEqual({
    ...{ keys: 3, deletedKeys: 1, apis: 1, deletedApis: 1, identities: 1, deletedIdentities: 1 },
    ...{ namespaces: 1, overrides: 1, permissions: 1, roles: 1, rootKeys: 1, auditEvents: events },
  });
  expect(events).toBeGreaterThan(7);
});

describe('the sweeper', () => {
  test('deleted keys past their retention, and usage that may be packed', async () => {
    const { rootKey, workspaceId } = await createWorkspace();
    const { apiId } = (await call('apis.createApi', { name: 'one' }, rootKey)).data;
    const { keyId, key } = (await call('keys.createKey', { apiId }, rootKey)).data;
    await call('keys.verifyKey', { key }, rootKey);
    await call('keys.deleteKey', { keyId }, rootKey);
    expect((await statusOf(rootKey)).sweeper).toMatchObject({ purges: none, rollups: none });
    // The record is kept for a day, and the usage of a day is packed 70 minutes after its end.
    const packedFrom = (Math.floor(clock.now / dayMs) + 1) * dayMs + 70 * 60_000;
    const purgedFrom = clock.now + testSettings.keyRetentionMs;
    clock.now = Math.max(packedFrom, purgedFrom) + 5000;
    expect((await statusOf(rootKey)).sweeper).toMatchObject({
      purges: { overdue: 1, lateMs: clock.now - purgedFrom },
      rollups: { overdue: 1, lateMs: clock.now - packedFrom },
    });
    await tollgate.store.sweep.purge(workspaceId);
    expect(await statusOf(rootKey)).toMatchObject({ sweeper: { purges: none }, stored: { keys: 0, deletedKeys: 0 } });
  });

  test('refills that are due, and how late the first one is', async () => {
    const { rootKey, workspaceId } = await createWorkspace();
    const { apiId } = (await call('apis.createApi', { name: 'one' }, rootKey)).data;
    const credits = { remaining: 1, refill: { interval: 'daily', amount: 5 } } as const;
    for (let n = 0; n < 2; n++) await call('keys.createKey', { apiId, credits }, rootKey);
    expect((await statusOf(rootKey)).sweeper.refills).toEqual(none);
    const due = (Math.floor(clock.now / dayMs) + 1) * dayMs;
    clock.advance(due - clock.now + 90_000);
    expect((await statusOf(rootKey)).sweeper.refills).toEqual({ overdue: 2, lateMs: 90_000 });
    await tollgate.store.sweep.refill(workspaceId);
    expect((await statusOf(rootKey)).sweeper.refills).toEqual(none);
  });

  test('the time of the last sweep is stored at most every ten seconds', async () => {
    const { rootKey } = await createWorkspace();
    const real = vi.spyOn(performance, 'now');
    const begunAt = performance.now();
    try {
      await tollgate.store.status.swept();
      const sweptAt = clock.now;
      expect((await statusOf(rootKey)).sweeper.sweptAt).toBe(sweptAt);
      clock.advance(9000);
      real.mockReturnValue(begunAt + 9000);
      await tollgate.store.status.swept();
      expect((await statusOf(rootKey)).sweeper.sweptAt).toBe(sweptAt);
      clock.advance(2000);
      real.mockReturnValue(begunAt + 12_000);
      await tollgate.store.status.swept();
      expect((await statusOf(rootKey)).sweeper.sweptAt).toBe(sweptAt + 11_000);
    } finally {
      real.mockRestore();
    }
  });
});

test('system.getStatus: sessions that may hold leases, and those that did not return theirs', async () => {
  const { rootKey, workspaceId } = await createWorkspace();
  const redis = await connect(testRedisUrl(), { commandTimeoutMs: 10_000 });
  const session = (term: number) => Buffer.concat([Buffer.from([term >> 8, term & 255]), Buffer.alloc(12)]);
  const sessions = { ['a'.repeat(16)]: session(300), ['b'.repeat(16)]: session(0), ['c'.repeat(16)]: session(1000) };
  await redis.hset(`tg:{${workspaceId}}:leases`, { ...sessions, [longestTerm]: session(1000) });
  await redis.quit();
  expect((await statusOf(rootKey)).leases).toEqual({ sessions: 2, silent: 1 });
});
