import { expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createKey } = harness();

test('identities.getIdentity: one that was created with a key is the one of the key', async () => {
  const { keyId } = await createKey({ externalId: 'with.key' });
  const { keyCount, ...identity } = await ok('identities.getIdentity', { identity: 'with.key' });
  expect(keyCount).toBe(1);
  expect(identity).toMatchObject({ externalId: 'with.key', meta: {}, ratelimits: [] });
  expect(await ok('keys.getKey', { keyId })).toMatchObject({ identity, externalId: 'with.key' });
});

test('identities.getIdentity: keyCount has its keys of all APIs, without deleted ones', async () => {
  const counted = async () => (await ok('identities.getIdentity', { identity: 'many' })).keyCount;
  const [one, two] = [await createKey({ externalId: 'many' }), await createKey({ externalId: 'many', expires: 1 })];
  const { apiId } = await ok('apis.createApi', { name: 'other' });
  const third = await createKey({ externalId: 'many', apiId });
  expect(await counted()).toBe(3);
  await ok('keys.deleteKey', { keyId: one.keyId });
  expect(await counted()).toBe(2);
  await ok('keys.restoreKey', { keyId: one.keyId });
  await ok('keys.updateKey', { keyId: two.keyId, externalId: 'another' });
  await ok('keys.deleteKey', { keyId: third.keyId, permanent: true });
  expect(await counted()).toBe(1);
});

test.each(['', 'x'.repeat(256), null, undefined])('400 for %j', async (identity) => {
  expect((await call('identities.getIdentity', { identity } as never)).status).toBe(400);
});
