import { describe, expect, test } from 'vitest';
import { harness } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';
import { storedLimit } from '../../support/limits.ts';

const { call, ok, send, createKey } = harness();

const get = (identity: string) => ok('identities.getIdentity', { identity });

describe('identities.createIdentity: 200', () => {
  test('returns an id that reads the same fields', async () => {
    const given = {
      externalId: 'user_1',
      meta: { b: 1, a: [null, { c: 'ü' }] },
      ratelimits: [
        { name: 'requests', limit: 10, duration: 60_000, autoApply: true },
        { name: 'exports', limit: 2, duration: 3_600_000 },
      ],
    };
    const { identityId, ...rest } = await ok('identities.createIdentity', given);
    expect(identityId).toMatch(/^id_[1-9A-HJ-NP-Za-km-z]{16,}$/);
    expect(rest).toEqual({});
    expect(await get(identityId)).toEqual({
      id: identityId,
      externalId: 'user_1',
      meta: given.meta,
      ratelimits: given.ratelimits.map(storedLimit),
      keyCount: 0,
    });
  });

  test('one with only an externalId has empty metadata and no limits', async () => {
    const { identityId } = await ok('identities.createIdentity', { externalId: 'bare' });
    expect(await get('bare')).toEqual({ id: identityId, externalId: 'bare', meta: {}, ratelimits: [], keyCount: 0 });
    await ok('identities.createIdentity', { externalId: 'emptied', meta: {}, ratelimits: [] });
    expect(await get('emptied')).toMatchObject({ meta: {}, ratelimits: [] });
  });

  test('metadata is returned as the text that was sent', async () => {
    const meta = '{"10":1,"2":{"b":1.0,"a":[]},"n":12345678901234567890,"s":"\\u00e9"}';
    await send('/v2/identities.createIdentity', { body: `{"externalId":"as-it-came","meta": ${meta} }` });
    const { body } = await send('/v2/identities.getIdentity', { body: '{"identity":"as-it-came"}' });
    expect(body).toContain(`"meta":${meta}`);
  });

  test.each(['a', '1', '.', '-._', 'x'.repeat(255), 'id_1111111111111111', 'UPPER'])(
    'takes the externalId %s',
    async (externalId) => {
      await ok('identities.createIdentity', { externalId });
      expect((await get(externalId)).externalId).toBe(externalId);
    },
  );

  test('its limits apply to keys that are linked later', async () => {
    const ratelimits = [{ name: 'requests', limit: 1, duration: 60_000, autoApply: true }];
    await ok('identities.createIdentity', { externalId: 'limited', ratelimits });
    const first = await createKey({ externalId: 'limited' });
    const second = await createKey({ externalId: 'limited' });
    expect(await ok('keys.verifyKey', { key: first.key })).toMatchObject({ code: 'VALID' });
    expect(await ok('keys.verifyKey', { key: second.key })).toMatchObject({ code: 'RATE_LIMITED' });
  });

  test('50 limits', async () => {
    const ratelimits = Array.from({ length: 50 }, (_, index) => ({ name: `n.${index}`, limit: 1, duration: 1000 }));
    await ok('identities.createIdentity', { externalId: 'fifty', ratelimits });
    expect((await get('fifty')).ratelimits.map(({ name }) => name)).toEqual(ratelimits.map(({ name }) => name));
  });
});

test('null in an optional field means that it is absent', async () => {
  const nulls = { meta: null, ratelimits: null, credits: null, planId: null };
  const { identityId } = await ok('identities.createIdentity', { externalId: 'nulls', ...nulls } as never);
  const { identityId: plainId } = await ok('identities.createIdentity', { externalId: 'plain' });
  const plain = await ok('identities.getIdentity', { identity: plainId });
  const record = { ...plain, id: identityId, externalId: 'nulls' };
  expect(await ok('identities.getIdentity', { identity: identityId })).toEqual(record);
});

describe('identities.createIdentity: 400', () => {
  const limit = { name: 'requests', limit: 1, duration: 1000 };

  test.each<[string, object]>([
    ['externalId', {}],
    ['externalId', { externalId: '' }],
    ['externalId', { externalId: 'a b' }],
    ['externalId', { externalId: 'é' }],
    ['externalId', { externalId: 'a@b' }],
    ['externalId', { externalId: 'x'.repeat(256) }],
    ['meta', { meta: [] }],
    ['meta', { meta: Object.fromEntries(Array.from({ length: 101 }, (_, index) => [index, 0])) }],
    ['meta', { meta: { a: 'x'.repeat(10_240) } }],
    ['externalId', { externalId: null }],
    ['ratelimits[0].autoApply', { ratelimits: [{ ...limit, autoApply: null }] }],
    ['ratelimits', { ratelimits: Array.from({ length: 51 }, (_, index) => ({ ...limit, name: `n.${index}` })) }],
    ['ratelimits[1].name', { ratelimits: [limit, { ...limit, limit: 2 }] }],
    ['ratelimits[0].name', { ratelimits: [{ ...limit, name: 'ab' }] }],
    ['ratelimits[0].limit', { ratelimits: [{ ...limit, limit: 0 }] }],
    ['ratelimits[0].duration', { ratelimits: [{ ...limit, duration: 999 }] }],
  ])('names the field %s', async (field, input) => {
    expect(
      await call('identities.createIdentity', {
        externalId: 'never-made',
        ...input,
        ...(field === 'externalId' && !('externalId' in input) && { externalId: undefined }),
      } as never),
    ).toMatchObject(invalidAt(`body.${field}`));
    expect((await call('identities.getIdentity', { identity: 'never-made' })).status).toBe(404);
  });
});

describe('identities.createIdentity: 409', () => {
  test('for one that was created with a key', async () => {
    await createKey({ externalId: 'with-key' });
    expect(await call('identities.createIdentity', { externalId: 'with-key' })).toMatchObject({
      status: 409,
      code: 'identity_already_exists',
    });
  });
});
