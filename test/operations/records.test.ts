// RECORDS_MAX: the maximum of records of all kinds together in a workspace, for every operation that creates some, also
// concurrently. The counts must equal the number of records.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { digestOf } from '../../src/domain/keyString.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { type OperationName, operations } from '../../src/operations/index.ts';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { auditKey, workspaceKey } from '../../src/redis/names.ts';
import { exampleOf, hash, type Things } from '../support/examples.ts';
import { dayMs, harness, type InputOf, testSettings } from '../support/harness.ts';
import { keyspace } from '../support/keyspace.ts';
import { random, seed } from '../support/random.ts';
import { namesLike, testRedisUrl } from '../support/redis.ts';

const recordsMax = 30;
const tollgate = harness(testRedisUrl, { recordsMax });
const { call, clock, createWorkspace } = tollgate;

let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
});
afterAll(() => redis.disconnect());

const times = <Item>(count: number, make: (index: number) => Item) =>
  Array.from({ length: count }, (_, at) => make(at));
const limit = (namespace: string) => ({ namespace, identifier: 'a', limit: 1000, duration: 1000 });

/** The lists of records of the workspace. */
const lists = keyspace.filter(({ name, holds }) => /^:\w+$/.test(name) && holds.includes(' in order: id16'));

/** The number of records in Redis: by the names of keys, and the lengths of lists. */
async function recordsOf(workspaceId: string): Promise<number> {
  const workspace = workspaceKey(workspaceId);
  const keys = await namesLike(redis, `${workspace}:k:*`);
  const overrides = await namesLike(redis, `${workspace}:ovl:*`);
  const sizes = await Promise.all([
    ...lists.map(({ name }) => redis.zcard(`${workspace}${name}`)),
    ...overrides.map((list) => redis.zcard(list)),
  ]);
  return sizes.reduce((sum, size) => sum + size, keys.length);
}

/**
 * A workspace with an API, a key, a role of one permission, a namespace, a plan and its root key: seven records, and
 * identities for the others.
 */
async function workspaceOf(records: number) {
  const { workspaceId, rootKey } = await createWorkspace();
  const run = <Name extends OperationName>(name: Name, input: InputOf<Name>) => call(name, input, rootKey);
  const { apiId } = (await run('apis.createApi', { name: 'first' })).data;
  const { keyId, key } = (await run('keys.createKey', { apiId })).data;
  const { roleId } = (await run('permissions.createRole', { name: 'role', permissions: ['first'] })).data;
  await run('ratelimits.limit', limit('first'));
  await run('plans.createPlan', { planId: 'first' });
  for (let made = 7; made < records; made++) {
    expect((await run('identities.createIdentity', { externalId: `user${made}` })).status).toBe(200);
  }
  expect(await recordsOf(workspaceId)).toBe(records);
  const { rootKeyId } = (await run('rootKeys.whoami', {})).data;
  return { workspaceId, rootKey, rootKeyId, apiId, keyId, key, roleId, run };
}
type Made = Awaited<ReturnType<typeof workspaceOf>>;

type Making = [OperationName, (made: Made) => object, count: number];

/** Calls that create records, and how many. */
const named: Record<string, Making> = {
  createKey: ['keys.createKey', ({ apiId }) => ({ apiId }), 1],
  'createKey, with an identity and permissions': [
    'keys.createKey',
    ({ apiId }) => ({ apiId, externalId: 'new', permissions: ['new.1', 'new.2', 'first'] }),
    4,
  ],
  rerollKey: ['keys.rerollKey', ({ keyId }) => ({ keyId, expiration: 0 }), 1],
  'rerollKey, of a root key': ['rootKeys.rerollKey', ({ rootKeyId }) => ({ keyId: rootKeyId, expiration: null }), 1],
  migrateKeys: [
    'keys.migrateKeys',
    ({ apiId }) => ({ migrationId: 'mig', apiId, keys: [{ hash: hash(), externalId: 'm' }, { hash: hash() }] }),
    3,
  ],
  'updateKey, with an identity': ['keys.updateKey', ({ keyId }) => ({ keyId, externalId: 'new' }), 1],
  'updateKey, with permissions': ['keys.updateKey', ({ keyId }) => ({ keyId, permissions: ['new.1', 'new.2'] }), 2],
  addPermissions: ['keys.addPermissions', ({ keyId }) => ({ keyId, permissions: ['new.1'] }), 1],
  setPermissions: ['keys.setPermissions', ({ keyId }) => ({ keyId, permissions: ['new.1', 'first'] }), 1],
  createRole: ['permissions.createRole', () => ({ name: 'new', permissions: ['new.1', 'new.2'] }), 3],
  setRolePermissions: ['permissions.setRolePermissions', ({ roleId }) => ({ roleId, permissions: ['new.1'] }), 1],
  createPlan: ['plans.createPlan', () => ({ planId: 'new', permissions: ['new.1', 'new.2'] }), 3],
  updatePlan: ['plans.updatePlan', () => ({ planId: 'first', permissions: ['new.1', 'first'] }), 1],
  setOverride: ['ratelimits.setOverride', () => ({ ...limit('first'), limit: 5 }), 1],
  'setOverride, with a namespace': ['ratelimits.setOverride', () => ({ ...limit('new'), limit: 5 }), 2],
  limit: ['ratelimits.limit', () => limit('new'), 1],
  'multiLimit of two new namespaces, one of them twice': [
    'ratelimits.multiLimit',
    () => [limit('new'), limit('first'), limit('newer'), limit('new')],
    2,
  ],
};
/** The example of each other operation that creates records creates one, and refers to none. */
const others = (operations as readonly AnyOperation[])
  .filter(
    ({ name, errors }) => errors?.includes('too_many_records') && !Object.values(named).some(([of]) => of === name),
  )
  .map(({ name }): [string, Making] => [name, [name as OperationName, () => exampleOf(name).input({} as Things), 1]]);
const making = [...others, ...Object.entries(named)];

describe.each(making)('%s', (_, [operation, input, count]) => {
  test('creates records up to the limit, and then none: 403', async () => {
    const made = await workspaceOf(recordsMax - count);
    const answer = await made.run(operation, input(made) as never);
    expect(answer, JSON.stringify(answer.error)).toMatchObject({ status: 200 });
    expect(await recordsOf(made.workspaceId)).toBe(recordsMax);

    const full = await workspaceOf(recordsMax - count + 1);
    const workspace = workspaceKey(full.workspaceId);
    const events = await redis.xlen(auditKey(workspace));
    const refused = await full.run(operation, input(full) as never);
    expect(refused).toMatchObject({ status: 403, code: 'too_many_records' });
    expect(refused.error.detail).toContain(`${recordsMax}`);
    expect(await recordsOf(full.workspaceId)).toBe(recordsMax - count + 1);
    expect(await redis.xlen(auditKey(workspace))).toBe(events);
  });
});

test('operations that create nothing are served in a full workspace, and a deletion makes room', async () => {
  const { run, apiId, keyId, key, roleId, workspaceId } = await workspaceOf(recordsMax);
  const last = `user${recordsMax - 1}`;
  for (const [operation, input] of [
    ['keys.verifyKey', { key }],
    ['ratelimits.limit', limit('first')],
    ['keys.updateKey', { keyId, name: 'renamed', externalId: last, permissions: ['first'] }],
    ['permissions.setRolePermissions', { roleId, permissions: [] }],
    ['plans.updatePlan', { planId: 'first', permissions: ['first'] }],
    ['keys.addPermissions', { keyId, permissions: ['first'] }],
    ['keys.migrateKeys', { migrationId: 'mig', apiId, keys: [{ hash: digestOf(key).toString('base64') }] }],
  ] as const) {
    expect((await run(operation, input as never)).status, operation).toBe(200);
  }
  expect((await run('identities.createIdentity', { externalId: last })).code).toBe('identity_already_exists');
  expect((await run('keys.createKey', { apiId })).code).toBe('too_many_records');
  await run('identities.deleteIdentity', { identity: last, permanent: true });
  expect((await run('keys.createKey', { apiId })).status).toBe(200);
  expect(await recordsOf(workspaceId)).toBe(recordsMax);
});

test('a deleted key is counted until its record is removed: immediately, after the retention, or with its API', async () => {
  const { run, apiId, keyId, workspaceId } = await workspaceOf(recordsMax - 1);
  const more = async () => (await run('keys.createKey', { apiId })).status;
  const purge = async () => {
    while (await tollgate.store.sweep.purge(workspaceId));
  };
  await run('keys.deleteKey', { keyId });
  expect([await more(), await more()]).toEqual([200, 403]);
  clock.advance(testSettings.keyRetentionMs);
  await purge();
  expect([await more(), await more()]).toEqual([200, 403]);
  const [key] = (await run('apis.listKeys', { apiId })).data;
  await run('keys.deleteKey', { keyId: key!.keyId, permanent: true });
  expect([await more(), await more()]).toEqual([200, 403]);
  // The record of the API is removed at once, its two keys by the sweeper.
  await run('apis.deleteApi', { apiId, permanent: true });
  const room = async () => recordsMax - (await recordsOf(workspaceId));
  expect(await room()).toBe(1);
  await purge();
  expect(await room()).toBe(3);
  const answers = await Promise.all(times(5, (at) => run('identities.createIdentity', { externalId: `late${at}` })));
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 200, 403, 403]);
});

test('of many concurrent creations exactly as many succeed as there is room for', async () => {
  const { run, apiId, workspaceId } = await workspaceOf(recordsMax - 12);
  const answers = await Promise.all(
    times(60, (at) =>
      at % 3 === 0
        ? run('keys.createKey', { apiId })
        : at % 3 === 1
          ? run('ratelimits.limit', limit(`namespace ${at}`))
          : run('ratelimits.setOverride', { ...limit('first'), identifier: `${at}` }),
    ),
  );
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(12);
  expect(answers.filter(({ code }) => code === 'too_many_records')).toHaveLength(48);
  expect(await recordsOf(workspaceId)).toBe(recordsMax);
});

test('a new workspace has one record, its root key', async () => {
  const { workspaceId } = await tollgate.createWorkspace();
  expect(await tollgate.store.sweep.count(workspaceId)).toBe(1);
});

test('the operator can create a root key in a full workspace', async () => {
  const { workspaceId } = await workspaceOf(recordsMax);
  const rootKey = await tollgate.createRootKey(['*'], workspaceId);
  expect((await call('permissions.listRoles', {}, rootKey)).status).toBe(200);
});

test(`the count of records is always right (SEED=${seed})`, async () => {
  const pick = random(seed);
  const { run, apiId, workspaceId } = await workspaceOf(10);
  const some = (count = 6) => `some${pick(1, count)}`;
  const keyIds: string[] = [];
  const aKey = () => keyIds[pick(0, keyIds.length - 1)] ?? 'key_none';
  const acts: (() => Promise<unknown>)[] = [
    async () => {
      const { data } = await run('keys.createKey', { apiId, externalId: some(), permissions: [some()] });
      if (data) keyIds.push(data.keyId);
    },
    () => run('keys.deleteKey', { keyId: aKey(), permanent: pick(0, 1) === 1 }),
    () => run('keys.rerollKey', { keyId: aKey(), expiration: 0 }),
    () => run('keys.updateKey', { keyId: aKey(), externalId: some(), permissions: [some()] }),
    () => run('identities.createIdentity', { externalId: some() }),
    () => run('identities.deleteIdentity', { identity: some(), permanent: pick(0, 1) === 1 }),
    () => run('permissions.createRole', { name: some(), permissions: [some()] }),
    () => run('permissions.deleteRole', { role: some() }),
    () => run('plans.createPlan', { planId: some(), permissions: [some()] }),
    () => run('plans.updatePlan', { planId: some(), permissions: [some()] }),
    () => run('plans.deletePlan', { planId: some() }),
    () => run('permissions.deletePermission', { permission: some() }),
    () => run('ratelimits.setOverride', { ...limit(some(3)), identifier: some() }),
    () => run('ratelimits.deleteOverride', { namespace: some(3), identifier: some() }),
    () => run('ratelimits.multiLimit', [limit(some(3)), limit(some(3))]),
    async () => {
      const { data } = await run('apis.createApi', { name: some() });
      if (data) await run('keys.migrateKeys', { migrationId: 'mig', ...data, keys: [{ hash: hash() }] });
      if (data) await run('apis.deleteApi', { ...data, permanent: pick(0, 1) === 1 });
    },
    async () => {
      clock.advance(pick(0, 10) * dayMs);
      while (await tollgate.store.sweep.purge(workspaceId));
    },
  ];
  for (let round = 0; round < 60; round++) {
    await Promise.all(times(5, () => acts[pick(0, acts.length - 1)]!()));
    const there = await recordsOf(workspaceId);
    expect(await tollgate.store.sweep.count(workspaceId)).toBe(there);
    expect(there).toBeLessThanOrEqual(recordsMax);
  }
});
