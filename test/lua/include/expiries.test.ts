// lua/include/expiries.lua: after any changes of keys and APIs the index has exactly the keys that have an expiry, with
// that expiry; and a migration fills it.

import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { timeMax } from '../../../src/domain/time.ts';
import { connect, type RedisClient } from '../../../src/redis/connection.ts';
import { createExpired, dayMs, harness } from '../../support/harness.ts';
import { expiryFaults } from '../../support/keyspace.ts';
import { random, seed } from '../../support/random.ts';
import { testRedisUrl } from '../../support/redis.ts';
import { snippets } from '../../support/snippet.ts';

const snippet = snippets();
const tollgate = harness();
const { clock, openWorkspace } = tollgate;
let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(async () => void (await redis.quit()));

/** A workspace, calls with its root key, and its index. */
async function openIndexed() {
  const { workspaceId, of } = await openWorkspace();
  const indexed = async (apiId: string) =>
    redis.zrange(`tg:{${workspaceId}}:ke:${apiId.slice(-8)}`, '0', '-1', 'WITHSCORES');
  const faults = () => expiryFaults(redis, workspaceId);
  return { workspaceId, of, indexed, faults };
}
type Workspace = Awaited<ReturnType<typeof openIndexed>>;

const hash = () => randomBytes(32).toString('base64');

test('a key is in the index while it has an expiry and is not deleted', async () => {
  const { workspaceId, of, indexed, faults } = await openIndexed();
  const { apiId } = await of('apis.createApi', { name: 'one' });
  const scores = async () => (await indexed(apiId)).filter((_, at) => at % 2 === 1).map(Number);
  const { keyId } = await of('keys.createKey', { apiId });
  expect(await scores()).toEqual([]);
  for (const expires of [clock.now + dayMs, 0, timeMax, clock.now - 1]) {
    await of('keys.updateKey', { keyId, expires });
    expect(await scores()).toEqual([expires]);
  }
  await of('keys.updateKey', { keyId, name: 'without an expiry in the request' });
  expect(await scores()).toEqual([clock.now - 1]);
  await of('keys.updateKey', { keyId, expires: null });
  expect(await scores()).toEqual([]);

  const { keyId: newId } = await of('keys.rerollKey', { keyId, expiration: 5000 });
  expect(await scores()).toEqual([clock.now + 5000]);
  await of('keys.updateKey', { keyId: newId, expires: clock.now + 2000 });
  // The successor expires as the old key does.
  await of('keys.rerollKey', { keyId: newId, expiration: 1000 });
  expect(await scores()).toEqual([clock.now + 1000, clock.now + 2000, clock.now + 5000]);

  await of('keys.deleteKey', { keyId });
  await of('keys.deleteKey', { keyId: newId, permanent: true });
  expect(await scores()).toEqual([clock.now + 2000]);
  await of('keys.restoreKey', { keyId });
  expect(await scores()).toEqual([clock.now + 2000, clock.now + 5000]);
  const keys = [{ hash: hash(), expires: 7 }, { hash: hash() }, { hash: hash(), expires: timeMax }];
  await of('keys.migrateKeys', { apiId, migrationId: 'unkey', keys });
  expect(await scores()).toEqual([7, clock.now + 2000, clock.now + 5000, timeMax]);
  expect(await faults()).toEqual([]);
  await of('apis.deleteApi', { apiId, permanent: true });
  expect(await scores()).toEqual([]);
  // As a server of data version 4 leaves it.
  await redis.zadd(`tg:{${workspaceId}}:ke:${apiId.slice(-8)}`, 7, 'x');
  while (await tollgate.store.sweep.purge(workspaceId));
  expect(await redis.keys(`tg:{${workspaceId}}:ke:*`)).toEqual([]);
});

/** The ids of the APIs and keys of a workspace. */
interface Ids {
  apis: string[];
  live: string[];
  deleted: string[];
}

/** One random change of keys or APIs. */
async function changeSomething({ workspaceId, of }: Workspace, pick: (min: number, max: number) => number, ids: Ids) {
  const one = <Item>(items: readonly Item[]) => items[pick(0, items.length - 1)]!;
  const expires = () => one([undefined, 0, clock.now - 1, clock.now + 1000, clock.now + pick(1, 5), timeMax]);
  const move = (keyId: string, from: string[], to?: string[]) => {
    from.splice(from.indexOf(keyId), 1);
    to?.push(keyId);
  };
  const apiId = one(ids.apis);
  const changes = {
    async create() {
      ids.live.push((await createExpired(of, { apiId, expires: expires() }, clock.now)).keyId);
    },
    async import() {
      const keys = Array.from({ length: pick(1, 4) }, () => ({ hash: hash(), expires: expires() }));
      const { migrated } = await of('keys.migrateKeys', { apiId, migrationId: 'unkey', keys });
      ids.live.push(...migrated.map(({ keyId }) => keyId));
    },
    update: async (keyId: string) => of('keys.updateKey', { keyId, expires: expires() ?? null }),
    rename: async (keyId: string) => of('keys.updateKey', { keyId, name: 'other' }),
    async reroll(keyId: string) {
      ids.live.push((await of('keys.rerollKey', { keyId, expiration: one([0, 1000, dayMs]) })).keyId);
    },
    async delete(keyId: string) {
      const permanent = pick(0, 2) === 0;
      await of('keys.deleteKey', { keyId, permanent });
      move(keyId, ids.live, permanent ? undefined : ids.deleted);
    },
    async restore() {
      const keyId = one(ids.deleted);
      if (!keyId) return;
      await of('keys.restoreKey', { keyId });
      move(keyId, ids.deleted, ids.live);
    },
    async deleteApi() {
      if (pick(0, 4) > 0) return;
      await of('apis.deleteApi', { apiId, permanent: true });
      const isKept = (keyId: string) => !keyId.endsWith(apiId.slice(-8));
      ids.live = ids.live.filter(isKept);
      ids.deleted = ids.deleted.filter(isKept);
      ids.apis.splice(ids.apis.indexOf(apiId), 1, (await of('apis.createApi', { name: 'another' })).apiId);
    },
    purge: async () => tollgate.store.sweep.purge(workspaceId),
  };
  const name = one(Object.keys(changes) as (keyof typeof changes)[]);
  const keyId = one(ids.live);
  if (changes[name].length === 0 || keyId) await changes[name](keyId!);
  clock.advance(pick(0, 2));
}
test(`it is exact after any changes (seed ${seed})`, { timeout: 60_000 }, async () => {
  const pick = random(seed);
  const workspace = await openIndexed();
  const apis = [];
  for (const name of ['one', 'two']) apis.push((await workspace.of('apis.createApi', { name })).apiId);
  const ids: Ids = { apis, live: [], deleted: [] };
  let indexed = 0;
  for (let step = 0; step < 400; step++) {
    await changeSomething(workspace, pick, ids);
    if (step % 50 === 49) for (const apiId of ids.apis) indexed += (await workspace.indexed(apiId)).length / 2;
    if (step % 20 === 19) expect(await workspace.faults(), `step ${step}`).toEqual([]);
  }
  // There was something to compare.
  expect(indexed).toBeGreaterThan(20);
});

test('a migration fills it: keys that were deleted meanwhile are removed, and a repeated step changes nothing', async () => {
  const { workspaceId, of, indexed, faults } = await openIndexed();
  const { apiId } = await of('apis.createApi', { name: 'old' });
  const workspace = `tg:{${workspaceId}}`;
  const api8 = apiId.slice(-8);
  for (const expires of [undefined, 0, clock.now + 5, timeMax, undefined, 9]) {
    await createExpired(of, { apiId, expires }, clock.now);
    clock.advance(1);
  }
  const expected = await indexed(apiId);
  // What servers of version 4 leave: keys that are missing, one with another expiry, one without any, one that is gone.
  const members = await redis.zrangeBuffer(`${workspace}:keys:${api8}`, '0', '-1');
  const ids = members.map((member) => member.subarray(0, 12));
  const index = `${workspace}:ke:${api8}`;
  await redis.zrem(index, ids[1]!);
  await redis.zadd(index, 5, ids[2]!, 6, ids[4]!, 7, Buffer.alloc(12, 1));
  expect(await faults()).toHaveLength(1);
  const run = (body: string, values: readonly (string | Buffer)[]) => snippet.run(body, workspace, values);
  await run(`remove_expiries(KEYS[1], '${api8}')`, []);
  for (const member of [...members, ...members]) {
    const record = Buffer.concat([Buffer.from(`${workspace}:k:`), member.subarray(12)]);
    const state = (await redis.hgetBuffer(record, 'state'))!;
    await run(`index_packed_state(KEYS[1], '${api8}', ARGV[1], ARGV[2])`, [member.subarray(0, 12), state]);
  }
  expect(await indexed(apiId)).toEqual(expected);
  expect(await faults()).toEqual([]);
  // A key that was deleted between the reading of the list and of its state.
  await of('keys.deleteKey', { keyId: (await of('keys.listKeys', { apiId, expiresBefore: 1 }))[0]!.keyId });
  const record = Buffer.concat([Buffer.from(`${workspace}:k:`), members[1]!.subarray(12)]);
  const state = (await redis.hgetBuffer(record, 'state'))!;
  await redis.zadd(index, 0, ids[1]!);
  await run(`index_packed_state(KEYS[1], '${api8}', ARGV[1], ARGV[2])`, [ids[1]!, state]);
  expect(await faults()).toEqual([]);
});
