// Compares src/redis/keyspace.md with the records in Redis after every operation was called.

import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { setupKey } from '../../src/redis/names.ts';
import { makeThings } from '../support/examples.ts';
import { dayMs, harness, hourMs, testSettings } from '../support/harness.ts';
import { entryNames, keyspace, survey } from '../support/keyspace.ts';
import { testRedisUrl } from '../support/redis.ts';

let redis: RedisClient;
beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
  // The database of this vitest worker, which runs one test file at a time, so that no other file adds records.
  await redis.flushdb();
});
afterAll(async () => void (await redis.quit()));

const tollgate = harness();
const { call, ok, clock, createKey, createWorkspace } = tollgate;

test('no two entries have the same name', () => {
  expect(new Set(keyspace.map(({ name }) => name)).size).toBe(keyspace.length);
});

test('every key in Redis after all operations is in keyspace.md, and all of those are in Redis', async () => {
  await tollgate.store.workspaces.createFirst('not needed');
  await aBitOfEverything();

  const seen = new Set<string>();
  const check = async () => {
    const found = await survey(redis);
    expect(found.wrong).toEqual([]);
    for (const name of found.seen) seen.add(name);
  };
  await check();
  clock.advance(2 * dayMs);
  await sweepAll();
  await tollgate.store.status.swept();
  await tollgate.store.ready();
  await check();
  await cleanUp();
  await check();
  // `tg:setup` exists only while the first workspace is created, one name only after a migration
  // (test/migrations/fixtures.test.ts), two names only with leases (test/decide/leases/leases.test.ts), one only with
  // many customers (test/usage/sums.test.ts).
  const oldNames = keyspace.filter(({ isOld }) => isOld).map(({ name }) => name);
  const leases = [':lw:<owner>:<duration>:<name>', ':leases'];
  const unseen = entryNames.filter((name) => !seen.has(name));
  const expected = [setupKey, ':data', ':sc:<api8>:<month>', ...leases, ...oldNames];
  expect(new Set(unseen)).toEqual(new Set(expected));
});

async function aBitOfEverything() {
  const theirs = await createWorkspace();
  await makeThings(call, theirs.rootKey);

  await ok('workspace.updateSettings', { me: { origins: ['https://app.example'], meta: ['tier'] } });
  await ok('permissions.createPermission', { name: 'Read', slug: 'documents.read', description: 'to read' });
  const { roleId } = await ok('permissions.createRole', { name: 'reader', permissions: ['documents.read'] });
  await ok('permissions.setRolePermissions', { roleId, permissions: ['documents.read', 'documents.write'] });
  const ratelimits = [{ name: 'requests', limit: 100, duration: hourMs, autoApply: true }];
  const planId = 'a.b-c_D';
  await ok('plans.createPlan', { planId, ratelimits, permissions: ['documents.read'], roles: ['reader'] });
  await ok('identities.createIdentity', { externalId: 'a.b-c_D', meta: { a: 1 }, ratelimits, planId });

  const { apiId, keyId, key } = await createKey({
    prefix: 'pk',
    name: 'a:name',
    externalId: 'a.b-c_D',
    meta: { b: 2 },
    credits: { remaining: 50, refill: { interval: 'daily', amount: 50 } },
    ratelimits: [{ name: 'a:b', limit: 100, duration: 5000, autoApply: true }],
    roles: ['reader'],
    permissions: ['documents.*', 'more'],
    planId,
  });
  const { hold } = await ok('keys.verifyKey', { key, hold: { ttl: dayMs } });
  await ok('keys.settleHold', { holdId: hold!.id });
  const verification = {
    key,
    permissions: 'documents.read',
    ratelimits: [
      { name: 'ad:hoc', limit: 5, duration: 60_000 },
      { name: 'ad hoc\n*', limit: 1000, duration: 90_000 },
    ],
    tags: ['path=/a:b', '\u{1f511}'],
  };
  expect(await ok('keys.verifyKey', { key, permissions: 'not.held' })).toMatchObject({
    code: 'INSUFFICIENT_PERMISSIONS',
  });
  for (let hour = 0; hour < 2; hour++) {
    expect(await ok('keys.verifyKey', verification)).toMatchObject({ code: 'VALID' });
    clock.advance(hourMs);
  }
  expect(await ok('keys.verifyKey', { key, permissions: 'none' })).toMatchObject({ code: 'INSUFFICIENT_PERMISSIONS' });
  // More than a bucket has; some are settled.
  for (let number = 0; number < 40; number++) {
    const { hold } = await ok('keys.verifyKey', { key, hold: { ttl: 60_000 } });
    if (number % 8 === 0) await ok('keys.settleHold', { holdId: hold!.id });
  }
  await ok('keys.updateKey', { keyId, name: null, ratelimits: null, externalId: 'other', credits: { remaining: 5 } });
  await ok('keys.updateCredits', { keyId, operation: 'increment', value: 3 });
  await ok('keys.addPermissions', { keyId, permissions: ['added'] });
  await ok('keys.setRoles', { keyId, roles: [] });
  await ok('keys.rerollKey', { keyId, expiration: 1000 });
  const hash = createHash('sha256').update('elsewhere').digest('base64');
  await ok('keys.migrateKeys', { migrationId: 'from_elsewhere', apiId, keys: [{ hash, externalId: 'moved' }] });
  for (const permanent of [false, true])
    await ok('keys.deleteKey', { keyId: (await createKey({ apiId })).keyId, permanent });
  for (const permanent of [false, true]) await ok('apis.deleteApi', { apiId: (await createKey()).apiId, permanent });
  // More than a leaf of the index of starts has.
  for (let count = 0; count < 260; count++) await createKey({ apiId });

  for (const identifier of ['alice', 'a:b:60000:c', '*', '\u{1f511}\n']) {
    await ok('ratelimits.limit', { namespace: `${identifier} of it`, identifier, limit: 3, duration: 60_000 });
    await ok('ratelimits.setOverride', { namespace: 'email', identifier, limit: 10, duration: 2000 });
    await ok('ratelimits.setOverride', { namespace: 'email', identifier: `${identifier}*`, limit: 5, duration: 3000 });
  }
  const temporary = { namespace: 'email', limit: 10, duration: 2000, until: clock.now + 30 * dayMs };
  for (const identifier of ['temporary', 'alice']) await ok('ratelimits.setOverride', { ...temporary, identifier });
  await ok('ratelimits.multiLimit', [
    { namespace: 'email', identifier: 'alice', limit: 3, duration: 60_000 },
    { namespace: 'email', identifier: 'bob', limit: 3, duration: 60_000 },
  ]);
  await ok('rootKeys.createRootKey', { permissions: ['*'], name: 'second' });
  const doomed = await createKey({ externalId: 'doomed' });
  await ok('apis.deleteApi', { apiId: doomed.apiId });
}

/** Deletes records and runs the sweeper, which must not leave unknown records either. */
async function cleanUp() {
  await ok('ratelimits.deleteOverride', { namespace: 'email', identifier: 'alice' });
  await ok('ratelimits.deleteOverride', { namespace: 'email', identifier: 'alice*' });
  await ok('permissions.deleteRole', { role: 'reader' });
  await ok('permissions.deletePermission', { permission: 'documents.read' });
  await ok('identities.deleteIdentity', { identity: 'a.b-c_D' });
  const [, second] = await ok('rootKeys.listRootKeys', {});
  await ok('rootKeys.deleteRootKey', { rootKeyId: second!.rootKeyId });
  clock.advance(testSettings.keyRetentionMs + dayMs);
  await sweepAll();
}

async function sweepAll() {
  for (const { workspaceId } of await tollgate.store.workspaces.list()) {
    while (await tollgate.store.sweep.holds(workspaceId));
    while (await tollgate.store.sweep.refill(workspaceId));
    while (await tollgate.store.sweep.purge(workspaceId));
    while (await tollgate.store.sweep.ended(workspaceId));
    while (await tollgate.store.sweep.rollUp(workspaceId));
  }
}
