// Where the keys of an identity are stored (lua/include/identities.lua): one in its record, the others in its list.
// Callers of the API cannot tell which is where, so most tests use the API, and only a few read Redis.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connect, type RedisClient } from '../../../src/redis/connection.ts';
import { workspaceKey } from '../../../src/redis/names.ts';
import { harness, hourMs, testSettings } from '../../support/harness.ts';
import { random, seed } from '../../support/random.ts';
import { testRedisUrl } from '../../support/redis.ts';

const app = harness();
const { call, ok, clock, createKey } = app;
let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(async () => void (await redis.quit()));

const identityKey = (workspace: string, externalId: string) => `${workspace}:i:${externalId}`;
const identityKeysKey = (workspace: string, id16: string) => `${workspace}:ik:${id16}`;

let made = 0;
const newName = () => `holder.${++made}`;
const newApi = async () => (await ok('apis.createApi', { name: 'test' })).apiId;
const idOf = async (externalId: string) => (await ok('identities.getIdentity', { identity: externalId })).id;
const remove = (keyId: string, permanent = false) => ok('keys.deleteKey', { keyId, permanent });

/** The ids on all pages of an identity's keys in an API, in order. */
async function list(apiId: string, externalId: string, limit = 100): Promise<string[]> {
  const keyIds: string[] = [];
  let cursor: string | undefined;
  do {
    const { data, pagination } = await call('apis.listKeys', { apiId, externalId, limit, ...(cursor && { cursor }) });
    expect(data.length).toBeLessThanOrEqual(limit);
    for (const key of data) expect(key.externalId).toBe(externalId);
    keyIds.push(...data.map(({ keyId }) => keyId));
    cursor = pagination.cursor;
  } while (cursor);
  return keyIds;
}

/** The key in an identity's record, and the keys in its list. */
async function layout(externalId: string, identityId: string) {
  const workspace = workspaceKey(app.workspaceId);
  const [inRecord, inList] = await Promise.all([
    redis.hget(identityKey(workspace, externalId), 'key'),
    redis.zrange(identityKeysKey(workspace, identityId.slice('id_'.length)), '0', '-1'),
  ]);
  const asId = (member: string) => `key_${member.slice(8)}${member.slice(0, 8)}`;
  return { record: inRecord === null ? undefined : asId(inRecord), list: inList.map(asId) };
}

describe('where an identity’s keys are stored', () => {
  test('the first in the record, others in the list, and none moves', async () => {
    const [externalId, apiId] = [newName(), await newApi()];
    const first = await createKey({ apiId, externalId });
    const identityId = await idOf(externalId);
    expect(await layout(externalId, identityId)).toEqual({ record: first.keyId, list: [] });
    const second = await createKey({ apiId, externalId });
    const third = await ok('keys.rerollKey', { keyId: second.keyId, expiration: 0 });
    expect(await layout(externalId, identityId)).toEqual({ record: first.keyId, list: [second.keyId, third.keyId] });

    await remove(first.keyId);
    expect(await layout(externalId, identityId)).toEqual({ record: undefined, list: [second.keyId, third.keyId] });
    const fourth = await createKey({ apiId, externalId });
    expect(await layout(externalId, identityId)).toEqual({ record: fourth.keyId, list: [second.keyId, third.keyId] });
    expect(await list(apiId, externalId)).toEqual([second.keyId, third.keyId, fourth.keyId]);

    for (const { keyId } of [second, fourth, third]) await remove(keyId, true);
    expect(await layout(externalId, identityId)).toEqual({ record: undefined, list: [] });
    expect(await list(apiId, externalId)).toEqual([]);
  });

  test('many keys of one request', async () => {
    const [externalId, apiId] = [newName(), await newApi()];
    const keys = Array.from({ length: 3 }, (_, index) => ({
      hash: Buffer.alloc(32, `${externalId}${index}`).toString('base64'),
      externalId,
    }));
    const { migrated } = await ok('keys.migrateKeys', { migrationId: 'here', apiId, keys });
    const keyIds = migrated.map(({ keyId }) => keyId);
    expect(await layout(externalId, await idOf(externalId))).toEqual({ record: keyIds[0], list: keyIds.slice(1) });
    expect(await list(apiId, externalId)).toEqual(keyIds);
  });

  test('a link to another identity, and to none', async () => {
    const [one, other, apiId] = [newName(), newName(), await newApi()];
    const { keyId } = await createKey({ apiId, externalId: one });
    await ok('keys.updateKey', { keyId, externalId: other });
    expect(await layout(one, await idOf(one))).toEqual({ record: undefined, list: [] });
    expect(await layout(other, await idOf(other))).toEqual({ record: keyId, list: [] });
    // A second link to the same identity adds no entry.
    await ok('keys.updateKey', { keyId, externalId: other });
    expect(await layout(other, await idOf(other))).toEqual({ record: keyId, list: [] });
    await ok('keys.updateKey', { keyId, externalId: null });
    expect(await layout(other, await idOf(other))).toEqual({ record: undefined, list: [] });
  });

  test('all in the list once the identity is deleted, for as long as their usage is kept', async () => {
    for (const count of [1, 2]) {
      const [externalId, apiId] = [newName(), await newApi()];
      const keyIds = [];
      for (let index = 0; index < count; index++) keyIds.push((await createKey({ apiId, externalId })).keyId);
      const identityId = await idOf(externalId);
      await ok('identities.deleteIdentity', { identity: externalId });
      expect(await layout(externalId, identityId)).toEqual({ record: undefined, list: keyIds });
      const listed = identityKeysKey(workspaceKey(app.workspaceId), identityId.slice('id_'.length));
      expect(await redis.pttl(listed)).toBe(-1);
      clock.advance(testSettings.keyRetentionMs);
      while (await app.store.sweep.purge(app.workspaceId));
      expect(await redis.pttl(listed)).toBeGreaterThan(0);
    }
  });

  test('a key of a deleted identity does not affect a new identity with the same externalId', async () => {
    const [externalId, apiId] = [newName(), await newApi()];
    const old = await createKey({ apiId, externalId });
    const oldId = await idOf(externalId);
    await ok('identities.deleteIdentity', { identity: externalId });
    const { keyId } = await createKey({ apiId, externalId });
    await remove(old.keyId);
    expect(await layout(externalId, await idOf(externalId))).toEqual({ record: keyId, list: [] });
    expect((await layout(externalId, oldId)).list).toEqual([]);
  });
});

describe('listed by externalId', () => {
  test('the key in the identity’s record is listed in order of creation, on any page', async () => {
    const [externalId, apiId, other] = [newName(), await newApi(), await newApi()];
    const keyIds = [];
    for (let index = 0; index < 6; index++) {
      keyIds.push((await createKey({ apiId, externalId })).keyId);
      if (index % 2 === 0) await createKey({ apiId: other, externalId });
      clock.advance(index % 2);
    }
    // A key that was unlinked gets into the record again, before, among or after those in the list.
    for (const keyId of keyIds) {
      const { record } = await layout(externalId, await idOf(externalId));
      if (record !== keyId) {
        await ok('keys.updateKey', { keyId: record!, externalId: null });
        await ok('keys.updateKey', { keyId, externalId: null });
        await ok('keys.updateKey', { keyId, externalId });
        await ok('keys.updateKey', { keyId: record!, externalId });
      }
      expect(await layout(externalId, await idOf(externalId))).toMatchObject({ record: keyId });
      for (const limit of [1, 2, 3, 5, 6, 7]) expect(await list(apiId, externalId, limit)).toEqual(keyIds);
      expect(await list(other, externalId, 1)).toHaveLength(3);
    }
  });
});

describe('usage by externalId', () => {
  /** The number of verifications of each of its keys, in order. */
  async function usageOf(externalId: string) {
    const [start, end] = [clock.now - hourMs, clock.now + hourMs];
    const counts = await ok('analytics.getVerifications', { externalId, groupBy: ['keyId'], start, end });
    return counts.map(({ keyId, count }) => [keyId!, count] as const).sort();
  }

  test.each([1, 2])('of %i keys, while the identity exists, is deleted, and is created again', async (count) => {
    const [externalId, apiId] = [newName(), await newApi()];
    const keyIds: string[] = [];
    for (let index = 0; index < count; index++) {
      const { key, keyId } = await createKey({ apiId, externalId });
      await ok('keys.verifyKey', { key });
      keyIds.push(keyId);
    }
    const expected = keyIds.map((keyId) => [keyId, 1]);
    expect(await usageOf(externalId)).toEqual(expected);
    await ok('identities.deleteIdentity', { identity: externalId });
    expect(await usageOf(externalId)).toEqual(expected);
    const { key, keyId } = await createKey({ apiId, externalId });
    await ok('keys.verifyKey', { key });
    expect(await usageOf(externalId)).toEqual([...expected, [keyId, 1]]);
  });
});

test(`no key is lost, listed twice or in two identities (SEED=${seed})`, async () => {
  const pick = random(seed);
  const oneOf = <Item>(items: readonly Item[]): Item => items[pick(0, items.length - 1)]!;
  const people = [newName(), newName(), newName()];
  const apiIds = [await newApi(), await newApi()];
  /** The existing keys, with their identities. */
  const keys = new Map<string, { apiId: string; externalId: string | undefined }>();

  for (let step = 0; step < 150; step++) {
    clock.advance(pick(-1, 2));
    const [keyId, key] = keys.size > 0 ? oneOf([...keys]) : [undefined, undefined];
    const externalId = oneOf([...people, undefined]);
    switch (keyId === undefined ? 0 : pick(0, 7)) {
      case 0:
      case 1: {
        const apiId = oneOf(apiIds);
        keys.set((await createKey({ apiId, ...(externalId && { externalId }) })).keyId, { apiId, externalId });
        break;
      }
      case 2:
        keys.set((await ok('keys.rerollKey', { keyId: keyId!, expiration: 0 })).keyId, { ...key! });
        break;
      case 3:
      case 4:
        await ok('keys.updateKey', { keyId: keyId!, externalId: externalId ?? null });
        key!.externalId = externalId;
        break;
      case 5:
      case 6:
        await remove(keyId!, pick(0, 1) === 0);
        keys.delete(keyId!);
        break;
      case 7:
        if (pick(0, 2) > 0 || !externalId) break;
        await call('identities.deleteIdentity', { identity: externalId });
        for (const other of keys.values()) if (other.externalId === externalId) other.externalId = undefined;
    }
    const person = oneOf(people);
    const apiId = oneOf(apiIds);
    const expected = [...keys].filter(([_, of]) => of.apiId === apiId && of.externalId === person).map(([id]) => id);
    expect(await list(apiId, person, pick(1, 4)), `step ${step}`).toEqual(expected.sort());
  }

  for (const person of people) {
    const { status, data } = await call('identities.getIdentity', { identity: person });
    if (status === 404) continue;
    const { record, list: others } = await layout(person, data.id);
    const expected = [...keys].filter(([_, of]) => of.externalId === person).map(([id]) => id);
    expect(data.keyCount).toBe(expected.length);
    expect([...(record ? [record] : []), ...others].sort()).toEqual(expected.sort());
  }
});
