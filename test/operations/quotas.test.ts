// Quotas: limits that renew by the calendar, of keys, identities, requests, namespaces and overrides.

import { describe, expect, test } from 'vitest';
import { codeOf } from '../../src/domain/quota.ts';
import { dayMs, harness, hourMs } from '../support/harness.ts';

const h = harness(undefined, { leaseMs: 0 });
const { call, ok, clock } = h;

const at = (text: string) => Date.parse(`${text}Z`);
const tokens = { name: 'tokens', limit: 10, type: 'quota', period: 'month', autoApply: true };

interface State {
  name: string;
  remaining: number;
  reset: number;
  exceeded: boolean;
  duration: number;
}
const verify = (key: string, extras: object = {}) => ok('keys.verifyKey', { key, ...extras } as never);
const states = async (key: string, extras: object = {}) => (await verify(key, extras)).ratelimits as State[];
const keyWith = (ratelimits: readonly object[], extras: object = {}) => h.createKey({ ratelimits, ...extras } as never);
const spend = (key: string, cost: number, name = 'tokens') => verify(key, { ratelimits: [{ name, cost }] });
let names = 0;
const unique = (name: string) => `${name}_${++names}`;

test('a quota is renewed when its month ends, and says so', async () => {
  clock.now = at('2026-01-15T12:00');
  const { key, keyId } = await keyWith([tokens]);
  expect(await verify(key)).toMatchObject({
    valid: true,
    ratelimits: [
      {
        ...tokens,
        anchor: 0,
        duration: 31 * dayMs,
        exceeded: false,
        remaining: 9,
        reset: at('2026-02-01T00:00'),
      },
    ],
  });
  expect(await spend(key, 9)).toMatchObject({ valid: true, ratelimits: [{ remaining: 0 }] });
  clock.now = at('2026-01-31T23:59:59.999');
  expect(await verify(key)).toMatchObject({
    code: 'RATE_LIMITED',
    ratelimits: [{ exceeded: true, remaining: 0, reset: at('2026-02-01T00:00') }],
  });
  // A cost that never fits is reset with the period, too.
  expect(await spend(key, 11)).toMatchObject({ ratelimits: [{ exceeded: true, reset: at('2026-02-01T00:00') }] });
  clock.now = at('2026-02-01T00:00');
  expect(await verify(key)).toMatchObject({
    valid: true,
    ratelimits: [{ remaining: 9, reset: at('2026-03-01T00:00'), duration: 28 * dayMs }],
  });
  expect((await ok('keys.getKey', { keyId })).ratelimits).toEqual([
    { ...tokens, id: expect.any(String), anchor: 0, duration: 28 * dayMs },
  ]);
});

test('the length of a period is right after the clock stepped back into the one before', async () => {
  clock.now = at('2026-01-31T23:59:59.999');
  const { key } = await keyWith([tokens]);
  const lengthAt = async (moment: string) => {
    clock.now = at(moment);
    return (await states(key))[0]!.duration / dayMs;
  };
  expect(await lengthAt('2026-02-01T00:00')).toBe(28);
  expect(await lengthAt('2026-02-01T00:00')).toBe(28);
  expect(await lengthAt('2026-01-31T23:59:59.999')).toBe(31);
});

test('a month from the 31st on begins on the last day of shorter ones, and a change keeps the count', async () => {
  clock.now = at('2026-01-31T09:30');
  const { key, keyId } = await keyWith([{ ...tokens, limit: 1000, anchor: clock.now }]);
  await spend(key, 1000);
  expect(await states(key)).toMatchObject([{ exceeded: true, reset: at('2026-02-28T09:30') }]);
  // An upgrade in the middle of the period.
  await ok('keys.updateKey', { keyId, ratelimit: { name: 'tokens', limit: 5000 } });
  expect(await states(key)).toMatchObject([{ remaining: 3999, reset: at('2026-02-28T09:30'), duration: 28 * dayMs }]);
  clock.now = at('2026-02-28T09:30');
  expect(await states(key)).toMatchObject([{ remaining: 4999, reset: at('2026-03-31T09:30'), duration: 31 * dayMs }]);
});

test('another period or anchor has a counter of its own, and the former one is used again', async () => {
  clock.now = at('2026-05-20T10:00');
  const { key, keyId } = await keyWith([tokens]);
  await spend(key, 6);
  const change = (ratelimit: object) =>
    ok('keys.updateKey', { keyId, ratelimit: { name: 'tokens', limit: 10, ...ratelimit } });
  await change({ period: 'day' });
  expect(await states(key)).toMatchObject([{ remaining: 9, reset: at('2026-05-21T00:00'), duration: dayMs }]);
  await change({ anchor: 9 * hourMs });
  expect(await states(key)).toMatchObject([{ remaining: 9, reset: at('2026-05-21T09:00'), anchor: 9 * hourMs }]);
  await change({ type: 'window', duration: 60_000 });
  expect(await states(key)).toMatchObject([{ remaining: 9, duration: 60_000 }]);
  await change({ type: 'quota', period: 'month' });
  expect(await states(key)).toMatchObject([{ remaining: 3, reset: at('2026-06-01T00:00') }]);
  // A yearly quota is kept for longer than the longest window.
  await change({ period: 'year' });
  await spend(key, 9);
  await change({ period: 'month' });
  clock.now = at('2026-11-20T10:00');
  await change({ period: 'year' });
  expect(await states(key)).toMatchObject([{ remaining: 0, reset: at('2027-01-01T00:00') }]);
});

test('a limit without a type stays a quota, and keeps its period and anchor', async () => {
  clock.now = at('2026-04-10T10:00');
  const anchor = at('2026-04-09T00:00');
  const { key, keyId } = await keyWith([{ ...tokens, anchor }]);
  await spend(key, 4);
  const [read] = (await ok('keys.getKey', { keyId })).ratelimits!;
  // As it was read, and as a client sends it that knows nothing of quotas.
  const { type: _type, period: _period, anchor: _anchor, ...unknown } = read!;
  for (const sent of [read!, unknown]) {
    clock.now += 20 * dayMs;
    await ok('keys.updateKey', { keyId, ratelimits: [sent] as never });
    expect((await ok('keys.getKey', { keyId })).ratelimits).toMatchObject([{ type: 'quota', period: 'month', anchor }]);
    expect(
      (await call('keys.verifyKey', { key, ratelimits: [{ ...sent, limit: undefined, duration: undefined }] as never }))
        .status,
    ).toBe(200);
  }
  const wrong = await call('keys.updateKey', { keyId, ratelimits: [{ ...unknown, duration: 60_000 }] as never });
  expect([wrong.status, wrong.error.errors[0]!.location]).toEqual([400, 'body.ratelimits[0].duration']);
});

describe('a combination that has no meaning is a 400 that names the field', () => {
  const rows: [string, object][] = [
    ['period', { type: 'window', duration: 60_000, period: 'day' }],
    ['period', { type: 'concurrency', duration: 60_000, period: 'day' }],
    ['anchor', { type: 'window', duration: 60_000, anchor: 0 }],
    ['anchor', { duration: 60_000, anchor: 0 }],
    ['period', { type: 'quota' }],
    ['period', { type: 'quota', duration: 60_000 }],
    ['duration', { type: 'quota', period: 'day', duration: 60_000 }],
    ['duration', { period: 'month', duration: dayMs }],
    ['period', { type: 'quota', period: 'fortnight' }],
    ['anchor', { type: 'quota', period: 'day', anchor: -1 }],
    ['anchor', { type: 'quota', period: 'day', anchor: 4_102_444_800_001 }],
    ['anchor', { type: 'quota', period: 'day', anchor: 1.5 }],
    ['duration', {}],
  ];
  const locationOf = ({ status, error }: { status: number; error: { errors?: { location: string }[] } }) => [
    status,
    error?.errors?.[0]?.location,
  ];
  test.each(rows)('%s of %j', async (field, values) => {
    const limit = { name: 'tokens', limit: 10, ...values };
    const { apiId, keyId } = await h.createKey();
    const externalId = unique('user');
    const list = `body.ratelimits[0].${field}`;
    const tried = [
      call('keys.createKey', { apiId, ratelimits: [limit] } as never),
      call('keys.updateKey', { keyId, ratelimits: [limit] } as never),
      call('identities.createIdentity', { externalId, ratelimits: [limit] } as never),
    ];
    for (const one of tried) expect(locationOf(await one)).toEqual([400, list]);
    expect(locationOf(await call('keys.updateKey', { keyId, ratelimit: limit } as never))).toEqual([
      400,
      `body.ratelimit.${field}`,
    ]);
  });

  test('of requests, namespaces and overrides', async () => {
    const { key } = await h.createKey();
    const of = { namespace: 'quotas', identifier: 'me', limit: 10 };
    const tried: [string, Promise<{ status: number; error: { errors?: { location: string }[] } }>][] = [
      [
        'body.ratelimits[0].duration',
        call('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', limit: 10 }] } as never),
      ],
      [
        'body.ratelimits[0].limit',
        call('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', period: 'day' }] } as never),
      ],
      [
        'body.ratelimits[0].duration',
        call('keys.verifyKey', {
          key,
          ratelimits: [{ name: 'tokens', limit: 1, period: 'day', duration: 1000 }],
        } as never),
      ],
      ['body.duration', call('ratelimits.limit', { ...of } as never)],
      ['body.duration', call('ratelimits.limit', { ...of, duration: 1000, period: 'day' } as never)],
      ['body.anchor', call('ratelimits.limit', { ...of, duration: 1000, anchor: 5 } as never)],
      ['body[0].duration', call('ratelimits.multiLimit', [of] as never)],
      ['body.duration', call('ratelimits.setOverride', { ...of } as never)],
    ];
    for (const [location, one] of tried) expect(locationOf(await one)).toEqual([400, location]);
  });

  test('of a change that depends on the limit that there is', async () => {
    const { keyId } = await keyWith([tokens, { name: 'requests', limit: 5, duration: 60_000 }]);
    const tried: [string, object][] = [
      ['duration', { name: 'tokens', limit: 5, type: 'window' }],
      ['duration', { name: 'tokens', limit: 5, type: 'concurrency' }],
      ['period', { name: 'requests', limit: 5, type: 'quota' }],
      ['period', { name: 'requests', limit: 5, anchor: 5 }],
      ['period', { name: 'others', limit: 5, type: 'quota' }],
    ];
    for (const [field, ratelimit] of tried)
      expect(locationOf(await call('keys.updateKey', { keyId, ratelimit } as never))).toEqual([
        400,
        `body.ratelimit.${field}`,
      ]);
  });
});

test('a quota of an identity is shared by its keys', async () => {
  clock.now = at('2026-03-30T12:00');
  const externalId = unique('user');
  await ok('identities.createIdentity', { externalId, ratelimits: [{ ...tokens, period: 'week' }] as never });
  const [one, two] = [await h.createKey({ externalId }), await h.createKey({ externalId })];
  await spend(one.key, 6);
  expect(await spend(two.key, 4)).toMatchObject({
    valid: true,
    ratelimits: [{ remaining: 0, reset: at('2026-04-06T00:00') }],
  });
  expect(await verify(one.key)).toMatchObject({ code: 'RATE_LIMITED' });
  clock.now = at('2026-04-06T00:00');
  expect(await verify(one.key)).toMatchObject({ valid: true });
});

test('a request has a quota of its own, without a record of the key', async () => {
  clock.now = at('2026-03-10T12:00');
  const { key, keyId } = await h.createKey();
  const budget = { name: 'gpt-x', limit: 100, period: 'day' };
  expect(await states(key, { ratelimits: [{ ...budget, cost: 60 }] })).toMatchObject([
    { id: '', type: 'quota', period: 'day', anchor: 0, duration: dayMs, remaining: 40, reset: at('2026-03-11T00:00') },
  ]);
  expect(await verify(key, { ratelimits: [{ ...budget, cost: 41 }] })).toMatchObject({ code: 'RATE_LIMITED' });
  expect(await states(key, { ratelimits: [{ ...budget, cost: 40 }] })).toMatchObject([{ remaining: 0 }]);
  // Its counter is that of a quota of the key with that name, period and anchor.
  await ok('keys.updateKey', { keyId, ratelimits: [{ ...budget, autoApply: true }] as never });
  expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED' });
  clock.now = at('2026-03-11T00:00');
  expect(await states(key, { ratelimits: [{ ...budget, cost: 60 }] })).toMatchObject([{ remaining: 40 }]);
  expect(await states(key)).toMatchObject([{ remaining: 39 }]);
});

test('checks of namespaces and overrides have quotas', async () => {
  clock.now = at('2026-02-27T12:00');
  const namespace = unique('mail');
  const check = { namespace, identifier: 'me', limit: 3, period: 'month' } as const;
  const limit = (extras: object = {}) => ok('ratelimits.limit', { ...check, ...extras } as never);
  expect(await limit({ cost: 3 })).toMatchObject({ success: true, remaining: 0, reset: at('2026-03-01T00:00') });
  expect(await limit()).toMatchObject({ success: false, remaining: 0, reset: at('2026-03-01T00:00') });
  const set = { namespace, identifier: 'me', limit: 8, period: 'year', anchor: at('2025-02-28T00:00') } as const;
  await ok('ratelimits.setOverride', set);
  expect(await ok('ratelimits.getOverride', { namespace, identifier: 'me' })).toMatchObject({
    ...set,
    duration: 365 * dayMs,
  });
  expect(await limit({ cost: 8 })).toMatchObject({ success: true, remaining: 0, reset: at('2026-02-28T00:00') });
  const checks = [check, { ...check, identifier: 'you' }];
  expect(await ok('ratelimits.multiLimit', checks)).toMatchObject({
    passed: false,
    limits: [{ passed: false }, { passed: true, remaining: 3 }],
  });
  clock.now = at('2026-02-28T00:00');
  expect(await ok('ratelimits.multiLimit', checks)).toMatchObject({
    passed: true,
    limits: [{ remaining: 7 }, { remaining: 2 }],
  });
});

test('a temporary quota gives way to the permanent one, which has its own count', async () => {
  clock.now = at('2026-06-10T12:00');
  const { key, keyId } = await keyWith([tokens]);
  await spend(key, 4);
  const until = clock.now + 2 * dayMs;
  await ok('keys.updateKey', { keyId, ratelimit: { name: 'tokens', limit: 50, until } });
  expect(await states(key)).toMatchObject([
    { remaining: 45, until, former: { limit: 10, period: 'month', anchor: 0, duration: 30 * dayMs } },
  ]);
  await ok('keys.updateKey', { keyId, ratelimit: { name: 'tokens', limit: 5, period: 'day', until } });
  expect(await states(key)).toMatchObject([{ remaining: 4, duration: dayMs, former: { period: 'month' } }]);
  const other = await call('keys.updateKey', {
    keyId,
    ratelimit: { name: 'tokens', limit: 5, type: 'window', duration: 1000, until },
  });
  expect([other.status, other.error.errors[0]!.location]).toEqual([400, 'body.ratelimit.type']);
  clock.now = until;
  expect(await states(key)).toMatchObject([{ limit: 10, remaining: 4, period: 'month' }]);
});

describe('a hold across the end of a period', () => {
  const hold = { ttl: dayMs };
  async function held(cost: number, limit: object = tokens) {
    clock.now = at('2026-08-31T23:00');
    const { key } = await keyWith([limit]);
    const { hold: made } = await verify(key, { ratelimits: [{ name: 'tokens', cost }], hold });
    return { key, holdId: (made as { id: string }).id };
  }
  const settle = (holdId: string, cost: number) =>
    ok('keys.settleHold' as never, { holdId, ratelimits: [{ name: 'tokens', cost }] } as never);

  test('is settled in the period of its reservation', async () => {
    const { key, holdId } = await held(8);
    expect(await verify(key, { ratelimits: [{ name: 'tokens', cost: 3 }] })).toMatchObject({ code: 'RATE_LIMITED' });
    await settle(holdId, 2);
    expect(await states(key)).toMatchObject([{ remaining: 7 }]);
  });

  test.each([0, 2, 10])('settled for %i afterwards, changes nothing of the next one', async (cost) => {
    const { key, holdId } = await held(8);
    clock.now = at('2026-09-01T01:00');
    await spend(key, 5);
    await settle(holdId, cost);
    expect(await states(key)).toMatchObject([{ remaining: 4 }]);
  });

  test('that expires gives back in its period only', async () => {
    const { key } = await held(8);
    clock.now = at('2026-09-01T00:30');
    await spend(key, 5);
    clock.now = at('2026-09-02T00:00');
    expect(await states(key)).toMatchObject([{ remaining: 4 }]);
  });

  test('of a request, and settled for more within the period', async () => {
    clock.now = at('2026-08-30T23:00');
    const { key } = await h.createKey();
    const budget = { name: 'gpt-x', limit: 100, period: 'month' };
    const { hold: made } = await verify(key, { ratelimits: [{ ...budget, cost: 60 }], hold });
    await ok(
      'keys.settleHold' as never,
      { holdId: (made as { id: string }).id, ratelimits: [{ name: 'gpt-x', cost: 90 }] } as never,
    );
    expect(await states(key, { ratelimits: [{ ...budget, cost: 0 }] })).toMatchObject([{ remaining: 10 }]);
  });
});

test('a step back of the clock neither gives a second quota nor blocks the next one', async () => {
  clock.now = at('2026-10-31T23:59');
  const { key } = await keyWith([tokens]);
  await spend(key, 10);
  clock.now = at('2026-11-01T00:01');
  await spend(key, 6);
  clock.now = at('2026-10-31T23:58');
  expect(await states(key)).toMatchObject([{ exceeded: true, reset: at('2026-11-01T00:00') }]);
  clock.now = at('2026-11-01T00:00');
  expect(await states(key)).toMatchObject([{ remaining: 3 }]);
  // The clock was far ahead.
  clock.now = at('2028-01-05T00:00');
  await spend(key, 10);
  clock.now = at('2026-11-02T00:00');
  expect(await states(key)).toMatchObject([{ exceeded: true, reset: at('2026-12-01T00:00') }]);
  clock.now = at('2026-12-01T00:00');
  expect(await states(key)).toMatchObject([{ remaining: 9 }]);
});

test('explainKey, refusals and the audit log name the period', async () => {
  clock.now = at('2026-09-15T12:00');
  const { key, keyId } = await keyWith([tokens]);
  await spend(key, 10);
  await verify(key);
  const explained = await ok('keys.explainKey', { keyId });
  const rule = explained.rules.find(({ ratelimits }) => ratelimits)!;
  expect(rule.ratelimits).toMatchObject([
    {
      name: 'tokens',
      period: 'month',
      anchor: 0,
      duration: 30 * dayMs,
      used: 10,
      limit: 10,
      reset: at('2026-10-01T00:00'),
    },
  ]);
  const { data } = await call('analytics.listRefusals', { keyId } as never);
  expect(data).toMatchObject([
    { ratelimit: 'tokens', type: 'quota', period: 'month', anchor: 0, duration: 30 * dayMs },
  ]);
  const events = await ok('audit.listEvents' as never, { limit: 5 } as never);
  expect(JSON.stringify(events)).toContain('tokens 10 per month from 0');
});

test('the code of a quota is not a duration that a caller may send', async () => {
  const { apiId } = await h.createKey();
  const ratelimits = [{ name: 'tokens', limit: 10, duration: codeOf('month') }];
  expect((await call('keys.createKey', { apiId, ratelimits })).status).toBe(400);
});

test('a quota may count up to the largest integer', async () => {
  const limit = Number.MAX_SAFE_INTEGER;
  const { key } = await keyWith([{ ...tokens, limit }]);
  expect(await spend(key, 2 ** 52)).toMatchObject({ ratelimits: [{ remaining: limit - 2 ** 52 }] });
  expect(await spend(key, limit - 2 ** 52)).toMatchObject({ valid: true, ratelimits: [{ remaining: 0 }] });
  expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED' });
});
