import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';
import { storedLimit } from '../../support/limits.ts';

const app = harness();
const { clock, call, ok, send, createKey, createRootKey } = app;

const startMs = clock.now;
const minuteMs = 60_000;
let apiId: string;
beforeAll(async () => {
  ({ apiId } = await ok('apis.createApi', { name: 'test' }));
  await ok('permissions.createRole', { name: 'editor', permissions: ['pages.write'] });
  await ok('permissions.createRole', { name: 'viewer' });
});
beforeEach(() => {
  clock.now = startMs;
});

const refill = { interval: 'daily', amount: 9 } as const;
const requests = { name: 'requests', limit: 5, duration: minuteMs, autoApply: true };
const exports = { name: 'exports', limit: 2, duration: hourMs, autoApply: false };
const everything = {
  name: 'Alice',
  externalId: 'alice',
  meta: { plan: 'pro' },
  expires: startMs + 40 * dayMs,
  credits: { remaining: 10, refill },
  ratelimits: [requests, exports],
  roles: ['editor'],
  permissions: ['documents.read', 'documents.write'],
};

const newKey = (input: object = {}) => createKey({ apiId, ...input });
const update = (keyId: string, changes: object, as?: string | string[]) =>
  call('keys.updateKey', { keyId, ...changes } as never, as);
const read = (keyId: string) => ok('keys.getKey', { keyId });
const verify = (key: string, extras: object = {}) => ok('keys.verifyKey', { key, ...extras });

/** The record of a key with all fields, before and after these changes. */
async function changed(changes: object, input: object = everything) {
  const { keyId, key } = await newKey(input);
  const before = await read(keyId);
  clock.advance(10);
  const answer = await update(keyId, changes);
  expect(answer).toMatchObject({ status: 200, data: {} });
  const { updatedAt, ...after } = await read(keyId);
  expect(updatedAt).toBe(clock.now);
  return { before, after, key, keyId };
}

const without = (record: object, ...names: string[]) =>
  Object.fromEntries(Object.entries(record).filter(([name]) => !names.includes(name)));

describe('keys.updateKey: omitted fields stay', () => {
  test('all of them, for an empty update', async () => {
    const { before, after } = await changed({});
    expect(after).toEqual(before);
  });

  test.each<[string, object, object?]>([
    ['name', { name: 'Bob' }],
    ['meta', { meta: { '10': 1, '2': [null] } }],
    ['expires', { expires: startMs + hourMs }],
    ['enabled', { enabled: false }],
    ['credits', { credits: { remaining: 3, refill: { interval: 'monthly', amount: 4, refillDay: 5 } } }],
    [
      'permissions',
      { permissions: ['documents.list', 'documents.list'] },
      { permissions: ['documents.list', 'pages.write'] },
    ],
    [
      'roles',
      { roles: ['viewer', 'viewer'] },
      { roles: ['viewer'], permissions: ['documents.read', 'documents.write'] },
    ],
  ])('all but %s, when only that is given', async (_field, changes, shown = changes) => {
    const { before, after } = await changed(changes);
    expect(after).toEqual({ ...before, ...shown });
  });
});

describe('keys.updateKey: null', () => {
  test.each<[string, object, string[]]>([
    ['removes the name', { name: null }, ['name']],
    ['removes the metadata', { meta: null }, ['meta']],
    ['unlinks the identity', { externalId: null }, ['externalId', 'identity']],
    ['makes the key permanent', { expires: null }, ['expires']],
    ['makes the credits unlimited', { credits: null }, ['credits']],
    ['as remaining makes the credits unlimited', { credits: { remaining: null } }, ['credits']],
    [
      'as remaining and refill makes the credits unlimited',
      { credits: { remaining: null, refill: null } },
      ['credits'],
    ],
    ['removes all limits', { ratelimits: null }, ['ratelimits']],
  ])('%s', async (_title, changes, names) => {
    const { before, after } = await changed(changes);
    expect(after).toEqual(without(before, ...names));
  });

  test.each<[string, object, string[]]>([
    ['metadata', { meta: {} }, ['meta']],
    ['limits', { ratelimits: [] }, ['ratelimits']],
    ['roles', { roles: [] }, ['roles']],
  ])('is what empty %s are', async (_title, changes, names) => {
    const { before, after } = await changed(changes);
    const permissions = names[0] === 'roles' ? { permissions: everything.permissions } : {};
    expect(after).toEqual({ ...without(before, ...names), ...permissions });
  });

  test('removes permissions, except those of roles', async () => {
    const { before, after } = await changed({ permissions: [] });
    expect(after).toEqual({ ...before, permissions: ['pages.write'] });
  });

  test('is accepted for a field that is absent', async () => {
    const nothing = { name: null, meta: null, externalId: null, expires: null, credits: null, ratelimits: null };
    const { before, after } = await changed(nothing, {});
    expect(after).toEqual(before);
  });
});

describe('keys.updateKey: credits', () => {
  test.each<[string, object, object]>([
    ['remaining: the refill is kept', { remaining: 3 }, { remaining: 3, refill }],
    ['remaining 0', { remaining: 0 }, { remaining: 0, refill }],
    [
      'refill: the balance is kept',
      { refill: { interval: 'daily', amount: 4 } },
      { remaining: 10, refill: { interval: 'daily', amount: 4 } },
    ],
    [
      'a refill without day, monthly',
      { refill: { interval: 'monthly', amount: 4 } },
      { remaining: 10, refill: { interval: 'monthly', amount: 4, refillDay: 1 } },
    ],
    ['refill null: the balance is kept', { refill: null }, { remaining: 10 }],
    ['remaining with refill null', { remaining: 3, refill: null }, { remaining: 3 }],
    ['nothing', {}, { remaining: 10, refill }],
  ])('%s', async (_title, credits, shown) => {
    const { after } = await changed({ credits });
    expect(after.credits).toEqual(shown);
  });

  test('a kept refill is applied, a removed one is not, a new one follows its own rule', async () => {
    const kept = await changed({ credits: { remaining: 3 } });
    const stopped = await changed({ credits: { refill: null } });
    const replaced = await changed({ credits: { refill: { interval: 'monthly', amount: 4, refillDay: 18 } } });
    clock.now = Date.UTC(2026, 0, 17);
    expect((await read(kept.keyId)).credits?.remaining).toBe(9);
    expect((await read(stopped.keyId)).credits?.remaining).toBe(10);
    expect((await read(replaced.keyId)).credits?.remaining).toBe(10);
    clock.now = Date.UTC(2026, 0, 18);
    expect((await read(replaced.keyId)).credits?.remaining).toBe(4);
  });

  test('an unlimited balance removes the refill, also when a number is set later', async () => {
    const { keyId } = await changed({ credits: { remaining: null } });
    await update(keyId, { credits: { remaining: 5 } });
    clock.advance(dayMs);
    expect((await read(keyId)).credits).toEqual({ remaining: 5 });
  });

  test('an unlimited key accepts a balance and its refill together', async () => {
    const { after } = await changed({ credits: { remaining: 1, refill } }, {});
    expect(after.credits).toEqual({ remaining: 1, refill });
  });

  test('a refill that was due before the update is part of the balance', async () => {
    const { keyId } = await newKey(everything);
    clock.advance(dayMs);
    await update(keyId, { credits: { refill: null } });
    expect((await read(keyId)).credits).toEqual({ remaining: 9 });
  });
});

describe('keys.updateKey: identity', () => {
  test('an unknown externalId creates an identity', async () => {
    const { after } = await changed({ externalId: 'new.person' });
    const identity = { id: expect.stringMatching(/^id_/), externalId: 'new.person', meta: {}, ratelimits: [] };
    expect(after).toMatchObject({ externalId: 'new.person', identity });
    expect(await ok('identities.getIdentity', { identity: 'new.person' })).toEqual({ ...after.identity, keyCount: 1 });
  });

  test('an existing externalId links its identity', async () => {
    const { identityId } = await ok('identities.createIdentity', { externalId: 'known', meta: { a: 1 } });
    const { after, key } = await changed({ externalId: 'known' });
    expect(after.identity).toMatchObject({ id: identityId, meta: { a: 1 } });
    expect(await verify(key)).toMatchObject({ identity: { id: identityId } });
  });

  test('the key moves to the list of the new identity', async () => {
    const own = (await ok('apis.createApi', { name: 'own' })).apiId;
    const { keyId } = await createKey({ apiId: own, externalId: 'from' });
    const listed = async (externalId: string) =>
      (await ok('apis.listKeys', { apiId: own, externalId })).map((record) => record.keyId);
    await update(keyId, { externalId: 'to' });
    expect([await listed('from'), await listed('to')]).toEqual([[], [keyId]]);
    await update(keyId, { externalId: null });
    expect(await listed('to')).toEqual([]);
  });

  test('the previous identity stays, without the key', async () => {
    const { keyCount } = await ok('identities.getIdentity', { identity: 'alice' }).catch(() => ({ keyCount: 0 }));
    const { before } = await changed({ externalId: null });
    const after = await ok('identities.getIdentity', { identity: 'alice' });
    // The key of this test was created with it, and left it.
    expect(after).toEqual({ ...before.identity, keyCount });
  });

  test('limits of the identity apply while the key is linked', async () => {
    await ok('identities.createIdentity', {
      externalId: 'limited',
      ratelimits: [{ ...requests, name: 'shared', limit: 1 }],
    });
    const { key, keyId } = await newKey();
    await update(keyId, { externalId: 'limited' });
    expect(await verify(key)).toMatchObject({ code: 'VALID', ratelimits: [{ name: 'shared', remaining: 0 }] });
    expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED' });
    await update(keyId, { externalId: null });
    expect(await verify(key)).toMatchObject({ code: 'VALID' });
  });
});

describe('keys.updateKey: limits', () => {
  const remaining = async (key: string, name = 'requests') =>
    (await verify(key, { ratelimits: [{ name, cost: 0 }] })).ratelimits!.find((limit) => limit.name === name)!
      .remaining;
  const charge = (key: string, cost: number, name = 'requests') => verify(key, { ratelimits: [{ name, cost }] });

  test('are replaced by name: the same name keeps its id, others are removed, new ones are added', async () => {
    const { before, after } = await changed({
      ratelimits: [
        { ...requests, limit: 8 },
        { ...exports, name: 'imports' },
      ],
    });
    const [kept] = before.ratelimits!;
    expect(after.ratelimits).toEqual([
      storedLimit({ ...requests, limit: 8, id: kept!.id }),
      storedLimit({ ...exports, name: 'imports' }),
    ]);
    expect(before.ratelimits!.map(({ id }) => id)).not.toContain(after.ratelimits![1]!.id);
  });

  test('keep their ids in any order', async () => {
    const { before, after } = await changed({ ratelimits: [exports, requests] });
    expect(after.ratelimits).toEqual(before.ratelimits!.toReversed());
  });

  test('a higher or lower limit keeps the count', async () => {
    const { key, keyId } = await newKey({ ratelimits: [requests] });
    await charge(key, 3);
    await update(keyId, { ratelimits: [{ ...requests, limit: 100 }] });
    expect(await remaining(key)).toBe(97);
    await update(keyId, { ratelimits: [{ ...requests, limit: 4 }] });
    expect(await remaining(key)).toBe(1);
    expect(await charge(key, 2)).toMatchObject({ code: 'RATE_LIMITED' });
  });

  test('a limit below the count has 0 remaining and denies', async () => {
    const { key, keyId } = await newKey({ ratelimits: [requests] });
    await charge(key, 3);
    await update(keyId, { ratelimits: [{ ...requests, limit: 2 }] });
    expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED', ratelimits: [{ exceeded: true, remaining: 0 }] });
  });

  test('a change of only autoApply keeps the count', async () => {
    const { key, keyId } = await newKey({ ratelimits: [requests] });
    await charge(key, 3);
    await update(keyId, { ratelimits: [{ ...requests, autoApply: false }] });
    expect(await verify(key)).not.toHaveProperty('ratelimits');
    expect(await remaining(key)).toBe(2);
  });

  test('another duration is another counter under the same id; the old counter is kept for when it is set again', async () => {
    const { key, keyId } = await newKey({ ratelimits: [requests] });
    const { id } = (await read(keyId)).ratelimits![0]!;
    await charge(key, 3);
    await update(keyId, { ratelimits: [{ ...requests, duration: hourMs }] });
    expect((await read(keyId)).ratelimits).toMatchObject([{ id, duration: hourMs }]);
    expect(await remaining(key)).toBe(5);
    await charge(key, 1);
    await update(keyId, { ratelimits: [requests] });
    expect(await remaining(key)).toBe(2);
    await update(keyId, { ratelimits: [{ ...requests, duration: hourMs }] });
    expect(await remaining(key)).toBe(4);
  });

  test('a limit that is removed and added again continues its count', async () => {
    const { key, keyId } = await newKey({ ratelimits: [requests] });
    await charge(key, 3);
    await update(keyId, { ratelimits: null });
    expect(await verify(key)).not.toHaveProperty('ratelimits');
    await update(keyId, { ratelimits: [requests] });
    expect(await remaining(key)).toBe(2);
  });

  test('removing and adding a limit twice loses no count', async () => {
    const { key, keyId } = await newKey({ ratelimits: [requests] });
    await charge(key, 1);
    await update(keyId, { ratelimits: null });
    await update(keyId, { ratelimits: [requests] });
    await charge(key, 1);
    await update(keyId, { ratelimits: null });
    await update(keyId, { ratelimits: [requests] });
    expect(await remaining(key)).toBe(3);
  });

  test('a limit continues the count of ad hoc limits with its name and duration', async () => {
    const { key, keyId } = await newKey();
    await verify(key, { ratelimits: [{ name: 'requests', limit: 9, duration: minuteMs, cost: 3 }] });
    await update(keyId, { ratelimits: [requests] });
    expect(await remaining(key)).toBe(2);
  });

  test('ad hoc limits continue the count of a removed limit', async () => {
    const { key, keyId } = await newKey({ ratelimits: [requests] });
    await charge(key, 3);
    await update(keyId, { ratelimits: [] });
    const answer = await verify(key, { ratelimits: [{ name: 'requests', limit: 5, duration: minuteMs }] });
    expect(answer.ratelimits).toMatchObject([{ id: '', remaining: 1 }]);
  });

  test('units counted before an update leave the window at their own time', async () => {
    const { key, keyId } = await newKey({ ratelimits: [requests] });
    const { reset } = (await charge(key, 3)).ratelimits![0]!;
    clock.advance(1000);
    await update(keyId, { ratelimits: [{ ...requests, limit: 6 }] });
    clock.now = reset - 1;
    expect(await remaining(key)).toBe(3);
    clock.now = reset;
    expect(await remaining(key)).toBe(6);
  });
});

describe('keys.updateKey: the next verification uses the change', () => {
  test.each<[string, object, object]>([
    ['name', { name: 'Bob' }, { name: 'Bob' }],
    ['meta', { meta: { plan: 'free' } }, { meta: { plan: 'free' } }],
    ['expires', { expires: startMs + dayMs }, { expires: startMs + dayMs }],
    ['expires in the past', { expires: startMs }, { code: 'EXPIRED', expires: startMs }],
    ['expires in 1970', { expires: 0 }, { code: 'EXPIRED', expires: 0 }],
    ['enabled', { enabled: false }, { code: 'DISABLED', enabled: false }],
    ['credits', { credits: { remaining: 0 } }, { code: 'USAGE_EXCEEDED', credits: 0 }],
    ['a limit', { ratelimits: [{ ...requests, limit: 2 }] }, { ratelimits: [{ limit: 2, remaining: 0 }] }],
    [
      'a limit that is full',
      { ratelimits: [{ ...requests, limit: 1 }] },
      { code: 'RATE_LIMITED', ratelimits: [{ limit: 1, remaining: 0 }] },
    ],
    ['permissions', { permissions: ['nothing.much'] }, { permissions: ['nothing.much', 'pages.write'] }],
    ['roles', { roles: ['viewer'] }, { roles: ['viewer'], permissions: everything.permissions }],
    ['externalId', { externalId: 'bob' }, { identity: { externalId: 'bob' } }],
  ])('%s', async (_title, changes, shown) => {
    const { key, keyId } = await newKey(everything);
    await verify(key);
    await update(keyId, changes);
    expect(await verify(key)).toMatchObject(shown);
  });

  test.each([
    ['name', { name: null }],
    ['meta', { meta: null }],
    ['expires', { expires: null }],
    ['credits', { credits: null }],
    ['ratelimits', { ratelimits: null }],
    ['roles', { roles: [] }],
    ['permissions', { permissions: [], roles: [] }],
    ['identity', { externalId: null }],
  ])('%s, removed', async (field, changes) => {
    const { key, keyId } = await newKey(everything);
    expect(await verify(key)).toHaveProperty(field);
    await update(keyId, changes);
    expect(await verify(key)).not.toHaveProperty(field);
  });

  test('the query is evaluated on the new permissions', async () => {
    const { key, keyId } = await newKey({ permissions: ['documents.read'] });
    expect(await verify(key, { permissions: 'documents.read' })).toMatchObject({ valid: true });
    await update(keyId, { permissions: ['documents.*'] });
    expect(await verify(key, { permissions: 'documents.write' })).toMatchObject({ valid: true });
    await update(keyId, { permissions: [] });
    expect(await verify(key, { permissions: 'documents.read' })).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
  });

  test('a key that is enabled again, or made permanent, verifies again', async () => {
    const { key, keyId } = await newKey({ enabled: false, expires: 0 });
    await update(keyId, { enabled: true });
    expect(await verify(key)).toMatchObject({ code: 'EXPIRED' });
    await update(keyId, { expires: null });
    expect(await verify(key)).toMatchObject({ code: 'VALID' });
  });

  test('metadata is stored as the text that was sent', async () => {
    const { key, keyId } = await newKey({ meta: { a: 1 } });
    const meta = '{"10":1.0,"2":12345678901234567890,"__proto__":"é😀"}';
    await send('/v2/keys.updateKey', { body: `{"keyId":"${keyId}","meta":${meta}}` });
    expect((await send('/v2/keys.verifyKey', { body: JSON.stringify({ key }) })).body).toContain(`"meta":${meta}`);
  });

  test('an update does not change lastUsedAt', async () => {
    const { key, keyId } = await newKey(everything);
    await verify(key);
    const usedAt = clock.now;
    clock.advance(10);
    await update(keyId, { name: 'Bob' });
    expect(await read(keyId)).toMatchObject({ lastUsedAt: usedAt, credits: { remaining: 9 } });
  });
});

describe('keys.updateKey: 400; nothing changes', () => {
  // test/operations/keys/fields.test.ts has invalid values of all fields.
  test.each<[string, object, string]>([
    ['an id of a limit that is no text', { ratelimits: [{ ...requests, id: 1 }] }, 'body.ratelimits[0].id'],
    ['a permission of 2', { permissions: ['ab'] }, 'body.permissions[0]'],
    ['the prefix, which cannot be changed', { prefix: 'live' }, 'body.prefix'],
    ['an unknown field', { apiId: 'api_1' }, 'body.apiId'],
    ['an unknown field in credits', { credits: { cost: 1 } }, 'body.credits.cost'],
    ['a day in a daily refill', { credits: { refill: { ...refill, refillDay: 1 } } }, 'body.credits.refill.refillDay'],
    [
      'a refill without a balance that omits its interval',
      { credits: { refill: { amount: 1 } } },
      'body.credits.refill.interval',
    ],
  ])('for %s', async (_title, changes, location) => {
    const { keyId } = await newKey(everything);
    const before = await read(keyId);
    clock.advance(10);
    const good = { name: 'Bob', enabled: false, credits: { remaining: 1 }, permissions: [] };
    expect(await update(keyId, { ...good, ...changes })).toMatchObject(invalidAt(location));
    expect(await read(keyId)).toEqual(before);
  });

  test('for a refill on an unlimited key', async () => {
    const { keyId } = await newKey({ name: 'Alice' });
    const before = await read(keyId);
    const answer = await update(keyId, { name: 'Bob', externalId: 'not.made', credits: { refill } });
    expect(answer).toMatchObject({
      status: 400,
      code: 'invalid_input',
      error: { errors: [{ location: 'body.credits.refill' }] },
    });
    expect(await read(keyId)).toEqual(before);
    expect((await call('identities.getIdentity', { identity: 'not.made' })).status).toBe(404);
  });

  test('comes before 404 and 403', async () => {
    const changes = { credits: { remaining: null, refill } };
    expect((await update('key_unknown', changes)).status).toBe(400);
    expect((await update('key_unknown', changes, ['api.*.read_key'])).status).toBe(400);
  });
});

describe('keys.updateKey: refusals', () => {
  test('404 for a role that does not exist; nothing changes, no permission and no identity is created', async () => {
    const { keyId } = await newKey(everything);
    const before = await read(keyId);
    const answer = await update(keyId, {
      name: 'Bob',
      externalId: 'never.made',
      credits: null,
      ratelimits: null,
      permissions: ['never.made'],
      roles: ['viewer', 'nobody'],
    });
    expect(answer).toMatchObject({ status: 404, code: 'role_not_found' });
    expect(answer.error.detail).toContain('"nobody"');
    expect(await read(keyId)).toEqual(before);
    expect((await call('permissions.getPermission', { permission: 'never.made' })).status).toBe(404);
    expect((await call('identities.getIdentity', { identity: 'never.made' })).status).toBe(404);
  });

  test('names of roles are case-sensitive', async () => {
    const { keyId } = await newKey();
    expect(await update(keyId, { roles: ['Viewer'] })).toMatchObject({ status: 404, code: 'role_not_found' });
  });

  test('403 for a permission that does not exist yet, without create_permission; nothing changes', async () => {
    const { keyId } = await newKey(everything);
    const before = await read(keyId);
    const rootKey = await createRootKey(['api.*.update_key']);
    const answer = await update(keyId, { name: 'Bob', permissions: ['documents.read', 'unheard.of'] }, rootKey);
    expect(answer).toMatchObject({ status: 403, code: 'insufficient_permissions' });
    expect(answer.error.detail).toContain('rbac.*.create_permission');
    expect(await read(keyId)).toEqual(before);
    expect((await update(keyId, { permissions: ['documents.write'] }, rootKey)).status).toBe(200);
    expect(
      (await update(keyId, { permissions: ['now.made'] }, ['api.*.update_key', 'rbac.*.create_permission'])).status,
    ).toBe(200);
    expect((await update(keyId, { permissions: ['now.made'] }, rootKey)).status).toBe(200);
  });
});
