// The migration of stored data on a Redis Cluster: workspaces are on three masters, and the record of all data on one.

import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { connect, mastersOf, type RedisClient } from '../../src/redis/connection.ts';
import { dataKey, formKey, workspaceKey, workspacesKey } from '../../src/redis/names.ts';
import { dataVersion } from '../../src/scripts/layout.ts';
import { openStore, type Store } from '../../src/store.ts';
import { answersOf, comparable } from '../fixtures/data/answers.ts';
import { type Fixture, loadFixture, readFixture } from '../fixtures/data/make.ts';
import { testSettings } from '../support/harness.ts';
import { namesIn, survey } from '../support/keyspace.ts';
import { redisNodes } from '../support/redisNodes.ts';

const nodes = redisNodes();
const fixture: Fixture = readFixture(4);
const [{ workspaceId: original }] = fixture.workspaces as [Fixture['workspaces'][number]];
let url: string;
let redis: RedisClient;
const stores: Store[] = [];

beforeAll(async () => {
  ({ url } = await nodes.startCluster());
  redis = await connect(url, { commandTimeoutMs: 5000 });
}, 180_000);
afterEach(async () => {
  for (const store of stores.splice(0)) await store.close();
});
afterAll(async () => {
  redis.disconnect();
  await nodes.stop();
});

async function open(): Promise<Store> {
  const store = await openStore({ ...testSettings, url, nowMs: () => fixture.nowMs });
  stores.push(store);
  return store;
}

/** The master of a workspace, by its first slot. */
async function homeOf(workspaceId: string): Promise<number> {
  const slot = (await mastersOf(redis)[0]!.cluster('KEYSLOT', workspaceKey(workspaceId))) as number;
  return slot < 5461 ? 0 : slot < 10_923 ? 1 : 2;
}

/** Copies of the first workspace under other ids: two on each master. */
async function addCopies(): Promise<string[]> {
  const prefix = workspaceKey(original);
  const records = fixture.records.filter(([name]) => name.toString('latin1').startsWith(prefix));
  const copies: string[] = [];
  const perMaster = [0, 0, 0];
  for (let number = 111; copies.length < 6; number++) {
    const workspaceId = `ws_${'2'.repeat(13)}${number}`.replaceAll('0', 'z');
    const home = await homeOf(workspaceId);
    if (perMaster[home]! === 2) continue;
    perMaster[home]!++;
    copies.push(workspaceId);
    for (const [name, expires, dump] of records) {
      const copied = Buffer.concat([Buffer.from(workspaceKey(workspaceId)), name.subarray(prefix.length)]);
      await redis.restore(copied, expires ? 86_400_000 : 0, dump);
    }
    await redis.zadd(workspacesKey, String(fixture.nowMs + number), workspaceId);
  }
  return copies;
}

/** What a record holds, in an order that does not depend on the node. */
async function contentOf(name: Buffer): Promise<string> {
  const type = await redis.type(name);
  const texts = (all: Buffer[]) => all.map((each) => each.toString('latin1'));
  if (type === 'set') return JSON.stringify(texts(await redis.smembersBuffer(name)).sort());
  if (type !== 'hash') return (await redis.dumpBuffer(name))!.toString('latin1');
  const flat = texts((await redis.callBuffer('HGETALL', name)) as Buffer[]);
  const fields = flat.flatMap((field, at) => (at % 2 === 0 ? [[field, flat[at + 1]!]] : []));
  return JSON.stringify(fields.sort());
}

/** The records of a workspace: names without the workspace, and contents. The place of the migration is left out. */
async function recordsOf(workspaceId: string): Promise<string[]> {
  const prefix = workspaceKey(workspaceId);
  const names = (await namesIn(redis)).filter((name) => name.toString('latin1').startsWith(prefix));
  const records = names.map(async (name) => {
    const rest = name.toString('latin1', prefix.length);
    return rest === ':data' ? '' : `${rest} ${await contentOf(name)}`;
  });
  return (await Promise.all(records)).filter((record) => record !== '').sort();
}

test('data of version 4 on three masters is migrated, also by a second server after a first one stopped midway', async () => {
  await loadFixture(redis, fixture);
  const copies = await addCopies();
  const before = await recordsOf(original);
  for (const copy of copies) expect(await recordsOf(copy)).toEqual(before);
  const expected = fixture.answers.map(comparable);
  const first = await open();
  expect(first.dataVersion.current).toBe(4);
  expect(await answersOf(first, fixture)).toEqual(expected);
  const plan = await first.migrations.plan();
  expect(plan.workspaces).toBe(fixture.workspaces.length + 1 + copies.length);

  const placesOf = () => Promise.all(copies.map((copy) => redis.hget(`${workspaceKey(copy)}:data`, 'at')));
  let hasEnded = false;
  const isStopped = () => hasEnded;
  const stopping = first.migrations.migrate({ force: true, isStopped });
  while (!hasEnded) hasEnded = (await placesOf()).includes('end');
  expect(await stopping).toBe('stopped');
  // Some workspaces are migrated, and others are not.
  const places = await placesOf();
  expect(places.some((place) => place === 'end')).toBe(true);
  expect(places.some((place) => place !== 'end')).toBe(true);
  await first.close();
  stores.pop();

  const second = await open();
  expect(second.dataVersion).toMatchObject({ current: 4, migration: { from: 4, to: 5, total: plan.records } });
  expect(await answersOf(second, fixture)).toEqual(expected);
  const reported: number[] = [];
  expect(await second.migrations.migrate({ force: true, onProgress: ({ done }) => reported.push(done) })).toBe(
    'migrated',
  );
  expect(second.dataVersion).toMatchObject({ current: dataVersion, migration: undefined });
  expect(await Promise.all([redis.hget(dataKey, 'version'), redis.get(formKey)])).toEqual([
    `${dataVersion}`,
    `${dataVersion}`,
  ]);
  expect(Math.max(...reported)).toBe(plan.records);
  expect(await answersOf(second, fixture)).toEqual(expected);

  const after = await recordsOf(original);
  expect(after.filter((record) => record.startsWith(':ke:')).length).toBeGreaterThan(0);
  for (const copy of copies) expect(await recordsOf(copy)).toEqual(after);
  expect((await survey(redis)).wrong).toEqual([]);
}, 180_000);
