import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { digestOf } from '../../../src/domain/keyString.ts';
import { harness, type InputOf, type OutputOf, testSettings } from '../../support/harness.ts';
import { volumeTest } from '../../support/testIf.ts';
import { unitsOf } from '../../support/unit.ts';

const tollgate = harness();
const { call, ok, clock, createKey, createWorkspace, send } = tollgate;

type Imported = InputOf<'keys.migrateKeys'>['keys'][number];
const hashOf = (key: string): string => digestOf(key).toString('base64');
const newSecret = () => `elsewhere_${randomBytes(12).toString('hex')}`;
const newHash = () => hashOf(newSecret());
const newApi = async () => (await ok('apis.createApi', { name: 'migrated to' })).apiId;

/** Imports one key by its string. */
async function migrate(fields: Omit<Imported, 'hash'> = {}, key = newSecret(), apiId?: string) {
  const api = apiId ?? (await newApi());
  const hash = hashOf(key);
  const { migrated, failed } = await ok('keys.migrateKeys', {
    migrationId: 'from_unkey',
    apiId: api,
    keys: [{ hash, ...fields }],
  });
  expect({ hashes: migrated.map((item) => item.hash), failed }).toEqual({ hashes: [hash], failed: [] });
  return { key, hash, apiId: api, keyId: migrated[0]!.keyId };
}

const count = async (apiId: string) => ((await ok('apis.listKeys', { apiId })) as unknown[]).length;

describe('keys.migrateKeys: 200', () => {
  test('a key verifies immediately by the string that was hashed elsewhere, and has no start', async () => {
    const { key, keyId, apiId } = await migrate({ name: 'imported' });
    expect(keyId).toMatch(/^key_/);
    expect(await ok('keys.verifyKey', { key })).toEqual({
      valid: true,
      code: 'VALID',
      keyId,
      enabled: true,
      name: 'imported',
    });
    expect(await ok('keys.getKey', { keyId })).toEqual({
      keyId,
      apiId,
      start: '',
      enabled: true,
      createdAt: clock.now,
      lastUsedAt: clock.now,
      name: 'imported',
    });
    expect((await ok('keys.whoami', { key })).keyId).toBe(keyId);
  });

  test('any string may be a key, as only its hash is stored', async () => {
    for (const key of ['x', 'sk_live_123', '\u{1f511} with spaces', 'a'.repeat(512)]) {
      await migrate({}, key);
      expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
    }
  });

  test('1000 per call, listed in their order', async () => {
    const apiId = await newApi();
    const hashes = Array.from({ length: 1000 }, newHash);
    const keys = hashes.map((hash, index) => ({ hash, name: `${index}`, externalId: `user_${index % 7}` }));
    const { migrated, failed } = await ok('keys.migrateKeys', { migrationId: 'many', apiId, keys });
    expect(failed).toEqual([]);
    expect(migrated.map(({ hash }) => hash)).toEqual(hashes);
    const ids = migrated.map(({ keyId }) => keyId);
    expect(new Set(ids).size).toBe(1000);
    const page = await call('apis.listKeys', { apiId });
    expect((page.data as { keyId: string; name: string }[]).map(({ keyId }) => keyId)).toEqual(ids.slice(0, 100));
    expect(await call('keys.migrateKeys', { migrationId: 'again', apiId, keys })).toMatchObject({
      data: { migrated: [], failed: hashes },
    });
  });

  volumeTest('the largest body, 1000 keys with metadata, delays no other request', async () => {
    const apiId = await newApi();
    const keys = Array.from({ length: 1000 }, (_, index) => ({
      hash: newHash(),
      meta: { text: 'm'.repeat(900), index },
    }));
    let migrated: OutputOf<'keys.migrateKeys'>['migrated'] = [];
    const units = await unitsOf(async () => {
      ({ migrated } = await ok('keys.migrateKeys', { migrationId: 'large', apiId, keys }));
    });
    expect(units).toBeLessThan(2000);
    const { meta } = await ok('keys.getKey', { keyId: migrated[999]!.keyId });
    expect(meta).toEqual(keys[999]!.meta);
  });

  test('disabled, expired, spent and unlimited keys stay so', async () => {
    for (const [fields, code] of [
      [{ enabled: false }, 'DISABLED'],
      [{ expires: 0 }, 'EXPIRED'],
      [{ credits: { remaining: 0 } }, 'USAGE_EXCEEDED'],
      [{ credits: { remaining: null } }, 'VALID'],
    ] as const) {
      const { key } = await migrate(fields);
      expect(await ok('keys.verifyKey', { key })).toMatchObject({ code });
    }
  });

  test('an existing identity is linked; an unknown one is created once', async () => {
    const { identityId } = await ok('identities.createIdentity', { externalId: 'known.one', meta: { a: 1 } });
    const keys = ['known.one', 'new.one', 'new.one', 'known.one'].map((externalId) => ({
      hash: newHash(),
      externalId,
    }));
    const { migrated } = await ok('keys.migrateKeys', { migrationId: 'ids', apiId: await newApi(), keys });
    const found = await Promise.all(migrated.map(({ keyId }) => ok('keys.getKey', { keyId })));
    const ids = found.map(({ identity }) => identity!.id);
    expect(ids).toEqual([identityId, ids[1], ids[1], identityId]);
    expect(found[0]!.identity!.meta).toEqual({ a: 1 });
    expect((await ok('identities.getIdentity', { identity: 'new.one' })).id).toBe(ids[1]);
  });

  test('metadata is kept as the same text: key order, numbers, escapes', async () => {
    const apiId = await newApi();
    const texts = [
      '{"b":1.50,"a":{"2":[1e3,-0.0],"1":"\\u00e9\\/"}}',
      '{"n":12345678901234567890}',
      '{"":"\u{1f511}"}',
    ];
    const keys = texts.map((text) => `{ "meta" : ${text}, "hash" : "${newHash()}" }`);
    const body = `{ "migrationId": "text", "apiId": "${apiId}", "keys": [ ${keys.join(' ,\n')} ] }`;
    const { json } = await send('/v2/keys.migrateKeys', { body });
    for (const [index, { keyId }] of json.data.migrated.entries()) {
      const { body: answered } = await send('/v2/keys.getKey', { body: JSON.stringify({ keyId }) });
      expect(answered).toContain(`"meta":${texts[index]}`);
    }
  });
});

describe('keys.migrateKeys: hashes that exist', () => {
  test('are listed in failed, do not change, and do not stop the others', async () => {
    const before = await migrate({ name: 'before', credits: { remaining: 3 } });
    const made = await createKey({ name: 'made here' });
    const fresh = newHash();
    const keys = [before.hash, fresh, hashOf(made.key)].map((hash) => ({ hash, name: 'after', externalId: 'after' }));
    const answer = await ok('keys.migrateKeys', { migrationId: 'twice', apiId: await newApi(), keys });
    expect(answer).toEqual({
      migrated: [{ hash: fresh, keyId: expect.any(String) }],
      failed: [before.hash, hashOf(made.key)],
    });
    expect(await ok('keys.verifyKey', { key: before.key })).toMatchObject({ name: 'before', credits: 2 });
    expect(await ok('keys.verifyKey', { key: made.key })).toMatchObject({ name: 'made here' });
  });

  test('a role, permission or identity named by only such a key is not created', async () => {
    const { hash, apiId } = await migrate();
    const keys = [{ hash, externalId: 'never.made', permissions: ['never.made'] }];
    // The right to create it is not needed either.
    const answer = await call('keys.migrateKeys', { migrationId: 'none', apiId, keys }, ['api.*.create_key']);
    expect(answer).toMatchObject({ status: 200, data: { migrated: [], failed: [hash] } });
    expect((await call('identities.getIdentity', { identity: 'never.made' })).status).toBe(404);
    expect((await call('permissions.getPermission', { permission: 'never.made' })).status).toBe(404);
  });

  test('a deleted key cannot be imported again until it is purged; one that was erased can', async () => {
    const { key, hash, keyId, apiId } = await migrate();
    const again = () => ok('keys.migrateKeys', { migrationId: 'again', apiId, keys: [{ hash }] });
    await ok('keys.deleteKey', { keyId });
    expect(await again()).toEqual({ migrated: [], failed: [hash] });
    clock.advance(testSettings.keyRetentionMs - 1);
    await tollgate.store.sweep.purge(tollgate.workspaceId);
    expect(await again()).toEqual({ migrated: [], failed: [hash] });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'NOT_FOUND' });
    clock.advance(1);
    await tollgate.store.sweep.purge(tollgate.workspaceId);
    const { migrated } = await again();
    expect(migrated).toHaveLength(1);
    await ok('keys.deleteKey', { keyId: migrated[0]!.keyId, permanent: true });
    expect((await again()).migrated).toHaveLength(1);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true });
  });

  test('are unique within a workspace only', async () => {
    const { key, hash } = await migrate();
    const { rootKey } = await createWorkspace();
    const { apiId } = (await call('apis.createApi', { name: 'theirs' }, rootKey)).data;
    const { data } = await call('keys.migrateKeys', { migrationId: 'theirs', apiId, keys: [{ hash }] }, rootKey);
    expect(data.migrated).toHaveLength(1);
    const theirs = (await call('keys.verifyKey', { key }, rootKey)).data;
    expect(theirs).toMatchObject({ valid: true, keyId: data.migrated[0]!.keyId });
  });
});

describe('keys.migrateKeys: refused calls import nothing', () => {
  const refused = async (bad: Imported[], expected: object, as?: string[]) => {
    const apiId = await newApi();
    const keys = [{ hash: newHash(), externalId: 'refused', permissions: ['refused.new'] }, ...bad];
    const answer = await call('keys.migrateKeys', { migrationId: 'refused', apiId, keys }, as);
    expect(answer).toMatchObject(expected);
    expect(await count(apiId)).toBe(0);
    expect((await call('identities.getIdentity', { identity: 'refused' })).status).toBe(404);
    expect((await call('permissions.getPermission', { permission: 'refused.new' })).status).toBe(404);
    return answer;
  };
  const hash = Buffer.alloc(32, 7).toString('base64');

  test.each<[string, Imported[], string]>([
    ['a hash of 31 bytes', [{ hash: Buffer.alloc(31).toString('base64') }], 'keys[1].hash'],
    ['of 33 bytes', [{ hash: Buffer.alloc(33).toString('base64') }], 'keys[1].hash'],
    ['in hexadecimal', [{ hash: '07'.repeat(32) }], 'keys[1].hash'],
    ['in the URL alphabet', [{ hash: Buffer.alloc(32, 0xff).toString('base64url') }], 'keys[1].hash'],
    ['without its padding', [{ hash: hash.slice(0, -1) }], 'keys[1].hash'],
    ['with space about it', [{ hash: ` ${hash}` }], 'keys[1].hash'],
    ['with bits that do not count', [{ hash: `${hash.slice(0, -2)}d=` }], 'keys[1].hash'],
    ['nothing', [{ hash: '' }], 'keys[1].hash'],
    ['twice the same', [{ hash }, { hash }], 'keys[2].hash'],
  ])('400: %s', async (_what, bad, location) => {
    const { error } = await refused(bad, { status: 400, code: 'invalid_input' });
    expect(error.errors).toEqual([expect.objectContaining({ location: `body.${location}` })]);
  });

  test('400: none, or more than a thousand', async () => {
    const apiId = await newApi();
    for (const length of [0, 1001]) {
      const keys = Array.from({ length }, () => ({ hash: newHash() }));
      expect(await call('keys.migrateKeys', { migrationId: 'size', apiId, keys })).toMatchObject({ status: 400 });
    }
    expect(await count(apiId)).toBe(0);
  });

  test('400: a migration whose id is too short or too long', async () => {
    const apiId = await newApi();
    for (const migrationId of ['', 'ab', 'a'.repeat(256)]) {
      const answer = await call('keys.migrateKeys', { migrationId, apiId, keys: [{ hash }] });
      expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    }
    expect(await count(apiId)).toBe(0);
  });

  test('404: a role that does not exist', async () => {
    const { error } = await refused([{ hash, roles: ['nobody'] }], { status: 404, code: 'role_not_found' });
    expect(error.detail).toContain('nobody');
  });

  test('403: a permission that does not exist, and no right to create it', async () => {
    const { error } = await refused([{ hash }], { status: 403, code: 'insufficient_permissions' }, [
      'api.*.create_key',
    ]);
    expect(error.detail).toContain('rbac.*.create_permission');
  });
});
