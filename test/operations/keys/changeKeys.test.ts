import { spawnSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { digestOf } from '../../../src/domain/keyString.ts';
import { connect } from '../../../src/redis/connection.ts';
import { keyRecordKey, workspaceKey } from '../../../src/redis/names.ts';
import { dayMs, harness, hourMs, type InputOf } from '../../support/harness.ts';
import { invalidAt } from '../../support/invalid.ts';
import { observing } from '../../support/observer.ts';
import { ownRedis } from '../../support/ownRedis.ts';
import { random, seed } from '../../support/random.ts';
import { testRedisUrl } from '../../support/redis.ts';

const app = harness();
const { call, clock, ok, createKey } = app;
const erasing = harness(testRedisUrl, { keyRetentionMs: 0 });

type Change = InputOf<'keys.changeKeys'>['change'];
const change = (keyIds: readonly string[], to: Change) => ok('keys.changeKeys', { keyIds: [...keyIds], change: to });

/** Keys of one API and one owner, and their strings. */
async function makeKeys(count: number, fields: Parameters<typeof createKey>[0] = {}) {
  const { apiId } = await ok('apis.createApi', { name: 'many' });
  const keys: { keyId: string; key: string }[] = [];
  for (let index = 0; index < count; index++) keys.push(await createKey({ apiId, ...fields }));
  return { apiId, keys, keyIds: keys.map(({ keyId }) => keyId) };
}

const codesOf = async (keys: readonly { key: string }[]) => {
  const answers = await Promise.all(keys.map(({ key }) => ok('keys.verifyKey', { key })));
  return answers.map(({ code }) => code);
};

const eventsOf = (operation = 'keys.changeKeys') => ok('audit.listEvents', { operation, order: 'desc' });

/** Calls again with the values before: what undoes a change. */
async function undo({ changed }: Awaited<ReturnType<typeof change>>) {
  for (const before of new Set(changed.map((each) => JSON.stringify(each.before)))) {
    const keyIds = changed.filter((each) => JSON.stringify(each.before) === before).map(({ keyId }) => keyId);
    const result = await change(keyIds, JSON.parse(before));
    expect(result.changed.map(({ keyId }) => keyId)).toEqual(keyIds);
  }
}

describe('keys.changeKeys: 200', () => {
  test('disables the keys that are enabled, in the order of the request, and is undone by the values before', async () => {
    const { keys, keyIds } = await makeKeys(4, { externalId: 'many.owner' });
    await ok('keys.updateKey', { keyId: keyIds[1]!, enabled: false });
    const order = keyIds.toReversed();
    const result = await change(order, { enabled: false });
    expect(result).toEqual({
      changed: [3, 2, 0].map((at) => ({ keyId: keyIds[at], before: { enabled: true }, after: { enabled: false } })),
      unchanged: [keyIds[1]],
      failed: [],
    });
    expect(await codesOf(keys)).toEqual(['DISABLED', 'DISABLED', 'DISABLED', 'DISABLED']);
    await undo(result);
    expect(await codesOf(keys)).toEqual(['VALID', 'DISABLED', 'VALID', 'VALID']);
  });

  test('sets an expiry, also one in the past, and none; different values before are restored', async () => {
    const { keys, keyIds } = await makeKeys(3);
    const [first, second] = keyIds as [string, string, string];
    await ok('keys.updateKey', { keyId: first, expires: clock.now + hourMs });
    await ok('keys.updateKey', { keyId: second, expires: clock.now });
    const result = await change(keyIds, { expires: clock.now + dayMs });
    expect(result.changed.map(({ before }) => before)).toEqual([
      { expires: clock.now + hourMs },
      { expires: clock.now },
      { expires: null },
    ]);
    expect(await codesOf(keys)).toEqual(['VALID', 'VALID', 'VALID']);
    // The index by expiry has them.
    const expiring = { expiresBefore: clock.now + dayMs + 1, expiresAfter: clock.now + dayMs };
    expect(await ok('keys.listKeys', expiring)).toHaveLength(3);
    await undo(result);
    expect(await codesOf(keys)).toEqual(['VALID', 'EXPIRED', 'VALID']);
    expect(await ok('keys.listKeys', expiring)).toEqual([]);
    expect(await ok('keys.getKey', { keyId: keyIds[2]! })).not.toHaveProperty('expires');
    expect((await change(keyIds, { expires: null })).changed).toHaveLength(2);
  });

  test('gives keys a plan as updateKey does, and takes it away', async () => {
    const limit = (name: string) => ({ name, limit: 2, duration: hourMs, autoApply: true });
    await ok('plans.createPlan', { planId: 'bulk', ratelimits: [limit('of the plan')] });
    await ok('plans.createPlan', { planId: 'other' });
    const { keys, keyIds } = await makeKeys(2, { ratelimits: [limit('own')] });
    const twin = await createKey({ ratelimits: [limit('own')] });
    await ok('keys.updateKey', { keyId: keyIds[1]!, planId: 'other' });
    const result = await change(keyIds, { planId: 'bulk' });
    expect(result.changed.map(({ before }) => before)).toEqual([{ planId: null }, { planId: 'other' }]);
    await ok('keys.updateKey', { keyId: twin.keyId, planId: 'bulk' });
    const namesOf = async (key: string) =>
      (await ok('keys.verifyKey', { key })).ratelimits?.map(({ name, remaining }) => [name, remaining]);
    for (const { key } of keys)
      expect(await namesOf(key)).toEqual([
        ['own', 1],
        ['of the plan', 1],
      ]);
    expect(await namesOf(twin.key)).toEqual([
      ['own', 1],
      ['of the plan', 1],
    ]);
    expect(await ok('plans.getPlan', { planId: 'bulk' })).toMatchObject({ keyCount: 3 });
    await undo(result);
    expect(await ok('keys.listKeys', { planId: 'other' })).toMatchObject([{ keyId: keyIds[1] }]);
    expect(await namesOf(keys[0]!.key)).toEqual([['own', 0]]);
  });

  test('a key with too many limits for a plan fails, the others are changed', async () => {
    await ok('plans.createPlan', { planId: 'small' });
    const { keyIds } = await makeKeys(2);
    const ratelimits = Array.from({ length: 26 }, (_, at) => ({ name: `limit ${at}`, limit: 1, duration: 1000 }));
    await ok('keys.updateKey', { keyId: keyIds[0]!, ratelimits });
    expect(await change(keyIds, { planId: 'small' })).toEqual({
      changed: [{ keyId: keyIds[1], before: { planId: null }, after: { planId: 'small' } }],
      unchanged: [],
      failed: [
        { keyId: keyIds[0], code: 'precondition_failed', message: expect.stringContaining('at most 25 limits') },
      ],
    });
  });

  test('deletes and restores keys of one owner with everything that they had', async () => {
    const { keys, keyIds, apiId } = await makeKeys(3, {
      externalId: 'deleted.owner',
      ratelimits: [{ name: 'requests', limit: 9, duration: hourMs, autoApply: true }],
      expires: clock.now + dayMs,
    });
    await ok('keys.verifyKey', { key: keys[0]!.key });
    const before = await ok('apis.listKeys', { apiId });
    const result = await change(keyIds, { deleted: true });
    expect(result.changed).toEqual(
      keyIds.map((keyId) => ({ keyId, before: { deleted: false }, after: { deleted: true } })),
    );
    expect(await codesOf(keys)).toEqual(['NOT_FOUND', 'NOT_FOUND', 'NOT_FOUND']);
    expect(await ok('identities.getIdentity', { identity: 'deleted.owner' })).toMatchObject({ keyCount: 0 });
    expect(await change(keyIds, { deleted: true })).toEqual({ changed: [], unchanged: keyIds, failed: [] });
    expect(await ok('keys.listKeys', { apiId, deleted: true })).toHaveLength(3);
    await undo(result);
    expect(await ok('apis.listKeys', { apiId })).toEqual(before);
    expect(await ok('identities.getIdentity', { identity: 'deleted.owner' })).toMatchObject({ keyCount: 3 });
    expect((await change(keyIds, { deleted: false })).unchanged).toEqual(keyIds);
    expect(await ok('keys.verifyKey', { key: keys[0]!.key })).toMatchObject({ ratelimits: [{ remaining: 7 }] });
  });

  test('every version differs: no server displays an old snapshot of a key', async () => {
    const { keys, keyIds } = await makeKeys(3);
    for (let times = 0; times < 3; times++) await codesOf(keys);
    await ok('plans.createPlan', { planId: 'versions', meta: { a: 1 } });
    await change(keyIds, { planId: 'versions' });
    for (const { key } of keys) expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'VALID' });
    await change(keyIds, { enabled: false });
    expect(await codesOf(keys)).toEqual(['DISABLED', 'DISABLED', 'DISABLED']);
  });

  test('without retention, deleted keys of one owner are erased, with their holds, and cannot be restored', async () => {
    const { apiId } = await erasing.ok('apis.createApi', { name: 'erased' });
    const credits = { remaining: 100 };
    await erasing.ok('identities.createIdentity', { externalId: 'erased.owner', credits });
    const keyIds: string[] = [];
    for (let index = 0; index < 3; index++) {
      const { keyId, key } = await erasing.ok('keys.createKey', { apiId, externalId: 'erased.owner' });
      await erasing.ok('keys.verifyKey', { key, credits: { cost: 10 }, hold: { ttl: hourMs } });
      keyIds.push(keyId);
    }
    const { changed } = await erasing.ok('keys.changeKeys', { keyIds, change: { deleted: true } });
    expect(changed.map(({ keyId }) => keyId)).toEqual(keyIds);
    // Each hold gave back what it held.
    expect(await erasing.ok('identities.getIdentity', { identity: 'erased.owner' })).toMatchObject({ credits });
    const again = await erasing.ok('keys.changeKeys', { keyIds, change: { deleted: false } });
    expect(again.failed.map(({ code }) => code)).toEqual(['key_not_found', 'key_not_found', 'key_not_found']);
  });

  test('a hundred keys with fifty limits each are all changed', async () => {
    const ratelimits = Array.from({ length: 50 }, (_, at) => ({ name: `limit ${at}`, limit: 1, duration: 1000 }));
    const { keyIds } = await makeKeys(100, { ratelimits });
    expect((await change(keyIds, { enabled: false })).changed.map(({ keyId }) => keyId)).toEqual(keyIds);
    const events = (await eventsOf()).filter(({ changes }) => keyIds.includes(changes?.[0]?.keyIds?.[0] ?? ''));
    expect(events.flatMap(({ changes }) => changes![0]!.keyIds!).sort()).toEqual([...keyIds].sort());
  });
});

const pick = random(seed);

test(`does to each key what updateKey, deleteKey and restoreKey do to one (seed ${seed})`, async () => {
  const limit = (name: string) => ({ name, limit: 5, duration: hourMs, autoApply: true });
  for (const planId of ['twin.a', 'twin.b'])
    await ok('plans.createPlan', { planId, ratelimits: [limit('shared'), limit(planId)] });
  /** Two APIs with the same keys: one is changed by changeKeys, the other key by key. */
  const make = async (owner: string) => {
    const { apiId } = await ok('apis.createApi', { name: 'twins' });
    const keys: { keyId: string; key: string }[] = [];
    for (let index = 0; index < 6; index++) {
      const fields = { ...(index % 2 && { externalId: owner }), ...(index % 3 === 0 && { planId: 'twin.a' }) };
      keys.push(await createKey({ apiId, ratelimits: index < 3 ? [limit('shared')] : [], ...fields }));
    }
    return { apiId, keys };
  };
  const [many, single] = [await make('twin.many'), await make('twin.single')];
  const changeOne = async (keyId: string, to: Change) => {
    if (!('deleted' in to)) return call('keys.updateKey', { keyId, ...to });
    return to.deleted ? call('keys.deleteKey', { keyId }) : call('keys.restoreKey', { keyId });
  };
  const stateOf = async ({ apiId, keys }: typeof many) => {
    const listed = [
      ...(await ok('keys.listKeys', { apiId })),
      ...(await ok('keys.listKeys', { apiId, deleted: true })).map((key) => ({ ...key, isDeleted: true })),
    ];
    const codes = [];
    for (const { key } of keys) {
      const { code, ratelimits = [] } = await ok('keys.verifyKey', { key });
      codes.push([code, ratelimits.map(({ name, remaining }) => [name, remaining]).sort()]);
    }
    const byId = new Map(listed.map((key) => [key.keyId, key]));
    const records = keys.map(({ keyId }) => {
      const { enabled, expires, planId, externalId, ...more } = byId.get(keyId)!;
      return { enabled, expires, planId, isOwned: externalId !== undefined, isDeleted: 'isDeleted' in more };
    });
    return { records, codes };
  };

  for (let step = 0; step < 40; step++) {
    clock.advance(pick(0, 60_000));
    const changes: Change[] = [
      { enabled: pick(0, 1) === 1 },
      { expires: pick(0, 2) === 0 ? null : clock.now + pick(-1, 1) * 30_000 },
      { planId: [null, 'twin.a', 'twin.b'][pick(0, 2)]! },
      { deleted: pick(0, 1) === 1 },
    ];
    const to = changes[pick(0, changes.length - 1)]!;
    const chosen = [0, 1, 2, 3, 4, 5].filter(() => pick(0, 1) === 1);
    if (chosen.length === 0) continue;
    await change(
      chosen.map((at) => many.keys[at]!.keyId),
      to,
    );
    for (const at of chosen) await changeOne(single.keys[at]!.keyId, to);
    expect(await stateOf(many), `step ${step}, ${JSON.stringify(to)}`).toEqual(await stateOf(single));
  }
});

describe('its event', () => {
  test('one for a hundred keys, which has all ids and is found by each of them', async () => {
    const { keyIds } = await makeKeys(100);
    await ok('keys.updateKey', { keyId: keyIds[7]!, expires: clock.now + hourMs });
    const before = (await eventsOf()).length;
    const expires = clock.now + dayMs;
    await change(keyIds, { expires });
    const events = await eventsOf();
    expect(events).toHaveLength(before + 1);
    expect(events[0]).toMatchObject({
      resource: { type: 'key', id: keyIds[0] },
      changes: [
        { field: 'expires', after: `${expires}`, keyIds: keyIds.filter((_, at) => at !== 7) },
        { field: 'expires', before: `${clock.now + hourMs}`, after: `${expires}`, keyIds: [keyIds[7]] },
      ],
    });
    for (const id of [keyIds[0]!, keyIds[7]!, keyIds[99]!]) {
      const found = await ok('audit.listEvents', { resource: { type: 'key', id }, operation: 'keys.changeKeys' });
      expect(found).toEqual([events[0]]);
    }
  });

  test('has the ids of all keys, also if there are too many values before', async () => {
    const { keyIds } = await makeKeys(50);
    const planOf = (at: number) => `${at}-`.padEnd(50, 'x');
    for (const [at, keyId] of keyIds.entries()) {
      await ok('plans.createPlan', { planId: planOf(at) });
      await ok('keys.updateKey', { keyId, planId: planOf(at) });
    }
    await change(keyIds, { planId: null });
    const [event] = await eventsOf();
    expect(event!.changes!.flatMap((each) => each.keyIds!)).toEqual(keyIds);
    expect(event!.changes![0]).toMatchObject({ before: planOf(0) });
    expect(event!.changes![49]).toEqual({ field: 'planId', keyIds: [keyIds[49]] });
  });

  test('none, and nothing is written, if no key changes', async () => {
    const { keyIds } = await makeKeys(2);
    const before = await ok('keys.getKey', { keyId: keyIds[0]! });
    const events = (await eventsOf()).length;
    expect((await change(keyIds, { enabled: true })).unchanged).toEqual(keyIds);
    expect(await ok('keys.getKey', { keyId: keyIds[0]! })).toEqual(before);
    expect(await eventsOf()).toHaveLength(events);
  });
});

describe('keys.changeKeys: keys that fail', () => {
  test('unknown keys, those of another workspace and deleted ones are in `failed`; the others are changed', async () => {
    const { keyIds } = await makeKeys(2);
    const elsewhere = await app.openWorkspace();
    const { apiId } = await elsewhere.of('apis.createApi', { name: 'elsewhere' });
    const foreign = await elsewhere.of('keys.createKey', { apiId });
    await ok('keys.deleteKey', { keyId: keyIds[0]! });
    const unknown = `key_${'1'.repeat(24)}`;
    const result = await change([unknown, foreign.keyId, ...keyIds], { enabled: false });
    const failed = { code: 'key_not_found', message: 'There is no such key.' };
    expect(result).toMatchObject({
      changed: [{ keyId: keyIds[1] }],
      failed: [unknown, foreign.keyId, keyIds[0]].map((keyId) => ({ keyId, ...failed })),
    });
    expect(await elsewhere.of('keys.verifyKey', { key: foreign.key })).toMatchObject({ code: 'VALID' });
  });

  test('keys of APIs that the root key may not change look unknown', async () => {
    const [mine, others] = [await makeKeys(1), await makeKeys(1)];
    const keyIds = [...mine.keyIds, ...others.keyIds];
    for (const [to, actions] of [
      [{ enabled: false }, ['update_key']],
      [{ deleted: true }, ['delete_key']],
      [{ deleted: false }, ['create_key', 'delete_key']],
    ] as const) {
      const grants = actions.map((action) => `api.${mine.apiId}.${action}`);
      // Of the other API one of two grants is not enough.
      const half = actions.length > 1 ? [`api.${others.apiId}.${actions[0]}`] : [];
      const answer = await call('keys.changeKeys', { keyIds, change: to }, [...grants, ...half]);
      expect(answer).toMatchObject({
        status: 200,
        data: { changed: [{ keyId: mine.keyIds[0] }], failed: [{ keyId: others.keyIds[0], code: 'key_not_found' }] },
      });
    }
    expect(await codesOf(others.keys)).toEqual(['VALID']);
  });

  test('a record that cannot be read changes no key, and no event is written', async () => {
    const { keys, keyIds } = await makeKeys(3);
    const events = (await eventsOf()).length;
    const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
    await redis.hset(keyRecordKey(workspaceKey(app.workspaceId), digestOf(keys[2]!.key)), 'state', 'broken');
    await redis.quit();
    expect(await call('keys.changeKeys', { keyIds, change: { enabled: false } })).toMatchObject({ status: 500 });
    expect(await codesOf(keys.slice(0, 2))).toEqual(['VALID', 'VALID']);
    expect(await eventsOf()).toHaveLength(events);
  });
});

describe('keys.changeKeys in several scripts, of which a later one fails', () => {
  // A redis-server of this group, because its tests fill or stop it.
  const own = ownRedis();
  let onChange: (() => void) | undefined;
  const observe = observing({
    ran(script) {
      if (script !== 'keys/change') return;
      onChange?.();
      onChange = undefined;
    },
  });
  const stepping = harness(() => own.url, { observe, commandTimeoutMs: 1000 });
  const set = (...config: string[]) => {
    // This process waits for it, so it comes before the next script.
    const code = `import { Redis } from 'ioredis';
      const redis = new Redis(process.argv[1]);
      await redis.config('SET', ...process.argv.slice(2));
      await redis.quit();`;
    const args = ['--input-type=module', '-e', code, own.url, ...config];
    expect(spawnSync(process.execPath, args, { encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' });
  };
  /** Disabled keys with so many limits that a script changes 19 of them. */
  async function largeKeys() {
    const { apiId } = await stepping.ok('apis.createApi', { name: 'large' });
    const ratelimits = Array.from({ length: 50 }, (_, at) => ({ name: `limit ${at}`, limit: 1, duration: 1000 }));
    const keyIds: string[] = [];
    for (let index = 0; index < 25; index++)
      keyIds.push((await stepping.ok('keys.createKey', { apiId, enabled: false, ratelimits })).keyId);
    return keyIds;
  }
  const enable = (keyIds: string[]) => stepping.call('keys.changeKeys', { keyIds, change: { enabled: true } });
  const firstOf = (keyIds: string[]) =>
    keyIds.slice(0, 19).map((keyId) => ({ keyId, before: { enabled: false }, after: { enabled: true } }));

  test('store_full: the keys that were changed have their values before, the others are in `failed`', async () => {
    const keyIds = await largeKeys();
    onChange = () => set('maxmemory', '1');
    const { status, data } = await enable(keyIds);
    set('maxmemory', '0');
    const message = expect.stringContaining('maxmemory');
    expect({ status, data }).toEqual({
      status: 200,
      data: {
        changed: firstOf(keyIds),
        unchanged: [],
        failed: keyIds.slice(19).map((keyId) => ({ keyId, code: 'store_full', message })),
      },
    });
    const enabled = await Promise.all(keyIds.map((keyId) => stepping.ok('keys.getKey', { keyId })));
    expect(enabled.map((key) => key.enabled)).toEqual(keyIds.map((_, at) => at < 19));
    // Called again, it changes the others.
    expect((await enable(keyIds)).data).toMatchObject({ unchanged: keyIds.slice(0, 19), failed: [] });
  });

  test('a Redis that does not reply', async () => {
    const keyIds = await largeKeys();
    onChange = () => own.signal('SIGSTOP');
    const { status, data } = await enable(keyIds);
    own.signal('SIGCONT');
    expect(status).toBe(200);
    expect(data.changed).toEqual(firstOf(keyIds));
    expect(data.failed.map(({ keyId, code }) => [keyId, code])).toEqual(
      keyIds.slice(19).map((keyId) => [keyId, 'store_unavailable']),
    );
  });

  test('the whole call fails if the scripts before have changed nothing', async () => {
    const keyIds = await largeKeys();
    set('maxmemory', '1');
    expect(await enable(keyIds)).toMatchObject({ status: 503, code: 'store_full' });
    set('maxmemory', '0');
  });
});

describe('keys.changeKeys: refusals', () => {
  const id = (at: number) => `key_${`${at}`.padStart(24, '1')}`.replaceAll('0', 'A');
  const enabled = { enabled: false };
  test.each<[string, object, string]>([
    ['no ids', { keyIds: [], change: enabled }, 'body.keyIds'],
    ['101 ids', { keyIds: Array.from({ length: 101 }, (_, at) => id(at)), change: enabled }, 'body.keyIds'],
    ['an id twice', { keyIds: [id(1), id(1)], change: enabled }, 'body.keyIds'],
    ['ids that are no text', { keyIds: [1], change: enabled }, 'body.keyIds[0]'],
    ['an id without a name', { keyIds: [id(1), 'key_'], change: enabled }, 'body.keyIds[1]'],
    ['a key string', { keyIds: [`pay_${'a'.repeat(24)}`], change: enabled }, 'body.keyIds[0]'],
    ['no change', { keyIds: [id(1)] }, 'body.change'],
    ['an empty change', { keyIds: [id(1)], change: {} }, 'body.change'],
    ['two changes', { keyIds: [id(1)], change: { ...enabled, deleted: true } }, 'body.change'],
    ['an unknown change', { keyIds: [id(1)], change: { name: 'a' } }, 'body.change.name'],
    ['enabled: null', { keyIds: [id(1)], change: { enabled: null } }, 'body.change.enabled'],
    ['deleted as text', { keyIds: [id(1)], change: { deleted: 'true' } }, 'body.change.deleted'],
    ['a time in seconds', { keyIds: [id(1)], change: { expires: 1_800_000_000 } }, 'body.change.expires'],
    ['a time before 1970', { keyIds: [id(1)], change: { expires: -1 } }, 'body.change.expires'],
    ['a plan with a space', { keyIds: [id(1)], change: { planId: 'a b' } }, 'body.change.planId'],
  ])('400: %s', async (_what, input, location) => {
    expect(await call('keys.changeKeys', input as never)).toMatchObject(invalidAt(location));
  });

  test('404: an unknown plan, and no key is changed', async () => {
    const { keyIds } = await makeKeys(1);
    const events = (await eventsOf()).length;
    expect(await call('keys.changeKeys', { keyIds, change: { planId: 'nowhere' } })).toMatchObject({
      status: 404,
      code: 'plan_not_found',
      error: { detail: 'There is no plan "nowhere".' },
    });
    expect(await eventsOf()).toHaveLength(events);
  });

  test('403: a root key that may change keys of no API', async () => {
    const { keyIds } = await makeKeys(1);
    for (const [to, grants, missing] of [
      [{ enabled: false }, ['api.*.delete_key'], 'api.*.update_key'],
      [{ deleted: true }, ['api.*.update_key'], 'api.*.delete_key'],
      [{ deleted: false }, ['api.*.delete_key'], 'api.*.create_key'],
    ] as const)
      expect(await call('keys.changeKeys', { keyIds, change: to }, [...grants])).toMatchObject({
        status: 403,
        code: 'insufficient_permissions',
        error: { detail: `The root key lacks ${missing}.` },
      });
  });
});
