// Holds: keys.verifyKey with `hold`, keys.settleHold, keys.extendHold, keys.releaseHold and keys.listHolds.

import { createHash } from 'node:crypto';
import { beforeEach, describe, expect, test } from 'vitest';
import { connect } from '../../../src/redis/connection.ts';
import { runCli } from '../../support/cli.ts';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import { namesIn } from '../../support/keyspace.ts';
import { readPages } from '../../support/lists.ts';
import { testRedisUrl } from '../../support/redis.ts';
import { volumeTest } from '../../support/testIf.ts';

const tollgate = harness();
const { clock, call, ok, createKey, createWorkspace } = tollgate;

const startMs = clock.now;
beforeEach(() => {
  clock.now = startMs;
});

const openRedis = () => connect(testRedisUrl(), { commandTimeoutMs: 5000 });
const minute = 60_000;
const requests = { name: 'requests', limit: 10, duration: hourMs, autoApply: true };
const tokens = { name: 'tokens', limit: 1000, duration: hourMs };

type Hold = { ttl?: number; onExpiry?: 'release' | 'charge'; id?: string };
const verify = (key: string, hold: Hold | undefined, extras: object = {}) =>
  ok('keys.verifyKey', { key, ...extras, ...(hold && { hold: { ttl: minute, ...hold } }) } as never);
const hold = async (key: string, options: Hold = {}, extras: object = {}) => {
  const verified = await verify(key, options, extras);
  expect(verified).toMatchObject({ valid: true, hold: { id: expect.stringMatching(/^hold_\w/) } });
  return verified.hold!;
};
const settle = (holdId: string, extras: Omit<InputOf<'keys.settleHold'>, 'holdId'> = {}) =>
  ok('keys.settleHold', { holdId, ...extras });
const creditsOf = async (keyId: string) => (await ok('keys.getKey', { keyId })).credits;
/** What is left of credits and limits, without a charge. */
const left = async (key: string) => {
  const names = [requests, tokens].map(({ name }) => ({ name, cost: 0 }));
  const { credits, ratelimits } = await ok('keys.verifyKey', { key, credits: { cost: 0 }, ratelimits: names });
  return [credits, ...ratelimits!.map(({ remaining }) => remaining)];
};
const openHolds = (keyId: string) => ok('keys.listHolds', { keyId });
const sweep = () => tollgate.store.sweep.holds(tollgate.workspaceId);

const full = { credits: { remaining: 100 }, ratelimits: [requests, tokens] };
const request = { credits: { cost: 20 }, ratelimits: [{ name: 'tokens', cost: 300 }] };

describe('a hold', () => {
  test('charges everything at once, and the response has its id and expiry', async () => {
    const { keyId, key } = await createKey(full);
    const verified = await verify(key, {}, request);
    expect(verified).toMatchObject({ valid: true, code: 'VALID', credits: 80 });
    expect(verified.hold).toEqual({ id: expect.stringMatching(/^hold_\w{24}\.\d+$/), expires: startMs + minute });
    expect(await left(key)).toEqual([80, 9, 700]);
    expect(await openHolds(keyId)).toEqual([
      {
        id: verified.hold!.id,
        createdAt: startMs,
        expires: startMs + minute,
        onExpiry: 'release',
        credits: 20,
        ratelimits: [
          { name: 'requests', cost: 1 },
          { name: 'tokens', cost: 300 },
        ],
      },
    ]);
  });

  test.each([
    ['DISABLED', { enabled: false }, {}],
    ['USAGE_EXCEEDED', { credits: { remaining: 1 } }, { credits: { cost: 2 } }],
    ['RATE_LIMITED', { ratelimits: [requests] }, { ratelimits: [{ name: 'requests', cost: 11 }] }],
    ['INSUFFICIENT_PERMISSIONS', {}, { permissions: 'not.held' }],
  ])('%s makes none', async (code, fields, extras) => {
    const { keyId, key } = await createKey(fields);
    const verified = await verify(key, {}, extras);
    expect(verified).toMatchObject({ valid: false, code });
    expect(verified.hold).toBeUndefined();
    expect(await openHolds(keyId)).toEqual([]);
  });

  test('an unknown key makes none', async () => {
    expect(await verify('unknown', {})).toEqual({ valid: false, code: 'NOT_FOUND' });
  });

  test('of an unlimited key without limits may be settled, too', async () => {
    const { keyId, key } = await createKey({});
    const { id } = await hold(key);
    expect(await settle(id, { credits: { cost: 5 } })).toEqual({ keyId, ratelimits: [], late: false });
  });
});

describe('a settlement', () => {
  test('charges the actual amounts, and gives the rest back', async () => {
    const { keyId, key } = await createKey(full);
    const { id } = await hold(key, {}, request);
    const settled = { credits: { cost: 7 }, ratelimits: [{ name: 'tokens', cost: 120 }] };
    expect(await settle(id, settled)).toEqual({
      keyId,
      credits: 93,
      ratelimits: [
        { name: 'requests', cost: 1 },
        { name: 'tokens', cost: 120 },
      ],
      late: false,
    });
    expect(await left(key)).toEqual([93, 9, 880]);
    expect(await openHolds(keyId)).toEqual([]);
  });

  test('gives back amounts of more than 32 bits', async () => {
    const wide = { name: 'wide', limit: 2 ** 50, duration: hourMs };
    const { key } = await createKey({ credits: { remaining: 2e12 }, ratelimits: [wide] });
    const amounts = { credits: { cost: 1e12 }, ratelimits: [{ name: 'wide', cost: 2 ** 40 }] };
    const { id } = await hold(key, {}, amounts);
    await ok('keys.releaseHold', { holdId: id });
    const look = await verify(key, undefined, { credits: { cost: 0 }, ratelimits: [{ name: 'wide', cost: 0 }] });
    expect([look.credits, look.ratelimits![0]!.remaining]).toEqual([2e12, 2 ** 50]);
  });

  test('charges amounts of more than 32 bits as they were held', async () => {
    const wide = { name: 'wide', limit: 2 ** 50, duration: hourMs };
    const { key } = await createKey({ credits: { remaining: 2e12 }, ratelimits: [wide] });
    const cost = 2 ** 40 + 2 ** 23;
    const amounts = { credits: { cost: 1e12 }, ratelimits: [{ name: 'wide', cost }] };
    const { id } = await hold(key, {}, amounts);
    expect(await settle(id)).toMatchObject({ credits: 1e12, ratelimits: [{ name: 'wide', cost }] });
  });

  test('of one of three holds leaves the others as they are', async () => {
    const { key, keyId } = await createKey(full);
    const ids = [(await hold(key, {}, request)).id, (await hold(key)).id, (await hold(key, {}, request)).id] as const;
    expect(await settle(ids[1])).toMatchObject({ credits: 59 });
    expect((await openHolds(keyId)).map(({ id }) => id)).toEqual([ids[0], ids[2]]);
    expect(await settle(ids[2])).toMatchObject({ credits: 59 });
    expect(await settle(ids[0])).toMatchObject({ credits: 59 });
    expect(await openHolds(keyId)).toEqual([]);
  });

  test('without amounts charges what was held', async () => {
    const { key } = await createKey(full);
    const { id } = await hold(key, {}, request);
    expect(await settle(id)).toMatchObject({ credits: 80 });
    expect(await left(key)).toEqual([80, 9, 700]);
  });

  test('that is repeated with the same amounts responds the same, and charges nothing', async () => {
    const { key } = await createKey(full);
    const { id } = await hold(key, {}, request);
    const first = await settle(id, { credits: { cost: 7 } });
    await ok('keys.verifyKey', { key, credits: { cost: 3 } });
    expect(await settle(id, { credits: { cost: 7 } })).toEqual(first);
    expect(await settle(id)).toEqual(first);
    expect(await left(key)).toEqual([90, 8, 700]);
    for (const other of [{ credits: { cost: 8 } }, { credits: { cost: 7 }, ratelimits: [{ name: 'tokens', cost: 1 }] }])
      expect(await call('keys.settleHold', { holdId: id, ...other })).toMatchObject({
        status: 409,
        error: { type: expect.stringMatching(/conflict$/) },
      });
    expect(await left(key)).toEqual([90, 8, 700]);
  });

  test('of a limit means the ad hoc one, if the identity has one of that name, too', async () => {
    const externalId = 'two.of.a.name';
    await ok('identities.createIdentity', { externalId, ratelimits: [{ ...tokens, autoApply: true }] });
    const { key } = await createKey({ externalId });
    const adhoc = { name: 'tokens', limit: 500, duration: minute };
    const look = async () => {
      const { ratelimits } = await ok('keys.verifyKey', { key, ratelimits: [{ ...adhoc, cost: 0 }] });
      return ratelimits!.map(({ remaining }) => remaining);
    };
    const { id } = await hold(key, {}, { ratelimits: [{ ...adhoc, cost: 100 }] });
    // A look costs the identity 1.
    expect(await look()).toEqual([998, 400]);
    const amounts = { ratelimits: [{ name: 'tokens', cost: 40 }] };
    const settled = await settle(id, amounts);
    expect(settled.ratelimits.map(({ cost }) => cost)).toEqual([1, 40]);
    expect(await look()).toEqual([997, 460]);
    expect(await settle(id, amounts)).toEqual(settled);
    const other = { holdId: id, ratelimits: [{ name: 'tokens', cost: 1 }] };
    expect(await call('keys.settleHold', other)).toMatchObject({ status: 409 });
  });

  test('that is repeated responds the same after many others, until it is forgotten', async () => {
    const { key } = await createKey({ credits: { remaining: 1000 }, ratelimits: [{ ...requests, limit: 100 }] });
    // Some of them with an id of their own, with other credits than held, and beside holds that stay open.
    const settled: { id: string; response: unknown }[] = [];
    for (let number = 1; number <= 24; number++) {
      clock.advance(requests.duration / 8);
      const { id } = await hold(key, number % 5 === 0 ? { id: `job-${number}` } : {}, { credits: { cost: 3 } });
      if (number % 7 === 0) await hold(key);
      settled.push({ id, response: await settle(id, number % 3 === 0 ? { credits: { cost: number % 4 } } : {}) });
      const since = Math.floor(clock.now / hourMs) - 1;
      const known = settled.filter((_, index) => Math.floor((startMs + ((index + 1) * hourMs) / 8) / hourMs) >= since);
      for (const { id, response } of known) expect(await settle(id)).toEqual(response);
      for (const { id } of settled.slice(0, -known.length))
        expect(await call('keys.settleHold', { holdId: id })).toMatchObject({ status: 404 });
    }
  });

  test('is forgotten in the second hour after its own', async () => {
    const { key } = await createKey(full);
    const { id } = await hold(key, { ttl: 5 * hourMs }, request);
    const response = await settle(id);
    clock.advance(hourMs);
    expect(await settle(id)).toEqual(response);
    clock.advance(hourMs);
    expect(await call('keys.settleHold', { holdId: id })).toMatchObject({ status: 404 });
  });

  test('of a long hold is remembered for an hour, also after its key has no holds', async () => {
    const { key } = await createKey(full);
    const { id, expires } = await hold(key, { ttl: 5 * hourMs }, request);
    clock.now = expires - minute;
    await ok('keys.verifyKey', { key });
    const response = await settle(id);
    clock.now = expires;
    // Everything of its holds is removed.
    while (await sweep());
    clock.advance(59 * minute);
    expect(await settle(id)).toEqual(response);
    clock.advance(2 * hourMs);
    expect(await call('keys.settleHold', { holdId: id })).toMatchObject({ status: 404 });
  });

  test('above the hold charges more, beyond the balance: it is 0 with a debt until credits are added', async () => {
    const { keyId, key } = await createKey({ credits: { remaining: 30 } });
    const { id } = await hold(key, {}, { credits: { cost: 20 } });
    expect(await settle(id, { credits: { cost: 50 } })).toMatchObject({ credits: 0, debt: 20 });
    expect(await creditsOf(keyId)).toEqual({ remaining: 0, debt: 20 });
    expect(await ok('keys.verifyKey', { key, credits: { cost: 0 } })).toMatchObject({
      code: 'USAGE_EXCEEDED',
      credits: 0,
      debt: 20,
    });
    expect(await ok('keys.updateCredits', { keyId, operation: 'increment', value: 15 })).toMatchObject({
      remaining: 0,
    });
    expect(await creditsOf(keyId)).toEqual({ remaining: 0, debt: 5 });
    await ok('keys.updateCredits', { keyId, operation: 'increment', value: 6 });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'VALID', credits: 0 });
  });

  test.each(['keys', 'identities'] as const)(
    'after a decrement of a debt by 0 gives back as before (%s)',
    async (of) => {
      const credits = { remaining: 100 };
      const externalId = 'owing';
      const identity = of === 'identities' && (await ok('identities.createIdentity', { externalId, credits }));
      const { keyId, key } = await createKey(identity ? { externalId } : { credits });
      const [first, second] = [
        await hold(key, {}, { credits: { cost: 60 } }),
        await hold(key, {}, { credits: { cost: 40 } }),
      ];
      await settle(first.id, { credits: { cost: 65 } });
      const decrement = { operation: 'decrement', value: 0 } as const;
      if (identity) await ok('identities.updateCredits', { identity: externalId, ...decrement });
      else await ok('keys.updateCredits', { keyId, ...decrement });
      await ok('keys.releaseHold', { holdId: second.id });
      const owner = identity
        ? await ok('identities.getIdentity', { identity: externalId })
        : await ok('keys.getKey', { keyId });
      expect(owner.credits).toEqual({ remaining: 35 });
    },
  );

  // By credits alone and without a refill, it is the shortest way (hold_settlements.as_held).
  test.each([
    ['set', false],
    ['set', true],
    ['refill', true],
  ])('after a %s gives nothing back to the new balance (of a key with a refill: %s)', async (how, isRefilled) => {
    const refill = isRefilled && ({ interval: 'daily', amount: 50 } as const);
    const { keyId, key } = await createKey({ credits: { remaining: 30, ...(refill && { refill }) } });
    const { id } = await hold(key, { ttl: dayMs }, { credits: { cost: 20 } });
    if (how === 'set') await ok('keys.updateCredits', { keyId, operation: 'set', value: 50 });
    else clock.now = (Math.floor(clock.now / dayMs) + 1) * dayMs;
    expect(await settle(id, { credits: { cost: 5 } })).toMatchObject({ credits: 50 });
    expect(await creditsOf(keyId)).toMatchObject({ remaining: 50 });
  });

  test('after a set charges what exceeds the hold', async () => {
    const { keyId, key } = await createKey({ credits: { remaining: 30 } });
    const { id } = await hold(key, {}, { credits: { cost: 20 } });
    await ok('keys.updateCredits', { keyId, operation: 'set', value: 50 });
    expect(await settle(id, { credits: { cost: 25 } })).toMatchObject({ credits: 45 });
  });

  test('an increment or decrement meanwhile is kept', async () => {
    const { keyId, key } = await createKey({ credits: { remaining: 30 } });
    const { id } = await hold(key, {}, { credits: { cost: 20 } });
    await ok('keys.updateCredits', { keyId, operation: 'increment', value: 7 });
    await ok('keys.updateCredits', { keyId, operation: 'decrement', value: 2 });
    expect(await settle(id, { credits: { cost: 5 } })).toMatchObject({ credits: 30 });
  });

  test('gives units back in the slice in which they were charged, if that still counts', async () => {
    const short = { name: 'requests', limit: 10, duration: 10 * minute, autoApply: true };
    const { key } = await createKey({ ratelimits: [short, tokens] });
    const { id } = await hold(
      key,
      { ttl: dayMs },
      {
        ratelimits: [
          { name: 'tokens', cost: 300 },
          { name: 'requests', cost: 4 },
        ],
      },
    );
    clock.advance(11 * minute);
    await ok('keys.verifyKey', { key, ratelimits: [{ name: 'requests', cost: 2 }] });
    await settle(id, {
      ratelimits: [
        { name: 'tokens', cost: 0 },
        { name: 'requests', cost: 0 },
      ],
    });
    expect((await left(key)).slice(1)).toEqual([8, 1000]);
  });

  test('gives nothing back once that slice has ended, from no slice of others either', async () => {
    const { key } = await createKey({ ratelimits: [requests, tokens] });
    const { id } = await hold(key, { ttl: dayMs });
    clock.advance(10_000);
    await verify(key, undefined);
    clock.now = startMs + hourMs + 5000;
    // Its charge removes what has ended.
    await verify(key, undefined);
    await settle(id, { ratelimits: [{ name: 'requests', cost: 0 }] });
    expect((await left(key))[1]).toBe(8);
  });

  test('units above the hold count from now on, also above the limit', async () => {
    const { key } = await createKey({ ratelimits: [requests, tokens] });
    const { id } = await hold(key, { ttl: dayMs }, { ratelimits: [{ name: 'tokens', cost: 300 }] });
    clock.advance(30 * minute);
    await settle(id, { ratelimits: [{ name: 'tokens', cost: 1200 }] });
    expect(await left(key)).toEqual([undefined, 9, 0]);
    expect(await ok('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost: 1 }] })).toMatchObject({
      code: 'RATE_LIMITED',
    });
    clock.advance(31 * minute);
    expect((await left(key))[2]).toBe(100);
  });

  test('of as many units as a number of JSON can have fills the window', async () => {
    const { key } = await createKey({ ratelimits: [tokens] });
    await ok('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost: 2 }] });
    const { id } = await hold(key, {}, { ratelimits: [{ name: 'tokens', cost: 1 }] });
    await settle(id, { ratelimits: [{ name: 'tokens', cost: Number.MAX_SAFE_INTEGER }] });
    expect(await ok('keys.verifyKey', { key, ratelimits: [{ name: 'tokens', cost: 1 }] })).toMatchObject({
      code: 'RATE_LIMITED',
      ratelimits: [{ remaining: 0 }],
    });
  });

  test('of several holds at once gives units of a counter of its own back for each', async () => {
    const { key } = await createKey({});
    const adhoc = (cost: number) => ({ ratelimits: [{ name: 'adhoc', cost, limit: 100, duration: hourMs }] });
    for (const cost of [3, 4, 5]) await hold(key, {}, adhoc(cost));
    clock.advance(minute);
    expect((await verify(key, undefined, adhoc(0))).ratelimits![0]!.remaining).toBe(100);
  });

  test.each([30, 500])(
    'above the hold charges a counter of its own that has expired since: limit %i',
    async (limit) => {
      const { key } = await createKey({});
      const name = `adhoc${limit}`;
      const adhoc = (cost: number) => ({ ratelimits: [{ name, cost, limit, duration: hourMs }] });
      const { id } = await hold(key, { ttl: dayMs }, adhoc(3));
      clock.advance(3 * hourMs);
      const redis = await openRedis();
      const counter = (await namesIn(redis)).find(
        (each) => each.includes(`:${name}`) && each.includes(tollgate.workspaceId),
      );
      expect(counter).toBeDefined();
      await redis.unlink(counter!);
      await settle(id, { ratelimits: [{ name, cost: 10 }] });
      expect((await verify(key, undefined, adhoc(0))).ratelimits![0]!.remaining).toBe(limit - 7);
      expect(await redis.pttl(counter!)).toBeGreaterThan(hourMs);
      // What is charged now counts as long as what is charged by a verification.
      const next = await hold(key, { ttl: dayMs }, adhoc(1));
      await redis.pexpire(counter!, 1000);
      await settle(next.id, { ratelimits: [{ name, cost: 2 }] });
      expect(await redis.pttl(counter!)).toBeGreaterThan(hourMs);
      await redis.quit();
    },
  );

  test('above a hold does not take the units of others of that time', async () => {
    const { key } = await createKey({ ratelimits: [requests] });
    const first = await hold(key, {}, { ratelimits: [{ name: 'requests', cost: 1 }] });
    await settle(first.id, { ratelimits: [{ name: 'requests', cost: 2 }] });
    const second = await hold(key, {}, { ratelimits: [{ name: 'requests', cost: 4 }] });
    await settle(second.id, { ratelimits: [{ name: 'requests', cost: 0 }] });
    expect(
      (await verify(key, undefined, { ratelimits: [{ name: 'requests', cost: 0 }] })).ratelimits![0]!.remaining,
    ).toBe(8);
  });

  test('charges a limit that was held at a cost of 0', async () => {
    const { key } = await createKey({ ...full, credits: { remaining: 0 } });
    const nothing = { credits: { cost: 0 }, ratelimits: [{ name: 'tokens', cost: 0 }] };
    const { id } = await hold(key, {}, nothing);
    await settle(id, { ratelimits: [{ name: 'tokens', cost: 120 }] });
    expect(await left(key)).toEqual([0, 9, 880]);
  });

  test('of a limit that it did not charge is refused', async () => {
    const { key } = await createKey(full);
    const { id } = await hold(key);
    expect(await call('keys.settleHold', { holdId: id, ratelimits: [{ name: 'none', cost: 1 }] })).toMatchObject({
      status: 412,
      error: { detail: 'The hold has no limit named "none".' },
    });
    expect(await settle(id)).toMatchObject({ late: false });
  });

  test('works while the key is disabled or expired, not when it is deleted', async () => {
    const { keyId, key } = await createKey(full);
    const ids = [(await hold(key)).id, (await hold(key)).id, (await hold(key)).id] as const;
    await ok('keys.updateKey', { keyId, enabled: false });
    expect(await settle(ids[0])).toMatchObject({ credits: 97 });
    await ok('keys.updateKey', { keyId, enabled: true, expires: clock.now });
    expect(await settle(ids[1], { credits: { cost: 0 } })).toMatchObject({ credits: 98 });
    await ok('keys.deleteKey', { keyId });
    expect(await call('keys.settleHold', { holdId: ids[2] })).toMatchObject({ status: 404 });
    await ok('keys.restoreKey', { keyId });
    expect(await settle(ids[2], { credits: { cost: 0 } })).toMatchObject({ credits: 99 });
  });

  test.each(['hold_x', 'x', `hold_${'1'.repeat(24)}.1`, `hold_${'1'.repeat(24)}_abc`])(
    'of %s is 404',
    async (holdId) => {
      for (const name of ['keys.settleHold', 'keys.releaseHold'] as const)
        expect(await call(name, { holdId })).toMatchObject({
          status: 404,
          error: { type: expect.stringMatching(/hold_not_found$/) },
        });
      expect(await call('keys.extendHold', { holdId, ttl: minute })).toMatchObject({ status: 404 });
    },
  );

  test('of a number that no hold has is 404, also if its last five bytes are those of a hold', async () => {
    const { key } = await createKey(full);
    const { id } = await hold(key);
    const [start, number] = [id.slice(0, id.indexOf('.') + 1), Number(id.slice(id.indexOf('.') + 1))];
    for (const other of [number + 1, number + 2 ** 40])
      expect(await call('keys.settleHold', { holdId: `${start}${other}` })).toMatchObject({ status: 404 });
    expect(await settle(id)).toMatchObject({ late: false });
  });

  test('of another workspace, or without the grant, is refused', async () => {
    const { key } = await createKey(full);
    const { id } = await hold(key);
    const other = await createWorkspace();
    expect(await call('keys.settleHold', { holdId: id }, other.rootKey)).toMatchObject({ status: 404 });
    expect(await call('keys.settleHold', { holdId: id }, ['api.*.read_key'])).toMatchObject({ status: 403 });
    expect(await settle(id)).toMatchObject({ late: false });
  });
});

describe('a debt', () => {
  const inDebt = async () => {
    const made = await createKey({ credits: { remaining: 30 } });
    await settle((await hold(made.key)).id, { credits: { cost: 50 } });
    expect(await creditsOf(made.keyId)).toEqual({ remaining: 0, debt: 20 });
    return made;
  };

  test('is explained next to a balance of 0', async () => {
    const { keyId } = await inDebt();
    const { rules } = await ok('keys.explainKey', { keyId });
    expect(rules.at(-1)).toEqual({ rule: 'credits', result: 'failed', balance: 0, debt: 20, cost: 1, remaining: 0 });
  });

  test('is no balance in the recent refusals', async () => {
    const { keyId, key } = await inDebt();
    await ok('keys.verifyKey', { key });
    expect((await call('analytics.listRefusals', { keyId })).data).toMatchObject([
      { outcome: 'USAGE_EXCEEDED', cost: 1, remaining: 0 },
    ]);
  });

  test('is exported and imported', async () => {
    const { keyId } = await inDebt();
    const cli = (args: string[], input = '') =>
      runCli([...args, '--workspace', tollgate.workspaceId], { REDIS_URL: testRedisUrl() }, input);
    const { out } = await cli(['export', '-']);
    const line = out.split('\n').find((each) => each.includes(`"${keyId}"`) && each.includes('"kind":"key"'))!;
    expect(JSON.parse(line)).toMatchObject({ credits: { remaining: 0, debt: 20 } });
    await ok('keys.deleteKey', { keyId, permanent: true });
    const wrong = line.replace('"remaining":0', '"remaining":1');
    expect((await cli(['import', '-'], `${wrong}\n`)).out).toContain('is of a balance of 0');
    expect(await cli(['import', '-'], `${line}\n`)).toMatchObject({ code: 0 });
    expect(await creditsOf(keyId)).toEqual({ remaining: 0, debt: 20 });
  });
});

test('holds that expire in the same millisecond are settled in the order of their ids', async () => {
  const { key } = await createKey({ credits: { remaining: 100 } });
  const charged = await hold(key, { id: 'own', onExpiry: 'charge' }, { credits: { cost: 1 } });
  for (let count = 0; count < 8; count++) await hold(key, {}, { credits: { cost: 10 } });
  clock.advance(minute);
  // All others were released before it was charged.
  expect(await settle(charged.id)).toMatchObject({ credits: 99, late: false });
});

describe('an id of the caller', () => {
  test('returns the same hold while it is open, and charges nothing again', async () => {
    const { keyId, key } = await createKey(full);
    const first = await verify(key, { id: 'job-1' }, request);
    clock.advance(1000);
    const again = await verify(key, { id: 'job-1', ttl: 5 * minute }, request);
    expect(again).toMatchObject({ valid: true, code: 'VALID', credits: 80, hold: first.hold });
    expect(first.hold!.id).toMatch(/_job-1$/);
    expect(await left(key)).toEqual([80, 9, 700]);
    expect(await openHolds(keyId)).toHaveLength(1);
    expect(await verify(key, { id: 'job-2' }, request)).toMatchObject({ credits: 60 });
  });

  test('with other costs is 409, also after its end', async () => {
    const { key } = await createKey(full);
    const { id } = await hold(key, { id: 'job-1' }, request);
    const repeated = (extras: object) =>
      call('keys.verifyKey', { key, hold: { ttl: minute, id: 'job-1' }, ...extras } as never);
    expect(await repeated({ ...request, credits: { cost: 21 } })).toMatchObject({ status: 409 });
    expect(await repeated({ credits: { cost: 20 } })).toMatchObject({ status: 409 });
    await settle(id);
    expect(await repeated(request)).toMatchObject({ status: 409 });
    expect(await left(key)).toEqual([80, 9, 700]);
  });

  // JSON in Lua has 14 digits, and the code of a quota has 17.
  test.each([
    ['of another period', { period: 'day' }, { period: 'month' }],
    ['of another anchor', { period: 'month' }, { period: 'month', anchor: 1 }],
    ['of another large limit', { duration: hourMs, limit: 10 ** 15 }, { duration: hourMs, limit: 10 ** 15 + 1 }],
    ['of another large cost', { duration: hourMs, cost: 2 * 10 ** 14 + 1 }, { duration: hourMs, cost: 2 * 10 ** 14 }],
  ])('with an ad hoc limit %s is 409', async (_title, first, other) => {
    const { key } = await createKey();
    const base = { name: 'tok', limit: 10 ** 15, cost: 5 };
    const input = (extras: object, id: string) => ({
      key,
      hold: { ttl: minute, id },
      ratelimits: [{ ...base, ...extras }],
    });
    for (const [one, two] of [
      [first, other],
      [other, first],
    ] as const) {
      const id = one === first ? 'job-1' : 'job-2';
      const made = await ok('keys.verifyKey', input(one, id) as never);
      expect(await ok('keys.verifyKey', input(one, id) as never)).toMatchObject({ hold: made.hold });
      expect(await call('keys.verifyKey', input(two, id) as never)).toMatchObject({ status: 409, code: 'conflict' });
    }
  });

  test('is of its key only', async () => {
    const one = await createKey(full);
    const other = await createKey(full);
    const ids = [await hold(one.key, { id: 'same' }), await hold(other.key, { id: 'same' })].map(({ id }) => id);
    expect(new Set(ids).size).toBe(2);
    expect(await settle(ids[0]!, { credits: { cost: 0 } })).toMatchObject({ keyId: one.keyId, credits: 100 });
    expect((await openHolds(other.keyId)).length).toBe(1);
  });
});

describe('the expiry', () => {
  test.each(['request', 'sweeper', 'settlement'] as const)('gives everything back: seen by a %s', async (by) => {
    const { keyId, key } = await createKey(full);
    const { id } = await hold(key, {}, request);
    clock.advance(minute - 1);
    expect((await left(key))[0]).toBe(80);
    clock.advance(1);
    expect(await openHolds(keyId)).toEqual([]);
    if (by === 'request') expect(await left(key)).toEqual([100, 10, 1000]);
    if (by === 'sweeper') {
      await sweep();
      expect(await creditsOf(keyId)).toEqual({ remaining: 100 });
    }
    expect(await settle(id, { credits: { cost: 8 } })).toMatchObject({ credits: 92, late: true });
    expect(await left(key)).toEqual([92, 9, 700]);
  });

  test('charges, if the hold says so', async () => {
    const { keyId, key } = await createKey(full);
    const { id } = await hold(key, { onExpiry: 'charge' }, request);
    clock.advance(minute);
    await sweep();
    expect(await creditsOf(keyId)).toEqual({ remaining: 80 });
    expect(await openHolds(keyId)).toEqual([]);
    expect(await settle(id)).toMatchObject({ credits: 80, late: false });
    expect(await call('keys.settleHold', { holdId: id, credits: { cost: 1 } })).toMatchObject({ status: 409 });
  });

  test('a settlement afterwards is accepted for 24 hours', async () => {
    const { key } = await createKey(full);
    const { id } = await hold(key, {}, request);
    const other = await hold(key, {}, request);
    clock.advance(minute + dayMs - 1);
    expect(await settle(id)).toMatchObject({ credits: 80, late: true });
    clock.advance(1);
    expect(await call('keys.settleHold', { holdId: other.id })).toMatchObject({ status: 404 });
    expect((await left(key))[0]).toBe(80);
  });

  test('seen more than a day later leaves nothing to settle', async () => {
    const { key } = await createKey(full);
    const { id } = await hold(key, {}, request);
    clock.advance(minute + dayMs);
    expect(await call('keys.settleHold', { holdId: id })).toMatchObject({ status: 404 });
    expect((await left(key))[0]).toBe(100);
  });

  test('moves with an extension, from now on', async () => {
    const { keyId, key } = await createKey(full);
    const { id } = await hold(key, {}, request);
    clock.advance(30_000);
    const expires = clock.now + 2 * minute;
    expect(await ok('keys.extendHold', { holdId: id, ttl: 2 * minute })).toEqual({ keyId, hold: { id, expires } });
    clock.now = expires - 1;
    await sweep();
    expect((await left(key))[0]).toBe(80);
    expect(await ok('keys.extendHold', { holdId: id, ttl: 1000 })).toMatchObject({
      hold: { expires: clock.now + 1000 },
    });
    clock.advance(1000);
    expect((await left(key))[0]).toBe(100);
    expect(await call('keys.extendHold', { holdId: id, ttl: 1000 })).toMatchObject({ status: 409 });
  });

  test('shortened by an extension is kept, too', async () => {
    const { key } = await createKey(full);
    const { id } = await hold(key, { ttl: dayMs }, request);
    await ok('keys.extendHold', { holdId: id, ttl: 1000 });
    clock.advance(1000);
    expect((await left(key))[0]).toBe(100);
  });
});

describe('a release', () => {
  test('gives everything back, once', async () => {
    const { keyId, key } = await createKey(full);
    const { id } = await hold(key, {}, request);
    const released = await ok('keys.releaseHold', { holdId: id });
    expect(released).toMatchObject({ keyId, credits: 100 });
    expect(await ok('keys.releaseHold', { holdId: id })).toEqual(released);
    expect(await left(key)).toEqual([100, 10, 1000]);
    expect(await openHolds(keyId)).toEqual([]);
    expect(await call('keys.extendHold', { holdId: id, ttl: 1000 })).toMatchObject({ status: 409 });
    expect(await settle(id)).toMatchObject({ credits: 80, late: true });
    expect(await call('keys.releaseHold', { holdId: id })).toMatchObject({ status: 409 });
  });
});

describe('usage', () => {
  /** A key whose 100 credits are its own, or those of its identity. */
  async function keyOf(externalId: string, shared: boolean) {
    const credits = { remaining: 100 };
    await ok('identities.createIdentity', { externalId, ...(shared && { credits }) });
    return createKey({ externalId, ...(!shared && { credits }) });
  }

  test('counts a verification when it is made, and credits when they are settled', async () => {
    const { keyId, key } = await createKey(full);
    const ids = [];
    for (let count = 0; count < 3; count++) ids.push((await hold(key, {}, { ...request, tags: ['a'] })).id);
    await settle(ids[0]!, { credits: { cost: 7 } });
    clock.advance(hourMs);
    await settle(ids[1]!, { credits: { cost: 30 } });
    const period = { start: startMs - hourMs, end: startMs + 3 * hourMs, granularity: 'total' as const };
    const rows = await ok('analytics.getVerifications', { ...period, keyId });
    expect(rows).toMatchObject([{ count: 3, spentCredits: 37 }]);
  });

  test.each([0, 1, 2])('has credits of a settlement of %i by tag', async (cost) => {
    const { keyId, key } = await createKey(full);
    const { id } = await hold(key, {}, { ...request, tags: ['a'] });
    await settle(id, { credits: { cost }, ratelimits: [{ name: 'tokens', cost: 5 }] });
    const period = { start: startMs - hourMs, end: startMs + hourMs, granularity: 'total' as const };
    const rows = await ok('analytics.getVerifications', { ...period, groupBy: [], tag: 'a', keyId });
    expect(rows).toMatchObject([{ count: 1, spentCredits: cost }]);
  });

  test('by several tags has credits once for each, and as often in what these repeat', async () => {
    const { key, apiId } = await createKey({ credits: { remaining: 100 } });
    const ofTags = (ttl: number, options: Hold = {}) =>
      hold(key, { ttl, ...options }, { credits: { cost: 4 }, tags: ['a', 'b', 'a'] });
    await ok('keys.verifyKey', { key, credits: { cost: 5 } });
    const [now, later, noTag] = [await ofTags(minute), await ofTags(dayMs), await ofTags(dayMs)];
    await ofTags(hourMs + 1000, { onExpiry: 'charge' });
    await settle(now.id, { credits: { cost: 7 } });
    clock.advance(hourMs);
    for (const tags of [['a'], ['b']]) await ok('keys.verifyKey', { key, tags, credits: { cost: 1 } });
    await settle(later.id, { credits: { cost: 6 } });
    clock.advance(1000);
    while (await tollgate.store.sweep.holds(tollgate.workspaceId));
    clock.advance(hourMs);
    await settle(noTag.id, { credits: { cost: 2 } });
    const rows = await ok('analytics.getVerifications', {
      apiId,
      start: startMs,
      end: clock.now + 1,
      groupBy: ['tag'],
    });
    const hour = Math.floor(startMs / hourMs) * hourMs;
    const row = (at: number, tag: string | undefined, count: number, spentCredits: number) => ({
      time: hour + at * hourMs,
      ...(tag && { tag }),
      count,
      spentCredits,
    });
    expect(rows).toEqual([
      row(0, undefined, 1, 5),
      row(0, 'a', 4, 7),
      row(0, 'b', 4, 7),
      row(1, 'a', 1, 11),
      row(1, 'b', 1, 11),
      // In an hour without a verification that has the tag, as docs/contract.md states.
      row(2, undefined, 0, 2),
    ]);
  });

  test.each([false, true])(
    'has credits that a hold spends after its key was deleted; of its identity: %s',
    async (shared) => {
      const externalId = `spends.${shared}`;
      const { keyId, key, apiId } = await keyOf(externalId, shared);
      await hold(key, { onExpiry: 'charge' }, { credits: { cost: 20 } });
      await ok('keys.deleteKey', { keyId });
      clock.advance(minute);
      while (await sweep());
      for (const after of [0, 2 * dayMs]) {
        clock.advance(after);
        while (await tollgate.store.sweep.rollUp(tollgate.workspaceId));
        const period = { start: startMs - dayMs, end: startMs + 2 * dayMs, granularity: 'total' as const, groupBy: [] };
        for (const filter of [{ apiId }, { keyId }, { externalId }])
          expect(
            await ok('analytics.getVerifications', { ...period, ...filter }),
            JSON.stringify(filter),
          ).toMatchObject([{ count: 1, spentCredits: 20 }]);
      }
    },
  );

  test.each([false, true])(
    'has credits of open holds that are charged, of a key deleted for good; of its identity: %s',
    async (shared) => {
      const externalId = `gone.${shared}`;
      const { keyId, key, apiId } = await keyOf(externalId, shared);
      await hold(key, { onExpiry: 'charge' }, { credits: { cost: 20 } });
      await hold(key, {}, { credits: { cost: 30 } });
      await ok('keys.deleteKey', { keyId, permanent: true });
      const identity = await ok('identities.getIdentity', { identity: externalId });
      expect(identity.credits).toEqual(shared ? { remaining: 80 } : undefined);
      const period = { start: startMs - dayMs, end: startMs + 2 * dayMs, granularity: 'total' as const, groupBy: [] };
      for (const filter of [{ apiId }, { keyId }, { externalId }])
        expect(await ok('analytics.getVerifications', { ...period, ...filter }), JSON.stringify(filter)).toMatchObject([
          { count: 2, spentCredits: 20 },
        ]);
    },
  );

  test('has such credits without an identity, if that was deleted before', async () => {
    const { key, keyId, apiId } = await keyOf('left', false);
    await hold(key, { onExpiry: 'charge' }, { credits: { cost: 20 } });
    await ok('identities.deleteIdentity', { identity: 'left', permanent: true });
    await ok('keys.deleteKey', { keyId, permanent: true });
    const period = { start: startMs - dayMs, end: startMs + dayMs, granularity: 'total' as const };
    const rows = await ok('analytics.getVerifications', { ...period, keyId, groupBy: ['externalId'] });
    expect(rows.map(({ externalId, count, spentCredits }) => [externalId, count, spentCredits])).toEqual([
      [undefined, 0, 20],
      ['left', 1, 0],
    ]);
    expect(await ok('analytics.getVerifications', { ...period, apiId, groupBy: [] })).toMatchObject([
      { count: 1, spentCredits: 20 },
    ]);
  });

  test('has credits that are settled on a day without verifications', async () => {
    const { keyId, key, apiId } = await createKey(full);
    const { id } = await hold(key, { ttl: dayMs }, request);
    clock.advance(13 * hourMs);
    await settle(id, { credits: { cost: 7 } });
    const day = Math.floor(clock.now / dayMs) * dayMs;
    for (const filter of [{ keyId }, { apiId }]) {
      const period = { start: day - dayMs, end: day + dayMs, granularity: 'day' as const, groupBy: [] };
      const rows = await ok('analytics.getVerifications', { ...period, ...filter });
      expect(rows).toMatchObject([
        { count: 1, spentCredits: 0 },
        { time: day, count: 0, spentCredits: 7 },
      ]);
    }
  });
});

describe('identities', () => {
  test('their limits are held and given back, also by another key', async () => {
    const externalId = 'held.customer';
    await ok('identities.createIdentity', { externalId, ratelimits: [{ ...tokens, autoApply: true }] });
    const one = await createKey({ externalId });
    const other = await createKey({ externalId });
    const remaining = async () =>
      (await ok('keys.verifyKey', { key: other.key, ratelimits: [{ name: 'tokens', cost: 0 }] })).ratelimits![0]!
        .remaining;
    const { id } = await hold(one.key, {}, { ratelimits: [{ name: 'tokens', cost: 400 }] });
    expect(await remaining()).toBe(600);
    await settle(id, { ratelimits: [{ name: 'tokens', cost: 100 }] });
    expect(await remaining()).toBe(900);
    await hold(one.key, {}, { ratelimits: [{ name: 'tokens', cost: 400 }] });
    await ok('keys.deleteKey', { keyId: one.keyId });
    clock.advance(minute);
    await sweep();
    expect(await remaining()).toBe(900);
  });
});

describe('keys.explainKey', () => {
  test('says what is held', async () => {
    const { key } = await createKey(full);
    expect((await ok('keys.explainKey', { key })).holds).toBeUndefined();
    await hold(key, {}, request);
    await hold(key, {}, { credits: { cost: 3 } });
    const { holds, rules } = await ok('keys.explainKey', { key });
    const ratelimits = [
      { name: 'requests', cost: 2 },
      { name: 'tokens', cost: 300 },
    ];
    expect(holds).toEqual({ open: 2, credits: 23, ratelimits });
    expect(rules.find(({ rule }) => rule === 'credits')).toMatchObject({ balance: 77, cost: 1, remaining: 76 });
  });

  test.each(['release', 'charge'] as const)(
    'decides as if expired holds were settled, and writes nothing: %s',
    async (onExpiry) => {
      const externalId = `explained.${onExpiry}`;
      await ok('identities.createIdentity', {
        externalId,
        ratelimits: [{ ...tokens, name: 'shared', autoApply: true }],
      });
      const { key, keyId } = await createKey({ ...full, externalId });
      const adhoc = { name: 'adhoc', cost: 2, limit: 10, duration: hourMs };
      for (let count = 0; count < 2; count++)
        await hold(
          key,
          { onExpiry },
          { credits: { cost: 50 }, ratelimits: [{ name: 'tokens', cost: 400 }, adhoc], tags: ['a'] },
        );
      clock.advance(minute);
      const redis = await openRedis();
      const stored = async () => {
        // The root key has the time of its last use.
        const all = (await namesIn(redis)).filter((each) => each.includes(tollgate.workspaceId));
        const names = all.filter((name) => !name.includes(':rk:')).sort(Buffer.compare);
        return Promise.all(names.map(async (name) => [name.toString('latin1'), await redis.dumpBuffer(name)]));
      };
      const before = await stored();
      const wanted = { credits: { cost: 1 }, ratelimits: [{ name: 'tokens', cost: 300 }, adhoc] };
      const explained = await ok('keys.explainKey', { keyId, ...wanted });
      expect(await stored()).toEqual(before);
      await redis.quit();
      expect(explained.holds).toBeUndefined();
      const used = explained.rules
        .find(({ rule }) => rule === 'ratelimits')!
        .ratelimits!.map(({ name, used }) => [name, used]);
      expect(Object.fromEntries(used)).toEqual(
        onExpiry === 'release'
          ? { requests: 0, tokens: 0, shared: 0, adhoc: 0 }
          : { requests: 2, tokens: 800, shared: 2, adhoc: 4 },
      );
      const verified = await verify(key, undefined, wanted);
      expect(explained.code).toBe(verified.code);
      expect(explained.rules.find(({ rule }) => rule === 'credits')).toMatchObject({
        balance: onExpiry === 'release' ? 100 : 0,
      });
    },
  );

  test('of a key whose holds are all forgotten', async () => {
    const { key } = await createKey(full);
    await settle((await hold(key)).id);
    clock.advance(2 * dayMs);
    expect(await ok('keys.explainKey', { key })).toMatchObject({ valid: true });
  });
});

describe.each(['a key, permanently', 'an API', 'a key, and its purge'] as const)('the deletion of %s', (what) => {
  test('removes its holds, and another key of the identity gets back what counts', async () => {
    const externalId = `deleted.${what.replace(/\W+/g, '.')}`;
    await ok('identities.createIdentity', { externalId, ratelimits: [{ ...tokens, autoApply: true }] });
    const { key, keyId, apiId } = await createKey({ ...full, ratelimits: [requests], externalId });
    const other = await createKey({ externalId });
    const holds = [await hold(key, {}, request), await hold(key, { onExpiry: 'charge' }, request)];
    const settled = await hold(key);
    await settle(settled.id);
    if (what === 'an API') await ok('apis.deleteApi', { apiId });
    else await ok('keys.deleteKey', { keyId, permanent: what === 'a key, permanently' });
    for (const { id } of holds) expect(await call('keys.settleHold', { holdId: id })).toMatchObject({ status: 404 });
    clock.advance(minute);
    await sweep();
    const shared = { ratelimits: [{ name: 'tokens', cost: 0 }] };
    // With its record, a key loses what it held: the units count until their time has passed.
    const isKept = what === 'a key, and its purge';
    if (isKept) expect((await verify(other.key, undefined, shared)).ratelimits![0]!.remaining).toBe(1000 - 301);
    clock.advance(60 * dayMs);
    while (await tollgate.store.sweep.purge(tollgate.workspaceId));
    for (let times = 0; times < 4; times++) await sweep();
    expect((await verify(other.key, undefined, shared)).ratelimits![0]!.remaining).toBe(1000);
    const redis = await openRedis();
    const workspace = `tg:{${tollgate.workspaceId}}`;
    const digest = createHash('sha256').update(key).digest();
    expect(await redis.exists(Buffer.concat([Buffer.from(`${workspace}:k:`), digest]))).toBe(0);
    expect(await redis.zscore(`${workspace}:holds`, digest)).toBeNull();
    await redis.quit();
  });
});

test('the successor of a key has none of its holds', async () => {
  const { key, keyId } = await createKey(full);
  const { id } = await hold(key, {}, request);
  const successor = await ok('keys.rerollKey', { keyId, expiration: hourMs });
  expect(await openHolds(successor.keyId)).toEqual([]);
  expect((await verify(successor.key, undefined)).credits).toBe(79);
  await settle(id, { credits: { cost: 5 } });
  expect([await creditsOf(keyId), await creditsOf(successor.keyId)]).toEqual([{ remaining: 95 }, { remaining: 79 }]);
  const redis = await openRedis();
  const digest = createHash('sha256').update(successor.key).digest();
  const state = await redis.hgetBuffer(
    Buffer.concat([Buffer.from(`tg:{${tollgate.workspaceId}}:k:`), digest]),
    'state',
  );
  const old = await redis.hgetBuffer(
    Buffer.concat([Buffer.from(`tg:{${tollgate.workspaceId}}:k:`), createHash('sha256').update(key).digest()]),
    'state',
  );
  await redis.quit();
  // Without the extension, which says when holds are due.
  expect(state!.length).toBeLessThan(old!.length);
});

describe('numbers of holds', () => {
  test('are not used again', async () => {
    const { key } = await createKey(full);
    const first = await hold(key);
    await settle(first.id);
    // Everything of its holds is forgotten.
    clock.advance(dayMs);
    await sweep();
    await sweep();
    const second = await hold(key);
    expect(second.id).not.toBe(first.id);
    expect(await call('keys.settleHold', { holdId: first.id })).toMatchObject({ status: 404 });
  });

  test('are not used again after Redis lost its last writes', async () => {
    const { key, keyId } = await createKey(full);
    await hold(key);
    const redis = await openRedis();
    const digest = createHash('sha256').update(key).digest();
    const name = Buffer.concat([Buffer.from(`tg:{${tollgate.workspaceId}}:k:`), digest]);
    const before = await redis.dumpBuffer(name);
    clock.advance(500);
    const lost = await hold(key);
    await redis.restore(name, 0, before, 'REPLACE');
    await redis.quit();
    clock.advance(500);
    const other = await hold(key);
    expect(other.id).not.toBe(lost.id);
    expect(await call('keys.settleHold', { holdId: lost.id })).toMatchObject({ status: 404 });
    expect(await openHolds(keyId)).toHaveLength(2);
  });
});

test('a hold that was made while the clock was ahead ends', async () => {
  const made = [await createKey(full), await createKey(full)];
  clock.advance(400 * dayMs);
  for (const { key } of made) await hold(key, {}, request);
  clock.advance(-400 * dayMs);
  expect((await left(made[0]!.key))[0]).toBe(100);
  await sweep();
  expect(await creditsOf(made[1]!.keyId)).toEqual({ remaining: 100 });
});

volumeTest('10,000 holds of a key, and no more', { timeout: 120_000 }, async () => {
  const { key, keyId } = await createKey({ credits: { remaining: 20_000 } });
  const own = await hold(key, { id: 'own' });
  const made: string[] = [];
  while (made.length < 9999) {
    const some = Array.from({ length: Math.min(99, 9999 - made.length) }, () => hold(key));
    for (const { id } of await Promise.all(some)) made.push(id);
  }
  const refused = await call('keys.verifyKey', { key, hold: { ttl: minute } });
  expect(refused).toMatchObject({ status: 412, code: 'precondition_failed' });
  expect(refused.error.detail).toContain('The key has 10000 open holds');
  expect(await call('keys.verifyKey', { key, hold: { ttl: minute, id: 'other' } })).toMatchObject({ status: 412 });
  expect(await ok('keys.verifyKey', { key, credits: { cost: 0 } })).toMatchObject({ code: 'VALID', credits: 10_000 });
  const { data, pagination } = await call('keys.listHolds', { keyId, limit: 10 });
  expect([data.length, pagination]).toMatchObject([10, { hasMore: true, total: 10_000 }]);
  expect(await creditsOf(keyId)).toEqual({ remaining: 10_000 });
  // A repeated request is none more.
  expect((await verify(key, { id: 'own' })).hold).toEqual(own);
  await settle(made[5000]!);
  await hold(key);
  expect(await call('keys.verifyKey', { key, hold: { ttl: minute } })).toMatchObject({ status: 412 });
  clock.advance(minute);
  while (await sweep());
  clock.advance(5000);
  while (await sweep());
  expect(await creditsOf(keyId)).toEqual({ remaining: 19_999 });
  expect(await openHolds(keyId)).toEqual([]);
});

volumeTest('many holds of a key: each is found, listed in order, and ends', async () => {
  const { keyId, key } = await createKey({ credits: { remaining: 200_000 } });
  const holds = new Map<string, number>();
  for (let count = 0; count < 500; count++) {
    const { id } = await hold(
      key,
      { ttl: minute + ((count * 37) % 500) * 10, ...(count % 3 === 0 && { id: `own-${count}` }) },
      { credits: { cost: count } },
    );
    holds.set(id, count);
  }
  const sum = [...holds.values()].reduce((one, other) => one + other, 0);
  expect(await creditsOf(keyId)).toEqual({ remaining: 200_000 - sum });
  const listed = (await readPages((at) => call('keys.listHolds', { keyId, limit: 100, ...at }))).flat();
  expect(listed).toHaveLength(500);
  expect(listed.map(({ expires }) => expires)).toEqual(listed.map(({ expires }) => expires).sort((a, b) => a - b));
  expect(new Map(listed.map(({ id, credits }) => [id, credits]))).toEqual(holds);
  for (const [id, count] of holds) if (count % 2 === 0) await settle(id, { credits: { cost: 1 } });
  clock.advance(minute + 5000);
  while (await sweep());
  clock.advance(1000);
  await sweep();
  expect(await creditsOf(keyId)).toEqual({ remaining: 200_000 - 250 });
  expect(await openHolds(keyId)).toEqual([]);
});

test('of large holds that expire at once, requests end some each, and all units come back', async () => {
  const name = (index: number) => `${'n'.repeat(70)}${index}`;
  const ratelimits = Array.from({ length: 40 }, (_, index) => ({ ...requests, limit: 100, name: name(index) }));
  const { key } = await createKey({ ratelimits });
  // Each has more than 2.5 KB, so that 16 KB are some of them.
  for (let count = 0; count < 30; count++) await hold(key, { ttl: minute });
  const used = async () => {
    const limits = (await verify(key, undefined, { ratelimits: [{ name: name(0), cost: 0 }] })).ratelimits!;
    return 100 - limits[0]!.remaining;
  };
  expect(await used()).toBe(30);
  clock.advance(minute);
  for (let before = 30; before > 0; ) {
    const left = await used();
    expect(left).toBeLessThan(before);
    expect(left).toBeGreaterThanOrEqual(before - 10);
    before = left;
  }
});

test('a repeated hold and a repeated release answer with a refill that is due', async () => {
  const refill = { interval: 'daily', amount: 50 } as const;
  const { key } = await createKey({ credits: { remaining: 30, refill } });
  const own = await hold(key, { id: 'own', ttl: dayMs }, { credits: { cost: 5 } });
  const other = await hold(key, { ttl: dayMs }, { credits: { cost: 5 } });
  await ok('keys.releaseHold', { holdId: other.id });
  clock.advance(dayMs - 1);
  expect((await verify(key, { id: 'own', ttl: dayMs }, { credits: { cost: 5 } })).hold).toEqual(own);
  expect(await verify(key, { id: 'own', ttl: dayMs }, { credits: { cost: 5 } })).toMatchObject({ credits: 50 });
  expect(await ok('keys.releaseHold', { holdId: other.id })).toMatchObject({ credits: 50 });
});

test('a hold is found by its own id, not by a longer one or a limit whose name contains it', async () => {
  const named = { ...requests, name: 'of_job-1' };
  const { key } = await createKey({ ...full, ratelimits: [named] });
  const held = async (id: string, cost: number) => (await hold(key, { id }, { credits: { cost } })).id;
  const [first, longer, wanted] = [await held('first', 1), await held('job-12', 2), await held('job-1', 4)];
  expect(await settle(wanted)).toMatchObject({ credits: 93, ratelimits: [{ name: 'of_job-1', cost: 1 }] });
  expect((await settle(longer, { credits: { cost: 0 } })).credits).toBe(95);
  expect((await settle(first, { credits: { cost: 0 } })).credits).toBe(96);
});

test.each(['used', 'settled'] as const)('a key whose identity was deleted is held and %s', async (how) => {
  const externalId = `deleted.${how}`;
  const { keyId, key } = await createKey({ ...full, externalId });
  const first = await hold(key, {}, request);
  await ok('identities.deleteIdentity', { identity: externalId });
  if (how === 'settled') expect(await settle(first.id, { credits: { cost: 5 } })).toMatchObject({ credits: 95 });
  const { id } = await hold(key, {}, request);
  expect((await openHolds(keyId)).at(-1)).toMatchObject({ id, ratelimits: [{ name: 'requests' }, { name: 'tokens' }] });
  await settle(id, { credits: { cost: 0 }, ratelimits: [{ name: 'tokens', cost: 0 }] });
  expect(await left(key)).toEqual(how === 'settled' ? [95, 8, 700] : [80, 8, 700]);
});

describe('a hold with very many or long names', () => {
  const names = (prefix: string) => Array.from({ length: 50 }, (_, index) => `${prefix}${index} `.padEnd(128, '€'));
  const limitsOf = (prefix: string) => names(prefix).map((name) => ({ ...tokens, name, autoApply: true }));

  test('is refused with 412, and charges nothing', async () => {
    const externalId = 'long.names';
    await ok('identities.createIdentity', { externalId, ratelimits: limitsOf('identity') });
    const { keyId, key } = await createKey({ externalId, credits: { remaining: 9 }, ratelimits: limitsOf('key') });
    const ratelimits = names('own').map((name) => ({ name, cost: 1, limit: 5, duration: hourMs }));
    const refused = await call('keys.verifyKey', { key, ratelimits, hold: { ttl: minute } });
    expect([refused.status, refused.error?.detail]).toEqual([412, expect.stringContaining('4096 bytes')]);
    expect(await openHolds(keyId)).toEqual([]);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ valid: true, credits: 8 });
  });

  test('is refused for its tags, too', async () => {
    const { key } = await createKey({ credits: { remaining: 9 } });
    const tags = Array.from({ length: 20 }, (_, index) => `${index}`.padEnd(512, 't'));
    expect(await call('keys.verifyKey', { key, tags, hold: { ttl: minute } })).toMatchObject({ status: 412 });
    expect(await verify(key, {}, { tags: tags.slice(0, 7) })).toMatchObject({ valid: true, credits: 8 });
  });
});
