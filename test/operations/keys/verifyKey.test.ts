import { readFileSync } from 'node:fs';
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Outcome, outcomes } from '../../../src/domain/verification.ts';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';
import { combined, earlyRefusals, outcomeExamples, repairOf } from '../../support/keyExamples.ts';
import { limitDefaults } from '../../support/limits.ts';

const app = harness();
/** A second server on the same Redis: its own connection and cache. */
const otherServer = harness();
const { clock, call, ok, send, createKey, createRootKey, createWorkspace } = app;

const startMs = clock.now;
const minuteMs = 60_000;
let apiId: string;
beforeAll(async () => {
  ({ apiId } = await ok('apis.createApi', { name: 'test' }));
});
beforeEach(() => {
  clock.now = startMs;
});

type Extras = Omit<InputOf<'keys.verifyKey'>, 'key'>;
type NewKey = Parameters<typeof createKey>[0];

const verify = (key: string, extras: Extras = {}) => ok('keys.verifyKey', { key, ...extras });
const tryVerify = (key: string, extras: object = {}, as?: string | string[]) =>
  call('keys.verifyKey', { key, ...extras } as never, as);
const newKey = async (input: NewKey = {}) => (await createKey({ apiId, ...input })).key;
/** Makes the server cache the snapshot of a key, which it does from the second use on. */
const hold = async (key: string) => {
  for (let times = 0; times < 2; times++) await verify(key);
};
/** Reads the balance and these limits with a verification of cost 0. */
const look = (key: string, ...names: string[]) =>
  verify(key, { credits: { cost: 0 }, ratelimits: names.map((name) => ({ name, cost: 0 })) });

const perMinute = (name: string, limit: number, autoApply = false) => ({ name, limit, duration: minuteMs, autoApply });

describe('keys.verifyKey: the response', () => {
  test('of a key without fields has its ids only', async () => {
    const { keyId, key } = await createKey({ apiId });
    expect(await verify(key)).toEqual({ valid: true, code: 'VALID', keyId, enabled: true });
  });

  test('is the same for a cached key', async () => {
    const key = await newKey({ name: 'Alice', externalId: 'alice', permissions: ['documents.read'] });
    const first = await verify(key);
    expect(await verify(key)).toEqual(first);
    expect(await verify(key)).toEqual(first);
  });

  test('is complete for concurrent requests for keys that are not cached, or cached in another version', async () => {
    const alice = await newKey({ name: 'Alice', permissions: ['documents.read'] });
    const bob = await newKey({ name: 'Bob', externalId: 'bob' });
    const asked = [alice, bob, 'unknown', alice, bob, alice];
    const names = async () => (await Promise.all(asked.map((key) => verify(key)))).map(({ name }) => name);
    expect(await names()).toEqual(['Alice', 'Bob', undefined, 'Alice', 'Bob', 'Alice']);
    for (const name of ['Carol', 'Dave']) {
      await ok('keys.updateKey', { keyId: (await verify(alice)).keyId!, name });
      expect(await names()).toEqual([name, 'Bob', undefined, name, 'Bob', name]);
    }
  });

  test('of an unknown key is NOT_FOUND and nothing else', async () => {
    expect(await verify('unknown')).toEqual({ valid: false, code: 'NOT_FOUND' });
  });

  test.each(earlyRefusals)(
    'a refusal with %s still has the fields and the identity of the key',
    async (code, example) => {
      const fields = { name: 'Alice', meta: { a: 1 }, externalId: 'alice', credits: { remaining: 7 } };
      const answer = await verify(await newKey({ ...fields, ...example.key }), example.request);
      expect(answer).toMatchObject({ valid: false, code, name: 'Alice', meta: { a: 1 }, credits: 7 });
      expect(answer.identity?.externalId).toBe('alice');
      expect(answer).not.toHaveProperty('ratelimits');
    },
  );

  test('a refusal with USAGE_EXCEEDED still has the balance', async () => {
    const answer = await verify(await newKey({ name: 'Alice', credits: { remaining: 7 } }), { credits: { cost: 8 } });
    expect(answer).toMatchObject({ valid: false, code: 'USAGE_EXCEEDED', name: 'Alice', credits: 7 });
  });

  test('accepts any characters in the key string, and a content type with a charset', async () => {
    const body = JSON.stringify({ key: '\0"\\😀\u2028' });
    const { status, json } = await send('/v2/keys.verifyKey', { body, contentType: 'application/json; charset=utf-8' });
    expect({ status, json }).toEqual({
      status: 200,
      json: { meta: { requestId: expect.stringMatching(/^req_/) }, data: { valid: false, code: 'NOT_FOUND' } },
    });
  });
});

describe('keys.verifyKey: NOT_FOUND', () => {
  test('for a deleted key and for a key of a deleted API', async () => {
    const deleted = await createKey();
    const orphaned = await createKey();
    await verify(deleted.key);
    await verify(orphaned.key);
    await ok('keys.deleteKey', { keyId: deleted.keyId });
    await ok('apis.deleteApi', { apiId: orphaned.apiId });
    expect(await verify(deleted.key)).toEqual({ valid: false, code: 'NOT_FOUND' });
    expect(await verify(orphaned.key)).toEqual({ valid: false, code: 'NOT_FOUND' });
  });

  test('for a key of another workspace', async () => {
    const { rootKey } = await createWorkspace();
    const { data } = await tryVerify(await newKey(), {}, rootKey);
    expect(data).toEqual({ valid: false, code: 'NOT_FOUND' });
  });

  test('for a key of an API that the root key may not verify, which charges nothing', async () => {
    const key = await newKey({ credits: { remaining: 5 } });
    const other = await ok('apis.createApi', { name: 'other' });
    const { status, data } = await tryVerify(key, {}, [`api.${other.apiId}.verify_key`]);
    expect({ status, data }).toEqual({ status: 200, data: { valid: false, code: 'NOT_FOUND' } });
    expect(await look(key)).toMatchObject({ credits: 5 });
  });

  describe('for a key of none of keyspaces', () => {
    const notFound = { valid: false, code: 'NOT_FOUND' };
    let other: string;
    beforeAll(async () => {
      other = (await ok('apis.createApi', { name: 'other' })).apiId;
    });

    test('an empty list, as some clients send it, is as none', async () => {
      const { key } = await createKey({ apiId });
      expect(await verify(key, { keyspaces: [] })).toEqual(await verify(key));
    });

    test('charges and counts nothing, also of a cached key; with its own API the response has keyspaceId', async () => {
      const limit = perMinute('requests', 5, true);
      const { key, keyId } = await createKey({ apiId, credits: { remaining: 5 }, ratelimits: [limit] });
      for (let times = 0; times < 3; times++) {
        expect(await verify(key, { keyspaces: [other] })).toEqual(notFound);
        expect(await verify(key, { keyspaces: [other, 'api_none'], permissions: 'not.held' })).toEqual(notFound);
        expect(await verify(key, { keyspaces: [other], hold: { ttl: minuteMs }, tags: ['t'] })).toEqual(notFound);
      }
      const rows = await ok('analytics.getVerifications', { keyId, groupBy: ['outcome'] });
      expect(rows.reduce((total, { count }) => total + count, 0)).toBe(0);
      expect(await look(key, 'requests')).toMatchObject({ credits: 5, ratelimits: [{ remaining: 5 }] });
      const found = await verify(key, { keyspaces: [other, apiId] });
      expect(found).toMatchObject({
        valid: true,
        keyId,
        keyspaceId: apiId,
        credits: 4,
        ratelimits: [{ remaining: 4 }],
      });
      expect(await verify(key)).not.toHaveProperty('keyspaceId');
    });

    test('comes before every other refusal, and keyspaceId is in these', async () => {
      for (const [outcome, example] of Object.entries(outcomeExamples)) {
        const key = await newKey(example.key);
        expect(await verify(key, { ...example.request, keyspaces: [other] })).toEqual(notFound);
        const answer = await verify(key, { ...example.request, keyspaces: [apiId] });
        expect(answer).toMatchObject({ code: outcome, keyspaceId: apiId });
      }
      const unknownLimit = { ratelimits: [{ name: 'nope' }] };
      expect(await verify(await newKey(), { ...unknownLimit, keyspaces: [other] })).toEqual(notFound);
      const { status } = await tryVerify(await newKey(), { ...unknownLimit, keyspaces: [apiId] });
      expect(status).toBe(412);
    });

    test('with a hold: keyspaceId is next to it, and a repeated request with another keyspace does not find it', async () => {
      const key = await newKey({ credits: { remaining: 5 } });
      const hold = { ttl: minuteMs, id: 'job-1' };
      const held = await verify(key, { keyspaces: [apiId], hold });
      expect(held).toMatchObject({ valid: true, keyspaceId: apiId, hold: { id: expect.stringMatching(/_job-1$/) } });
      expect(await verify(key, { keyspaces: [other], hold })).toEqual(notFound);
      expect(await verify(key, { keyspaces: [apiId], hold })).toEqual(held);
    });

    test('a root key for one API gains nothing by naming another', async () => {
      const { data } = await tryVerify(await newKey(), { keyspaces: [apiId] }, [`api.${other}.verify_key`]);
      expect(data).toEqual(notFound);
    });
  });

  test('also with an unknown limit in the request', async () => {
    expect(await verify('unknown', { ratelimits: [{ name: 'nope' }] })).toEqual({ valid: false, code: 'NOT_FOUND' });
  });
});

describe('keys.verifyKey: permissions of the caller', () => {
  test('each item of a batch is decided under its own root key', async () => {
    const key = await newKey();
    const may = await createRootKey([`api.${apiId}.verify_key`]);
    const mayNot = await createRootKey(['api.*.read_key']);
    const elsewhere = await createRootKey(['api.api_other.verify_key']);
    const rootKeys = [may, mayNot, elsewhere, may, elsewhere, mayNot];
    const answers = await Promise.all(rootKeys.map((rootKey) => tryVerify(key, {}, rootKey)));
    expect(answers.map(({ status, data }) => (data ? data.code : status))).toEqual([
      'VALID',
      403,
      'NOT_FOUND',
      'VALID',
      'NOT_FOUND',
      403,
    ]);
  });
});

describe('keys.verifyKey: the order of checks', () => {
  // A request that fails every check. Each row corrects what fails in the row before.
  const mends: [string, NewKey, Extras][] = [
    ['DISABLED', {}, {}],
    ['EXPIRED', { enabled: true }, {}],
    ['INSUFFICIENT_PERMISSIONS', { expires: startMs + 1 }, {}],
    ['precondition_failed', { permissions: ['documents.read'] }, {}],
    ['RATE_LIMITED', {}, { ratelimits: [{ name: 'requests', cost: 2 }] }],
    ['USAGE_EXCEEDED', {}, { ratelimits: [{ name: 'requests', cost: 1 }] }],
    ['VALID', { credits: { remaining: 1 } }, {}],
  ];
  test.each(mends.map(([code], index) => [code, index] as const))('%s', async (code, index) => {
    const input: NewKey = {
      enabled: false,
      expires: startMs,
      credits: { remaining: 0 },
      ratelimits: [perMinute('requests', 1)],
    };
    const extras: Extras = {
      permissions: 'documents.read',
      ratelimits: [{ name: 'requests', cost: 2 }, { name: 'unknown' }],
    };
    for (const [, key, request] of mends.slice(0, index + 1)) {
      Object.assign(input, key);
      Object.assign(extras, request);
    }
    const answer = await tryVerify(await newKey(input), extras);
    expect(answer.data ? answer.data.code : answer.code).toBe(code);
    expect(answer.status).toBe(code === 'precondition_failed' ? 412 : 200);
  });

  // From the contract, which is normative.
  const order = [...readFileSync('docs/contract.md', 'utf8').matchAll(/^\| \d \| .* \| `([A-Z_]+)`[^|]* \|$/gm)].map(
    ([, code]) => code as Outcome,
  );

  test('is in docs/contract.md §6 for each outcome', () => {
    expect([...order].sort()).toEqual([...outcomes].sort());
    expect([order[0], order.at(-1)]).toEqual(['NOT_FOUND', 'VALID']);
  });

  const refusals = order.slice(1, -1) as (keyof typeof outcomeExamples)[];
  const pairs = refusals.flatMap((first, index) => refusals.slice(index + 1).map((second) => [first, second] as const));
  test.each(pairs)('%s comes before %s', async (first, second) => {
    const { key, request } = combined(outcomeExamples[first], outcomeExamples[second]);
    expect(await verify(await newKey(key), request)).toMatchObject({ code: first });
  });

  test.each(refusals)('%s: its example', async (code) => {
    const { key, request } = outcomeExamples[code];
    expect(await verify(await newKey(key), request)).toMatchObject({ valid: false, code });
  });

  test('a key is expired from the first moment of its millisecond', async () => {
    const key = await newKey({ expires: startMs + 1000 });
    clock.advance(999);
    expect(await verify(key)).toMatchObject({ code: 'VALID' });
    clock.advance(1);
    expect(await verify(key)).toMatchObject({ valid: false, code: 'EXPIRED' });
  });
});

describe('keys.verifyKey: 400', () => {
  // test/operations/keys/fields.test.ts has invalid values of the other inputs.
  test.each<[string, object, string]>([
    ['an empty key', { key: '' }, 'body.key'],
    ['a key of 513', { key: '😀'.repeat(513) }, 'body.key'],
    ['apiId', { apiId: 'api_1' }, 'body.apiId'],
  ])('for %s, with any key', async (_title, input, location) => {
    expect(await tryVerify('unknown', input)).toMatchObject(invalidAt(location));
  });

  test.each<[string, object]>([
    ['a key of 512', { key: '😀'.repeat(512) }],
    ['a query of 1000', { permissions: 'x'.repeat(1000) }],
    ['a cost of 1e12', { credits: { cost: 1e12 } }],
    ['50 limits', { ratelimits: Array.from({ length: 50 }, (_, i) => ({ name: `limit${i}` })) }],
    ['a limit name of 128', { ratelimits: [{ name: '😀'.repeat(128) }] }],
    ['20 tags of 512', { tags: Array.from({ length: 20 }, (_, i) => `${i}`.padEnd(512, 'x')) }],
    ['a tag twice', { tags: ['a', 'a'] }],
    ['an empty migrationId', { migrationId: '' }],
    ['a migrationId of 256', { migrationId: 'x'.repeat(256) }],
  ])('but not for %s', async (_title, input) => {
    expect((await tryVerify('unknown', input)).data).toEqual({ valid: false, code: 'NOT_FOUND' });
  });

  test('charges nothing', async () => {
    const key = await newKey({ credits: { remaining: 5 }, ratelimits: [perMinute('requests', 5, true)] });
    await tryVerify(key, { permissions: 'a AND' });
    await tryVerify(key, { ratelimits: [{ name: 'requests', limit: 1 }] });
    expect(await look(key, 'requests')).toMatchObject({ credits: 5, ratelimits: [{ remaining: 5 }] });
  });
});

describe('keys.verifyKey: 412', () => {
  test('for a limit that the key does not have, naming it; nothing is charged', async () => {
    const key = await newKey({ credits: { remaining: 5 }, ratelimits: [perMinute('requests', 5, true)] });
    const answer = await tryVerify(key, { ratelimits: [{ name: 'requests' }, { name: 'unknown' }] });
    expect(answer).toMatchObject({ status: 412, code: 'precondition_failed' });
    expect(answer.error.detail).toContain('"unknown"');
    expect(await look(key, 'requests')).toMatchObject({ credits: 5, ratelimits: [{ remaining: 5 }] });
  });

  test('also at cost 0, and by case', async () => {
    const key = await newKey({ ratelimits: [perMinute('requests', 5)] });
    expect((await tryVerify(key, { ratelimits: [{ name: 'unknown', cost: 0 }] })).status).toBe(412);
    expect((await tryVerify(key, { ratelimits: [{ name: 'Requests' }] })).status).toBe(412);
  });

  test('does not set lastUsedAt', async () => {
    const { key, keyId } = await createKey({ apiId });
    await tryVerify(key, { ratelimits: [{ name: 'unknown' }] });
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('lastUsedAt');
  });
});

describe('keys.verifyKey: credits', () => {
  test('are charged 1 by default', async () => {
    expect(await verify(await newKey({ credits: { remaining: 5 } }))).toMatchObject({ credits: 4 });
  });

  test('are charged the given cost', async () => {
    const key = await newKey({ credits: { remaining: 5 } });
    expect(await verify(key, { credits: { cost: 3 } })).toMatchObject({ credits: 2 });
    expect(await verify(key, { credits: { cost: 2 } })).toMatchObject({ valid: true, credits: 0 });
  });

  test('never go below 0: a cost above the balance is refused and charges nothing', async () => {
    const key = await newKey({ credits: { remaining: 5 } });
    const answer = await verify(key, { credits: { cost: 6 } });
    expect(answer).toMatchObject({ valid: false, code: 'USAGE_EXCEEDED', credits: 5 });
    expect(await verify(key, { credits: { cost: 5 } })).toMatchObject({ valid: true, credits: 0 });
    expect(await verify(key)).toMatchObject({ valid: false, code: 'USAGE_EXCEEDED', credits: 0 });
  });

  test('cost 0 always passes', async () => {
    const key = await newKey({ credits: { remaining: 0 } });
    expect(await verify(key, { credits: { cost: 0 } })).toMatchObject({ valid: true, credits: 0 });
  });

  test('of an unlimited key are neither charged nor returned', async () => {
    const answer = await verify(await newKey(), { credits: { cost: 1e12 } });
    expect(answer.valid).toBe(true);
    expect(answer).not.toHaveProperty('credits');
  });

  test('are exact up to the largest safe integer', async () => {
    const key = await newKey({ credits: { remaining: Number.MAX_SAFE_INTEGER } });
    expect(await verify(key)).toMatchObject({ credits: Number.MAX_SAFE_INTEGER - 1 });
    expect(await verify(key, { credits: { cost: 1e12 } })).toMatchObject({
      credits: Number.MAX_SAFE_INTEGER - 1 - 1e12,
    });
  });

  test('are the same in getKey', async () => {
    const { key, keyId } = await createKey({ apiId, credits: { remaining: 5 } });
    await verify(key, { credits: { cost: 2 } });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ credits: { remaining: 3 } });
  });
});

describe('keys.verifyKey: charged together or not at all', () => {
  const both = { credits: { remaining: 3 }, ratelimits: [perMinute('small', 2, true), perMinute('large', 9, true)] };
  const untouched = { credits: 3, ratelimits: [{ remaining: 2 }, { remaining: 9 }] };

  test('VALID charges every limit and the balance', async () => {
    const key = await newKey(both);
    await verify(key);
    expect(await look(key, 'small', 'large')).toMatchObject({
      credits: 2,
      ratelimits: [{ remaining: 1 }, { remaining: 8 }],
    });
  });

  test('a limit that is exceeded does not charge the other limit and the balance', async () => {
    const key = await newKey(both);
    const answer = await verify(key, { ratelimits: [{ name: 'small', cost: 3 }] });
    expect(answer).toMatchObject({
      code: 'RATE_LIMITED',
      credits: 3,
      ratelimits: [
        { name: 'small', exceeded: true, remaining: 2 },
        { name: 'large', exceeded: false, remaining: 9 },
      ],
    });
    expect(await look(key, 'small', 'large')).toMatchObject(untouched);
  });

  test('a balance that is too low does not charge the limits', async () => {
    const key = await newKey(both);
    const answer = await verify(key, { credits: { cost: 4 } });
    expect(answer).toMatchObject({ code: 'USAGE_EXCEEDED', credits: 3 });
    expect(answer.ratelimits).toMatchObject([
      { exceeded: false, remaining: 2, reset: clock.now },
      { exceeded: false, remaining: 9, reset: clock.now },
    ]);
    expect(await look(key, 'small', 'large')).toMatchObject(untouched);
  });

  test.each(earlyRefusals)('%s charges nothing', async (code, example) => {
    const { key, keyId } = await createKey({ apiId, ...both });
    await ok('keys.updateKey', { keyId, ...example.key });
    const request = { ...example.request, ratelimits: [{ name: 'small', cost: 2 }] };
    expect(await verify(key, request)).toMatchObject({ code });
    await ok('keys.updateKey', { keyId, ...repairOf(example) });
    expect(await look(key, 'small', 'large')).toMatchObject(untouched);
  });

  test('an exceeded ad hoc limit does not charge the others, and the other way round', async () => {
    const key = await newKey(both);
    const adHoc = { name: 'burst', limit: 5, duration: 1000 };
    expect(await verify(key, { ratelimits: [{ ...adHoc, cost: 6 }] })).toMatchObject({ code: 'RATE_LIMITED' });
    expect(await verify(key, { credits: { cost: 4 }, ratelimits: [adHoc] })).toMatchObject({ code: 'USAGE_EXCEEDED' });
    expect(await look(key, 'small', 'large')).toMatchObject(untouched);
    expect(await verify(key, { ratelimits: [{ ...adHoc, cost: 0 }] })).toMatchObject({
      ratelimits: [{}, {}, { remaining: 5 }],
    });
  });
});

describe('keys.verifyKey: which limits are checked', () => {
  test('only those with autoApply when none is named', async () => {
    const key = await newKey({ ratelimits: [perMinute('named', 5), perMinute('auto', 5, true)] });
    expect((await verify(key)).ratelimits).toMatchObject([{ name: 'auto', autoApply: true, remaining: 4 }]);
    expect((await look(key, 'named')).ratelimits).toMatchObject([{ name: 'named', remaining: 5 }, { name: 'auto' }]);
  });

  test('the response has no ratelimits if none is checked', async () => {
    const key = await newKey({ ratelimits: [perMinute('named', 5)] });
    expect(await verify(key)).not.toHaveProperty('ratelimits');
  });

  test('every named one, at cost 1 by default', async () => {
    const key = await newKey({ ratelimits: [perMinute('one', 5), perMinute('two', 5), perMinute('three', 5)] });
    const answer = await verify(key, { ratelimits: [{ name: 'three', cost: 4 }, { name: 'one' }] });
    expect(answer.ratelimits).toHaveLength(2);
    expect(answer.ratelimits).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ name: 'one', remaining: 4 }),
        expect.objectContaining({ name: 'three', remaining: 1 }),
      ]),
    );
  });

  test('naming an auto limit replaces its cost: it is charged once', async () => {
    const key = await newKey({ ratelimits: [perMinute('requests', 10, true)] });
    const answer = await verify(key, { ratelimits: [{ name: 'requests', cost: 4 }] });
    expect(answer.ratelimits).toMatchObject([{ name: 'requests', remaining: 6 }]);
    expect(answer.ratelimits).toHaveLength(1);
  });

  test('naming an auto limit at cost 0 charges it nothing', async () => {
    const key = await newKey({ ratelimits: [perMinute('requests', 1, true)] });
    await verify(key, { ratelimits: [{ name: 'requests', cost: 0 }] });
    expect((await verify(key)).ratelimits).toMatchObject([{ remaining: 0, exceeded: false }]);
  });

  test('a limit at cost 0 that is full does not refuse', async () => {
    const key = await newKey({ ratelimits: [perMinute('requests', 1)] });
    await verify(key, { ratelimits: [{ name: 'requests' }] });
    expect(await look(key, 'requests')).toMatchObject({ valid: true, ratelimits: [{ exceeded: false, remaining: 0 }] });
  });

  test('50 auto limits are all charged', async () => {
    const ratelimits = Array.from({ length: 50 }, (_, i) => perMinute(`limit${i}`, i + 1, true));
    const answer = await verify(await newKey({ ratelimits }));
    expect(answer.ratelimits?.map(({ remaining }) => remaining)).toEqual(ratelimits.map((_, i) => i));
  });

  test('limits are counted for each key on its own', async () => {
    const [one, two] = [
      await newKey({ ratelimits: [perMinute('requests', 1, true)] }),
      await newKey({ ratelimits: [perMinute('requests', 1, true)] }),
    ];
    await verify(one);
    expect(await verify(two)).toMatchObject({ valid: true });
    expect(await verify(one)).toMatchObject({ code: 'RATE_LIMITED' });
  });

  test('a limit may have any name, also one that looks like something else', async () => {
    for (const name of ['__proto__', 'constructor', 'a:b:c', '"\\\n', '😀😀😀', 'null']) {
      const key = await newKey({ ratelimits: [perMinute(name, 5)] });
      const answer = await verify(key, { ratelimits: [{ name, cost: 2 }] });
      expect(answer.ratelimits).toMatchObject([{ name, remaining: 3 }]);
    }
  });
});

describe('keys.verifyKey: ad hoc limits', () => {
  const adHoc = { name: 'exports', limit: 3, duration: minuteMs };

  test('continue their count from call to call, and have an empty id', async () => {
    const key = await newKey();
    await verify(key, { ratelimits: [adHoc] });
    expect((await verify(key, { ratelimits: [{ ...adHoc, cost: 2 }] })).ratelimits).toEqual([
      { ...limitDefaults, id: '', ...adHoc, exceeded: false, remaining: 0, reset: expect.any(Number) },
    ]);
    expect(await verify(key, { ratelimits: [adHoc] })).toMatchObject({ code: 'RATE_LIMITED' });
  });

  test('apply to one call: the key does not have them afterwards', async () => {
    const { key, keyId } = await createKey({ apiId });
    await verify(key, { ratelimits: [adHoc] });
    expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('ratelimits');
    expect(await verify(key)).not.toHaveProperty('ratelimits');
    expect((await tryVerify(key, { ratelimits: [{ name: 'exports' }] })).status).toBe(412);
  });

  test('keep their count under another limit, and have another under another duration', async () => {
    const key = await newKey();
    await verify(key, { ratelimits: [{ ...adHoc, cost: 3 }] });
    const answer = await verify(key, { ratelimits: [{ ...adHoc, limit: 10 }] });
    expect(answer.ratelimits).toMatchObject([{ limit: 10, remaining: 6 }]);
    const longer = await verify(key, { ratelimits: [{ ...adHoc, duration: minuteMs + 1 }] });
    expect(longer.ratelimits).toMatchObject([{ remaining: 2 }]);
  });

  test('are counted for each key on its own, also with one identity', async () => {
    const [one, two] = [await newKey({ externalId: 'shared' }), await newKey({ externalId: 'shared' })];
    await verify(one, { ratelimits: [{ ...adHoc, cost: 3 }] });
    expect((await verify(two, { ratelimits: [adHoc] })).ratelimits).toMatchObject([{ remaining: 2 }]);
  });

  test('of the name and duration of a configured limit are on its counter, both ways', async () => {
    const key = await newKey({ ratelimits: [{ name: 'exports', limit: 10, duration: minuteMs }] });
    await verify(key, { ratelimits: [{ name: 'exports', cost: 4 }] });
    const answer = await verify(key, { ratelimits: [{ ...adHoc, limit: 6 }] });
    expect(answer.ratelimits).toMatchObject([{ id: '', limit: 6, remaining: 1 }]);
    expect((await look(key, 'exports')).ratelimits).toMatchObject([{ limit: 10, remaining: 5 }]);
  });

  test('are on the counter of the second or third of several limits', async () => {
    const names = ['reads', 'writes', 'exports'];
    const key = await newKey({ ratelimits: names.map((name) => ({ name, limit: 10, duration: minuteMs })) });
    await verify(key, { ratelimits: names.map((name, index) => ({ name, cost: index + 1 })) });
    const ratelimits = names.map((name) => ({ name, limit: 8, duration: minuteMs }));
    expect((await verify(key, { ratelimits })).ratelimits).toMatchObject(
      [6, 5, 4].map((remaining) => ({ id: '', remaining })),
    );
  });

  test('of the name of a configured limit but another duration are on a counter of their own', async () => {
    const key = await newKey({ ratelimits: [{ name: 'exports', limit: 10, duration: hourMs }] });
    await verify(key, { ratelimits: [{ name: 'exports', cost: 4 }] });
    expect((await verify(key, { ratelimits: [adHoc] })).ratelimits).toMatchObject([{ remaining: 2 }]);
    expect((await look(key, 'exports')).ratelimits).toMatchObject([{ remaining: 6 }]);
  });

  test('replace the auto limit of their name, for this call', async () => {
    const key = await newKey({ ratelimits: [perMinute('exports', 1, true)] });
    const answer = await verify(key, { ratelimits: [{ ...adHoc, cost: 2 }] });
    expect(answer.ratelimits).toMatchObject([{ id: '', limit: 3, remaining: 1 }]);
    expect(answer.ratelimits).toHaveLength(1);
  });

  test('are checked with the auto limits of other names', async () => {
    const key = await newKey({ ratelimits: [perMinute('requests', 5, true)] });
    expect((await verify(key, { ratelimits: [adHoc] })).ratelimits).toMatchObject([
      { name: 'requests', remaining: 4 },
      { name: 'exports', remaining: 2 },
    ]);
  });

  test('50 of them in one call are all charged', async () => {
    const key = await newKey();
    const ratelimits = Array.from({ length: 50 }, (_, i) => ({ name: `limit${i}`, limit: i + 1, duration: 1000 + i }));
    const answer = await verify(key, { ratelimits });
    expect(answer.ratelimits?.map(({ remaining }) => remaining)).toEqual(ratelimits.map((_, i) => i));
    expect(await verify(key, { ratelimits })).toMatchObject({ code: 'RATE_LIMITED' });
  });
});

describe('keys.verifyKey: remaining and reset', () => {
  /** The latest time at which a unit that is charged now must be available again. */
  const latest = (duration: number) => clock.now + duration + Math.max(1, duration / 64);
  const at = async (key: string, cost: number) =>
    (await verify(key, { ratelimits: [{ name: 'requests', cost }] })).ratelimits![0]!;

  test('without a count all of it remains, and reset is now', async () => {
    const key = await newKey({ ratelimits: [perMinute('requests', 5)] });
    expect(await at(key, 0)).toMatchObject({ exceeded: false, remaining: 5, reset: clock.now });
  });

  test.each([
    ['a small limit', 5],
    ['a large limit', 5000],
  ])('after admission by %s: reset is when the oldest unit leaves, to the millisecond', async (_title, limit) => {
    const key = await newKey({ ratelimits: [perMinute('requests', limit)] });
    clock.advance(123);
    const first = await at(key, 2);
    expect(first).toMatchObject({ exceeded: false, remaining: limit - 2 });
    expect(first.reset).toBeGreaterThanOrEqual(clock.now + minuteMs);
    expect(first.reset).toBeLessThanOrEqual(latest(minuteMs));

    clock.advance(5000);
    expect(await at(key, 1)).toMatchObject({ remaining: limit - 3, reset: first.reset });
    clock.now = first.reset - 1;
    expect(await at(key, 0)).toMatchObject({ remaining: limit - 3 });
    clock.now = first.reset;
    expect(await at(key, 0)).toMatchObject({ remaining: limit - 1 });
  });

  test.each([
    ['a small limit', 4],
    ['a large limit', 4000],
  ])('after denial by %s: reset is the first moment at which this cost fits', async (_title, limit) => {
    const quarter = limit / 4;
    const key = await newKey({ ratelimits: [perMinute('requests', limit)] });
    for (let i = 0; i < 3; i++) {
      await at(key, quarter);
      clock.advance(3000);
    }
    // Three quarters are charged, 3 s apart. Three quarters at once fit when two of them have left.
    const denied = await at(key, 3 * quarter);
    expect(denied).toMatchObject({ exceeded: true, remaining: quarter });
    clock.now = denied.reset - 1;
    expect(await at(key, 3 * quarter)).toMatchObject({ exceeded: true, reset: denied.reset });
    clock.now = denied.reset;
    expect(await at(key, 3 * quarter)).toMatchObject({ exceeded: false, remaining: 0 });
    expect(denied.reset).toBeGreaterThanOrEqual(startMs + 3000 + minuteMs);
    expect(denied.reset).toBeLessThanOrEqual(startMs + 3000 + minuteMs * (1 + 1 / 64));
  });

  test('a cost above the limit is denied, now and a duration later', async () => {
    const key = await newKey({ ratelimits: [perMinute('requests', 5)] });
    const answer = await verify(key, { ratelimits: [{ name: 'requests', cost: 6 }] });
    expect(answer).toMatchObject({ code: 'RATE_LIMITED' });
    expect(answer.ratelimits).toMatchObject([{ exceeded: true, remaining: 5, reset: clock.now + minuteMs }]);
  });

  test('a denied request charges nothing: a smaller one still fits', async () => {
    const key = await newKey({ ratelimits: [perMinute('requests', 10)] });
    await at(key, 8);
    expect(await at(key, 3)).toMatchObject({ exceeded: true, remaining: 2 });
    expect(await at(key, 2)).toMatchObject({ exceeded: false, remaining: 0 });
  });

  test('the window slides: a burst at the end of a minute is still counted in the next', async () => {
    const key = await newKey({ ratelimits: [perMinute('requests', 10)] });
    clock.now = startMs + minuteMs - 1;
    expect(await at(key, 10)).toMatchObject({ exceeded: false });
    for (const later of [1, minuteMs / 2, minuteMs - 1]) {
      clock.now = startMs + minuteMs - 1 + later;
      expect(await at(key, 1)).toMatchObject({ exceeded: true });
    }
    clock.now = latest(minuteMs);
    expect(await at(key, 10)).toMatchObject({ exceeded: false });
  });

  test('a limit that would pass when another fails returns its own values', async () => {
    const key = await newKey({ ratelimits: [perMinute('requests', 5, true), perMinute('exports', 1)] });
    const first = await verify(key, { ratelimits: [{ name: 'exports' }] });
    clock.advance(1000);
    const second = await verify(key, { ratelimits: [{ name: 'exports' }] });
    expect(second.ratelimits).toMatchObject([
      { name: 'requests', exceeded: false, remaining: 4, reset: first.ratelimits![0]!.reset },
      { name: 'exports', exceeded: true, remaining: 0, reset: first.ratelimits![1]!.reset },
    ]);
  });

  test('the largest limit counts exactly', async () => {
    const most = Number.MAX_SAFE_INTEGER;
    const key = await newKey({ ratelimits: [{ name: 'requests', limit: most, duration: dayMs }] });
    expect(await at(key, most - 1)).toMatchObject({ exceeded: false, remaining: 1 });
    expect(await at(key, 2)).toMatchObject({ exceeded: true, remaining: 1 });
    expect(await at(key, 1)).toMatchObject({ exceeded: false, remaining: 0 });
  });
});

describe('keys.verifyKey: the longest duration', () => {
  const longest = { name: 'requests', limit: 1, duration: Number.MAX_SAFE_INTEGER };

  test.each([1, 1000])('counts by a limit of %i, and its reset stays a safe integer', async (limit) => {
    const key = await newKey({ ratelimits: [{ ...longest, limit, autoApply: true }] });
    const answers = [await verify(key), await verify(key, { ratelimits: [{ name: 'requests', cost: limit }] })];
    clock.advance(1000 * dayMs);
    answers.push(await verify(key, { ratelimits: [{ name: 'requests', cost: limit + 1 }] }));
    expect(answers.map(({ code }) => code)).toEqual(['VALID', 'RATE_LIMITED', 'RATE_LIMITED']);
    for (const answer of answers) expect(answer.ratelimits).toMatchObject([{ reset: Number.MAX_SAFE_INTEGER }]);
  });
});

describe('keys.verifyKey: the permission query', () => {
  const granted = ['documents.read', 'billing.*', 'Case.read', 'a:b-c_d', 'x.y.*', 'reports*'];
  let key: string;
  beforeAll(async () => {
    key = await newKey({ permissions: granted });
  });

  test.each([
    ['documents.read', true],
    ['documents.write', false],
    ['documents', false],
    ['documents.*', false],
    ['documents.read.own', false],
    ['billing.read', true],
    ['billing.read.own', true],
    ['billing.*', true],
    ['billing', false],
    ['billing.', true],
    ['billingx.read', false],
    ['x.y.z', true],
    ['x.y', false],
    ['x.z', false],
    ['x.*', false],
    ['reports', false],
    ['reports*', true],
    ['reports.read', false],
    ['Case.read', true],
    ['case.read', false],
    ['a:b-c_d', true],
    ['a/b', false],
    ['never.heard.of', false],
    ['documents.read AND billing.read', true],
    ['documents.read AND nope.nope', false],
    ['nope.nope OR billing.read', true],
    ['nope.nope OR nope.nape', false],
    ['documents.read and billing.read aNd x.y.z', true],
    ['nope.nope or documents.read', true],
    // AND binds tighter than OR.
    ['documents.read OR nope.nope AND nope.nope', true],
    ['nope.nope AND nope.nope OR documents.read', true],
    ['(documents.read OR nope.nope) AND nope.nope', false],
    ['nope.nope AND (nope.nope OR documents.read)', false],
    ['documents.read AND (nope.nope OR billing.read)', true],
    ['((documents.read))', true],
    ['(documents.read)AND(billing.read)', true],
    ['  documents.read\n\tAND  billing.read ', true],
    // Operators are whole words.
    ['android.read', false],
    ['android.read OR documents.read', true],
    ['or.and', false],
  ])('%j: %s', async (permissions, holds) => {
    expect(await verify(key, { permissions })).toMatchObject({
      valid: holds,
      code: holds ? 'VALID' : 'INSUFFICIENT_PERMISSIONS',
    });
  });

  test('accepts 100 slugs and no more', async () => {
    const slugs = (count: number) => Array.from({ length: count }, () => 'abc').join(' OR ');
    expect(await verify(key, { permissions: `${slugs(99)} OR a:b-c_d` })).toMatchObject({ valid: true });
    const answer = await tryVerify(key, { permissions: slugs(101) });
    expect(answer).toMatchObject({ status: 400, code: 'permissions_query_syntax' });
    expect(answer.error.detail).toContain('700');
  });

  test('is evaluated again when the permissions of the key or its role have changed', async () => {
    const { roleId } = await ok('permissions.createRole', { name: 'changing', permissions: ['one.read'] });
    const changing = await newKey({ roles: ['changing'] });
    const keyId = (await verify(changing)).keyId!;
    const holds = async (permissions: string) => (await verify(changing, { permissions })).valid;
    expect([await holds('one.read'), await holds('two.read'), await holds('new.read')]).toEqual([true, false, false]);
    await ok('permissions.setRolePermissions', { roleId, permissions: ['two.read'] });
    expect([await holds('one.read'), await holds('two.read')]).toEqual([false, true]);
    await ok('keys.addPermissions', { keyId, permissions: ['one.read'] });
    expect([await holds('one.read'), await holds('two.read')]).toEqual([true, true]);
    await ok('keys.setPermissions', { keyId, permissions: [] });
    expect([await holds('one.read'), await holds('two.read')]).toEqual([false, true]);
    // A slug of the query is created after the query was used, then deleted, and created again.
    await ok('permissions.createPermission', { name: 'New', slug: 'new.read' });
    expect(await holds('new.read')).toBe(false);
    await ok('keys.addPermissions', { keyId, permissions: ['new.read'] });
    expect(await holds('new.read')).toBe(true);
    await ok('permissions.deletePermission', { permission: 'new.read' });
    expect(await holds('new.read')).toBe(false);
    await ok('permissions.createPermission', { name: 'New', slug: 'new.read' });
    expect(await holds('new.read')).toBe(false);
    await ok('permissions.deleteRole', { role: 'changing' });
    expect(await holds('two.read')).toBe(false);
  });

  test('is evaluated for each workspace with its own permissions, which have the same numbers', async () => {
    const [granted, other] = await Promise.all(
      ['mine.read', 'theirs.read'].map(async (slug) => {
        const { rootKey } = await createWorkspace();
        const { apiId } = (await call('apis.createApi', { name: 'own' }, rootKey)).data;
        const { key } = (await call('keys.createKey', { apiId, permissions: [slug] }, rootKey)).data;
        return async () => (await call('keys.verifyKey', { key, permissions: 'mine.read' }, rootKey)).data.valid;
      }),
    );
    for (let again = 0; again < 2; again++) expect([await granted!(), await other!()]).toEqual([true, false]);
  });

  test('is evaluated correctly also when more are used than are cached', async () => {
    const asked = Array.from(
      { length: 2500 },
      (_, index) => `kind${index}.read OR documents.${index % 2 ? 'read' : 'no'}`,
    );
    const answers = await Promise.all(asked.map(async (permissions) => (await verify(key, { permissions })).valid));
    expect(answers).toEqual(asked.map((_, index) => index % 2 === 1));
  });

  test('a key without any permission holds none', async () => {
    expect(await verify(await newKey(), { permissions: 'documents.read' })).toMatchObject({ valid: false });
  });

  test.each([
    ['AND', 0],
    [' ', 1],
    ['a.b AND', 7],
    ['a.b OR OR c.d', 7],
    ['a.b c.d', 4],
    ['(a.b', 4],
    ['a.b)', 3],
    ['()', 1],
    ['a.b AND (c.d OR )', 16],
    ['a.b & c.d', 4],
    ['a.b AND "c.d"', 8],
    ['NOT a.b', 4],
    ['a.b AND 😀', 8],
  ])('400 for %j, at position %i', async (permissions, position) => {
    for (const presented of [key, 'unknown']) {
      const answer = await tryVerify(presented, { permissions });
      expect(answer).toMatchObject({ status: 400, code: 'permissions_query_syntax' });
      expect(answer.error.detail).toMatch(new RegExp(`\\b${position}\\b`));
      expect(answer.error.errors).toMatchObject([{ location: 'body.permissions' }]);
    }
  });
});

describe('keys.verifyKey: metadata is returned as the text that was sent', () => {
  test.each([
    '{"10":1,"2":2}',
    '{"b":1,"a":{"z":1,"10":2,"9":3}}',
    '{"a":1.0,"b":1e3,"c":0.1000,"d":-0}',
    '{"large":123456789012345678901234567890,"small":1e-400}',
    '{"é":"\\u00e9 😀 \\ud83d\\ude00","quoted":"\\"\\\\\\/\\n\\u0000"}',
    '{"__proto__":{"a":1},"constructor":{"prototype":2}}',
    '{"":"","a":[1,{"b":[null,true]},[]],"o":{}}',
    '{"text":"a } ] , : b"}',
  ])('%s', async (meta) => {
    const { json } = await send('/v2/keys.createKey', { body: `{"meta":${meta},"apiId":"${apiId}"}` });
    const { key, keyId } = json.data;
    const said = async (path: string, input: object) => (await send(path, { body: JSON.stringify(input) })).body;
    expect(await said('/v2/keys.verifyKey', { key })).toContain(`"meta":${meta}`);
    expect(await said('/v2/keys.verifyKey', { key })).toContain(`"meta":${meta}`);
    expect(await said('/v2/keys.getKey', { keyId })).toContain(`"meta":${meta}`);
    expect(await said('/v2/keys.whoami', { key })).toContain(`"meta":${meta}`);
  });

  test('without the white space between its tokens', async () => {
    const body = `{ "apiId" : "${apiId}" , "meta" : { "a b" : [ 1 , " c " ] ,\n\t"d" : { } } }`;
    const { json } = await send('/v2/keys.createKey', { body });
    const answer = await send('/v2/keys.verifyKey', { body: JSON.stringify({ key: json.data.key }) });
    expect(answer.body).toContain('"meta":{"a b":[1," c "],"d":{}}');
  });
});

describe('keys.verifyKey: roles', () => {
  test('are returned with their permissions, each permission once, and count in the query', async () => {
    await ok('permissions.createRole', { name: 'editor', permissions: ['pages.read', 'pages.write'] });
    const key = await newKey({ permissions: ['pages.read', 'pages.list'], roles: ['editor', 'editor'] });
    const answer = await verify(key, { permissions: 'pages.write AND pages.list' });
    expect(answer).toMatchObject({ valid: true, roles: ['editor'] });
    expect(answer.permissions?.toSorted()).toEqual(['pages.list', 'pages.read', 'pages.write']);
  });

  test('of thousands of permissions are returned with each of them once, to all concurrent callers', async () => {
    const slugs = (role: number) => Array.from({ length: 1000 }, (_, index) => `many.${role * 900 + index}`);
    const roles = Array.from({ length: 7 }, (_, role) => `many ${role}`);
    for (const [role, name] of roles.entries()) await ok('permissions.createRole', { name, permissions: slugs(role) });
    const key = await newKey({ roles });
    for (let time = 0; time < 3; time++) {
      for (const answer of await Promise.all([verify(key), verify(key), verify(key)])) {
        expect(new Set(answer.permissions)).toEqual(new Set(roles.flatMap((_, role) => slugs(role))));
        expect(answer.permissions).toHaveLength(6400);
        expect(answer.roles?.toSorted()).toEqual(roles);
      }
    }
  });

  test('apply from the next verification on when their permissions change', async () => {
    const { roleId } = await ok('permissions.createRole', { name: 'viewer', permissions: ['views.read'] });
    const key = await newKey({ roles: ['viewer'] });
    expect(await verify(key)).toMatchObject({ permissions: ['views.read'] });
    await ok('permissions.setRolePermissions', { roleId, permissions: ['views.all'] });
    expect(await verify(key)).toMatchObject({ permissions: ['views.all'] });
    expect(await verify(key, { permissions: 'views.read' })).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
    await ok('permissions.deleteRole', { role: 'viewer' });
    expect(await verify(key)).not.toHaveProperty('roles');
  });
});

describe('keys.verifyKey: identity', () => {
  let count = 0;
  /** Creates an identity with these limits. Returns its externalId. */
  async function withLimits(ratelimits: ReturnType<typeof perMinute>[], meta = {}) {
    const externalId = `holder_${++count}`;
    await ok('identities.createIdentity', { externalId, meta, ratelimits });
    return externalId;
  }

  test('its limits are counted for all of its keys together', async () => {
    const externalId = await withLimits([perMinute('shared', 3, true)]);
    const [one, two] = [await newKey({ externalId }), await newKey({ externalId })];
    expect((await verify(one)).ratelimits).toMatchObject([{ name: 'shared', remaining: 2 }]);
    expect((await verify(two, { ratelimits: [{ name: 'shared', cost: 2 }] })).ratelimits).toMatchObject([
      { remaining: 0 },
    ]);
    expect(await verify(one)).toMatchObject({ code: 'RATE_LIMITED' });
  });

  test('its limits can be named, and those without autoApply are checked only then', async () => {
    const key = await newKey({ externalId: await withLimits([perMinute('shared', 3)]) });
    expect(await verify(key)).not.toHaveProperty('ratelimits');
    expect((await verify(key, { ratelimits: [{ name: 'shared' }] })).ratelimits).toMatchObject([
      { id: expect.stringMatching(/^rl_/), name: 'shared', remaining: 2 },
    ]);
  });

  test('a limit of the key replaces the identity’s limit of the same name, which is not charged', async () => {
    const externalId = await withLimits([perMinute('requests', 3, true)]);
    const own = await newKey({ externalId, ratelimits: [perMinute('requests', 9, true)] });
    const other = await newKey({ externalId });
    expect((await verify(own)).ratelimits).toMatchObject([{ limit: 9, remaining: 8 }]);
    expect((await verify(other)).ratelimits).toMatchObject([{ limit: 3, remaining: 2 }]);
  });

  test('the limit of the key wins also without autoApply: then no limit of that name is checked automatically', async () => {
    const externalId = await withLimits([perMinute('requests', 3, true)]);
    const key = await newKey({ externalId, ratelimits: [perMinute('requests', 9)] });
    expect(await verify(key)).not.toHaveProperty('ratelimits');
    expect((await look(key, 'requests')).ratelimits).toMatchObject([{ limit: 9 }]);
  });

  test('limits of both are charged together or not at all', async () => {
    const externalId = await withLimits([perMinute('shared', 2, true)]);
    const key = await newKey({ externalId, credits: { remaining: 9 }, ratelimits: [perMinute('requests', 9, true)] });
    expect(await verify(key, { ratelimits: [{ name: 'shared', cost: 3 }] })).toMatchObject({ code: 'RATE_LIMITED' });
    expect(await verify(key, { ratelimits: [{ name: 'requests', cost: 10 }] })).toMatchObject({ code: 'RATE_LIMITED' });
    expect(await verify(key, { credits: { cost: 10 } })).toMatchObject({ code: 'USAGE_EXCEEDED' });
    expect(await look(key, 'shared', 'requests')).toMatchObject({
      credits: 9,
      ratelimits: [{ remaining: 9 }, { remaining: 2 }],
    });
    await verify(key);
    expect(await look(key, 'shared', 'requests')).toMatchObject({
      credits: 8,
      ratelimits: [{ remaining: 8 }, { remaining: 1 }],
    });
  });

  test.each([
    ['the same duration', minuteMs],
    ['another duration', minuteMs / 2],
  ])('an ad hoc limit of its name and of %s does not hide its auto limit, which counts 1', async (_what, duration) => {
    const externalId = await withLimits([perMinute('shared', 3, true), perMinute('asked', 3)]);
    const [key, other] = [await newKey({ externalId }), await newKey({ externalId })];
    const adHoc = { name: 'shared', limit: 9, duration, cost: 4 };
    const answer = await verify(key, { ratelimits: [adHoc, { ...adHoc, name: 'asked' }] });
    expect(answer.ratelimits).toMatchObject([
      { id: expect.stringMatching(/^rl_/), name: 'shared', limit: 3, remaining: 2 },
      { id: '', name: 'shared', limit: 9, remaining: 5 },
      { id: '', name: 'asked', limit: 9, remaining: 5 },
    ]);
    expect(answer.ratelimits).toHaveLength(3);
    // An ad hoc limit at cost 0 also charges the identity's limit of that name.
    await verify(key, { ratelimits: [{ ...adHoc, cost: 0 }] });
    await verify(other);
    const refused = await verify(key, { ratelimits: [adHoc] });
    expect(refused).toMatchObject({
      code: 'RATE_LIMITED',
      ratelimits: [
        { exceeded: true, remaining: 0 },
        { id: '', exceeded: false, remaining: 5 },
      ],
    });
  });

  test('an ad hoc limit replaces the limit of the key, which still hides that of the identity', async () => {
    const externalId = await withLimits([perMinute('requests', 3, true)]);
    const key = await newKey({ externalId, ratelimits: [perMinute('requests', 2, true)] });
    for (let time = 0; time < 5; time++) {
      const answer = await verify(key, { ratelimits: [{ name: 'requests', limit: 9, duration: minuteMs / 2 }] });
      expect(answer).toMatchObject({ code: 'VALID', ratelimits: [{ id: '', remaining: 8 - time }] });
      expect(answer.ratelimits).toHaveLength(1);
    }
  });

  test('many keys of one identity in one turn admit its limit exactly', async () => {
    const externalId = await withLimits([perMinute('shared', 30, true)]);
    const keys = await Promise.all(Array.from({ length: 20 }, () => newKey({ externalId })));
    const answers = await Promise.all(Array.from({ length: 100 }, (_, i) => verify(keys[i % 20]!)));
    expect(answers.filter(({ valid }) => valid)).toHaveLength(30);
  });

  test('its metadata and limits are in the response', async () => {
    const externalId = await withLimits([perMinute('shared', 5)], { plan: 'pro' });
    expect(await verify(await newKey({ externalId }))).toMatchObject({
      identity: { externalId, meta: { plan: 'pro' }, ratelimits: [perMinute('shared', 5)] },
    });
  });

  test('a change of it applies to the next verification', async () => {
    const externalId = await withLimits([perMinute('shared', 5, true)], { plan: 'pro' });
    const key = await newKey({ externalId });
    await verify(key);
    await ok('identities.updateIdentity', {
      identity: externalId,
      meta: { plan: 'free' },
      ratelimits: [perMinute('shared', 2, true)],
    });
    expect(await verify(key)).toMatchObject({
      identity: { meta: { plan: 'free' }, ratelimits: [{ limit: 2 }] },
      ratelimits: [{ limit: 2, remaining: 0 }],
    });
    expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED' });
  });

  test.each([
    ['verified in between', true],
    ['not verified in between', false],
  ])(
    'a deleted identity is removed from the key, and a new one of its name is not linked to it: %s',
    async (_title, verified) => {
      const externalId = await withLimits([perMinute('shared', 1, true)]);
      const { key, keyId } = await createKey({ apiId, externalId });
      await verify(key);
      const bare = { valid: true, code: 'VALID', keyId, enabled: true };
      await ok('identities.deleteIdentity', { identity: externalId });
      if (verified) expect(await verify(key)).toEqual(bare);
      await ok('identities.createIdentity', { externalId, ratelimits: [perMinute('shared', 1, true)] });
      expect(await ok('keys.getKey', { keyId })).not.toHaveProperty('externalId');
      expect(await verify(key)).toEqual(bare);
      expect(await verify(key)).toEqual(bare);
    },
  );

  test('keys of one externalId return the same identity', async () => {
    const [one, two] = [
      await verify(await newKey({ externalId: 'bob' })),
      await verify(await newKey({ externalId: 'bob' })),
    ];
    expect(one.identity).toEqual({ id: expect.stringMatching(/^id_/), externalId: 'bob', meta: {}, ratelimits: [] });
    expect(two.identity).toEqual(one.identity);
  });

  test('a key without externalId returns none', async () => {
    expect(await verify(await newKey())).not.toHaveProperty('identity');
  });
});

describe('keys.verifyKey: refill', () => {
  const at = (...parts: [number, number, number?, number?, number?, number?, number?]) =>
    Date.UTC(parts[0], parts[1] - 1, ...(parts.slice(2) as []));
  const daily = { interval: 'daily', amount: 9 };
  const monthly = (refillDay?: number) => ({ interval: 'monthly', amount: 9, ...(refillDay && { refillDay }) });

  test.each<[string, object, number, number]>([
    ['daily, at midnight UTC', daily, at(2026, 1, 15, 12), at(2026, 1, 16)],
    ['daily, in the last millisecond of a year', daily, at(2026, 12, 31, 23, 59, 59, 999), at(2027, 1, 1)],
    ['daily, from midnight on: the next one', daily, at(2026, 1, 15), at(2026, 1, 16)],
    ['daily, into a leap day', daily, at(2028, 2, 28, 12), at(2028, 2, 29)],
    ['monthly, on the first unless told', monthly(), at(2026, 1, 15), at(2026, 2, 1)],
    ['monthly, on a day still to come', monthly(20), at(2026, 1, 15), at(2026, 1, 20)],
    ['monthly, on a day that has passed', monthly(10), at(2026, 1, 15), at(2026, 2, 10)],
    ['monthly, on the day it is', monthly(15), at(2026, 1, 15, 12), at(2026, 2, 15)],
    ['monthly, over the end of a year', monthly(5), at(2026, 12, 6), at(2027, 1, 5)],
    ['monthly, on the 31st of a short month', monthly(31), at(2026, 4, 1), at(2026, 4, 30)],
    ['monthly, on the 31st in February', monthly(31), at(2026, 1, 31, 12), at(2026, 2, 28)],
    ['monthly, on the 30th in a leap February', monthly(30), at(2028, 2, 1), at(2028, 2, 29)],
    ['monthly, on the 31st after February', monthly(31), at(2026, 2, 28), at(2026, 3, 31)],
    ['monthly, on the 29th of a February without it', monthly(29), at(2026, 2, 28, 1), at(2026, 3, 29)],
  ])('%s: exact to the millisecond', async (_title, refill, createdAt, due) => {
    clock.now = createdAt;
    const { key, keyId } = await createKey({ apiId, credits: { remaining: 2, refill } as never });
    clock.now = due - 1;
    expect(await verify(key)).toMatchObject({ credits: 1 });
    clock.now = due;
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ credits: { remaining: 9 } });
    expect(await verify(key)).toMatchObject({ credits: 8 });
    expect(await verify(key)).toMatchObject({ credits: 7 });
  });

  test('lowers a balance that is above the amount', async () => {
    const key = await newKey({ credits: { remaining: 100, refill: { interval: 'daily', amount: 9 } } });
    clock.advance(dayMs);
    expect(await verify(key)).toMatchObject({ credits: 8 });
  });

  test('is applied once for all days missed, and again on the next', async () => {
    const key = await newKey({ credits: { remaining: 0, refill: { interval: 'daily', amount: 9 } } });
    clock.advance(10 * dayMs);
    expect(await verify(key, { credits: { cost: 9 } })).toMatchObject({ valid: true, credits: 0 });
    clock.now = at(2026, 1, 26) - 1;
    expect(await verify(key)).toMatchObject({ code: 'USAGE_EXCEEDED' });
    clock.advance(1);
    expect(await verify(key)).toMatchObject({ valid: true, credits: 8 });
  });

  test('month after month falls on the day, shorter months in between', async () => {
    clock.now = at(2026, 1, 31, 1);
    const key = await newKey({ credits: { remaining: 0, refill: { interval: 'monthly', amount: 9, refillDay: 31 } } });
    for (const due of [at(2026, 2, 28), at(2026, 3, 31), at(2026, 4, 30), at(2026, 5, 31)]) {
      clock.now = due - 1;
      expect(await look(key)).toMatchObject({ credits: 0 });
      clock.now = due;
      expect(await verify(key, { credits: { cost: 9 } })).toMatchObject({ valid: true, credits: 0 });
    }
  });

  test.each<[string, NewKey]>([
    ['disabled', { enabled: false }],
    ['expired', { expires: 1 }],
  ])('applies to %s keys too', async (_title, input) => {
    const key = await newKey({ ...input, credits: { remaining: 0, refill: { interval: 'daily', amount: 9 } } });
    clock.advance(dayMs);
    expect(await verify(key)).toMatchObject({ valid: false, credits: 9 });
    expect(await ok('keys.whoami', { key })).toMatchObject({ credits: { remaining: 9 } });
  });

  test('a refused verification after it neither loses nor repeats it', async () => {
    const key = await newKey({ credits: { remaining: 0, refill: { interval: 'daily', amount: 9 } } });
    clock.advance(dayMs);
    expect(await verify(key, { credits: { cost: 10 } })).toMatchObject({ code: 'USAGE_EXCEEDED', credits: 9 });
    expect(await verify(key, { credits: { cost: 9 } })).toMatchObject({ code: 'VALID', credits: 0 });
    expect(await verify(key)).toMatchObject({ code: 'USAGE_EXCEEDED', credits: 0 });
  });

  test('is applied once, by the sweeper or by a verification', async () => {
    const key = await newKey({ credits: { remaining: 0, refill: { interval: 'daily', amount: 9 } } });
    clock.advance(dayMs);
    await verify(key, { credits: { cost: 5 } });
    while (await app.store.sweep.refill(app.workspaceId));
    expect(await look(key)).toMatchObject({ credits: 4 });
  });
});

describe('keys.verifyKey: one turn of the event loop', () => {
  test('300 verifications of a key with 100 credits and a limit of 60: exactly 60 pass', async () => {
    const key = await newKey({ credits: { remaining: 100 }, ratelimits: [perMinute('requests', 60, true)] });
    const answers = await Promise.all(Array.from({ length: 300 }, () => verify(key)));
    expect(answers.filter(({ code }) => code === 'VALID')).toHaveLength(60);
    expect(answers.filter(({ code }) => code === 'RATE_LIMITED')).toHaveLength(240);
    expect(answers.slice(0, 60).map(({ credits }) => credits)).toEqual(Array.from({ length: 60 }, (_, i) => 99 - i));
    expect(await look(key, 'requests')).toMatchObject({ credits: 40, ratelimits: [{ remaining: 0 }] });
  });

  test('each response is its own: many keys, costs and refusals at once', async () => {
    const keys = await Promise.all(
      Array.from({ length: 40 }, (_, i) => newKey({ name: `key ${i}`, credits: { remaining: i } })),
    );
    const requests = Array.from({ length: 200 }, (_, i) => i);
    const answers = await Promise.all(
      requests.map((i) => {
        if (i % 7 === 3) return tryVerify(keys[i % 40]!, { ratelimits: [{ name: 'unknown' }] });
        if (i % 7 === 5) return tryVerify(`unknown ${i}`);
        return tryVerify(keys[i % 40]!, { credits: { cost: 0 }, permissions: i % 7 === 1 ? 'a.b' : undefined });
      }),
    );
    for (const [i, { status, data }] of answers.entries()) {
      if (i % 7 === 3) expect(status).toBe(412);
      else if (i % 7 === 5) expect(data).toEqual({ valid: false, code: 'NOT_FOUND' });
      else expect(data).toMatchObject({ name: `key ${i % 40}`, credits: i % 40, valid: i % 7 !== 1 });
    }
  });

  test('an update between two verifications applies to the second', async () => {
    const { key, keyId } = await createKey({ apiId, name: 'before' });
    await hold(key);
    const [, , after] = await Promise.all([
      verify(key),
      ok('keys.updateKey', { keyId, name: 'after' }),
      ok('keys.getKey', { keyId }),
    ]);
    expect(after.keyId).toBe(keyId);
    expect(await verify(key)).toMatchObject({ name: 'after' });
  });
});

describe('keys.verifyKey: the cached snapshot of a key', () => {
  test('follows every change of the key, its permissions and its identity', async () => {
    const { key, keyId } = await createKey({ apiId, name: 'before', meta: { a: 1 }, externalId: 'held' });
    const limits = [{ name: 'requests', limit: 10, duration: minuteMs, autoApply: true }];
    await ok('permissions.createRole', { name: 'holder', permissions: ['documents.read'] });
    const expires = clock.now + hourMs;
    const changes: [change: () => Promise<unknown>, shown: object][] = [
      [() => ok('keys.updateKey', { keyId, name: 'after' }), { name: 'after' }],
      [() => ok('keys.updateKey', { keyId, meta: { a: 2 } }), { meta: { a: 2 } }],
      [() => ok('keys.updateKey', { keyId, expires }), { expires }],
      [
        () => ok('keys.updateKey', { keyId, ratelimits: limits }),
        { ratelimits: [expect.objectContaining(limits[0]!)] },
      ],
      [() => ok('keys.addPermissions', { keyId, permissions: ['bills.read'] }), { permissions: ['bills.read'] }],
      [() => ok('keys.addRoles', { keyId, roles: ['holder'] }), { roles: ['holder'], permissions: expect.anything() }],
      [() => ok('permissions.deleteRole', { role: 'holder' }), { permissions: ['bills.read'] }],
      [
        () => ok('identities.updateIdentity', { identity: 'held', meta: { of: 'identity' } }),
        { identity: expect.objectContaining({ meta: { of: 'identity' } }) },
      ],
      [
        () => ok('identities.updateIdentity', { identity: 'held', ratelimits: [perMinute('shared', 5)] }),
        { identity: expect.objectContaining({ ratelimits: [expect.objectContaining({ name: 'shared' })] }) },
      ],
      [
        () => ok('keys.updateKey', { keyId, externalId: 'another' }),
        { identity: expect.objectContaining({ externalId: 'another' }) },
      ],
      [() => ok('keys.updateKey', { keyId, enabled: false }), { enabled: false, code: 'DISABLED' }],
    ];
    await hold(key);
    for (const [change, shown] of changes) {
      await change();
      expect(await verify(key)).toMatchObject(shown);
      expect(await verify(key)).toMatchObject(shown);
    }
    await ok('keys.deleteKey', { keyId });
    expect(await verify(key)).toEqual({ valid: false, code: 'NOT_FOUND' });
  });
});

test('keys.verifyKey: a change by another server applies on this one, which has the key cached', async () => {
  const { key, keyId } = await createKey({ apiId, name: 'before', meta: { a: 1 }, externalId: 'alice' });
  await hold(key);
  await otherServer.call('keys.updateKey', { keyId, name: 'after', meta: { a: 2 }, externalId: null }, app.rootKey);
  const after = await verify(key);
  expect(after).toMatchObject({ name: 'after', meta: { a: 2 } });
  expect(after).not.toHaveProperty('identity');
  expect((await otherServer.call('keys.verifyKey', { key }, app.rootKey)).data).toEqual(after);
});

describe('keys.verifyKey: a clock that was ahead for a moment', () => {
  test('closes no limit for longer than its duration: of the key, of its identity, or of the request', async () => {
    const limits = (name: string) => [{ name, limit: 5, duration: 1000, autoApply: true }];
    await ok('identities.createIdentity', { externalId: 'ahead', ratelimits: limits('shared') });
    const ratelimits = [...limits('own'), { name: 'other', limit: 5, duration: 60_000 }];
    const { key } = await createKey({ apiId, externalId: 'ahead', ratelimits });
    const asked = { key, ratelimits: [{ name: 'adhoc', limit: 5, duration: 1000 }] };
    for (const limit of ['own', 'shared', 'adhoc']) {
      clock.advance(hourMs);
      expect(await ok('keys.verifyKey', asked)).toMatchObject({ code: 'VALID' });
      clock.advance(-hourMs);
      const full = clock.now + 1000 + 15;
      const ofLimit = ({ ratelimits = [] }: { ratelimits?: { name: string; reset: number }[] }) =>
        ratelimits.find(({ name }) => name === limit);
      for (let rest = 4; rest > 0; rest--) {
        expect(ofLimit(await ok('keys.verifyKey', asked))).toMatchObject({ remaining: rest - 1, reset: full });
      }
      for (let ms = 0; ms < 1000; ms += 100) {
        const refused = await ok('keys.verifyKey', asked);
        expect({ code: refused.code, ...ofLimit(refused) }).toMatchObject({ code: 'RATE_LIMITED', reset: full });
        clock.advance(100);
      }
      clock.now = full;
      expect(await ok('keys.verifyKey', asked)).toMatchObject({ code: 'VALID' });
      clock.advance(2000);
    }
  });

  test('a batch in which it is detected decides each of its verifications once', async () => {
    const { key } = await createKey({
      apiId,
      ratelimits: [{ name: 'own', limit: 5, duration: 1000, autoApply: true }],
    });
    clock.advance(hourMs);
    await verify(key);
    clock.advance(-hourMs);
    const codes = (await Promise.all(Array.from({ length: 8 }, () => verify(key)))).map(({ code }) => code);
    expect(codes).toEqual([...Array(4).fill('VALID'), ...Array(4).fill('RATE_LIMITED')]);
  });

  test.each([
    ['daily', { interval: 'daily' as const, amount: 10 }, dayMs],
    ['monthly', { interval: 'monthly' as const, amount: 10 }, 31 * dayMs],
  ])('delays a %s refill by one period at most', async (_interval, refill, periodMs) => {
    const { key } = await createKey({ apiId, credits: { remaining: 100, refill } });
    const before = clock.now;
    clock.advance(4000 * dayMs);
    expect(await verify(key)).toMatchObject({ credits: 9 });
    clock.now = before;
    expect(await verify(key)).toMatchObject({ credits: 8 });
    clock.advance(periodMs);
    expect(await verify(key)).toMatchObject({ credits: 9 });
    clock.advance(-periodMs);
    // Midnight passes again, and nothing is refilled.
    expect(await verify(key)).toMatchObject({ credits: 8 });
    clock.advance(periodMs);
    expect(await verify(key)).toMatchObject({ credits: 7 });
  });
});

describe('keys.verifyKey: lastUsedAt', () => {
  test('is the last use by the clock, also when that has stepped back', async () => {
    const { key, keyId } = await createKey({ apiId });
    clock.advance(10);
    await verify(key);
    clock.advance(-5);
    await verify(key);
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ lastUsedAt: clock.now });
  });
});
