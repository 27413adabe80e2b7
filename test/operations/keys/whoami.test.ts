import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';

const { clock, call, ok, createKey } = harness();

const whoami = (input: object, as?: string | string[]) => call('keys.whoami', input as never, as);

describe('keys.whoami: 200', () => {
  test('returns what getKey returns', async () => {
    const { keyId, key } = await createKey({
      prefix: 'live',
      name: 'Alice',
      externalId: 'alice',
      meta: { a: 1 },
      credits: { remaining: 3, refill: { interval: 'daily', amount: 3 } },
      ratelimits: [{ name: 'requests', limit: 5, duration: 1000 }],
      permissions: ['documents.read'],
    });
    expect(await ok('keys.whoami', { key })).toEqual(await ok('keys.getKey', { keyId }));
  });

  test('charges nothing and does not set lastUsedAt', async () => {
    const ratelimits = [{ name: 'requests', limit: 5, duration: 1000, autoApply: true }];
    const { keyId, key } = await createKey({ credits: { remaining: 3 }, ratelimits });
    const before = await ok('keys.getKey', { keyId });
    await ok('keys.whoami', { key });
    expect(await ok('keys.getKey', { keyId })).toEqual(before);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ credits: 2, ratelimits: [{ remaining: 4 }] });
  });

  test('finds a disabled key', async () => {
    const { key } = await createKey({ enabled: false });
    expect(await ok('keys.whoami', { key })).toMatchObject({ enabled: false });
  });

  test('finds an expired key', async () => {
    const { key } = await createKey({ expires: clock.now });
    expect(await ok('keys.whoami', { key })).toMatchObject({ expires: clock.now });
  });

  test('applies a refill that is due', async () => {
    const { key } = await createKey({ credits: { remaining: 1, refill: { interval: 'daily', amount: 7 } } });
    clock.now = Date.UTC(2026, 0, 16) - 1;
    expect((await ok('keys.whoami', { key })).credits?.remaining).toBe(1);
    clock.now = Date.UTC(2026, 0, 16);
    expect((await ok('keys.whoami', { key })).credits?.remaining).toBe(7);
  });
});

describe('keys.whoami: refusals', () => {
  test.each<[string, object, string]>([
    ['no key', {}, 'body.key'],
    ['an empty key', { key: '' }, 'body.key'],
    ['a key of 513', { key: 'k'.repeat(513) }, 'body.key'],
    ['a null key', { key: null }, 'body.key'],
    ['an unknown field', { key: 'k', decrypt: false }, 'body.decrypt'],
  ])('400 for %s', async (_title, input, location) => {
    const answer = await whoami(input);
    expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(answer.error.errors).toMatchObject([{ location }]);
  });

  test.each(['k', '😀'.repeat(512)])('404 for an unknown key string', async (key) => {
    expect(await whoami({ key })).toMatchObject({ status: 404, code: 'key_not_found' });
  });
});
