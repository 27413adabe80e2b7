import { beforeEach, describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs, type InputOf, type OutputOf } from '../../support/harness.ts';
import { outcomeExamples } from '../../support/keyExamples.ts';

const app = harness();
const { clock, call, ok, createKey, createWorkspace } = app;
const startMs = clock.now;
beforeEach(() => {
  clock.now = startMs;
});

type Input = InputOf<'keys.explainKey'>;
type Explained = OutputOf<'keys.explainKey'>;

const explain = (input: Input) => ok('keys.explainKey', input);
const ruleOf = ({ rules }: Explained, name: string) => rules.find(({ rule }) => rule === name)!;
const resultsOf = ({ rules }: Explained) => rules.map(({ rule, result }) => `${rule} ${result}`);
const requests = { name: 'requests', limit: 5, duration: hourMs, autoApply: true };

describe('keys.explainKey: rules', () => {
  test('of a key with every figure, by string and by id', async () => {
    const key = await createKey({
      externalId: 'ada',
      expires: clock.now + hourMs,
      credits: { remaining: 3, refill: { interval: 'monthly', amount: 9, refillDay: 31 } },
      ratelimits: [requests],
      permissions: ['documents.*'],
    });
    await ok('keys.verifyKey', { key: key.key, permissions: 'documents.read' });
    const request = {
      permissions: 'documents.read AND documents.write',
      credits: { cost: 2 },
      ratelimits: [{ name: 'own', cost: 3, limit: 4, duration: hourMs }],
      tags: ['eu'],
    };
    const explained = await explain({ keyId: key.keyId, ...request });
    expect(explained).toEqual({
      valid: true,
      code: 'VALID',
      time: clock.now,
      keyId: key.keyId,
      apiId: key.apiId,
      externalId: 'ada',
      charge: {
        credits: 2,
        ratelimits: [
          { id: expect.stringMatching(/^rl_/), name: 'requests', cost: 1 },
          { id: '', name: 'own', cost: 3 },
        ],
      },
      rules: [
        { rule: 'key', result: 'passed' },
        { rule: 'enabled', result: 'passed' },
        { rule: 'expires', result: 'passed', expires: clock.now + hourMs },
        { rule: 'allowed_ips', result: 'passed' },
        {
          rule: 'permissions',
          result: 'passed',
          slugs: [
            { slug: 'documents.read', held: true },
            { slug: 'documents.write', held: true },
          ],
        },
        { rule: 'ratelimit_names', result: 'passed' },
        {
          rule: 'ratelimits',
          result: 'passed',
          ratelimits: [
            expect.objectContaining({ ...requests, of: 'key', cost: 1, used: 1, exceeded: false, remaining: 3 }),
            expect.objectContaining({ id: '', name: 'own', of: 'request', cost: 3, used: 0, remaining: 1 }),
          ],
        },
        {
          rule: 'credits',
          result: 'passed',
          balance: 2,
          cost: 2,
          remaining: 0,
          refill: { interval: 'monthly', amount: 9, refillDay: 31, next: Date.UTC(2026, 0, 31) },
        },
      ],
    });
    expect(await explain({ key: key.key, ...request })).toEqual(explained);
    expect(JSON.stringify(explained)).not.toContain(key.key);
    expect(await ok('keys.verifyKey', { key: key.key, ...request })).toMatchObject({ code: 'VALID', credits: 0 });
  });

  test.each(Object.entries(outcomeExamples))('%s', async (code, example) => {
    const { key } = await createKey(example.key);
    const explained = await explain({ key, ...example.request });
    expect(explained).toMatchObject({ valid: code === 'VALID', code });
    expect(explained.code).toBe((await ok('keys.verifyKey', { key, ...example.request })).code);
  });

  test('after the one that refuses are not reached, and have their figures', async () => {
    const { key } = await createKey({ enabled: false, expires: 0, credits: { remaining: 3 }, ratelimits: [requests] });
    const explained = await explain({ key, permissions: 'none' });
    expect(resultsOf(explained)).toEqual([
      'key passed',
      'enabled failed',
      'expires not_reached',
      'allowed_ips not_reached',
      'permissions not_reached',
      'ratelimit_names not_reached',
      'ratelimits not_reached',
      'credits not_reached',
    ]);
    expect(ruleOf(explained, 'expires').expires).toBe(0);
    expect(ruleOf(explained, 'permissions').slugs).toEqual([{ slug: 'none', held: false }]);
    expect(ruleOf(explained, 'ratelimits').ratelimits).toMatchObject([{ used: 0, remaining: 5, cost: 1 }]);
    expect(ruleOf(explained, 'credits')).toMatchObject({ balance: 3, cost: 1 });
    expect(explained.charge).toEqual({ credits: 0, ratelimits: [] });
  });

  test.each([
    ['a AND held.x', ['a']],
    ['a AND held.x AND b', ['a', 'b']],
    ['held.x AND (a OR b)', ['a OR b']],
    ['a OR held.x AND b', ['a OR held.x AND b']],
    ['(a OR b) AND c OR d', ['(a OR b) AND c OR d']],
    ['a AND a', ['a']],
    ['(held.x OR a) AND b', ['b']],
  ])('the false parts of %s', async (permissions, missing) => {
    const { key } = await createKey({ permissions: ['held.*'] });
    const explained = await explain({ key, permissions });
    expect(explained.code).toBe('INSUFFICIENT_PERMISSIONS');
    expect(ruleOf(explained, 'permissions').missing).toEqual(missing);
  });

  test('a limit of the identity, and an ad hoc limit of the same name, have their owners', async () => {
    const externalId = 'owner';
    await ok('identities.createIdentity', { externalId, ratelimits: [requests] });
    const { key } = await createKey({ externalId });
    const explained = await explain({ key, ratelimits: [{ name: 'requests', limit: 1, duration: 1000, cost: 2 }] });
    expect(explained.code).toBe('RATE_LIMITED');
    expect(ruleOf(explained, 'ratelimits').ratelimits).toMatchObject([
      { of: 'identity', name: 'requests', exceeded: false, remaining: 5 },
      { of: 'request', id: '', name: 'requests', exceeded: true, remaining: 1, reset: clock.now + 1000 },
    ]);
  });

  test('a refill that is due is in the balance, and the next one is named', async () => {
    const { key } = await createKey({ credits: { remaining: 0, refill: { interval: 'daily', amount: 5 } } });
    clock.advance(dayMs);
    expect(ruleOf(await explain({ key }), 'credits')).toMatchObject({
      balance: 5,
      remaining: 4,
      refill: { next: Date.UTC(2026, 0, 17) },
    });
  });

  test('windows that were charged while the clock was ahead are explained as a verification settles them', async () => {
    const { key } = await createKey({ ratelimits: [{ ...requests, limit: 1 }], externalId: 'ahead' });
    clock.advance(dayMs);
    await ok('keys.verifyKey', { key });
    clock.now = startMs;
    const explained = await explain({ key });
    expect(explained.code).toBe('RATE_LIMITED');
    const { reset } = ruleOf(explained, 'ratelimits').ratelimits![0]!;
    expect(reset).toBeLessThan(startMs + 2 * hourMs);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'RATE_LIMITED', ratelimits: [{ reset }] });
  });

  test('the errors of verifyKey: a limit that does not exist, and one counter too many', async () => {
    const { key } = await createKey();
    const unknown = await explain({ key, ratelimits: [{ name: 'nonexistent' }] });
    expect(unknown).toMatchObject({ valid: false, code: 'precondition_failed' });
    expect(ruleOf(unknown, 'ratelimit_names')).toMatchObject({ result: 'failed', missing: ['nonexistent'] });

    const adHoc = (from: number) =>
      Array.from({ length: 50 }, (_, index) => ({ name: `own ${from + index}`, limit: 5, duration: hourMs }));
    for (let from = 0; from < 1000; from += 50) await ok('keys.verifyKey', { key, ratelimits: adHoc(from) });
    const beyond = { key, ratelimits: [{ name: 'another', limit: 5, duration: hourMs }] };
    const refused = await explain(beyond);
    expect(refused.code).toBe('invalid_input');
    expect(ruleOf(refused, 'ratelimits')).toMatchObject({ result: 'failed', reason: 'too_many_counters' });
    expect(await call('keys.verifyKey', beyond)).toMatchObject({ status: 400, code: 'invalid_input' });
  });
});

describe('keys.explainKey: a key that is not found', () => {
  const reasonOf = async (input: Input, as?: string | string[]) => {
    const { status, data } = await call('keys.explainKey', input, as);
    expect({ status, code: data.code }).toEqual({ status: 200, code: 'NOT_FOUND' });
    expect(data.rules.slice(1).every(({ result }) => result === 'not_reached')).toBe(true);
    return data.rules[0];
  };
  const failed = (reason: string) => ({ rule: 'key', result: 'failed', reason });

  test.each(['unknown', '😀'.repeat(512), '\0"\\'])('an unknown string', async (key) => {
    expect(await reasonOf({ key })).toEqual(failed('unknown'));
  });

  test('one of an API that is none of keyspaces', async () => {
    const { key, keyId, apiId } = await createKey({ enabled: false });
    const { apiId: other } = await ok('apis.createApi', { name: 'other' });
    for (const of of [{ key }, { keyId }]) {
      expect(await reasonOf({ ...of, keyspaces: [other] })).toEqual(failed('other_keyspace'));
      expect((await explain({ ...of, keyspaces: [other, apiId] })).code).toBe('DISABLED');
    }
  });

  test.each(['key_none', 'api_1oTPP4TZQJvbvMWZQJvbvMWV', `key_${'1'.repeat(24)}`, `key_${'0'.repeat(24)}`])(
    'an unknown id: %s',
    async (keyId) => {
      expect(await reasonOf({ keyId })).toEqual(failed('unknown'));
    },
  );

  test('a deleted key, of which the record is kept or not', async () => {
    for (const permanent of [false, true]) {
      const { key, keyId } = await createKey();
      await ok('keys.deleteKey', { keyId, permanent });
      expect(await reasonOf({ keyId })).toEqual(failed('deleted'));
      expect(await reasonOf({ key })).toEqual(failed(permanent ? 'unknown' : 'deleted'));
    }
  });

  test('a key of a deleted API', async () => {
    const { key, keyId, apiId } = await createKey();
    await ok('apis.deleteApi', { apiId });
    expect(await reasonOf({ key })).toEqual(failed('api_deleted'));
    expect(await reasonOf({ keyId })).toEqual(failed('api_deleted'));
  });

  test('a key of another workspace, or of an API that the caller may not read, looks unknown', async () => {
    const { key, keyId } = await createKey();
    const other = await createKey();
    const { rootKey } = await createWorkspace();
    const scoped = [`api.${other.apiId}.read_key`];
    for (const as of [rootKey, scoped]) {
      expect(await reasonOf({ key }, as)).toEqual(failed('unknown'));
      expect(await reasonOf({ keyId }, as)).toEqual(failed('unknown'));
    }
    await ok('keys.deleteKey', { keyId });
    expect(await reasonOf({ key }, scoped)).toEqual(failed('unknown'));
    expect((await call('keys.explainKey', { key: other.key }, scoped)).data.code).toBe('VALID');
  });
});

test('charges, counts and writes nothing', async () => {
  const { key, keyId, apiId } = await createKey({
    externalId: 'unchanged',
    credits: { remaining: 3, refill: { interval: 'daily', amount: 3 } },
    ratelimits: [requests],
  });
  clock.advance(2 * dayMs);
  const before = await app.store.keys.inspect(app.workspaceId, { keyId });
  for (const cost of [0, 1, 9]) {
    await explain({ keyId, credits: { cost }, ratelimits: [{ name: 'own', limit: 1, duration: 1000 }], tags: ['t'] });
  }
  await explain({ key, permissions: 'none' });
  expect(await app.store.keys.inspect(app.workspaceId, { keyId })).toEqual(before);
  expect(await ok('analytics.getVerifications', { apiId })).toEqual([]);
});

test('keys with hostile data are explained', async () => {
  const name = '"\\\n\0limit';
  const { key } = await createKey({ ratelimits: [{ ...requests, name }], meta: { ']': '"' }, name: '\u2028"' });
  expect(ruleOf(await explain({ key }), 'ratelimits').ratelimits).toMatchObject([{ name, used: 0 }]);
  const unknown = await explain({ key, ratelimits: [{ name: `${name}x` }] });
  expect(ruleOf(unknown, 'ratelimit_names').missing).toEqual([`${name}x`]);
});

describe('with leases', () => {
  const leasing = harness(undefined, {
    leaseMs: 2000,
    leaseCredits: true,
    leaseAfter: 2,
    leaseNowMs: () => performance.now(),
  });

  test('decisions that are charged in advance are counted for the key and its identity, and the refusal stands', async () => {
    const limit = { ...requests, limit: 1000 };
    const externalId = 'leased';
    await leasing.ok('identities.createIdentity', { externalId, ratelimits: [limit] });
    const { key, apiId } = await leasing.createKey({ externalId });
    const other = await leasing.createKey({ externalId, apiId });
    // A server leases nothing in the first moments of its connection.
    await expect
      .poll(
        async () => {
          await leasing.ok('keys.verifyKey', { key });
          return (await leasing.ok('keys.explainKey', { key })).leased?.key ?? 0;
        },
        { timeout: 10_000, interval: 10 },
      )
      .toBeGreaterThan(0);
    const { leased } = await leasing.ok('keys.explainKey', { key: other.key });
    expect(leased).toEqual({ key: 0, identity: expect.any(Number) });
    expect(leased!.identity).toBeGreaterThan(0);

    const request = { key, ratelimits: [{ name: limit.name, cost: 1000 }] };
    expect(await leasing.ok('keys.explainKey', request)).toMatchObject({ code: 'RATE_LIMITED' });
  });
});

describe('keys.explainKey: 400', () => {
  test.each<[string, object, string]>([
    ['neither key nor keyId', {}, 'body'],
    ['both', { key: 'k', keyId: 'key_1' }, 'body'],
    ['an empty key', { key: '' }, 'body.key'],
    ['a malformed keyId', { keyId: 'a b' }, 'body.keyId'],
    ['a query that cannot be parsed', { key: 'k', permissions: 'a AND' }, 'body.permissions'],
    ['a limit without duration', { key: 'k', ratelimits: [{ name: 'own', limit: 1 }] }, 'body.ratelimits[0].duration'],
    ['a name twice', { key: 'k', ratelimits: [{ name: 'own' }, { name: 'own' }] }, 'body.ratelimits[1].name'],
    ['a cost below 0', { key: 'k', credits: { cost: -1 } }, 'body.credits.cost'],
  ])('%s', async (_title, input, location) => {
    const answer = await call('keys.explainKey', input as never);
    expect(answer.status).toBe(400);
    expect(answer.error.errors).toMatchObject([{ location }]);
  });
});
