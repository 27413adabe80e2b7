import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { clock, call, ok, createKey } = harness();

const get = (input: object, as?: string | string[]) => call('keys.getKey', input as never, as);

describe('keys.getKey: 200', () => {
  test('decrypt: false changes nothing', async () => {
    const { keyId } = await createKey();
    expect((await get({ keyId, decrypt: false })).status).toBe(200);
  });

  test('lastUsedAt is the last VALID verification, and no other outcome', async () => {
    const { keyId, key } = await createKey({ credits: { remaining: 1 } });
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('lastUsedAt');
    clock.advance(5);
    const usedAt = clock.now;
    expect((await ok('keys.verifyKey', { key })).code).toBe('VALID');
    clock.advance(5);
    expect((await ok('keys.verifyKey', { key })).code).toBe('USAGE_EXCEEDED');
    expect((await ok('keys.getKey', { keyId })).lastUsedAt).toBe(usedAt);
  });

  test('updatedAt is absent until the first update; a verification does not set it', async () => {
    const { keyId, key } = await createKey();
    clock.advance(5);
    await ok('keys.verifyKey', { key });
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('updatedAt');
    await ok('keys.updateKey', { keyId, name: 'Bob' });
    expect((await ok('keys.getKey', { keyId })).updatedAt).toBe(clock.now);
  });

  test('reading sets neither updatedAt nor lastUsedAt', async () => {
    const { keyId } = await createKey();
    const before = await ok('keys.getKey', { keyId });
    clock.advance(5);
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
  });

  test('a key that is disabled and expired is read like any other', async () => {
    const { keyId } = await createKey({ enabled: false, expires: 1 });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ enabled: false, expires: 1 });
  });
});

describe('keys.getKey: refusals', () => {
  test.each<[string, object, string]>([
    ['no keyId', {}, 'body.keyId'],
    ['a keyId of 2', { keyId: 'ke' }, 'body.keyId'],
    ['a keyId of 256', { keyId: 'k'.repeat(256) }, 'body.keyId'],
    ['a keyId with a dash', { keyId: 'key-1' }, 'body.keyId'],
    ['a null keyId', { keyId: null }, 'body.keyId'],
    ['decrypt: true', { keyId: 'key_unknown', decrypt: true }, 'body.decrypt'],
    ['an unknown field', { keyId: 'key_unknown', apiId: 'api_1' }, 'body.apiId'],
  ])('400 for %s', async (_title, input, location) => {
    const answer = await get(input);
    expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(answer.error.errors).toMatchObject([{ location }]);
  });

  test.each(['key_unknown', `key_${'1'.repeat(24)}`, 'k'.repeat(255), 'api_1'])(
    '404 for the unknown id %s',
    async (keyId) => {
      expect(await get({ keyId })).toMatchObject({ status: 404, code: 'key_not_found' });
    },
  );

  test('404 for ids that sort before and after an existing one', async () => {
    const { keyId } = await createKey();
    const last = keyId.at(-9)!;
    const neighbours = ['1', 'z'].filter((c) => c !== last).map((c) => keyId.slice(0, -9) + c + keyId.slice(-8));
    for (const id of [...neighbours, `${keyId}1`, keyId.slice(0, -1), `KEY_${keyId.slice(4)}`]) {
      expect(await get({ keyId: id })).toMatchObject({ status: 404 });
    }
  });
});
