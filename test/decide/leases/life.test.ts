// A process that has just connected does not wait for leases that Redis may have forgotten, if another process has seen
// that Redis is too old for that.

import { afterAll, afterEach, expect, test } from 'vitest';
import { leaseMsMax } from '../../../src/domain/leaseTerms.ts';
import { cliActor } from '../../../src/records/rootKeys.ts';
import { RedisLife } from '../../../src/redis/life.ts';
import { serversKey } from '../../../src/redis/names.ts';
import { openStore, type Store } from '../../../src/store.ts';
import { testSettings } from '../../support/harness.ts';
import { observing } from '../../support/observer.ts';
import { ownRedis } from '../../support/ownRedis.ts';

const own = ownRedis();
const stores: Store[] = [];
const closeAll = () => Promise.all(stores.splice(0).map((store) => store.close()));
afterEach(closeAll);
afterAll(closeAll);

/** A workspace of another process, which has ended. */
async function createWorkspace() {
  const store = await openStore({ ...testSettings, url: own.url, leaseMs: 0 });
  const { workspaceId } = await store.workspaces.create('changed');
  await store.close();
  return workspaceId;
}

/** A new process, and how long its changes waited. */
async function open(leaseMs: number, isComplete?: () => boolean) {
  const workspaceId = await createWorkspace();
  const waits: number[] = [];
  const observe = observing({ waited: (ms: number) => void waits.push(ms) });
  const store = await openStore({ ...testSettings, url: own.url, leaseMs, observe, isComplete });
  stores.push(store);
  const change = () => store.apis.create(workspaceId, 'new', cliActor);
  return { store, waits, change };
}

/** A server that has seen the present life, or another one, for this time. */
async function register(ms: number, name?: string) {
  const life = new RedisLife(own.redis);
  await life.look();
  await own.redis.hset(serversKey, 'server', `${Date.now()} 4 6 1.0.0 ${name ?? life.name} ${ms}`);
}

const leaseMs = 100;
/** For the longest term that a process with this setting knows of. */
const neededMs = Math.ceil(1.01 * (leaseMs + 400)) + 1;

/** For the longest that there may be. */
const oldMs = Math.ceil(1.01 * (leaseMsMax + 400)) + 1;

test.each([
  ['no process has seen it', async () => void (await own.redis.del(serversKey))],
  ['one has seen it for a shorter time than a lease may last', () => register(oldMs - 1)],
  ['one has seen another life', () => register(600_000, 'f'.repeat(32))],
])('waits if %s', async (_what, prepare) => {
  await prepare();
  const openedAt = performance.now();
  const { change } = await open(leaseMs);
  await change();
  expect(performance.now() - openedAt).toBeGreaterThanOrEqual(neededMs - 1);
});

test('does not wait if one has seen it for as long as a lease may last', async () => {
  const longMs = 60_000;
  await register(oldMs);
  const { change, waits } = await open(longMs);
  await change();
  expect(waits).toEqual([expect.any(Number)]);
  expect(waits[0]).toBeLessThan(longMs / 2);
});

test('does not wait if Redis has every write, nor does a process that starts later', async () => {
  const longMs = 60_000;
  await own.redis.del(serversKey);
  const first = await open(longMs, () => true);
  await first.change();
  const later = await open(longMs);
  await later.change();
  for (const waits of [first.waits, later.waits]) {
    expect(waits).toEqual([expect.any(Number)]);
    expect(waits[0]).toBeLessThan(longMs / 2);
  }
});

test('does not wait in a workspace that it has just created, unless it has connected again', async () => {
  await own.redis.del(serversKey);
  const { store, waits } = await open(leaseMs);
  const { workspaceId } = await store.workspaces.create('new');
  await store.apis.create(workspaceId, 'first', cliActor);
  expect(waits).toEqual([]);
  store.decide.leasing.reconnected();
  await store.apis.create(workspaceId, 'second', cliActor);
  expect(waits).toEqual([expect.any(Number)]);
});

test('waits again when it has connected again', async () => {
  await register(600_000);
  const { store, change } = await open(leaseMs);
  await change();
  const reconnectedAt = performance.now();
  store.decide.leasing.reconnected();
  await change();
  expect(performance.now() - reconnectedAt).toBeGreaterThanOrEqual(neededMs - 1);
});
