import { createHash } from 'node:crypto';
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const { clock, call, ok, createKey } = harness();

const startMs = clock.now;
const minuteMs = 60_000;
let apiId: string;
beforeAll(async () => {
  ({ apiId } = await ok('apis.createApi', { name: 'test' }));
  await ok('permissions.createRole', { name: 'editor', permissions: ['pages.write'] });
});
beforeEach(() => {
  clock.now = startMs;
});

const newKey = (input: object = {}) => createKey({ apiId, ...input });
const reroll = (keyId: string, expiration: number) => ok('keys.rerollKey', { keyId, expiration });
const tryReroll = (input: object, as?: string | string[]) => call('keys.rerollKey', input as never, as);
const read = (keyId: string) => ok('keys.getKey', { keyId });
const verify = (key: string, extras: object = {}) => ok('keys.verifyKey', { key, ...extras });

const requests = { name: 'requests', limit: 5, duration: minuteMs, autoApply: true };
const everything = {
  prefix: 'live',
  byteLength: 40,
  name: 'Alice',
  externalId: 'alice',
  meta: { '10': 1, '2': 2 },
  expires: startMs + 10 * dayMs,
  credits: { remaining: 10, refill: { interval: 'monthly', amount: 20, refillDay: 17 } },
  ratelimits: [requests, { name: 'exports', limit: 2, duration: hourMs, autoApply: false }],
  roles: ['editor'],
  permissions: ['documents.read'],
};

describe('keys.rerollKey: the new key', () => {
  test('is a copy with a new id and a new string', async () => {
    const old = await newKey(everything);
    const before = await read(old.keyId);
    clock.advance(10);
    const { keyId, key } = await reroll(old.keyId, 0);
    expect(keyId).not.toBe(old.keyId);
    expect(key).not.toBe(old.key);
    expect(await read(keyId)).toEqual({
      ...before,
      keyId,
      start: key.slice(0, 'live_'.length + 4),
      createdAt: clock.now,
      ratelimits: before.ratelimits!.map((limit) => ({ ...limit, id: expect.stringMatching(/^rl_/) })),
    });
  });

  test('is the successor in the record of the old key and of no other, in all operations that return it', async () => {
    const old = await newKey();
    const first = await reroll(old.keyId, hourMs);
    const withSuccessor = { keyId: old.keyId, successor: first.keyId };
    expect(await read(old.keyId)).toMatchObject(withSuccessor);
    expect(await ok('keys.whoami', { key: old.key })).toMatchObject(withSuccessor);
    const listed = await ok('keys.listKeys', { apiId, order: 'desc' });
    expect(listed.find(({ keyId }) => keyId === old.keyId)).toMatchObject(withSuccessor);
    expect(await read(first.keyId)).not.toHaveProperty('successor');
    const second = await reroll(first.keyId, hourMs);
    expect(await read(old.keyId)).toMatchObject(withSuccessor);
    expect(await read(first.keyId)).toMatchObject({ successor: second.keyId });
    expect(await read(second.keyId)).not.toHaveProperty('successor');
    // Of a key that was rerolled twice, the last one.
    const third = await reroll(old.keyId, hourMs);
    expect(await read(old.keyId)).toMatchObject({ successor: third.keyId });
  });

  test('has new ids for its limits', async () => {
    const old = await newKey(everything);
    const { keyId } = await reroll(old.keyId, hourMs);
    const ids = [...(await read(old.keyId)).ratelimits!, ...(await read(keyId)).ratelimits!].map(({ id }) => id);
    expect(new Set(ids).size).toBe(4);
  });

  test('has the same number of random bytes, also after another reroll', async () => {
    const old = await newKey({ byteLength: 64 });
    const first = await reroll(old.keyId, 0);
    const second = await reroll(first.keyId, 0);
    expect(second.key.length).toBeGreaterThan(64 * 1.3);
    expect(Math.abs(second.key.length - old.key.length)).toBeLessThan(3);
  });

  test('of a key without fields has none', async () => {
    const { keyId, key } = await reroll((await newKey()).keyId, 0);
    expect(await read(keyId)).toEqual({ keyId, apiId, start: key.slice(0, 4), enabled: true, createdAt: clock.now });
  });

  test('has the balance as it is, not as it was created', async () => {
    const old = await newKey({ credits: { remaining: 10 } });
    await verify(old.key, { credits: { cost: 7 } });
    const { keyId } = await reroll(old.keyId, hourMs);
    expect((await read(keyId)).credits).toEqual({ remaining: 3 });
  });

  test('has its own balance afterwards', async () => {
    const old = await newKey({ credits: { remaining: 10 } });
    const { key } = await reroll(old.keyId, hourMs);
    await verify(old.key, { credits: { cost: 7 } });
    expect(await verify(key)).toMatchObject({ credits: 9 });
    expect(await verify(old.key)).toMatchObject({ credits: 2 });
  });

  test('has the balance after a refill that was due, and is refilled itself', async () => {
    const old = await newKey({ credits: { remaining: 1, refill: { interval: 'daily', amount: 20 } } });
    clock.advance(dayMs);
    const { key, keyId } = await reroll(old.keyId, hourMs);
    expect((await read(keyId)).credits).toEqual({ remaining: 20, refill: { interval: 'daily', amount: 20 } });
    expect(await verify(key)).toMatchObject({ credits: 19 });
    clock.now = Date.UTC(2026, 0, 17);
    expect(await verify(key)).toMatchObject({ credits: 19 });
  });

  test('starts with no counts and no use', async () => {
    const old = await newKey({ ratelimits: [requests] });
    await verify(old.key, {
      ratelimits: [
        { name: 'requests', cost: 5 },
        { name: 'burst', limit: 1, duration: minuteMs },
      ],
    });
    const { key, keyId } = await reroll(old.keyId, hourMs);
    expect(await read(keyId)).not.toHaveProperty('lastUsedAt');
    expect(await read(keyId)).not.toHaveProperty('updatedAt');
    expect(
      (await verify(key, { ratelimits: [{ name: 'burst', limit: 1, duration: minuteMs }] })).ratelimits,
    ).toMatchObject([
      { name: 'requests', remaining: 4 },
      { name: 'burst', remaining: 0 },
    ]);
  });

  test('shares the counters of the identity', async () => {
    await ok('identities.createIdentity', { externalId: 'limited', ratelimits: [{ ...requests, name: 'shared' }] });
    const old = await newKey({ externalId: 'limited' });
    await verify(old.key);
    const { key } = await reroll(old.keyId, hourMs);
    expect((await verify(key)).ratelimits).toMatchObject([{ name: 'shared', remaining: 3 }]);
  });

  test('is disabled when the old one is', async () => {
    const { keyId } = await reroll((await newKey({ enabled: false })).keyId, 0);
    expect(await read(keyId)).toMatchObject({ enabled: false });
  });

  test('has the expiry that the old one had before the reroll', async () => {
    const expires = startMs + 10 * dayMs;
    const { keyId } = await reroll((await newKey({ expires })).keyId, 0);
    expect((await read(keyId)).expires).toBe(expires);
  });

  test('is listed after the old one, in the API and for the identity', async () => {
    const own = (await ok('apis.createApi', { name: 'own' })).apiId;
    const old = await createKey({ apiId: own, externalId: 'listed' });
    const { keyId } = await reroll(old.keyId, 0);
    const ids = async (externalId?: string) =>
      (await ok('apis.listKeys', { apiId: own, ...(externalId && { externalId }) })).map((record) => record.keyId);
    expect(await ids()).toEqual([old.keyId, keyId]);
    expect(await ids('listed')).toEqual([old.keyId, keyId]);
  });

  test('is kept when the old one is deleted', async () => {
    const old = await newKey({ name: 'Alice', ratelimits: [requests] });
    const { key } = await reroll(old.keyId, 0);
    await ok('keys.deleteKey', { keyId: old.keyId, permanent: true });
    expect(await verify(key)).toMatchObject({ valid: true, name: 'Alice' });
  });
});

describe('keys.rerollKey: the old key', () => {
  test('expires after the time given, to the millisecond', async () => {
    const old = await newKey();
    await reroll(old.keyId, 5000);
    expect(await read(old.keyId)).toMatchObject({ expires: startMs + 5000 });
    clock.advance(4999);
    expect(await verify(old.key)).toMatchObject({ valid: true });
    clock.advance(1);
    expect(await verify(old.key)).toMatchObject({ code: 'EXPIRED' });
  });

  test('expires immediately with 0, although it was just verified', async () => {
    const old = await newKey();
    await verify(old.key);
    await reroll(old.keyId, 0);
    expect(await verify(old.key)).toMatchObject({ code: 'EXPIRED', expires: startMs });
  });

  test('never expires later than before', async () => {
    const old = await newKey({ expires: startMs + 1000 });
    await reroll(old.keyId, 1001);
    expect(await read(old.keyId)).toMatchObject({ expires: startMs + 1000 });
    await reroll(old.keyId, 999);
    expect(await read(old.keyId)).toMatchObject({ expires: startMs + 999 });
  });

  test('expires no later than any key may', async () => {
    clock.now = 4_102_444_800_000 - hourMs;
    const { keyId } = await newKey();
    await reroll(keyId, dayMs);
    expect(await read(keyId)).toMatchObject({ expires: 4_102_444_800_000 });
  });

  test('an expired one stays expired, and so does its copy', async () => {
    const old = await newKey({ expires: 0 });
    const { key } = await reroll(old.keyId, hourMs);
    expect(await verify(old.key)).toMatchObject({ code: 'EXPIRED', expires: 0 });
    expect(await verify(key)).toMatchObject({ code: 'EXPIRED', expires: 0 });
  });

  test('does not change except for expires, updatedAt and successor', async () => {
    const old = await newKey(everything);
    await verify(old.key);
    const before = await read(old.keyId);
    clock.advance(10);
    const { keyId } = await reroll(old.keyId, 5000);
    const changed = { expires: clock.now + 5000, updatedAt: clock.now, successor: keyId };
    expect(await read(old.keyId)).toEqual({ ...before, ...changed });
  });

  test('keeps its counts', async () => {
    const old = await newKey({ ratelimits: [requests] });
    await verify(old.key);
    await reroll(old.keyId, hourMs);
    expect((await verify(old.key)).ratelimits).toMatchObject([{ remaining: 3 }]);
  });
});

describe('keys.rerollKey: refusals', () => {
  test.each<[string, object, string]>([
    ['no keyId', { keyId: undefined }, 'body.keyId'],
    ['a keyId of 2', { keyId: 'ke' }, 'body.keyId'],
    ['no expiration', { expiration: undefined }, 'body.expiration'],
    ['a null expiration', { expiration: null }, 'body.expiration'],
    ['a negative expiration', { expiration: -1 }, 'body.expiration'],
    ['half a millisecond', { expiration: 0.5 }, 'body.expiration'],
    ['an unknown field', { permanent: true }, 'body.permanent'],
  ])('400 for %s; the key stays, alone', async (_title, input, location) => {
    const old = await createKey();
    const before = await read(old.keyId);
    expect(await tryReroll({ keyId: old.keyId, expiration: 0, ...input })).toMatchObject(invalidAt(location));
    expect(await ok('apis.listKeys', { apiId: old.apiId })).toEqual([before]);
  });
});

test('keys.rerollKey: the copy can be rerolled immediately, and each string is found by its hash', async () => {
  const first = await newKey();
  const second = await reroll(first.keyId, 0);
  const third = await reroll(second.keyId, 0);
  expect(await verify(third.key)).toMatchObject({ valid: true, keyId: third.keyId });
  const keys = [first, second, third].map(({ key }) => ({ hash: createHash('sha256').update(key).digest('base64') }));
  const { failed } = await ok('keys.migrateKeys', { migrationId: 'again', apiId, keys });
  expect(failed).toEqual(keys.map(({ hash }) => hash));
});
