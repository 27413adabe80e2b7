import { createHash } from 'node:crypto';
import { beforeEach, describe, expect, test } from 'vitest';
import { dayMs, harness, testSettings } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const app = harness();
const { clock, call, ok, createKey } = app;

const startMs = clock.now;
beforeEach(() => {
  clock.now = startMs;
});

const remove = (input: object, as?: string | string[]) => call('keys.deleteKey', input as never, as);
const digestOf = (key: string) => createHash('sha256').update(key).digest('base64');

describe.each([
  ['soft', {}],
  ['soft, said so', { permanent: false }],
  ['permanent', { permanent: true }],
])('keys.deleteKey: 200, %s', (_title, extras) => {
  test('the data of the response is empty', async () => {
    const { keyId } = await createKey();
    expect(await remove({ keyId, ...extras })).toMatchObject({ status: 200, data: {} });
  });

  test('the key is not found afterwards', async () => {
    const { keyId, key, apiId } = await createKey({ externalId: 'alice' });
    await ok('keys.verifyKey', { key });
    await remove({ keyId, ...extras });
    expect(await ok('keys.verifyKey', { key })).toEqual({ valid: false, code: 'NOT_FOUND' });
    expect((await call('keys.getKey', { keyId })).status).toBe(404);
    expect((await call('keys.whoami', { key })).status).toBe(404);
    expect((await call('keys.updateKey', { keyId, name: 'x' })).status).toBe(404);
    expect((await call('keys.rerollKey', { keyId, expiration: 0 })).status).toBe(404);
    expect(await ok('apis.listKeys', { apiId })).toEqual([]);
    expect(await ok('apis.listKeys', { apiId, externalId: 'alice' })).toEqual([]);
  });

  test('a second call gets 404, soft or permanent', async () => {
    const { keyId } = await createKey();
    await remove({ keyId, ...extras });
    expect(await remove({ keyId })).toMatchObject({ status: 404, code: 'key_not_found' });
    expect(await remove({ keyId, permanent: true })).toMatchObject({ status: 404, code: 'key_not_found' });
  });

  test('other keys of the API and of the identity stay', async () => {
    const { keyId, apiId } = await createKey({ externalId: 'bob' });
    const kept = await createKey({ apiId, externalId: 'bob' });
    await remove({ keyId, ...extras });
    expect(await ok('keys.verifyKey', { key: kept.key })).toMatchObject({
      valid: true,
      identity: { externalId: 'bob' },
    });
    expect((await ok('apis.listKeys', { apiId })).map((record) => record.keyId)).toEqual([kept.keyId]);
  });

  test('a refill does not restore the key', async () => {
    const { keyId, key } = await createKey({ credits: { remaining: 0, refill: { interval: 'daily', amount: 9 } } });
    await remove({ keyId, ...extras });
    clock.advance(dayMs);
    while (await app.store.sweep.refill(app.workspaceId));
    expect(await ok('keys.verifyKey', { key })).toEqual({ valid: false, code: 'NOT_FOUND' });
  });
});

describe('keys.deleteKey: importing the same key string again', () => {
  async function importable(key: string, apiId: string) {
    const answer = await ok('keys.migrateKeys', { migrationId: 'again', apiId, keys: [{ hash: digestOf(key) }] });
    return answer.failed.length === 0;
  }
  async function purge() {
    while (await app.store.sweep.purge(app.workspaceId));
  }

  test('is refused during the retention time after a soft delete, and works afterwards', async () => {
    const { keyId, key, apiId } = await createKey();
    await remove({ keyId });
    await purge();
    expect(await importable(key, apiId)).toBe(false);
    clock.advance(testSettings.keyRetentionMs - 1);
    await purge();
    expect(await importable(key, apiId)).toBe(false);
    clock.advance(1);
    await purge();
    expect(await importable(key, apiId)).toBe(true);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
  });

  test('works immediately after a permanent delete, and the sweeper keeps the new key', async () => {
    const { keyId, key, apiId } = await createKey();
    await remove({ keyId, permanent: true });
    expect(await importable(key, apiId)).toBe(true);
    clock.advance(2 * testSettings.keyRetentionMs);
    await purge();
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
  });
});

describe('keys.deleteKey: refusals', () => {
  test.each<[string, object, string]>([
    ['no keyId', { keyId: undefined }, 'body.keyId'],
    ['a null keyId', { keyId: null }, 'body.keyId'],
    ['permanent as text', { permanent: 'true' }, 'body.permanent'],
    ['permanent null', { permanent: null }, 'body.permanent'],
    ['an unknown field', { force: true }, 'body.force'],
  ])('400 for %s; the key stays', async (_title, input, location) => {
    const { keyId, key } = await createKey();
    expect(await remove({ keyId, ...input })).toMatchObject(invalidAt(location));
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
  });
});
