import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';
import { storedLimit } from '../../support/limits.ts';

const { call, ok, createKey, createWorkspace } = harness();

const create = (externalId: string) => ok('identities.createIdentity', { externalId });

test('identities.getIdentity: returns it by its id and by its externalId', async () => {
  const ratelimits = [{ name: 'requests', limit: 5, duration: 1000, autoApply: true }];
  const given = { externalId: 'alice', meta: { plan: 'pro' }, ratelimits };
  const { identityId } = await ok('identities.createIdentity', given);
  const expected = { ...given, id: identityId, ratelimits: ratelimits.map(storedLimit), keyCount: 0 };
  for (const identity of [identityId, 'alice']) {
    expect(await ok('identities.getIdentity', { identity })).toEqual(expected);
  }
});

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

test('identities.getIdentity: an externalId that looks like an id names the identity that has it, unless an id does', async () => {
  const like = await create('id_1111111111111111');
  const first = await create('first');
  const second = await create(first.identityId);
  const idOf = async (identity: string) => (await ok('identities.getIdentity', { identity })).id;
  expect(await idOf('id_1111111111111111')).toBe(like.identityId);
  expect(await idOf(first.identityId)).toBe(first.identityId);
  expect(await idOf(second.identityId)).toBe(second.identityId);
});

describe('identities.getIdentity: 404', () => {
  test.each(['unknown', 'id_unknown', 'id_1111111111111112', 'Alice'])('for %s', async (identity) => {
    expect(await call('identities.getIdentity', { identity })).toMatchObject({
      status: 404,
      code: 'identity_not_found',
    });
  });

  test('for a deleted one, also by its id when a new one has its externalId', async () => {
    const { identityId } = await create('gone');
    await ok('identities.deleteIdentity', { identity: 'gone' });
    for (const identity of [identityId, 'gone']) {
      expect((await call('identities.getIdentity', { identity })).status).toBe(404);
    }
    const again = await create('gone');
    expect(again.identityId).not.toBe(identityId);
    expect((await call('identities.getIdentity', { identity: identityId })).status).toBe(404);
  });

  test('for one of another workspace', async () => {
    const { identityId } = await create('here');
    const { rootKey } = await createWorkspace();
    for (const identity of [identityId, 'here']) {
      expect((await call('identities.getIdentity', { identity }, rootKey)).status).toBe(404);
    }
  });
});

describe('identities.getIdentity: grants with an id', () => {
  test('name the identity’s id, also when the request names its externalId', async () => {
    const { identityId } = await create('scoped');
    await create('other');
    const grants = [`identity.${identityId}.read_identity`];
    for (const identity of [identityId, 'scoped']) {
      expect((await call('identities.getIdentity', { identity }, grants)).data).toMatchObject({ id: identityId });
    }
    const { status, error } = await call('identities.getIdentity', { identity: 'other' }, grants);
    expect(status).toBe(403);
    expect(error.detail).toMatch(/identity\.\*\.read_identity or identity\.id_\w+\.read_identity/);
    expect((await call('identities.getIdentity', { identity: 'unknown' }, grants)).status).toBe(404);
  });

  test('that name the externalId or another action are not enough', async () => {
    const { identityId } = await create('unscoped');
    for (const grant of ['identity.unscoped.read_identity', `identity.${identityId}.update_identity`]) {
      expect((await call('identities.getIdentity', { identity: 'unscoped' }, [grant])).status).toBe(403);
    }
  });

  test('do not apply to a new identity with the same externalId', async () => {
    const { identityId } = await create('reborn');
    await ok('identities.deleteIdentity', { identity: 'reborn' });
    await create('reborn');
    const grants = [`identity.${identityId}.read_identity`];
    expect((await call('identities.getIdentity', { identity: 'reborn' }, grants)).status).toBe(403);
  });
});

test.each(['', 'x'.repeat(256), null, undefined])('400 for %j', async (identity) => {
  expect((await call('identities.getIdentity', { identity } as never)).status).toBe(400);
});
