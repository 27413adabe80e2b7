import { createHash } from 'node:crypto';
import { beforeEach, describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs, testSettings } from '../../support/harness.ts';

const app = harness();
const { clock, call, ok, createKey } = app;

const startMs = clock.now;
beforeEach(() => {
  clock.now = startMs;
});

async function purge() {
  while (await app.store.sweep.purge(app.workspaceId));
}
const digestOf = (key: string) => createHash('sha256').update(key).digest('base64');

const limits = [
  { name: 'requests', limit: 3, duration: hourMs, autoApply: true },
  { name: 'tokens', limit: 99, duration: hourMs },
];

/** A key with all fields. */
async function createWhole() {
  const name = `restored.${Math.random()}`.replace('0.', '');
  await ok('permissions.createRole', { name });
  return createKey({
    prefix: 'pk',
    byteLength: 20,
    name,
    externalId: name,
    meta: { b: 1, a: [null, 'ü'] },
    expires: clock.now + 40 * dayMs,
    credits: { remaining: 9, refill: { interval: 'monthly', amount: 5, refillDay: 31 } },
    ratelimits: limits,
    roles: [name],
    permissions: [`${name}.read`],
  });
}

describe('keys.restoreKey: 200', () => {
  test('the key has all its fields again, and its string verifies', async () => {
    const { apiId, keyId, key } = await createWhole();
    await ok('keys.verifyKey', { key });
    await ok('keys.updateKey', { keyId, enabled: true });
    const before = await ok('keys.getKey', { keyId });
    await ok('keys.deleteKey', { keyId });
    clock.advance(dayMs);
    expect(await call('keys.restoreKey', { keyId })).toMatchObject({ status: 200, data: {} });
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
    expect(await ok('keys.whoami', { key })).toEqual(before);
    expect(await ok('apis.listKeys', { apiId })).toEqual([before]);
    expect(await ok('apis.listKeys', { apiId, externalId: before.externalId! })).toEqual([before]);
    expect(await ok('keys.listKeys', { deleted: true, apiId })).toEqual([]);
    expect(await ok('keys.verifyKey', { key, permissions: String((before.permissions as string[])[0]) })).toMatchObject(
      {
        valid: true,
        credits: 7,
      },
    );
  });

  test('limits have what they had counted', async () => {
    const { keyId, key } = await createKey({ ratelimits: limits });
    for (let index = 0; index < 3; index++) await ok('keys.verifyKey', { key });
    await ok('keys.deleteKey', { keyId });
    await ok('keys.restoreKey', { keyId });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: false, code: 'RATE_LIMITED' });
    clock.advance(2 * hourMs);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
  });

  test('usage before the deletion is counted once, by key, API and externalId', async () => {
    const { apiId, keyId, key } = await createKey({ externalId: 'counted' });
    await ok('keys.verifyKey', { key });
    clock.advance(hourMs);
    await ok('keys.verifyKey', { key });
    await ok('keys.deleteKey', { keyId });
    await ok('keys.restoreKey', { keyId });
    await ok('keys.verifyKey', { key });
    for (const filter of [{ apiId }, { keyId }, { apiId, externalId: 'counted' }]) {
      const rows = await ok('analytics.getVerifications', { ...filter, groupBy: ['keyId', 'externalId'] });
      expect(rows.map(({ count }) => count)).toEqual([1, 2]);
    }
  });

  test('a refill that was due meanwhile applies, and the sweeper refills the key again', async () => {
    const { keyId } = await createKey({ credits: { remaining: 1, refill: { interval: 'daily', amount: 10 } } });
    await ok('keys.deleteKey', { keyId });
    clock.advance(dayMs);
    await ok('keys.restoreKey', { keyId });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ credits: { remaining: 10 } });
    await ok('keys.updateCredits', { keyId, operation: 'set', value: 0 });
    clock.advance(dayMs);
    await app.store.sweep.refill(app.workspaceId);
    clock.advance(-dayMs);
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ credits: { remaining: 10 } });
  });

  test('a key whose identity was deleted meanwhile is valid without it', async () => {
    const { apiId, keyId, key } = await createKey({ externalId: 'leaver' });
    await ok('keys.deleteKey', { keyId });
    await ok('identities.deleteIdentity', { identity: 'leaver' });
    await ok('identities.createIdentity', { externalId: 'leaver' });
    await ok('keys.restoreKey', { keyId });
    const restored = await ok('keys.verifyKey', { key });
    expect(restored.valid).toBe(true);
    expect(restored).not.toHaveProperty('identity');
    expect(await ok('apis.listKeys', { apiId, externalId: 'leaver' })).toEqual([]);
  });

  test('the sweeper keeps a restored key, also after the retention of its deletion', async () => {
    const { keyId, key } = await createKey();
    await ok('keys.deleteKey', { keyId });
    await ok('keys.restoreKey', { keyId });
    clock.advance(testSettings.keyRetentionMs + 1);
    await purge();
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
  });

  test('works again after another deletion, and as long as the record is kept', async () => {
    const { keyId, key } = await createKey();
    for (let round = 0; round < 2; round++) {
      await ok('keys.deleteKey', { keyId });
      clock.advance(testSettings.keyRetentionMs - 1);
      await purge();
      await ok('keys.restoreKey', { keyId });
      expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
    }
    await ok('keys.deleteKey', { keyId, permanent: true });
    expect((await call('keys.restoreKey', { keyId })).status).toBe(404);
  });

  test('does not change the number of records, so it works in a full workspace', async () => {
    const { keyId } = await createKey();
    const before = await app.store.sweep.count(app.workspaceId);
    await ok('keys.deleteKey', { keyId });
    await ok('keys.restoreKey', { keyId });
    expect(await app.store.sweep.count(app.workspaceId)).toBe(before);
  });
});

describe('keys.restoreKey: 404', () => {
  const restore = (keyId: string, as?: string | string[]) => call('keys.restoreKey', { keyId }, as);
  const notFound = { status: 404, code: 'key_not_found' };

  test('a key that is unknown, not deleted, or restored already', async () => {
    const { keyId } = await createKey();
    expect(await restore('key_unknown')).toMatchObject(notFound);
    expect(await restore(keyId)).toMatchObject(notFound);
    await ok('keys.deleteKey', { keyId });
    await ok('keys.restoreKey', { keyId });
    expect(await restore(keyId)).toMatchObject(notFound);
  });

  test('a key that was deleted permanently, or whose record was removed', async () => {
    const [permanent, kept] = [await createKey(), await createKey()];
    await ok('keys.deleteKey', { keyId: permanent.keyId, permanent: true });
    expect(await restore(permanent.keyId)).toMatchObject(notFound);
    await ok('keys.deleteKey', { keyId: kept.keyId });
    clock.advance(testSettings.keyRetentionMs);
    await purge();
    expect(await restore(kept.keyId)).toMatchObject(notFound);
    expect(await ok('keys.listKeys', { deleted: true, apiId: kept.apiId })).toEqual([]);
  });

  test('a key of a deleted API, before and after its keys are removed', async () => {
    const { apiId, keyId } = await createKey();
    await createKey({ apiId });
    await ok('keys.deleteKey', { keyId });
    await ok('apis.deleteApi', { apiId });
    expect(await restore(keyId)).toMatchObject(notFound);
    await purge();
    expect(await restore(keyId)).toMatchObject(notFound);
  });

  test('a key whose string was imported again after its record was removed', async () => {
    const { apiId, keyId, key } = await createKey();
    await ok('keys.deleteKey', { keyId });
    clock.advance(testSettings.keyRetentionMs);
    await purge();
    const keys = [{ hash: digestOf(key) }];
    const { migrated } = await ok('keys.migrateKeys', { migrationId: 'again', apiId, keys });
    expect(migrated).toHaveLength(1);
    expect(await restore(keyId)).toMatchObject(notFound);
    expect(await ok('keys.whoami', { key })).toMatchObject({ keyId: migrated[0]!.keyId });
  });
});

describe('counters of ad hoc limits', () => {
  const gpt = { name: 'gpt', limit: 100, period: 'month' };
  const minute = { name: 'gpt', limit: 100, duration: 60_000 };
  const verify = (key: string, limit: object, extras: object = {}) =>
    ok('keys.verifyKey', { key, ratelimits: [{ ...limit, cost: 90 }], ...extras } as never);

  test.each([
    ['quota', gpt],
    ['window', minute],
  ])('of a %s have what was charged before: a hold gives back nothing of others', async (_title, limit) => {
    const { keyId, key } = await createKey();
    const { hold } = await verify(key, limit, { hold: { ttl: 600_000 } });
    await ok('keys.deleteKey', { keyId });
    await ok('keys.restoreKey', { keyId });
    expect(await verify(key, limit)).toMatchObject({ code: 'RATE_LIMITED' });
    await ok('keys.releaseHold', { holdId: hold!.id });
    expect(await verify(key, limit)).toMatchObject({ code: 'VALID' });
    expect(await verify(key, limit)).toMatchObject({ code: 'RATE_LIMITED' });
  });
});
