// A real Redis that is full, or refuses writes for another reason: what is still served, and the reason that callers
// get.

import { afterEach, describe, expect, test } from 'vitest';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { refusalOf } from '../../src/redis/refusedWrites.ts';
import { exampleOf, makeThings, type Things } from '../support/examples.ts';
import { harness, type InputOf } from '../support/harness.ts';
import { ownRedis } from '../support/ownRedis.ts';

const own = ownRedis();

const tollgate = harness(() => own.url, { leaseMs: 0 });
const { call, ok, clock, createKey, createRootKey } = tollgate;

const fill = () => own.redis.config('SET', 'maxmemory', '1');
const makeRoom = () => own.redis.config('SET', 'maxmemory', '0');
afterEach(async () => {
  await makeRoom();
  await own.redis.replicaof('NO', 'ONE');
  await own.redis.config('SET', 'min-replicas-to-write', '0');
});

/** Calls while Redis is full. The time of use of the root key is due. */
async function callFull<Name extends OperationName>(name: Name, input: InputOf<Name>, as?: string) {
  clock.advance(5000);
  await fill();
  const answer = await call(name, input, as);
  await makeRoom();
  return answer;
}

test.each([
  ["OOM command not allowed when used memory > 'maxmemory'. script: ab, on lua/keys/update.lua:4.", 'memory_full'],
  ['-OOM allow-oom flag is not set on the script, can not run it', 'memory_full'],
  ['MISCONF Errors writing to the AOF file: No space left on device', 'disk_full'],
  ['MISCONF Errors writing to the AOF file: Disk quota exceeded', 'disk_full'],
  ['MISCONF Errors writing to the AOF file: Input/output error', 'disk_error'],
  ['MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist to disk.', 'disk_error'],
  ["READONLY You can't write against a read only replica.", 'replica'],
  ['NOREPLICAS Not enough good replicas to write.', 'few_replicas'],
  ['NOPERM this user has no permissions', undefined],
  ['ERR the text OOM command not allowed', undefined],
  ['OOMPH', undefined],
])('%s: %s', (reply, reason) => expect(refusalOf(reply)).toBe(reason));

describe('while the memory of Redis is full', () => {
  // The example of changeKeys disables keys.
  const serves = /\.(get|list|whoami|explain|find|delete|remove|changeKeys)/;
  test.each(operations.map(({ name }) => name))('%s is served, or refused with the reason', async (name) => {
    const things = await makeThings(call, tollgate.rootKey);
    const answer = await callFull(name, exampleOf(name).input(things) as InputOf<typeof name>);
    if (serves.test(name)) {
      expect(answer).toMatchObject({ status: 200, code: undefined });
      return;
    }
    expect(answer).toMatchObject({ status: 503, code: 'store_full', error: { title: 'Store full' } });
    expect(answer.error.detail).toMatch(/^The store is full: .*maxmemory.* Nothing was changed\./);
  });

  const keyOf = async ({ keyId }: Pick<Things, 'keyId'>) => ok('keys.getKey', { keyId });

  test('a key is disabled, once: nothing is written by a repetition', async () => {
    const { keyId, key } = await createKey({ name: 'leaked', ratelimits: [], credits: { remaining: 5 } });
    expect(await callFull('keys.updateKey', { keyId, enabled: false })).toMatchObject({ status: 200 });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'DISABLED' });
    const events = async () => (await ok('audit.listEvents', { resource: { id: keyId }, order: 'desc' })).length;
    const before = await events();
    for (const enabled of [false, true]) {
      const refused = await callFull('keys.updateKey', { keyId, enabled });
      expect(refused).toMatchObject({ status: 503, code: 'store_full' });
    }
    expect(await events()).toBe(before);
    expect(await keyOf({ keyId })).toMatchObject({ enabled: false, credits: { remaining: 5 } });
  });

  test('a key is ended by its expiry; a later expiry and any other field are refused', async () => {
    const { keyId, key } = await createKey({ expires: clock.now + 3_600_000 });
    const refused: InputOf<'keys.updateKey'>[] = [
      { keyId, expires: clock.now + 7_200_000 },
      { keyId, expires: clock.now + 1_800_000 },
      { keyId, expires: null },
      { keyId, enabled: true },
      { keyId, enabled: false, name: 'longer than before' },
      { keyId, enabled: false, meta: { much: 'x'.repeat(5000) } },
      { keyId, enabled: false, externalId: 'new' },
      { keyId, enabled: false, permissions: ['new.slug'] },
      { keyId, enabled: false, credits: { remaining: 1 } },
    ];
    for (const input of refused) {
      expect(await callFull('keys.updateKey', input), JSON.stringify(input)).toMatchObject({ code: 'store_full' });
    }
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'VALID' });
    expect(await callFull('keys.updateKey', { keyId, expires: 1 })).toMatchObject({ status: 200 });
    expect(await ok('keys.verifyKey', { key })).toMatchObject({ code: 'EXPIRED' });
    expect(await callFull('keys.updateKey', { keyId, expires: 2 })).toMatchObject({ code: 'store_full' });
    // It can be disabled as well, once: what ends is not moved back.
    expect(await callFull('keys.updateKey', { keyId, enabled: false, expires: null })).toMatchObject({ status: 200 });
    expect(await callFull('keys.updateKey', { keyId, enabled: true, expires: 1 })).toMatchObject({
      code: 'store_full',
    });
    expect(await callFull('keys.updateKey', { keyId, enabled: false })).toMatchObject({ code: 'store_full' });
    expect(await callFull('keys.updateKey', { keyId, expires: 1 })).toMatchObject({ status: 200 });
    for (const change of [{ enabled: false }, { expires: 2 }, { expires: null }, { enabled: false, expires: null }])
      expect(await callFull('keys.updateKey', { keyId, ...change })).toMatchObject({ code: 'store_full' });
  });

  test('many keys are disabled or deleted; if one would take memory, none is changed', async () => {
    const keys = [await createKey(), await createKey({ enabled: false, expires: clock.now + 3_600_000 })];
    const keyIds = keys.map(({ keyId }) => keyId);
    const change = (to: InputOf<'keys.changeKeys'>['change']) => callFull('keys.changeKeys', { keyIds, change: to });
    for (const to of [{ enabled: true }, { expires: null }, { planId: 'none' }])
      expect(await change(to), JSON.stringify(to)).toMatchObject({
        code: 'planId' in to ? 'plan_not_found' : 'store_full',
      });
    expect(await ok('keys.verifyKey', { key: keys[0]!.key })).toMatchObject({ code: 'VALID' });
    expect(await change({ enabled: false })).toMatchObject({
      status: 200,
      data: { changed: [{ keyId: keyIds[0] }], unchanged: [keyIds[1]] },
    });
    expect(await change({ deleted: true })).toMatchObject({
      status: 200,
      data: { changed: [{ keyId: keyIds[0] }, { keyId: keyIds[1] }] },
    });
    expect(await change({ deleted: false })).toMatchObject({ code: 'store_full' });
  });

  test('keys that have expired do not keep many keys from being disabled or ended', async () => {
    const ended = await createKey({ expires: clock.now + 1000 });
    const disabled = await createKey({ enabled: false });
    const live = [await createKey(), await createKey()];
    clock.advance(2000);
    const keyIds = (keys: { keyId: string }[]) => keys.map(({ keyId }) => keyId);
    const change = async (keys: { keyId: string }[], to: InputOf<'keys.changeKeys'>['change']) => {
      const { code, data } = await callFull('keys.changeKeys', { keyIds: keyIds(keys), change: to });
      return code ?? keyIds(data.changed);
    };
    expect(await change([ended, live[0]!], { enabled: false })).toEqual(keyIds([ended, live[0]!]));
    const all = [ended, disabled, ...live];
    expect(await change(all, { expires: 1 })).toEqual(keyIds(all));
    for (const { key } of live) expect(await ok('keys.verifyKey', { key })).not.toMatchObject({ code: 'VALID' });
    // Nothing ends by these: they could be repeated without end.
    for (const to of [{ expires: 2 }, { expires: null }, { enabled: true }])
      expect(await change(all, to), JSON.stringify(to)).toBe('store_full');
    expect(await change(all, { expires: 1 })).toEqual([]);
  });

  test('a root key is disabled, and is refused from then on; it is not enabled', async () => {
    const leaked = await createRootKey(['api.*.read_key', 'api.*.read_api']);
    const { rootKeyId } = (await call('rootKeys.whoami', {}, leaked)).data;
    expect(await callFull('rootKeys.updateRootKey', { rootKeyId, name: 'x' })).toMatchObject({ code: 'store_full' });
    expect(await callFull('rootKeys.updateRootKey', { rootKeyId, enabled: false })).toMatchObject({ status: 200 });
    expect(await callFull('keys.listKeys', {}, leaked)).toMatchObject({ code: 'root_key_disabled' });
    expect(await callFull('rootKeys.updateRootKey', { rootKeyId, enabled: true })).toMatchObject({
      code: 'store_full',
    });
  });

  test('a permission is taken from a key, and a role; none is given', async () => {
    const { keyId, name } = await makeThings(call, tollgate.rootKey);
    const permissions = [`${name}.direct`];
    expect(await callFull('keys.addPermissions', { keyId, permissions: [name] })).toMatchObject({ code: 'store_full' });
    expect(await callFull('keys.removePermissions', { keyId, permissions })).toMatchObject({ status: 200, data: [] });
    // It has none of these: nothing is taken.
    expect(await callFull('keys.removePermissions', { keyId, permissions })).toMatchObject({ code: 'store_full' });
    expect(await callFull('keys.removeRoles', { keyId, roles: [name] })).toMatchObject({ status: 200, data: [] });
    expect(await callFull('keys.removeRoles', { keyId, roles: [name] })).toMatchObject({ code: 'store_full' });
    expect(await keyOf({ keyId })).not.toHaveProperty('permissions');
  });

  test('records of deleted keys and APIs are removed, which makes room', async () => {
    const { apiId } = await makeThings(call, tollgate.rootKey);
    await ok('apis.deleteApi', { apiId, permanent: true });
    await fill();
    while (await tollgate.store.sweep.purge(tollgate.workspaceId));
    await makeRoom();
    expect(await own.redis.keys(`tg:{${tollgate.workspaceId}}:*:${apiId.slice(-8)}`)).toEqual([]);
  });
});

describe('the reason of other refusals', () => {
  test('a replica: nothing is served that must record the use of the root key', async () => {
    await own.redis.replicaof('127.0.0.1', '1');
    await expect(call('apis.createApi', { name: 'refused' })).resolves.toMatchObject({
      status: 503,
      code: 'store_unavailable',
      error: { detail: 'Redis is a replica, which refuses all changes. Nothing was changed.' },
    });
    // It may be a master that was replaced, which has older data. A full Redis has all data.
    clock.advance(5000);
    expect(await call('apis.listApis', {})).toMatchObject({ status: 503, code: 'store_unavailable' });
  });

  test('too few replicas: reads are served', async () => {
    await own.redis.config('SET', 'min-replicas-to-write', '1');
    clock.advance(5000);
    expect(await call('apis.listApis', {})).toMatchObject({ status: 200 });
    expect(await call('apis.createApi', { name: 'refused' })).toMatchObject({
      status: 503,
      code: 'store_unavailable',
      error: { detail: expect.stringContaining('min-replicas-to-write') },
    });
    const { keyId } = await createKey().catch(() => ({ keyId: '' }));
    expect(keyId).toBe('');
  });
});
