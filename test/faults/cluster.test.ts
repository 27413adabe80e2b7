// Redis Cluster with three masters that this file starts: every operation on it, and a slot that moves under load.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operations } from '../../src/operations/index.ts';
import { connect } from '../../src/redis/connection.ts';
import { sweptKey, workspaceKey } from '../../src/redis/names.ts';
import { runCli } from '../support/cli.ts';
import { exampleOf, makeThings } from '../support/examples.ts';
import { harness } from '../support/harness.ts';
import { freePort, type RedisNode, redisNodes, until } from '../support/redisNodes.ts';
import { serveStore } from '../support/serving.ts';
import { longTest } from '../support/testIf.ts';
import { report } from './report.ts';
import { confirmed, expectAnswered, firstSuccessAfter, limit, openTenants, type Tenant } from './tenants.ts';
import type { Timed } from './timed.ts';

const redis = redisNodes();
let masters: RedisNode[];
let url: string;

beforeAll(async () => {
  ({ masters, url } = await redis.startCluster({ configuration: ['--appendonly', 'yes'] }));
});
afterAll(redis.stop);

const slotOf = (workspaceId: string) =>
  masters[0]!.admin.cluster('KEYSLOT', workspaceKey(workspaceId)) as Promise<number>;

/** The master that has a slot at first. */
const homeOf = (slot: number) => masters[slot < 5461 ? 0 : slot < 10_923 ? 1 : 2]!;

describe('every operation', () => {
  const tollgate = harness(() => url);
  /** One workspace on each master. */
  const workspaces: { workspaceId: string; rootKey: string }[] = [];

  beforeAll(async () => {
    const seen = new Set<RedisNode>();
    while (seen.size < masters.length) {
      const workspace = await tollgate.createWorkspace();
      const home = homeOf(await slotOf(workspace.workspaceId));
      if (!seen.has(home)) workspaces.push(workspace);
      seen.add(home);
    }
  });

  /** The index of a workspace on this master. */
  async function indexOf(master: RedisNode, isThere = true): Promise<number> {
    const slots = await Promise.all(workspaces.map(({ workspaceId }) => slotOf(workspaceId)));
    return slots.findIndex((slot) => (homeOf(slot) === master) === isThere);
  }
  const indexOfOther = (master: RedisNode) => indexOf(master, false);

  test.each(operations.map(({ name }) => name))('%s', async (name) => {
    for (const { rootKey } of workspaces) {
      const things = await makeThings(tollgate.call, rootKey);
      const { status, error } = await tollgate.call(name, exampleOf(name).input(things), rootKey);
      expect(error).toBeUndefined();
      expect(status).toBe(200);
    }
  });

  test('a key reads itself, wherever its workspace is', async () => {
    const server = await serveStore(tollgate.store);
    const keys: string[] = [];
    for (const { rootKey } of workspaces) {
      await tollgate.ok('workspace.updateSettings', { me: {} }, rootKey);
      const { apiId } = await tollgate.ok('apis.createApi', { name: 'itself' }, rootKey);
      keys.push((await tollgate.ok('keys.createKey', { apiId, name: rootKey.slice(5, 21) }, rootKey)).key!);
    }
    const me = async (key: string) => {
      const response = await fetch(`${server.url}/v2/me`, { headers: { authorization: `Bearer ${key}` } });
      const { data } = (await response.json()) as { data?: { name: string } };
      return [response.status, data?.name];
    };
    const names = workspaces.map(({ rootKey }) => [200, rootKey.slice(5, 21)]);
    expect(await Promise.all(keys.map(me))).toEqual(names);
    expect(await me('unknown')).toEqual([401, undefined]);
    await server.close();
  });

  test('the list of workspaces, the sweeper’s steps, and readiness', async () => {
    const { store } = tollgate;
    const listed = (await store.workspaces.list()).map(({ workspaceId }) => workspaceId);
    for (const { workspaceId } of workspaces) {
      expect(listed).toContain(workspaceId);
      expect(await store.sweep.refill(workspaceId)).toBe(false);
      expect(await store.sweep.purge(workspaceId)).toBe(false);
    }
    await store.ready();
  });

  longTest(
    'system.getStatus and `doctor` report a master that is lost',
    async () => {
      for (const { admin } of masters) await admin.config('SET', 'cluster-require-full-coverage', 'no');
      // It has the time of the last sweep as well.
      const lost = homeOf((await masters[0]!.admin.cluster('KEYSLOT', sweptKey)) as number);
      const { rootKey } = workspaces[await indexOfOther(lost)]!;
      const checks = async () => (await tollgate.call('system.getStatus', {}, rootKey)).data.redis?.checks;
      lost.process.kill('SIGSTOP');
      const silent = {
        check: 'redis',
        status: 'fault',
        found: expect.stringMatching(/^node \d of 3: does not reply\.$/),
      };
      await expect.poll(checks, { timeout: 15_000 }).toContainEqual(expect.objectContaining(silent));
      lost.process.kill('SIGKILL');
      const missing = {
        check: 'cluster',
        status: 'fault',
        found: expect.stringMatching(/^546[12] of 16384 slots have no master that replies$/),
      };
      await expect.poll(checks, { timeout: 10_000 }).toContainEqual(expect.objectContaining(missing));
      // A server that starts now connects, whichever node it asks first.
      for (let times = 1; times <= 10; times++) (await connect(url, { commandTimeoutMs: 1000 })).disconnect();
      const { code, out } = await runCli(['doctor'], { REDIS_URL: url });
      expect({ code, out }).toEqual({ code: 1, out: expect.stringMatching(/546[12] of 16384 slots have no master/) });
      lost.restart();
      await until(
        'all is well again',
        20_000,
        async () =>
          (await tollgate.call('apis.createApi', { name: 'back' }, workspaces[await indexOf(lost)]!.rootKey)).status ===
          200,
      );
    },
    60_000,
  );

  test('scripts flushed on every node are loaded again without an error to a caller', async () => {
    for (const { admin } of masters) await admin.function('FLUSH');
    for (const { rootKey } of workspaces) {
      expect((await tollgate.call('apis.createApi', { name: 'again' }, rootKey)).status).toBe(200);
      expect((await tollgate.call('keys.verifyKey', { key: 'none' }, rootKey)).status).toBe(200);
    }
    const scripts = await Promise.all(masters.map(({ admin }) => admin.info('memory')));
    for (const text of scripts) expect(text).not.toContain('number_of_functions:0\r');
    report({
      order: '5.1',
      fault: 'Redis Cluster instead of one Redis',
      expected: 'every operation answers as it should, for workspaces on every master',
      measured: `${operations.length} operations × ${workspaces.length} masters; scripts loaded again on ${masters.length} nodes`,
    });
  });
});

longTest(
  'a slot moves under load: its workspaces get correct responses or 503, others are not affected, and all counts agree',
  async () => {
    // A long timeout: no request times out, so a request with 503 was not charged.
    const commandTimeoutMs = 10_000;
    const tenants = await openTenants(url, commandTimeoutMs);
    const moved = await tenants.createTenant();
    const slot = await slotOf(moved.workspaceId);
    const from = homeOf(slot);
    const to = masters.find((node) => node !== from)!;
    const other = await (async () => {
      for (;;) {
        const tenant = await tenants.createTenant();
        if (homeOf(await slotOf(tenant.workspaceId)) === to) return tenant;
      }
    })();
    for (let name = 0; name < 200; name++) await tenants.ok('apis.createApi', moved.rootKey, { name: `api ${name}` });

    const loads = [moved, other].map((tenant) => tenants.load(tenant));
    const answersOf = ({ verified }: Tenant) => verified.length;
    await until('load', 10_000, async () => answersOf(moved) > 60);
    const [fromId, toId] = await Promise.all([from, to].map(({ admin }) => admin.cluster('MYID') as Promise<string>));

    const movingAtMs = performance.now();
    await to.admin.cluster('SETSLOT', slot, 'IMPORTING', fromId!);
    await from.admin.cluster('SETSLOT', slot, 'MIGRATING', toId!);
    // The move pauses twice: with the workspace's own record here and the rest there, and the other way round.
    const names = (await from.admin.callBuffer('CLUSTER', 'GETKEYSINSLOT', slot, 1_000_000)) as Buffer[];
    const own = Buffer.from(workspaceKey(moved.workspaceId));
    const rest = names.filter((name) => !name.equals(own));
    const half = rest.length >> 1;
    const migrate = (batch: Buffer[]) =>
      from.admin.call('MIGRATE', '127.0.0.1', to.port, '', 0, 5000, 'KEYS', ...batch) as Promise<string>;
    const underLoad = async () => {
      const before = answersOf(moved);
      await until('requests meanwhile', 20_000, async () => answersOf(moved) > before + 20);
    };
    await migrate(rest.slice(0, half));
    await underLoad();
    await migrate([own]);
    await underLoad();
    await migrate(rest.slice(half));
    for (const { admin } of [to, from, ...masters]) await admin.cluster('SETSLOT', slot, 'NODE', toId!);
    const movedAtMs = performance.now();

    await until('all is well again', 10_000, async () => firstSuccessAfter(movedAtMs, moved.verified) !== undefined);
    await until('the limits are used up', 20_000, async () =>
      [moved, other].every(({ limited, checked }) => Math.min(limited.length, checked.length) > limit + 100),
    );
    for (const load of loads) await load.stop();

    const { answered, refused, longestMs } = expectAnswered(moved, commandTimeoutMs);
    expect(refused).toBeGreaterThan(0);
    expect(expectAnswered(other, commandTimeoutMs).refused).toBe(0);
    for (const tenant of [moved, other]) {
      expect(await tenants.stored(tenant)).toEqual({ ...confirmed(tenant), limited: limit, checked: limit });
    }
    expect((await tenants.ok('apis.createApi', moved.rootKey, { name: 'after' })).apiId).toMatch(/^api_/);
    await tenants.close();

    const backMs = firstSuccessAfter(movedAtMs, moved.verified)! - movedAtMs;
    report({
      order: '5.3',
      fault: 'A slot moves from one master to another during verification load',
      expected:
        'responses of 200 are correct and charged once, those of 503 are not charged; other workspaces are not affected',
      measured: `${names.length} names moved in ${Math.round(movedAtMs - movingAtMs)} ms: ${answered} answered, ${refused} refused, none after ${longestMs} ms; first success ${Math.round(backMs)} ms after the move; ${limit} of ${limit} admitted by each limit; other workspace: 0 refused`,
    });
  },
  60_000,
);

test('a Redis that is not a complete Cluster is refused at the start, with the reason', async () => {
  const alone = await redis.startNode();
  const busPort = await freePort();
  const slotless = await redis.startNode(() => ['--cluster-enabled', 'yes', '--cluster-port', String(busPort)]);
  const closed = await freePort();
  const to = ({ port }: { port: number }) => connect(`redis+cluster://127.0.0.1:${port}`, { commandTimeoutMs: 500 });
  await expect(to(alone)).rejects.toThrow(/^Cannot reach Redis: .*cluster support disabled/);
  await expect(to(slotless)).rejects.toThrow(/^Cannot reach Redis: /);
  await alone.admin.config('SET', 'requirepass', 'secret');
  const wrong = connect(`redis+cluster://:wrong@127.0.0.1:${alone.port}`, { commandTimeoutMs: 500 });
  await expect(wrong).rejects.toThrow(/^Cannot reach Redis: .*WRONGPASS/);
  await expect(to({ port: closed })).rejects.toThrow(/^Cannot reach Redis: .*ECONNREFUSED/);
});

test('with every node down requests are refused immediately, and served when they are back', async () => {
  const commandTimeoutMs = 1000;
  const tenants = await openTenants(url, commandTimeoutMs);
  const tenant = await tenants.createTenant();
  const load = tenants.load(tenant);
  await until('load', 10_000, async () => tenant.verified.length > 20);
  for (const { process } of masters) process.kill('SIGKILL');
  const goneAtMs = performance.now();
  const isRefused = ({ status, atMs }: Timed) => status === 503 && atMs > goneAtMs + 500;
  await until('requests meanwhile', 10_000, async () => tenant.verified.filter(isRefused).length > 100);
  const backAtMs = performance.now();
  for (const node of masters) node.restart();
  await until('all is well again', 20_000, async () => firstSuccessAfter(backAtMs, tenant.verified) !== undefined);
  await load.stop();
  const { answered, refused, longestMs } = expectAnswered(tenant, commandTimeoutMs);
  await tenants.close();
  const backMs = firstSuccessAfter(backAtMs, tenant.verified)! - backAtMs;
  report({
    order: '5.3b',
    fault: 'All nodes of the Cluster killed (kill -9) during verification load, and started again',
    expected: 'each request 200 or 503 within the command timeout; well again by itself',
    measured: `${answered} answered, ${refused} refused, none after ${longestMs} ms; first success ${Math.round(backMs)} ms after the start of the nodes`,
  });
});
