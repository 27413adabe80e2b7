import { describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';
import { storedLimit } from '../../support/limits.ts';

const app = harness();
const { call, ok, createKey, clock } = app;
const elsewhere = harness();

let made = 0;
type Limits = NonNullable<InputOf<'identities.updateIdentity'>['ratelimits']>;

/** An identity that no other test uses, with two keys. */
async function newIdentity(input: { meta?: Record<string, unknown>; ratelimits?: Limits } = {}) {
  const externalId = `user.${++made}`;
  const { identityId } = await ok('identities.createIdentity', { externalId, ...input });
  const [first, second] = [await createKey({ externalId }), await createKey({ externalId })];
  return { identityId, externalId, key: first.key, other: second.key, keyId: first.keyId };
}

const perMinute = (name: string, limit: number, autoApply = true) => ({ name, limit, duration: 60_000, autoApply });
const get = (identity: string) => ok('identities.getIdentity', { identity });
const update = (identity: string, changes: Omit<InputOf<'identities.updateIdentity'>, 'identity'>) =>
  ok('identities.updateIdentity', { identity, ...changes });
/** The remaining units of each limit, by a verification at cost 0. */
async function look(key: string, ...names: string[]) {
  const ratelimits = names.map((name) => ({ name, cost: 0 }));
  const answer = await ok('keys.verifyKey', { key, ratelimits });
  return (answer.ratelimits ?? []).filter(({ name }) => names.includes(name)).map(({ remaining }) => remaining);
}

describe('identities.updateIdentity: 200', () => {
  test.each(['identityId', 'externalId'] as const)('by its %s, returns the updated identity', async (by) => {
    const identity = await newIdentity();
    const data = await update(identity[by], { meta: { plan: 'pro' }, ratelimits: [perMinute('requests', 5)] });
    expect(data).toEqual({
      id: identity.identityId,
      externalId: identity.externalId,
      meta: { plan: 'pro' },
      ratelimits: [storedLimit(perMinute('requests', 5))],
      keyCount: 2,
    });
    expect(await get(identity.identityId)).toEqual(data);
  });

  test('fields that are left out stay; {} and [] clear them', async () => {
    const { identityId } = await newIdentity({ meta: { a: 1 }, ratelimits: [perMinute('requests', 5)] });
    const before = await get(identityId);
    expect(await update(identityId, {})).toEqual(before);
    expect(await update(identityId, { meta: { b: 2 } })).toEqual({ ...before, meta: { b: 2 } });
    expect(await update(identityId, { ratelimits: [] })).toEqual({ ...before, meta: { b: 2 }, ratelimits: [] });
    expect(await update(identityId, { meta: {} })).toEqual({ ...before, meta: {}, ratelimits: [] });
    expect(await get(identityId)).toEqual({ ...before, meta: {}, ratelimits: [] });
  });

  test('the next verification of every key uses it, also of cached keys, on every server', async () => {
    const { identityId, key, other, keyId } = await newIdentity({ meta: { a: 1 } });
    for (const server of [app, elsewhere]) {
      for (const seen of [key, key, other]) await server.call('keys.verifyKey', { key: seen }, app.rootKey);
    }
    const changes = { meta: { b: 2 }, ratelimits: [perMinute('requests', 9)] };
    const { keyCount: _, ...identity } = await update(identityId, changes);
    for (const server of [app, elsewhere]) {
      for (const seen of [key, other]) {
        const { data } = await server.call('keys.verifyKey', { key: seen }, app.rootKey);
        expect(data).toMatchObject({ valid: true, identity, ratelimits: [{ name: 'requests', limit: 9 }] });
      }
    }
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ identity });
  });
});

describe('identities.updateIdentity: limits of an identity are replaced by name', () => {
  test('the same name keeps its id and its count when its limit changes', async () => {
    const { identityId, key, other } = await newIdentity({ ratelimits: [perMinute('first', 5), perMinute('kept', 5)] });
    const before = await get(identityId);
    for (const used of [key, other, key])
      expect(await ok('keys.verifyKey', { key: used })).toMatchObject({ valid: true });
    const after = await update(identityId, { ratelimits: [perMinute('kept', 4), perMinute('new', 4)] });
    expect(after.ratelimits).toEqual([{ ...before.ratelimits[1], limit: 4 }, storedLimit(perMinute('new', 4))]);
    expect(new Set([...before.ratelimits, after.ratelimits[1]!].map(({ id }) => id)).size).toBe(3);
    expect(await look(other, 'kept', 'new')).toEqual([1, 4]);
  });

  test('a limit below the count refuses until enough units have left', async () => {
    const { identityId, key, other } = await newIdentity({ ratelimits: [perMinute('requests', 3)] });
    await ok('keys.verifyKey', { key });
    clock.advance(30_000);
    await ok('keys.verifyKey', { key: other });
    await update(identityId, { ratelimits: [perMinute('requests', 1)] });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'RATE_LIMITED', ratelimits: [{ remaining: 0 }] });
    clock.advance(31_000);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'RATE_LIMITED' });
    clock.advance(31_000);
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'VALID' });
  });

  test('another duration is another counter; the old counter is kept for when the duration is set again', async () => {
    const { identityId, key, other } = await newIdentity({ ratelimits: [perMinute('requests', 5)] });
    const { id } = (await get(identityId)).ratelimits[0]!;
    await ok('keys.verifyKey', { key });
    const hourly = { ...perMinute('requests', 5), duration: 3_600_000 };
    expect((await update(identityId, { ratelimits: [hourly] })).ratelimits[0]).toEqual({ ...storedLimit(hourly), id });
    expect(await look(key, 'requests')).toEqual([5]);
    await ok('keys.verifyKey', { key });
    await ok('keys.verifyKey', { key: other });
    await update(identityId, { ratelimits: [perMinute('requests', 5)] });
    expect(await look(other, 'requests')).toEqual([4]);
    await update(identityId, { ratelimits: [hourly] });
    expect(await look(other, 'requests')).toEqual([3]);
  });

  test('a limit that is removed and added again in time continues its count, under a new id', async () => {
    const { identityId, key } = await newIdentity({ ratelimits: [perMinute('requests', 5)] });
    const before = (await get(identityId)).ratelimits[0]!;
    await ok('keys.verifyKey', { key });
    await update(identityId, { ratelimits: [] });
    expect(await ok('keys.verifyKey', { key })).not.toHaveProperty('ratelimits');
    const after = (await update(identityId, { ratelimits: [perMinute('requests', 5)] })).ratelimits[0]!;
    expect(after.id).not.toBe(before.id);
    expect(await look(key, 'requests')).toEqual([4]);
  });

  test('an update of only the metadata keeps every count', async () => {
    const { identityId, key, other } = await newIdentity({ ratelimits: [perMinute('requests', 2)] });
    await ok('keys.verifyKey', { key });
    await update(identityId, { meta: { a: 1 } });
    await ok('keys.verifyKey', { key: other });
    await update(identityId, { meta: { a: 2 } });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'RATE_LIMITED' });
  });
});

describe('identities.updateIdentity: limits of an identity', () => {
  test('are shared by all of its keys, and by no key of another', async () => {
    const ratelimits = [perMinute('requests', 3)];
    const { key, other } = await newIdentity({ ratelimits });
    const stranger = await newIdentity({ ratelimits });
    const codes: string[] = [];
    for (const used of [key, other, key, other, key]) codes.push((await ok('keys.verifyKey', { key: used })).code);
    expect(codes).toEqual(['VALID', 'VALID', 'VALID', 'RATE_LIMITED', 'RATE_LIMITED']);
    expect(await look(stranger.key, 'requests')).toEqual([3]);
  });

  test('are shared across APIs and servers', async () => {
    const { externalId, key } = await newIdentity({ ratelimits: [perMinute('requests', 2)] });
    const { apiId } = await ok('apis.createApi', { name: 'another' });
    const third = await createKey({ apiId, externalId });
    await ok('keys.verifyKey', { key });
    elsewhere.clock.now = clock.now;
    expect((await elsewhere.call('keys.verifyKey', { key: third.key }, app.rootKey)).data.code).toBe('VALID');
    expect((await ok('keys.verifyKey', { key })).code).toBe('RATE_LIMITED');
  });

  test('are hidden by a limit of the key with the same name', async () => {
    const { identityId, key, other, keyId } = await newIdentity({ ratelimits: [perMinute('requests', 2)] });
    await ok('keys.updateKey', { keyId, ratelimits: [perMinute('requests', 10)] });
    for (let times = 0; times < 4; times++) {
      expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'VALID', ratelimits: [{ limit: 10 }] });
    }
    expect(await look(other, 'requests')).toEqual([2]);
    // A new limit of the identity is hidden at once as well, with any duration.
    await update(identityId, { ratelimits: [{ ...perMinute('requests', 1), duration: 1000 }] });
    expect(await look(key, 'requests')).toEqual([6]);
    await ok('keys.updateKey', { keyId, ratelimits: [] });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ ratelimits: [{ limit: 1, duration: 1000 }] });
    expect(await look(other, 'requests')).toEqual([0]);
  });

  test('50 of the identity, 50 of the key and 50 of the call are all charged, each on its counter', async () => {
    const fifty = (prefix: string) => Array.from({ length: 50 }, (_, index) => perMinute(`${prefix}.${index}`, 9));
    const { key, other, keyId } = await newIdentity({ ratelimits: fifty('identity') });
    await ok('keys.updateKey', { keyId, ratelimits: fifty('key') });
    // Some by name, in another order.
    const named = [40, 3, 17].flatMap((index) => [`identity.${index}`, `key.${index}`]);
    // One uses the counter of a limit of the key, which is stored before others that are charged.
    const adHoc = [...fifty('call').slice(0, 43), perMinute('key.5', 9)];
    const ratelimits = [
      ...named.map((name) => ({ name, cost: 3 })),
      ...adHoc.map(({ autoApply: _autoApply, ...limit }) => ({ ...limit, cost: 2 })),
    ];
    for (let times = 1; times <= 2; times++) {
      const answer = await ok('keys.verifyKey', { key, ratelimits });
      expect(answer.ratelimits).toHaveLength(143);
      for (const { name, remaining } of answer.ratelimits!) {
        const cost = named.includes(name) ? 3 : name.startsWith('call') || name === 'key.5' ? 2 : 1;
        expect(remaining, name).toBe(9 - times * cost);
      }
    }
    expect(await look(other, 'identity.0', 'identity.3', 'identity.17', 'identity.40')).toEqual([7, 3, 3, 3]);
    expect(await look(key, 'key.3', 'key.4', 'key.5', 'key.6')).toEqual([3, 7, 5, 7]);
  });

  test('a key that is linked to another identity uses that one’s limits', async () => {
    const from = await newIdentity({ ratelimits: [perMinute('requests', 5)] });
    const to = await newIdentity({ ratelimits: [perMinute('requests', 7)] });
    await ok('keys.verifyKey', { key: from.key });
    await ok('keys.updateKey', { keyId: from.keyId, externalId: to.externalId });
    expect(await ok('keys.verifyKey', { key: from.key })).toMatchObject({
      identity: { id: to.identityId },
      ratelimits: [{ limit: 7, remaining: 6 }],
    });
    expect(await look(from.other, 'requests')).toEqual([4]);
    expect(await look(to.key, 'requests')).toEqual([6]);
    await ok('keys.updateKey', { keyId: from.keyId, externalId: null });
    expect(await ok('keys.verifyKey', { key: from.key })).not.toHaveProperty('ratelimits');
  });
});

describe('identities.updateIdentity: 400', () => {
  test.each<[string, object]>([
    ['meta', { meta: null }],
    ['meta', { meta: { a: 'x'.repeat(10_240) } }],
    ['ratelimits', { ratelimits: null }],
    ['ratelimits[1].name', { ratelimits: [perMinute('new', 1), perMinute('new', 2)] }],
    ['ratelimits[1].limit', { ratelimits: [perMinute('new', 1), perMinute('newer', 0)] }],
    ['externalId', { externalId: 'renamed' }],
  ])('names the field %s and changes nothing', async (field, changes) => {
    const { identityId } = await newIdentity({ meta: { a: 1 }, ratelimits: [perMinute('requests', 5)] });
    const before = await get(identityId);
    const input = { identity: identityId, ...(field === 'meta' ? {} : { meta: { b: 2 } }), ...changes };
    expect(await call('identities.updateIdentity', input as never)).toMatchObject(invalidAt(`body.${field}`));
    expect(await get(identityId)).toEqual(before);
  });
});
