import { beforeEach, describe, expect, test } from 'vitest';
import { dayMs, harness, type InputOf } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';

const { clock, call, ok, createKey } = harness();

let number = 0;
let identity = '';
const startMs = clock.now;
beforeEach(() => {
  clock.now = startMs;
  number += 1;
  identity = `user_${number}`;
});

const create = (credits?: InputOf<'identities.createIdentity'>['credits']) =>
  ok('identities.createIdentity', { externalId: identity, credits });
const change = (operation: string, value?: number | null) =>
  call('identities.updateCredits', { identity, operation, ...(value !== undefined && { value }) } as never);
const creditsOf = async () => (await ok('identities.getIdentity', { identity })).credits;

describe('200', () => {
  test('set, increment and decrement, by the externalId or the id', async () => {
    const { identityId } = await create();
    expect(await creditsOf()).toBeUndefined();
    expect((await change('set', 10)).data).toEqual({ remaining: 10 });
    expect((await change('increment', 5)).data).toEqual({ remaining: 15 });
    const byId = { identity: identityId, operation: 'decrement', value: 3 } as const;
    expect(await ok('identities.updateCredits', byId)).toEqual({ remaining: 12 });
    expect(await creditsOf()).toEqual({ remaining: 12 });
  });

  test('a decrement stops at 0', async () => {
    await create({ remaining: 2 });
    expect((await change('decrement', 3)).data).toEqual({ remaining: 0 });
  });

  test('the refill stays, and null removes it with the balance', async () => {
    const refill = { interval: 'monthly', amount: 9, refillDay: 31 };
    await create({ remaining: 2, refill: refill as never });
    expect((await change('set', 4)).data).toEqual({ remaining: 4, refill });
    expect((await change('set', null)).data).toEqual({ remaining: null });
    expect(await creditsOf()).toBeUndefined();
  });

  test('applies a refill that is due first', async () => {
    await create({ remaining: 2, refill: { interval: 'daily', amount: 9 } });
    clock.now += dayMs;
    expect((await change('increment', 1)).data).toMatchObject({ remaining: 10 });
  });

  test('is in the audit log', async () => {
    const { identityId } = await create({ remaining: 2, refill: { interval: 'daily', amount: 9 } });
    await change('increment', 1);
    await change('set', null);
    const events = await ok('audit.listEvents', { resource: { id: identityId } });
    expect(events.map(({ operation, changes }) => [operation, changes])).toEqual([
      [
        'identities.createIdentity',
        [
          { field: 'externalId', after: identity },
          { field: 'credits.remaining', after: '2' },
          { field: 'credits.refill', after: '9 daily' },
        ],
      ],
      ['identities.updateCredits', [{ field: 'credits.remaining', before: '2', after: '3' }]],
      [
        'identities.updateCredits',
        [
          { field: 'credits.remaining', before: '3' },
          { field: 'credits.refill', before: '9 daily' },
        ],
      ],
    ]);
  });

  test('other fields of the identity stay, and its keys', async () => {
    const { key } = await createKey({ externalId: identity });
    await ok('identities.updateIdentity', {
      identity,
      meta: { plan: 'pro' },
      ratelimits: [{ name: 'requests', limit: 5, duration: 60_000, autoApply: true }],
    });
    await ok('keys.verifyKey', { key });
    await change('set', 10);
    const verified = await ok('keys.verifyKey', { key });
    expect(verified).toMatchObject({ valid: true, identity: { meta: { plan: 'pro' }, credits: 9 } });
    expect(verified.ratelimits).toMatchObject([{ name: 'requests', remaining: 3 }]);
  });
});

describe('400', () => {
  test.each([
    ['set', undefined, 'body.value', /required/],
    ['increment', null, 'body.value', /must be a number to increment/],
    ['decrement', -1, 'body.value', /must be at least 0/],
    ['set', 1.5, 'body.value', /integer/],
    ['add', 1, 'body.operation', /./],
  ])('%s %s', async (operation, value, location, message) => {
    await create({ remaining: 4 });
    const { status, error } = await change(operation, value);
    expect([status, error.errors[0]]).toMatchObject([400, { location, message: expect.stringMatching(message) }]);
    expect(await creditsOf()).toEqual({ remaining: 4 });
  });

  test.each(['increment', 'decrement'])('%s without a balance', async (operation) => {
    await create();
    expect(await change(operation, 1)).toMatchObject(invalidAt('body.operation'));
  });

  test('above the largest balance', async () => {
    await create({ remaining: Number.MAX_SAFE_INTEGER });
    expect(await change('increment', 1)).toMatchObject(invalidAt('body.value'));
    expect(await creditsOf()).toEqual({ remaining: Number.MAX_SAFE_INTEGER });
  });
});
