import { describe, expect, test } from 'vitest';
import { cacheOn, harness } from '../../support/harness.ts';

const app = harness();
const { call, ok, send, createKey, createRootKey, clock } = app;
const elsewhere = harness();

const requests = { name: 'requests', limit: 1, duration: 60_000, autoApply: true };
let made = 0;

/** An identity that no other test uses, with a key that both servers have cached. */
async function newIdentity() {
  const externalId = `user.${++made}`;
  const { identityId } = await ok('identities.createIdentity', { externalId, meta: { a: 1 } });
  const { key, keyId, apiId } = await createKey({ externalId, name: 'n', credits: { remaining: 100 } });
  await cacheOn([app, elsewhere], key, app.rootKey);
  await ok('identities.updateIdentity', { identity: identityId, ratelimits: [requests] });
  return { identityId, externalId, key, keyId, apiId };
}

describe('identities.deleteIdentity: 200', () => {
  test('its keys stay valid, without it and its limits, on every server', async () => {
    const { identityId, externalId, key, keyId, apiId } = await newIdentity();
    const before = await ok('keys.getKey', { keyId });
    await ok('keys.verifyKey', { key });
    expect((await ok('keys.verifyKey', { key })).code).toBe('RATE_LIMITED');
    await ok('identities.deleteIdentity', { identity: identityId });

    for (const server of [elsewhere, app, elsewhere]) {
      const { data } = await server.call('keys.verifyKey', { key }, app.rootKey);
      expect(data).toEqual({
        valid: true,
        code: 'VALID',
        keyId,
        enabled: true,
        name: 'n',
        credits: expect.any(Number),
      });
    }
    const after = await ok('keys.getKey', { keyId });
    const { identity: _identity, externalId: _externalId, ...rest } = before;
    expect(after).toEqual({ ...rest, credits: { remaining: 92 } });
    expect(await ok('apis.listKeys', { apiId })).toEqual([after]);
    expect(await ok('apis.listKeys', { apiId, externalId })).toEqual([]);
  });

  test('its limits are unknown afterwards: 412', async () => {
    const { identityId, key } = await newIdentity();
    const named = { key, ratelimits: [{ name: 'requests', cost: 0 }] };
    expect((await call('keys.verifyKey', named)).status).toBe(200);
    await ok('identities.deleteIdentity', { identity: identityId });
    expect(await call('keys.verifyKey', named)).toMatchObject({ status: 412, code: 'precondition_failed' });
  });

  test.each(['before', 'after'])(
    'a new identity with its externalId is not linked to its keys, verified %s it was created',
    async (when) => {
      const { identityId, externalId, key, keyId, apiId } = await newIdentity();
      await ok('identities.deleteIdentity', { identity: identityId });
      if (when === 'before') await ok('keys.verifyKey', { key });
      const again = await ok('identities.createIdentity', { externalId, meta: { b: 2 }, ratelimits: [requests] });
      for (const server of [app, elsewhere, app]) {
        const { data } = await server.call('keys.verifyKey', { key }, app.rootKey);
        expect(data.code).toBe('VALID');
        expect(data).not.toHaveProperty('identity');
      }
      expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('externalId');
      expect(await ok('apis.listKeys', { apiId, externalId })).toEqual([]);
      // A key that is linked again belongs to the new identity, whose counters are empty.
      await ok('keys.updateKey', { keyId, externalId });
      expect(await ok('keys.verifyKey', { key })).toMatchObject({
        code: 'VALID',
        identity: { id: again.identityId, meta: { b: 2 } },
        ratelimits: [{ name: 'requests', remaining: 0 }],
      });
      expect(await ok('apis.listKeys', { apiId, externalId })).toMatchObject([{ keyId, externalId }]);
    },
  );

  test('an identity that is created with a new key has no old keys either', async () => {
    const { identityId, externalId, key, apiId } = await newIdentity();
    await ok('identities.deleteIdentity', { identity: externalId });
    const second = await createKey({ apiId, externalId });
    expect(await ok('keys.verifyKey', { key })).not.toHaveProperty('identity');
    const { identity } = await ok('keys.verifyKey', { key: second.key });
    expect(identity).toMatchObject({ externalId, meta: {}, ratelimits: [] });
    expect(identity?.id).not.toBe(identityId);
    expect(await ok('apis.listKeys', { apiId, externalId })).toMatchObject([{ keyId: second.keyId }]);
  });

  test('a rerolled key has no identity either', async () => {
    const { externalId, keyId } = await newIdentity();
    await ok('identities.deleteIdentity', { identity: externalId });
    await ok('identities.createIdentity', { externalId });
    const successor = await ok('keys.rerollKey', { keyId, expiration: 0 });
    expect(await ok('keys.getKey', { keyId: successor.keyId })).not.toHaveProperty('externalId');
    expect(await ok('keys.verifyKey', { key: successor.key })).not.toHaveProperty('identity');
  });

  test('a new identity with its externalId does not get its counters', async () => {
    const { externalId, key, keyId } = await newIdentity();
    await ok('keys.verifyKey', { key });
    await ok('identities.deleteIdentity', { identity: externalId });
    await ok('identities.createIdentity', { externalId, ratelimits: [requests] });
    await ok('keys.updateKey', { keyId, externalId });
    clock.advance(1);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'VALID' });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'RATE_LIMITED' });
  });

  test('a limit of the key that hid one of its limits keeps its count', async () => {
    const { externalId, key, keyId } = await newIdentity();
    await ok('keys.updateKey', { keyId, ratelimits: [{ ...requests, limit: 2 }] });
    await ok('keys.verifyKey', { key });
    await ok('identities.deleteIdentity', { identity: externalId });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'VALID', ratelimits: [{ remaining: 0 }] });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'RATE_LIMITED' });
  });
});

describe('identities.deleteIdentity: errors', () => {
  const body = (identity: unknown) => JSON.stringify({ identity });

  test('always have the media type application/problem+json', async () => {
    const { identityId } = await newIdentity();
    const weak = `Bearer ${await createRootKey(['identity.*.read_identity'])}`;
    const scoped = `Bearer ${await createRootKey(['identity.id_other.delete_identity'])}`;
    for (const [status, code, options] of [
      [400, 'invalid_input', { body: '{' }],
      [400, 'invalid_input', { body: body('') }],
      [401, 'unauthorized', { body: body('x'), authorization: '' }],
      [401, 'unauthorized', { body: body('x'), authorization: 'Bearer root_unknown' }],
      [403, 'insufficient_permissions', { body: body('x'), authorization: weak }],
      [403, 'insufficient_permissions', { body: body(identityId), authorization: scoped }],
      [404, 'identity_not_found', { body: body('x') }],
      [415, 'unsupported_media_type', { body: body('x'), contentType: 'text/plain' }],
    ] as const) {
      const answer = await send('/v2/identities.deleteIdentity', options);
      expect(answer).toMatchObject({ status, contentType: 'application/problem+json' });
      expect(answer.json.error).toMatchObject({ status, type: expect.stringMatching(new RegExp(`${code}$`)) });
      expect(answer.json.meta.requestId).toMatch(/^req_/);
    }
    const success = await send('/v2/identities.deleteIdentity', { body: body(identityId) });
    expect(success).toMatchObject({ status: 200, contentType: 'application/json' });
  });
});
