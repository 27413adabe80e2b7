// Balances of identities: how operations set and read them, and how verifications charge them.

import { beforeEach, describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const h = harness();
const { clock, call, ok, createKey } = h;

type Credits = InputOf<'identities.createIdentity'>['credits'];

const startMs = clock.now;
let number = 0;
let identity = '';
beforeEach(() => {
  clock.now = startMs;
  number += 1;
  identity = `owner_${number}`;
});

const daily = { interval: 'daily', amount: 50 } as const;
const createIdentity = (credits?: Credits, more: object = {}) =>
  ok('identities.createIdentity', { externalId: identity, credits, ...more });
const keyOf = (fields: Omit<Parameters<typeof createKey>[0] & object, 'externalId'> = {}) =>
  createKey({ ...fields, externalId: identity });
const creditsOf = async (of = identity) => (await ok('identities.getIdentity', { identity: of })).credits;
const verify = (key: string, cost?: number, more: object = {}) =>
  ok('keys.verifyKey', { key, ...(cost !== undefined && { credits: { cost } }), ...more });
const codeOf = async (key: string, cost?: number) => (await verify(key, cost)).code;

describe('fields', () => {
  const refill = { interval: 'monthly', amount: 70, refillDay: 31 } as const;

  test('are set by createIdentity, and read wherever the identity is read', async () => {
    await createIdentity({ remaining: 5, refill });
    const { apiId, key, keyId } = await keyOf();
    const credits = { remaining: 5, refill };
    expect(await creditsOf()).toEqual(credits);
    expect(await ok('identities.listIdentities', { search: identity })).toMatchObject([{ credits }]);
    expect((await ok('keys.getKey', { keyId })).identity).toMatchObject({ credits });
    expect((await ok('keys.whoami', { key })).identity).toMatchObject({ credits });
    expect(await ok('apis.listKeys', { apiId })).toMatchObject([{ identity: { credits } }]);
    expect(await ok('keys.listKeys', { externalId: identity })).toMatchObject([{ identity: { credits } }]);
    expect((await ok('keys.getKey', { keyId })).credits).toBeUndefined();
  });

  test('are absent without a balance', async () => {
    await createIdentity();
    const { key, keyId } = await keyOf();
    expect(await creditsOf()).toBeUndefined();
    const { identity: read } = await ok('keys.getKey', { keyId });
    expect(Object.keys(read!)).toEqual(['id', 'externalId', 'meta', 'ratelimits']);
    const verified = await verify(key);
    expect(Object.keys(verified.identity!)).toEqual(['id', 'externalId', 'meta', 'ratelimits']);
    expect(verified).not.toHaveProperty('credits');
  });

  test('remaining null at the creation is no balance', async () => {
    await createIdentity({ remaining: null });
    expect(await creditsOf()).toBeUndefined();
  });

  const changes: [string, object | null, object | undefined][] = [
    ['an omitted field stays', {}, { remaining: 5, refill }],
    ['remaining is set', { remaining: 9 }, { remaining: 9, refill }],
    ['a refill is set', { refill: daily }, { remaining: 5, refill: daily }],
    ['a refill is removed', { refill: null }, { remaining: 5 }],
    ['both are set', { remaining: 1, refill: daily }, { remaining: 1, refill: daily }],
    ['remaining null removes all', { remaining: null }, undefined],
    ['null removes all', null, undefined],
  ];
  test.each(changes)('updateIdentity: %s', async (_what, credits, expected) => {
    await createIdentity({ remaining: 5, refill });
    const updated = await ok('identities.updateIdentity', { identity, credits: credits as never });
    expect(updated.credits).toEqual(expected);
    expect(await creditsOf()).toEqual(expected);
    await ok('identities.updateIdentity', { identity, meta: { a: 1 } });
    expect(await creditsOf()).toEqual(expected);
  });

  test('updateIdentity adds a balance to an identity without one', async () => {
    await createIdentity();
    await ok('identities.updateIdentity', { identity, credits: { remaining: 3, refill: daily } });
    expect(await creditsOf()).toEqual({ remaining: 3, refill: daily });
  });

  const wrong: [string, unknown, string][] = [
    ['a negative balance', { remaining: -1 }, 'body.credits.remaining'],
    ['a fraction', { remaining: 1.5 }, 'body.credits.remaining'],
    ['a text', { remaining: '5' }, 'body.credits.remaining'],
    ['an unknown field', { remaining: 5, debt: 1 }, 'body.credits.debt'],
    ['an amount of 0', { remaining: 5, refill: { interval: 'daily', amount: 0 } }, 'body.credits.refill.amount'],
    [
      'an unknown interval',
      { remaining: 5, refill: { interval: 'hourly', amount: 1 } },
      'body.credits.refill.interval',
    ],
    [
      'a day of a daily refill',
      { remaining: 5, refill: { interval: 'daily', amount: 1, refillDay: 2 } },
      'body.credits.refill.refillDay',
    ],
    ['a refill without a balance', { remaining: null, refill: daily }, 'body.credits.refill'],
  ];
  test.each(wrong)('%s is 400 and changes nothing', async (_what, credits, location) => {
    const created = await call('identities.createIdentity', { externalId: identity, credits } as never);
    expect([created.status, created.error.errors[0]!.location]).toEqual([400, location]);
    await createIdentity({ remaining: 8 });
    const updated = await call('identities.updateIdentity', { identity, credits } as never);
    expect([updated.status, updated.error.errors[0]!.location]).toEqual([400, location]);
    expect(await creditsOf()).toEqual({ remaining: 8 });
  });

  test('a refill of an identity without a balance is 400', async () => {
    await createIdentity();
    expect(await call('identities.updateIdentity', { identity, credits: { refill: daily } })).toMatchObject(
      invalidAt('body.credits.refill'),
    );
  });

  test('changes are in the audit log', async () => {
    const { identityId } = await createIdentity({ remaining: 5 });
    await ok('identities.updateIdentity', { identity, credits: { remaining: 9, refill: daily } });
    await ok('identities.updateIdentity', { identity, credits: null });
    const events = await ok('audit.listEvents', { resource: { id: identityId } });
    expect(events.slice(1).map(({ changes }) => changes)).toEqual([
      [
        { field: 'credits.remaining', before: '5', after: '9' },
        { field: 'credits.refill', after: '50 daily' },
      ],
      [
        { field: 'credits.remaining', before: '9' },
        { field: 'credits.refill', before: '50 daily' },
      ],
    ]);
  });
});

describe('a verification', () => {
  test('charges the balance of the key and that of its identity', async () => {
    await createIdentity({ remaining: 100 });
    const { key, keyId } = await keyOf({ credits: { remaining: 10 } });
    expect(await verify(key, 4)).toMatchObject({ valid: true, credits: 6, identity: { credits: 96 } });
    expect((await ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 6 });
    expect(await creditsOf()).toEqual({ remaining: 96 });
  });

  test('of a key without a balance charges that of its identity, which is `credits`', async () => {
    await createIdentity({ remaining: 3 });
    const [one, two] = [await keyOf(), await keyOf()];
    expect(await verify(one.key)).toMatchObject({ valid: true, credits: 2, identity: { credits: 2 } });
    expect(await verify(two.key, 2)).toMatchObject({ valid: true, credits: 0, identity: { credits: 0 } });
    expect(await verify(one.key)).toMatchObject({ valid: false, code: 'USAGE_EXCEEDED', credits: 0 });
  });

  test.each([
    ['of the key', 3, 100],
    ['of the identity', 100, 3],
    ['of both', 3, 3],
  ])('is USAGE_EXCEEDED if the balance %s is too small, and charges neither', async (_of, own, shared) => {
    await createIdentity({ remaining: shared });
    const limit = { name: 'requests', limit: 10, duration: hourMs, autoApply: true };
    const { key } = await keyOf({ credits: { remaining: own }, ratelimits: [limit] });
    const verified = await verify(key, 4);
    expect(verified).toMatchObject({ code: 'USAGE_EXCEEDED', credits: own, identity: { credits: shared } });
    expect(verified.ratelimits).toMatchObject([{ remaining: 10 }]);
    expect(await creditsOf()).toEqual({ remaining: shared });
    expect(await codeOf(key, 3)).toBe('VALID');
  });

  test('that is refused for another reason charges nothing', async () => {
    await createIdentity({ remaining: 9 });
    const limit = { name: 'requests', limit: 1, duration: hourMs, autoApply: true };
    const limited = await keyOf({ ratelimits: [limit] });
    const disabled = await keyOf({ enabled: false });
    expect([await codeOf(limited.key), await codeOf(limited.key), await codeOf(disabled.key)]).toEqual([
      'VALID',
      'RATE_LIMITED',
      'DISABLED',
    ]);
    expect(await verify(limited.key)).toMatchObject({ credits: 8, identity: { credits: 8 } });
    expect(await creditsOf()).toEqual({ remaining: 8 });
  });

  test('is RATE_LIMITED before it is USAGE_EXCEEDED', async () => {
    const limit = { name: 'requests', limit: 1, duration: hourMs, autoApply: true };
    await createIdentity({ remaining: 1 }, { ratelimits: [limit] });
    const { key } = await keyOf();
    expect([await codeOf(key), await codeOf(key)]).toEqual(['VALID', 'RATE_LIMITED']);
    clock.advance(2 * hourMs);
    expect(await codeOf(key)).toBe('USAGE_EXCEEDED');
  });

  test('of cost 0 passes with an empty balance', async () => {
    await createIdentity({ remaining: 0 });
    const { key } = await keyOf();
    expect([await codeOf(key, 0), await codeOf(key, 1)]).toEqual(['VALID', 'USAGE_EXCEEDED']);
  });

  test('charges a limit of the identity in the same step', async () => {
    const limit = { name: 'tokens', limit: 100, duration: hourMs };
    await createIdentity({ remaining: 10 }, { ratelimits: [limit] });
    const { key } = await keyOf();
    const request = { ratelimits: [{ name: 'tokens', cost: 30 }] };
    expect(await verify(key, 4, request)).toMatchObject({ credits: 6, ratelimits: [{ remaining: 70 }] });
    expect(await verify(key, 7, request)).toMatchObject({ code: 'USAGE_EXCEEDED', ratelimits: [{ remaining: 70 }] });
    expect(await verify(key, 6, request)).toMatchObject({ credits: 0, ratelimits: [{ remaining: 40 }] });
  });

  test('counts its cost once as spent', async () => {
    await createIdentity({ remaining: 100 });
    const { key, keyId } = await keyOf({ credits: { remaining: 100 } });
    const shared = await keyOf();
    for (const each of [key, shared.key]) await verify(each, 7, { tags: ['a'] });
    const period = { start: startMs - hourMs, end: startMs + hourMs, granularity: 'hour' as const };
    for (const of of [keyId, shared.keyId]) {
      for (const groupBy of [[], ['tag']] as const) {
        const rows = await ok('analytics.getVerifications', { ...period, keyId: of, groupBy: [...groupBy] });
        expect(rows.reduce((sum, { spentCredits }) => sum + spentCredits, 0)).toBe(7);
      }
    }
  });
});

describe('a refill', () => {
  test('is exact to the millisecond, applied by a verification or a read', async () => {
    await createIdentity({ remaining: 2, refill: daily });
    const { key } = await keyOf();
    expect(await codeOf(key, 2)).toBe('VALID');
    const midnight = Math.ceil(startMs / dayMs) * dayMs;
    clock.now = midnight - 1;
    expect([await codeOf(key), await creditsOf()]).toEqual(['USAGE_EXCEEDED', { remaining: 0, refill: daily }]);
    clock.now = midnight;
    expect(await creditsOf()).toEqual({ remaining: 50, refill: daily });
    expect(await verify(key, 50)).toMatchObject({ valid: true, credits: 0 });
    clock.now = midnight + dayMs - 1;
    expect(await codeOf(key)).toBe('USAGE_EXCEEDED');
    clock.now = midnight + dayMs;
    expect(await verify(key)).toMatchObject({ valid: true, credits: 49 });
  });

  test('replaces a larger balance', async () => {
    await createIdentity({ remaining: 500, refill: daily });
    clock.advance(dayMs);
    expect(await creditsOf()).toMatchObject({ remaining: 50 });
  });

  test('of day 31 is on the last day of a shorter month', async () => {
    await createIdentity({ remaining: 0, refill: { interval: 'monthly', amount: 9, refillDay: 31 } });
    const { key } = await keyOf();
    for (const [month, day] of [
      [0, 31],
      [1, 28],
      [2, 31],
      [3, 30],
    ] as const) {
      clock.now = Date.UTC(2026, month, day) - 1;
      expect([month, await codeOf(key)]).toEqual([month, 'USAGE_EXCEEDED']);
      clock.now += 1;
      expect([month, await codeOf(key, 9)]).toEqual([month, 'VALID']);
    }
  });

  test('that was set while the clock was ahead is computed again', async () => {
    clock.advance(400 * dayMs);
    await createIdentity({ remaining: 0, refill: daily });
    const { key } = await keyOf();
    clock.now = startMs;
    expect(await codeOf(key)).toBe('USAGE_EXCEEDED');
    clock.advance(dayMs);
    expect(await codeOf(key)).toBe('VALID');
  });
});

describe('the identity of a key', () => {
  test('moving the key charges the other one from then on', async () => {
    await createIdentity({ remaining: 10 });
    const other = `${identity}_other`;
    await ok('identities.createIdentity', { externalId: other, credits: { remaining: 20 } });
    const { key, keyId } = await keyOf();
    await verify(key);
    await ok('keys.updateKey', { keyId, externalId: other });
    expect(await verify(key)).toMatchObject({ credits: 19, identity: { credits: 19 } });
    expect(await creditsOf()).toEqual({ remaining: 9 });
    await ok('keys.updateKey', { keyId, externalId: null });
    expect(await verify(key)).not.toHaveProperty('credits');
    expect(await creditsOf(other)).toEqual({ remaining: 19 });
  });

  test('a deleted identity has no balance, and one of its name is another one', async () => {
    await createIdentity({ remaining: 1 });
    const { key, keyId } = await keyOf();
    await verify(key);
    expect(await codeOf(key)).toBe('USAGE_EXCEEDED');
    await ok('identities.deleteIdentity', { identity });
    expect(await verify(key)).not.toHaveProperty('credits');
    await createIdentity({ remaining: 5 });
    expect(await verify(key)).not.toHaveProperty('credits');
    await ok('keys.updateKey', { keyId, externalId: identity });
    expect(await verify(key)).toMatchObject({ credits: 4 });
  });

  test('a key that is rotated, deleted and restored stays with it', async () => {
    await createIdentity({ remaining: 10 });
    const { key, keyId } = await keyOf();
    const next = await ok('keys.rerollKey', { keyId, expiration: hourMs });
    expect([(await verify(key)).credits, (await verify(next.key)).credits]).toEqual([9, 8]);
    await ok('keys.deleteKey', { keyId });
    await ok('keys.restoreKey', { keyId });
    expect((await verify(key)).credits).toBe(7);
  });
});

describe('what is said of a refusal', () => {
  const creditsRule = async (keyId: string, cost: number) =>
    (await ok('keys.explainKey', { keyId, credits: { cost } })).rules.find(({ rule }) => rule === 'credits')!;

  test('explainKey says which balance is too small, what it has and when it is refilled', async () => {
    await createIdentity({ remaining: 5, refill: daily });
    const { keyId } = await keyOf({ credits: { remaining: 8 } });
    const next = Math.ceil(startMs / dayMs) * dayMs;
    const shared = { balance: 5, refill: { ...daily, next } };
    expect(await creditsRule(keyId, 6)).toEqual({
      rule: 'credits',
      result: 'failed',
      of: 'identity',
      balance: 8,
      remaining: 8,
      cost: 6,
      identity: { ...shared, remaining: 5 },
    });
    expect(await creditsRule(keyId, 9)).toMatchObject({ result: 'failed', of: 'key', identity: shared });
    expect(await creditsRule(keyId, 2)).toEqual({
      rule: 'credits',
      result: 'passed',
      balance: 8,
      remaining: 6,
      cost: 2,
      identity: { ...shared, remaining: 3 },
    });
    expect(await creditsOf()).toMatchObject({ remaining: 5 });
  });

  test('explainKey of a key without a balance charges that of its identity', async () => {
    await createIdentity({ remaining: 5 });
    const { keyId } = await keyOf();
    expect((await ok('keys.explainKey', { keyId, credits: { cost: 2 } })).charge.credits).toBe(2);
    expect(await creditsRule(keyId, 6)).toEqual({
      rule: 'credits',
      result: 'failed',
      of: 'identity',
      cost: 6,
      identity: { balance: 5, remaining: 5 },
    });
  });

  test('listRefusals has what was left of the balance that was too small', async () => {
    await createIdentity({ remaining: 5 });
    const { key, keyId } = await keyOf({ credits: { remaining: 8 } });
    await verify(key, 6);
    await verify(key, 9);
    const rows = await ok('analytics.listRefusals', { keyId });
    expect(rows.map(({ cost, remaining, of }) => [cost, remaining, of])).toEqual([
      [9, 8, undefined],
      [6, 5, 'identity'],
    ]);
  });
});
