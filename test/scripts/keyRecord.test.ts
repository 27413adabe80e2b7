// Common values that a key's record omits: the creation time that is in the id, and the default length of a key string.

import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { digestOf } from '../../src/domain/keyString.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { workspaceKey } from '../../src/redis/names.ts';
import { harness, hourMs } from '../support/harness.ts';
import { keyWithAll, makeExampleRecords } from '../support/keyExamples.ts';
import { keyspace } from '../support/keyspace.ts';
import { testRedisUrl } from '../support/redis.ts';

const app = harness();
const { ok, clock, createKey } = app;
let redis: RedisClient;
let apiId: string;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
  ({ apiId } = await ok('apis.createApi', { name: 'test' }));
});
afterAll(async () => void (await redis.quit()));

const field = (digest: Buffer, name: string) =>
  redis.hget(Buffer.concat([Buffer.from(`${workspaceKey(app.workspaceId)}:k:`), digest]), name);
const createdAt = async (keyId: string) => (await ok('keys.getKey', { keyId })).createdAt;
const exported = async (digest: Buffer) =>
  (await app.store.keys.export(app.workspaceId, { apiId, count: 1000 }))!.items.find((key) =>
    key.digest.equals(digest),
  );

/** A key that is imported. */
async function bring(of: { created?: number; keptId?: string; byteLength?: number; formerLink?: string }) {
  const digest = randomBytes(32);
  const keys = [{ digest, start: '', ...of }];
  const result = await app.store.keys.create(app.workspaceId, { apiId, keys, mayCreatePermissions: false }, cliActor);
  if (!('created' in result)) throw new Error(result.refused);
  return { digest, keyId: result.created[0]! };
}

describe('the successor of a rerolled key', () => {
  /** Fields that a successor does not copy, with the reason. */
  const notCopied = {
    state: 'its own id and version, and limits with empty windows',
    start: 'its own string',
    created: 'its own',
    updated: 'it was not updated yet',
    migration: 'it was created here',
    successor: 'it has none yet',
    drawsOn: 'it has its own balance',
    drawnBy: 'keys draw on it only if the balance is moved',
    leased: 'servers hold none of it',
    merged: 'the first verification merges the limits of its plan',
    shifted: 'nothing was charged to its windows yet',
    moved: 'it stays in its workspace',
    formerLink: 'its identity was not deleted',
    formerPlan: 'it was not deleted',
    holds: 'they stay with the old key',
    'holds<n>': 'as holds',
  };
  const names = async (digest: Buffer) =>
    redis.hkeys(Buffer.concat([Buffer.from(`${workspaceKey(app.workspaceId)}:k:`), digest]));

  test('has every field of the old key except the ones listed above', async () => {
    const entry = keyspace.find(({ name }) => name === ':k:<digest>')!;
    await makeExampleRecords(ok);
    const { key, keyId } = await createKey({ apiId, prefix: 'pk', byteLength: 20, ...keyWithAll(0) });
    const copied = entry.fields!.filter((field) => !(field in notCopied));
    // If this fails after a field was added: copy it in reroll.lua, or add it to `notCopied`.
    expect((await names(digestOf(key))).sort()).toEqual([...copied, 'start', 'state'].sort());
    const successor = await ok('keys.rerollKey', { keyId, expiration: 0 });
    expect((await names(digestOf(successor.key))).sort()).toEqual([...copied, 'start', 'state'].sort());
    for (const name of copied)
      expect(await field(digestOf(successor.key), name)).toBe(await field(digestOf(key), name));
  });
});

describe('when it was created', () => {
  test('is the time in its id', async () => {
    const { key, keyId } = await createKey({ apiId });
    expect(await createdAt(keyId)).toBe(clock.now);
    expect(await field(digestOf(key), 'created')).toBeNull();
    clock.advance(5);
    const successor = await ok('keys.rerollKey', { keyId, expiration: 0 });
    expect(await createdAt(successor.keyId)).toBe(clock.now);
    expect(await field(digestOf(successor.key), 'created')).toBeNull();
    expect(await createdAt(keyId)).toBe(clock.now - 5);
  });

  test('is the time by the clock, also after it stepped back', async () => {
    const { keyId } = await createKey({ apiId });
    clock.advance(-hourMs);
    const back = clock.now;
    const second = await createKey({ apiId });
    expect(await field(digestOf(second.key), 'created')).toBe(`${back}`);
    const third = await ok('keys.rerollKey', { keyId, expiration: 0 });
    expect(await field(digestOf(third.key), 'created')).toBe(`${back}`);
    clock.advance(hourMs);
    for (const later of [second, third]) expect(await createdAt(later.keyId)).toBe(back);
    const listed = await ok('apis.listKeys', { apiId });
    for (const { keyId: id, createdAt: at } of listed.slice(-2)) expect([id, at]).toEqual([id, back]);
    expect(await createdAt(keyId)).toBe(clock.now);
  });

  test('is the time in an import, with a new id or with the imported one', async () => {
    const { keyId } = await createKey({ apiId });
    await ok('keys.deleteKey', { keyId, permanent: true });
    for (const [brought, created] of [
      [await bring({ created: 12_345 }), 12_345],
      [await bring({ created: 0 }), 0],
      [await bring({}), clock.now],
    ] as const) {
      expect(await createdAt(brought.keyId)).toBe(created);
      expect((await exported(brought.digest))!.createdAt).toBe(created);
    }
    const madeAt = clock.now;
    clock.advance(hourMs);
    const kept = await bring({ keptId: keyId, created: madeAt });
    expect(kept.keyId).toBe(keyId);
    expect(await createdAt(keyId)).toBe(madeAt);
    expect(await field(kept.digest, 'created')).toBeNull();
    await ok('keys.deleteKey', { keyId, permanent: true });
    // Without a time in the import it is now, for any id.
    await bring({ keptId: keyId });
    expect(await createdAt(keyId)).toBe(clock.now);
  });

  test('any id that an import may bring can be read', async () => {
    for (const time of ['11111111', 'zzzzzzzz', '1pA8QDz9']) {
      const keptId = `key_${time}zzzzzzzz${apiId.slice(-8)}`;
      await bring({ keptId, created: 7 });
      expect(await createdAt(keptId)).toBe(7);
    }
  });
});

test('an imported key of an identity that was deleted when it was exported, and exists here, is in its list', async () => {
  const externalId = 'came.back';
  const { identityId } = await ok('identities.createIdentity', { externalId });
  const { keyId } = await bring({ formerLink: identityId.slice('id_'.length) + externalId });
  expect(await ok('keys.getKey', { keyId })).toMatchObject({ externalId });
  expect((await ok('apis.listKeys', { apiId, externalId })).map(({ keyId: id }) => id)).toEqual([keyId]);
});

describe('how many random bytes its string has', () => {
  test.each([
    ['as many as by default', {}, 16, null],
    ['another number', { byteLength: 40 }, 40, '40'],
  ])('%s, also in its successor', async (_, input, byteLength, written) => {
    const { key, keyId } = await createKey({ apiId, ...input });
    const successor = await ok('keys.rerollKey', { keyId, expiration: 0 });
    for (const string of [key, successor.key]) {
      expect(await field(digestOf(string), 'bytes')).toBe(written);
      expect((await exported(digestOf(string)))!.byteLength).toBe(byteLength);
    }
    expect(Math.abs(successor.key.length - key.length)).toBeLessThan(3);
  });

  test('an unknown length is not the default, but its successor has the default', async () => {
    const { digest, keyId } = await bring({});
    expect((await exported(digest))!.byteLength).toBeUndefined();
    const successor = await ok('keys.rerollKey', { keyId, expiration: 0 });
    expect(Math.abs(successor.key.length - 28)).toBeLessThan(3);
    expect((await exported(digestOf(successor.key)))!.byteLength).toBeUndefined();
  });
});
