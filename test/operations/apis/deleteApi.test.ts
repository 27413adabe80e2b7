// test/sweeper.test.ts has the removal of its records.

import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { call, ok, createKey } = harness();

describe('apis.deleteApi: 200', () => {
  test('its keys are unknown from the next request on, on every server', async () => {
    const { apiId, keyId, key } = await createKey({ externalId: 'alice', credits: { remaining: 5 } });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true, keyId });
    expect(await call('apis.deleteApi', { apiId })).toMatchObject({ status: 200, data: {} });

    expect(await ok('keys.verifyKey', { key })).toEqual({ valid: false, code: 'NOT_FOUND' });
    const answers = [
      await call('keys.getKey', { keyId }),
      await call('keys.whoami', { key }),
      await call('keys.updateKey', { keyId, enabled: true }),
      await call('keys.updateCredits', { keyId, operation: 'set', value: 1 }),
      await call('keys.rerollKey', { keyId, expiration: 0 }),
      await call('keys.deleteKey', { keyId }),
    ];
    for (const answer of answers) expect(answer).toMatchObject({ status: 404, code: 'key_not_found' });
    expect(await call('keys.createKey', { apiId })).toMatchObject({ status: 404, code: 'api_not_found' });
    expect(await call('apis.listKeys', { apiId })).toMatchObject({ status: 404, code: 'api_not_found' });
  });

  test('other APIs and their keys stay, and so does the identity', async () => {
    const kept = await createKey({ externalId: 'bob', ratelimits: [{ name: 'requests', limit: 9, duration: 60_000 }] });
    const gone = await createKey({ externalId: 'bob' });
    const before = await ok('keys.getKey', { keyId: kept.keyId });
    await ok('apis.deleteApi', { apiId: gone.apiId });
    expect(await ok('keys.getKey', { keyId: kept.keyId })).toEqual(before);
    expect(await ok('keys.verifyKey', { key: kept.key })).toMatchObject({ valid: true });
    expect(await ok('apis.listKeys', { apiId: kept.apiId, externalId: 'bob' })).toEqual([
      { ...before, lastUsedAt: expect.any(Number) },
    ]);
  });
});
