// An API is moved to another workspace: everything of its keys arrives, and callers of the first workspace notice
// nothing. test/faults/move.long.test.ts moves one under load, and kills the processes that take part.

import { Writable } from 'node:stream';
import { beforeEach, describe, expect, test } from 'vitest';
import { endForwarding, moveApi } from '../../src/cli/moveCommand.ts';
import type { Terminal } from '../../src/cli/terminal.ts';
import { digestOf } from '../../src/domain/keyString.ts';
import type { OperationName } from '../../src/operations/index.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { keyRecordKey, workspaceKey } from '../../src/redis/names.ts';
import { keyspace } from '../../src/scripts/keyspace.ts';
import type { Store } from '../../src/store.ts';
import { dayMs, harness, hourMs, type InputOf, type OutputOf } from '../support/harness.ts';
import { survey } from '../support/keyspace.ts';
import { ownRedis } from '../support/ownRedis.ts';

const own = ownRedis();
const tollgate = harness(() => own.url);
const { call, createWorkspace, createRootKey, clock } = tollgate;

const silent = () => new Writable({ write: (_chunk, _encoding, done) => done() });
const terminal = {
  env: {},
  stdin: process.stdin,
  stdout: silent(),
  stderr: silent(),
  exit() {},
} as unknown as Terminal;

/** The workspace that an API leaves, and the one that it is moved to. */
let one: Awaited<ReturnType<typeof createWorkspace>>;
let other: typeof one;
beforeEach(async () => {
  one = await createWorkspace();
  other = await createWorkspace();
});

type Options = Partial<Parameters<typeof moveApi>[3]> & { recordsMax?: number };
const move = (apiId: string, { recordsMax = 0, ...options }: Options = {}, store: Partial<Store> = {}) =>
  moveApi(
    Object.assign(Object.create(tollgate.store), store) as Store,
    terminal,
    { workspace: one.workspaceId, apiId, recordsMax },
    { to: other.workspaceId, ...options },
  );
const moveHome = (apiId: string) =>
  moveApi(tollgate.store, terminal, { workspace: other.workspaceId, apiId, recordsMax: 0 }, { to: one.workspaceId });

type Ok = <Name extends OperationName>(name: Name, input: InputOf<Name>) => Promise<OutputOf<Name>>;
const okAs =
  (rootKey: () => string): Ok =>
  async (name, input) => {
    const { status, data, error } = await call(name, input, rootKey());
    if (status !== 200) throw new Error(`${name}: ${status} ${error.detail}`);
    return data;
  };
const ok = okAs(() => one.rootKey);
const okThere = okAs(() => other.rootKey);
const verify = (key: string, more: Partial<InputOf<'keys.verifyKey'>> = {}) => ok('keys.verifyKey', { key, ...more });

async function createKey(input: Omit<InputOf<'keys.createKey'>, 'apiId'> & { apiId?: string } = {}) {
  const apiId = input.apiId ?? (await ok('apis.createApi', { name: 'test' })).apiId;
  return { apiId, ...(await ok('keys.createKey', { ...input, apiId })) };
}

/** A key with everything that a key can have, of an API with another key. */
async function makeKeys() {
  const { apiId, keyId: plainId, key: plain } = await createKey();
  for (const slug of ['docs.read', 'docs.write', 'files.read']) {
    await ok('permissions.createPermission', { slug, name: slug });
  }
  await ok('permissions.createRole', { name: 'editor', permissions: ['docs.write'] });
  const { key, keyId } = await createKey({
    apiId,
    name: 'all',
    prefix: 'sk',
    meta: { plan: 'pro', big: 12345678901234567890n.toString() },
    externalId: 'ada',
    expires: clock.now + 300 * dayMs,
    credits: { remaining: 100, refill: { interval: 'monthly', amount: 500, refillDay: 20 } },
    permissions: ['docs.read', 'files.read'],
    roles: ['editor'],
    allowedIps: ['192.0.2.0/24'],
    ratelimits: [
      { name: 'requests', limit: 50, duration: hourMs, autoApply: true },
      { name: 'burst', limit: 10, duration: 60_000, autoApply: false },
    ],
  });
  await ok('identities.updateIdentity', {
    identity: 'ada',
    meta: { name: 'Ada' },
    ratelimits: [{ name: 'shared', limit: 40, duration: dayMs, autoApply: true }],
  });
  await ok('identities.updateCredits', { identity: 'ada', operation: 'set', value: 1000 });
  return { apiId, plainId, plain, key, keyId };
}

describe('everything of a key', () => {
  test('arrives: what every read returned in the first workspace, the other one returns', async () => {
    const { apiId, key, keyId, plain } = await makeKeys();
    const { keyId: deletedId, key: deleted } = await createKey({ apiId, name: 'deleted', credits: { remaining: 7 } });
    await verify(deleted);
    await ok('keys.deleteKey', { keyId: deletedId });
    const request = { ip: '192.0.2.9', credits: { cost: 3 }, permissions: 'docs.read AND docs.write', tags: ['a=b'] };
    for (let times = 0; times < 4; times++) await verify(key, request);
    await verify(key, { ip: '198.51.100.1' });
    await verify(plain);
    const period = { start: clock.now - 10 * dayMs, end: clock.now + hourMs };
    const reads = async (as: Ok) => ({
      key: await as('keys.getKey', { keyId }),
      list: await as('keys.listKeys', { apiId, limit: 100 }),
      ofOwner: await as('keys.listKeys', { apiId, externalId: 'ada' }),
      identity: await as('identities.getIdentity', { identity: 'ada' }),
      api: await as('apis.getApi', { apiId }),
      usage: await as('analytics.getVerifications', { apiId, ...period, granularity: 'hour' }),
      byKey: new Set(await as('analytics.getVerifications', { apiId, ...period, groupBy: ['keyId', 'externalId'] })),
      byTag: await as('analytics.getVerifications', { apiId, ...period, groupBy: ['tag'] }),
    });
    const before = await reads(ok);
    expect(before.list).toHaveLength(2);

    const { lines, json } = await move(apiId);

    expect(json).toEqual({ from: one.workspaceId, to: other.workspaceId, apiId, outcome: 'moved', keys: 3 });
    expect(lines[0]).toContain(`${apiId} is in ${other.workspaceId}, with 3 keys.`);
    expect(await reads(okThere)).toEqual(before);
    expect((await call('apis.getApi', { apiId }, one.rootKey)).code).toBe('api_not_found');
    expect((await call('keys.getKey', { keyId }, one.rootKey)).code).toBe('key_not_found');
    expect((await call('identities.getIdentity', { identity: 'ada' }, one.rootKey)).code).toBe('identity_not_found');
    // The deleted key can be restored.
    expect((await call('keys.verifyKey', { key: deleted }, other.rootKey)).data.code).toBe('NOT_FOUND');
    await okThere('keys.restoreKey', { keyId: deletedId });
    expect(await okThere('keys.verifyKey', { key: deleted })).toMatchObject({ valid: true, credits: 5 });
  });

  test('so does usage of past days, of deleted keys and of former customers, and it comes back', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'used' });
    const keys: { key: string; keyId: string }[] = [];
    for (let made = 0; made < 6; made++) keys.push(await createKey({ apiId, externalId: `customer${made % 3}` }));
    const [, , changed, , deleted, removed] = keys as [unknown, unknown, ...typeof keys];
    for (let day = 0; day < 12; day++) {
      for (const [index, { key }] of keys.entries()) {
        for (let times = 0; times <= (day + index) % 3; times++) await verify(key, { tags: [`kind=${index % 2}`] });
      }
      if (day === 4) await ok('keys.updateKey', { keyId: changed!.keyId, externalId: 'later' });
      if (day === 5) await ok('keys.deleteKey', { keyId: removed!.keyId, permanent: true });
      if (day === 7) await ok('keys.deleteKey', { keyId: deleted!.keyId });
      clock.advance(dayMs + 3 * hourMs);
      if (day % 4 === 3) while (await tollgate.store.sweep.rollUp(one.workspaceId));
    }
    const reads = async (as: Ok) => {
      const period = { apiId, start: clock.now - 30 * dayMs, end: clock.now + hourMs };
      const query = async (more: Omit<InputOf<'analytics.getVerifications'>, keyof typeof period>) =>
        (await as('analytics.getVerifications', { ...period, ...more })).map((row) => JSON.stringify(row)).sort();
      return {
        byKey: await query({ granularity: 'day', groupBy: ['keyId', 'externalId', 'outcome'] }),
        byHour: await query({ granularity: 'hour', groupBy: ['outcome'] }),
        byTag: await query({ granularity: 'day', groupBy: ['tag'] }),
        before: await query({ granularity: 'day', externalId: 'customer2' }),
        later: await query({ granularity: 'day', externalId: 'later' }),
        bill: await as('analytics.listCustomers', period),
      };
    };
    const before = await reads(ok);
    expect(before.byKey.length).toBeGreaterThan(50);
    expect(before.bill.map(({ externalId }) => externalId)).toEqual(['customer0', 'customer1', 'customer2', 'later']);
    await move(apiId);
    expect(await reads(okThere)).toEqual(before);
    clock.advance(5 * dayMs);
    for (const { workspaceId } of [one, other]) while (await tollgate.store.sweep.rollUp(workspaceId));
    await verify(keys[0]!.key, { tags: ['kind=2'] });
    const after = await reads(okThere);
    await moveHome(apiId);
    expect(await reads(ok)).toEqual(after);
  });

  test('a root key of the first workspace verifies it as before, and so does one of the other', async () => {
    const { apiId, key, keyId } = await makeKeys();
    const request = { ip: '192.0.2.9', credits: { cost: 3 }, permissions: 'docs.read AND docs.write' };
    const before = await verify(key, request);
    expect(before).toMatchObject({ valid: true, credits: 97, identity: { credits: 997 } });
    await move(apiId);
    const forwarded = await verify(key, request);
    expect(forwarded).toEqual({
      ...before,
      credits: 94,
      identity: { ...before.identity, credits: 994 },
      ratelimits: before.ratelimits!.map((limit) => ({ ...limit, remaining: limit.remaining - 1 })),
    });
    expect(await okThere('keys.verifyKey', { key, ...request })).toMatchObject({ valid: true, credits: 91, keyId });
    expect(await verify(key, { ...request, permissions: 'files.write' })).toMatchObject({
      code: 'INSUFFICIENT_PERMISSIONS',
    });
    await okThere('keys.updateKey', { keyId, enabled: false });
    expect(await verify(key, request)).toMatchObject({ code: 'DISABLED' });
  });
});

describe('holds', () => {
  test('an open hold goes along, and is settled by a root key of either workspace', async () => {
    const { apiId, key } = await createKey({ credits: { remaining: 100 } });
    const hold = (as: string, cost: number, id: string) =>
      call('keys.verifyKey', { key, credits: { cost }, hold: { ttl: 60_000, id } }, as);
    const first = (await hold(one.rootKey, 10, 'first')).data;
    const second = (await hold(one.rootKey, 20, 'second')).data;
    expect(second).toMatchObject({ valid: true, credits: 70 });
    await move(apiId);
    const settled = await ok('keys.settleHold', { holdId: first.hold!.id, credits: { cost: 4 } });
    expect(settled).toMatchObject({ credits: 76 });
    // It is repeated with the same result, as before the move.
    expect(await okThere('keys.settleHold', { holdId: first.hold!.id, credits: { cost: 4 } })).toEqual(settled);
    await okThere('keys.releaseHold', { holdId: second.hold!.id });
    const third = (await hold(one.rootKey, 5, 'third')).data;
    expect(third).toMatchObject({ valid: true, credits: 91 });
    clock.advance(61_000);
    expect(await verify(key, { credits: { cost: 0 } })).toMatchObject({ credits: 96 });
  });

  test('a hold that was settled before is repeated as it was', async () => {
    const { apiId, key } = await createKey({ credits: { remaining: 100 } });
    const { hold } = await verify(key, { credits: { cost: 10 }, hold: { ttl: 60_000 } });
    const settled = await ok('keys.settleHold', { holdId: hold!.id, credits: { cost: 3 } });
    await move(apiId);
    expect(await ok('keys.settleHold', { holdId: hold!.id, credits: { cost: 3 } })).toEqual(settled);
    expect(await verify(key, { credits: { cost: 0 } })).toMatchObject({ credits: 97 });
  });
});

describe('forwarding', () => {
  test('a root key may only do what it might before, and no more after the forwarding has ended', async () => {
    const { apiId, key } = await createKey();
    const { apiId: otherApi } = await createKey();
    const may = await createRootKey([`api.${apiId}.verify_key`], one.workspaceId);
    const mayNot = await createRootKey([`api.${otherApi}.verify_key`], one.workspaceId);
    await move(apiId);
    expect((await call('keys.verifyKey', { key }, may)).data).toMatchObject({ valid: true });
    expect((await call('keys.verifyKey', { key }, mayNot)).data).toEqual({ valid: false, code: 'NOT_FOUND' });
    // The root key of the forwarding is one of the other workspace, which may end it.
    const { rootKeys } = await tollgate.store.rootKeys.list(other.workspaceId, { count: 10 });
    const forwarding = rootKeys.find(({ name }) => name?.startsWith('forwards'))!;
    expect(forwarding).toMatchObject({ permissions: [`api.${apiId}.verify_key`], start: '' });
    await tollgate.store.rootKeys.update(other.workspaceId, forwarding.rootKeyId, { enabled: false }, cliActor);
    expect((await call('keys.verifyKey', { key }, may)).data).toEqual({ valid: false, code: 'NOT_FOUND' });
    await tollgate.store.rootKeys.update(other.workspaceId, forwarding.rootKeyId, { enabled: true }, cliActor);
    expect((await call('keys.verifyKey', { key }, may)).data).toMatchObject({ valid: true });

    const { json } = await endForwarding(tollgate.store, { workspace: one.workspaceId, apiId });
    expect(json).toEqual({ workspaceId: one.workspaceId, apiId, keys: 1 });
    expect((await call('keys.verifyKey', { key }, may)).data).toEqual({ valid: false, code: 'NOT_FOUND' });
    expect(await okThere('keys.verifyKey', { key })).toMatchObject({ valid: true });
    expect(await names(one.workspaceId)).not.toContainEqual(expect.stringContaining(apiId.slice(-8)));
    const left = await tollgate.store.rootKeys.list(other.workspaceId, { count: 10 });
    expect(left.rootKeys.map(({ name }) => name)).not.toContainEqual(expect.stringContaining('forwards'));
    await expect(endForwarding(tollgate.store, { workspace: one.workspaceId, apiId })).rejects.toThrow(
      `${one.workspaceId} does not send on verifications of ${apiId}.`,
    );
  });

  test('errors about what was moved name the workspace that has it', async () => {
    const { apiId, key, keyId } = await createKey();
    await move(apiId);
    const where = `being moved to workspace ${other.workspaceId}, or was moved there: use a root key of that workspace.`;
    expect((await call('keys.getKey', { keyId }, one.rootKey)).error).toMatchObject({
      status: 404,
      type: '/errors/key_not_found',
      detail: `There is no such key. Its API is ${where}`,
    });
    const notFound = {
      status: 404,
      type: '/errors/key_not_found',
      detail: `There is no such key. Its API is ${where}`,
    };
    expect((await call('keys.whoami', { key }, one.rootKey)).error).toMatchObject(notFound);
    // A verification would be sent on.
    for (const input of [{ key }, { keyId }]) {
      expect((await call('keys.explainKey', input, one.rootKey)).error).toMatchObject(notFound);
      expect(await okThere('keys.explainKey', input)).toMatchObject({ valid: true });
    }
    const may = await createRootKey([`api.${apiId}.read_key`], one.workspaceId);
    expect((await call('keys.explainKey', { key }, may)).error).toMatchObject(notFound);
    const mayNot = await createRootKey(['api.api_1111111111111111.read_key'], one.workspaceId);
    expect((await call('keys.explainKey', { key }, mayNot)).data).toMatchObject({ code: 'NOT_FOUND' });
    expect((await call('keys.createKey', { apiId }, one.rootKey)).error).toMatchObject({
      status: 404,
      type: '/errors/api_not_found',
      detail: `There is no API "${apiId}". It is ${where}`,
    });
    const unknown = 'key_111111111111111111111111';
    expect((await call('keys.getKey', { keyId: unknown }, one.rootKey)).error.detail).toBe('There is no such key.');
  });

  test('an API that comes back is decided here again, and may leave once more', async () => {
    const { apiId, key, keyId } = await createKey({ credits: { remaining: 10 } });
    await move(apiId);
    expect(await verify(key)).toMatchObject({ credits: 9 });
    await moveHome(apiId);
    expect(await verify(key)).toMatchObject({ credits: 8 });
    expect(await okThere('keys.verifyKey', { key })).toMatchObject({ credits: 7 });
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ credits: { remaining: 7 } });
    const unknown = `key_1111111111111111${apiId.slice(-8)}`;
    expect((await call('keys.getKey', { keyId: unknown }, one.rootKey)).error.detail).toBe('There is no such key.');
    expect((await call('keys.getKey', { keyId: unknown }, other.rootKey)).error.detail).toContain(one.workspaceId);
    await move(apiId);
    expect(await verify(key)).toMatchObject({ credits: 6 });
    expect(await okThere('keys.getKey', { keyId })).toMatchObject({ credits: { remaining: 6 } });
    const usage = { apiId, start: clock.now - hourMs, end: clock.now + hourMs, groupBy: ['keyId' as const] };
    expect(await okThere('analytics.getVerifications', usage)).toMatchObject([{ count: 4 }]);
    const { groupBy: _, ...totals } = usage;
    expect(await okThere('analytics.getVerifications', totals)).toMatchObject([{ outcome: 'VALID', count: 4 }]);
  });

  test('the string of a key that was moved cannot be imported again here', async () => {
    const { apiId, key } = await createKey();
    await move(apiId);
    const { apiId: api } = await ok('apis.createApi', { name: 'again' });
    const keys = [{ hash: digestOf(key).toString('base64') }];
    const imported = await ok('keys.migrateKeys', { migrationId: 'again', apiId: api, keys });
    expect(imported).toMatchObject({ migrated: [], failed: keys.map(({ hash }) => hash) });
    expect(await verify(key)).toMatchObject({ valid: true });
  });

  test('keys in the first workspace that were never there, or were deleted, are NOT_FOUND as before', async () => {
    const { apiId } = await createKey();
    const { key, keyId } = await createKey();
    await ok('keys.deleteKey', { keyId });
    await move(apiId);
    expect(await verify(key)).toEqual({ valid: false, code: 'NOT_FOUND' });
    expect(await verify('sk_unknown')).toEqual({ valid: false, code: 'NOT_FOUND' });
  });
});

describe('identities', () => {
  /** Keys of one identity in two APIs. */
  async function shared(input: Partial<InputOf<'identities.createIdentity'>> = {}) {
    await ok('identities.createIdentity', { externalId: 'team', ...input });
    const first = await createKey({ externalId: 'team' });
    const second = await createKey({ externalId: 'team' });
    return { first, second };
  }
  const limit = { name: 'shared', limit: 5, duration: hourMs, autoApply: true };

  test('without limits and balance are in both workspaces', async () => {
    const { first } = await shared({ meta: { name: 'Team' } });
    await move(first.apiId);
    const there = await okThere('identities.getIdentity', { identity: 'team' });
    expect(there).toEqual(await ok('identities.getIdentity', { identity: 'team' }));
    expect(await verify(first.key)).toMatchObject({ valid: true, identity: { externalId: 'team' } });
  });

  test('with limits that keys of other APIs share are refused, or copied', async () => {
    const { first, second } = await shared({ ratelimits: [limit] });
    for (let times = 0; times < 2; times++) await verify(second.key);
    await expect(move(first.apiId)).rejects.toThrow(/are shared with keys of other APIs.*--identities copy.*: team\./s);
    expect(await names(other.workspaceId)).not.toContainEqual(expect.stringContaining(first.apiId.slice(-8)));
    await move(first.apiId, { identities: 'copy' });
    expect(await verify(first.key)).toMatchObject({ ratelimits: [{ remaining: 2 }] });
    expect(await verify(second.key)).toMatchObject({ ratelimits: [{ remaining: 2 }] });
    // The second API follows. Its keys share the limit that was copied before.
    await expect(move(second.apiId, { to: first.apiId })).rejects.toThrow('There is no workspace');
    await move(second.apiId);
    expect(await verify(second.key)).toMatchObject({ ratelimits: [{ remaining: 1 }] });
    expect((await call('identities.getIdentity', { identity: 'team' }, one.rootKey)).code).toBe('identity_not_found');
  });

  test('with a balance that keys of other APIs share are refused', async () => {
    const { first } = await shared({ credits: { remaining: 100 } });
    const refusal = /A balance of these identities is shared with keys of other APIs.*: team\./s;
    await expect(move(first.apiId)).rejects.toThrow(refusal);
    await expect(move(first.apiId, { identities: 'copy' })).rejects.toThrow(refusal);
  });

  test('whose name exists in the other workspace join that one, or are refused if they have limits', async () => {
    await okThere('identities.createIdentity', { externalId: 'team', meta: { is: 'there' } });
    const plain = await createKey({ externalId: 'team' });
    await move(plain.apiId);
    expect(await verify(plain.key)).toMatchObject({ identity: { meta: { is: 'there' } } });
    await ok('identities.createIdentity', { externalId: 'team', ratelimits: [limit] });
    const limited = await createKey({ externalId: 'team' });
    await expect(move(limited.apiId)).rejects.toThrow(/identities of these names.*: team\./);
  });

  test.each([
    ['limits', { ratelimits: [limit] }],
    ['a balance', { credits: { remaining: 0 } }],
  ])('whose name has %s in the other workspace are refused: keys would be refused that are valid', async (_, input) => {
    await okThere('identities.createIdentity', { externalId: 'team', ...input });
    const { apiId, key } = await createKey({ externalId: 'team' });
    const refusal = /with limits or a balance, which these keys do not have now: team\./;
    for (const options of [{ dryRun: true as const }, {}]) await expect(move(apiId, options)).rejects.toThrow(refusal);
    expect(await verify(key)).toMatchObject({ valid: true });
    expect(await names(other.workspaceId)).not.toContainEqual(expect.stringContaining(apiId.slice(-8)));
  });

  test('with temporary limits, and keys with some, are listed where they are', async () => {
    const until = clock.now + dayMs;
    const temporary = { ...limit, until };
    await ok('identities.createIdentity', { externalId: 'team', ratelimits: [{ ...limit, limit: 2 }] });
    await ok('identities.updateIdentity', { identity: 'team', ratelimits: [temporary] });
    const { apiId, key } = await createKey({ externalId: 'team', ratelimits: [{ ...temporary, name: 'own' }] });
    const { keyId: deletedId } = await createKey({ apiId, ratelimits: [temporary] });
    await ok('keys.deleteKey', { keyId: deletedId });
    const { key: last } = await createKey({ apiId, ratelimits: [{ ...temporary, until: until + 1 }] });
    const before = await ok('ratelimits.listTemporary', {});
    expect(before).toHaveLength(3);
    await move(apiId);
    expect(await ok('ratelimits.listTemporary', {})).toEqual([]);
    expect(await own.redis.exists(`${workspaceKey(one.workspaceId)}:ends`)).toBe(0);
    expect(await okThere('ratelimits.listTemporary', {})).toEqual(before);
    await okThere('keys.restoreKey', { keyId: deletedId });
    expect(await okThere('ratelimits.listTemporary', {})).toHaveLength(4);
    clock.advance(dayMs);
    for (const each of [key, last]) await verify(each);
    // The own limit has ended, and the former one of the identity is back.
    expect(await verify(key)).toMatchObject({ ratelimits: [{ name: 'shared', limit: 2, remaining: 0 }] });
    expect(await okThere('ratelimits.listTemporary', {})).toMatchObject([{ kind: 'key', until: until + 1 }]);
  });

  test('share their limit in every moment: all keys of one are taken together', async () => {
    await ok('identities.createIdentity', { externalId: 'team', ratelimits: [{ ...limit, limit: 1000 }] });
    const { apiId } = await ok('apis.createApi', { name: 'many' });
    const keys: string[] = [];
    for (let made = 0; made < 130; made++) keys.push((await createKey({ apiId, externalId: 'team' })).key);
    for (const key of keys.slice(0, 3)) await verify(key);
    const { moveKeys } = tollgate.store.moves;
    const batches: number[] = [];
    const counting: Store['moves'] = {
      ...tollgate.store.moves,
      moveKeys: (each, digests, mayCopy) => {
        batches.push(digests.length);
        return moveKeys(each, digests, mayCopy);
      },
    };
    await move(apiId, {}, { moves: counting });
    expect(batches).toEqual([130]);
    expect(await verify(keys[129]!)).toMatchObject({ ratelimits: [{ remaining: 996 }] });
  });
});

test('keys that were rotated are charged to one balance in every moment, in either workspace', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'rotated' });
  const keys = [await createKey({ apiId, credits: { remaining: 200 }, externalId: 'rotated' })];
  for (let made = 0; made < 130; made++) await createKey({ apiId });
  for (let n = 0; n < 2; n++) {
    const credits = 'move' as const;
    keys.push({ apiId, ...(await ok('keys.rerollKey', { keyId: keys[n]!.keyId, expiration: dayMs, credits })) });
  }
  const { hold } = await verify(keys[0]!.key, { hold: { ttl: hourMs }, credits: { cost: 20 } });
  let spent = 20;
  let isMoving = true;
  const spending = (async () => {
    while (isMoving) {
      const { code, credits } = await verify(keys[spent % 3]!.key);
      spent++;
      expect({ code, credits }).toEqual({ code: 'VALID', credits: 200 - spent });
    }
  })();
  await move(apiId);
  isMoving = false;
  await spending;
  expect(spent).toBeGreaterThan(20);
  await ok('keys.settleHold', { holdId: hold!.id, credits: { cost: 5 } });
  for (const { keyId } of keys)
    expect((await okThere('keys.getKey', { keyId })).credits).toEqual({ remaining: 215 - spent });
});

test('a key stays as long as a key with which it shares a balance stays', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'rotated' });
  const old = await createKey({ apiId, credits: { remaining: 9 }, externalId: 'stays' });
  const made = await ok('keys.rerollKey', { keyId: old.keyId, expiration: dayMs, credits: 'move' });
  const given = { from: one.workspaceId, to: other.workspaceId, apiId };
  await tollgate.store.moves.begin(given);
  for (const { key } of [old, made]) expect(await tollgate.store.moves.moveKeys(given, [digestOf(key)], false)).toBe(0);
  expect(await verify(old.key)).toMatchObject({ credits: 8 });
  await move(apiId);
  expect(await verify(old.key)).toMatchObject({ credits: 7 });
});

describe('permissions and roles', () => {
  test('those of keys are created by slug and name, with their ids', async () => {
    await okThere('permissions.createPermission', { slug: 'z.first', name: 'z.first' });
    const { apiId, keyId } = await makeKeys();
    await move(apiId);
    for (const slug of ['docs.read', 'docs.write', 'files.read']) {
      expect(await okThere('permissions.getPermission', { permission: slug })).toEqual(
        await ok('permissions.getPermission', { permission: slug }),
      );
    }
    expect(await okThere('permissions.getRole', { role: 'editor' })).toEqual(
      await ok('permissions.getRole', { role: 'editor' }),
    );
    expect(await okThere('keys.getKey', { keyId })).toMatchObject({
      permissions: ['docs.read', 'files.read', 'docs.write'],
      roles: ['editor'],
    });
  });

  test('a role with the same name and other permissions is refused before anything is changed', async () => {
    await okThere('permissions.createRole', { name: 'editor', permissions: [] });
    const { apiId } = await makeKeys();
    await expect(move(apiId)).rejects.toThrow(`These roles have other permissions in ${other.workspaceId}: editor.`);
    expect(await ok('apis.getApi', { apiId })).toBeDefined();
  });

  test('roles that no key of the API has are left as they are', async () => {
    await okThere('permissions.createRole', { name: 'editor', permissions: [] });
    await makeKeys();
    const { apiId } = await createKey();
    expect(await move(apiId)).toMatchObject({ json: { outcome: 'moved' } });
  });
});

describe('the command', () => {
  test('--dry-run checks everything and changes nothing', async () => {
    const { apiId } = await makeKeys();
    const before = [await contents(one.workspaceId), await contents(other.workspaceId)];
    const { lines, json } = await move(apiId, { dryRun: true });
    expect(lines).toEqual([
      `${apiId} can be moved to ${other.workspaceId}: 2 keys, 0 deleted keys and what they have of 1 identity. Nothing was changed.`,
    ]);
    expect(json).toEqual({
      from: one.workspaceId,
      to: other.workspaceId,
      apiId,
      keys: 2,
      deletedKeys: 0,
      identities: 1,
    });
    expect([await contents(one.workspaceId), await contents(other.workspaceId)]).toEqual(before);
  });

  test.each([
    ['https://other.example', /--to must be the id of a workspace .* of this installation/],
    ['ws_1111111111111111', 'There is no workspace ws_1111111111111111.'],
    ['', 'There is no workspace'],
  ])('--to %s is refused', async (to, message) => {
    const { apiId } = await createKey();
    await expect(move(apiId, { to })).rejects.toThrow(message);
    await expect(move(apiId, { to: one.workspaceId })).rejects.toThrow('--to must be another workspace.');
  });

  test('refuses what is no API, another --identities, and older data', async () => {
    const { apiId } = await createKey();
    await expect(move('keys')).rejects.toThrow('<apiId> must be the id of an API');
    await expect(move('api_1111111111111111')).rejects.toThrow(`${one.workspaceId} has no API api_1111111111111111.`);
    await expect(move(apiId, { identities: 'move' })).rejects.toThrow('--identities can only be `copy`.');
    const dataVersion = { current: 5 } as Store['dataVersion'];
    await expect(move(apiId, {}, { dataVersion })).rejects.toThrow('A move needs version 6 of the stored data');
  });

  test('refuses a string that is a key there already', async () => {
    const { apiId, key, keyId } = await createKey();
    const { apiId: api } = await okThere('apis.createApi', { name: 'there' });
    await okThere('keys.migrateKeys', {
      migrationId: 'import',
      apiId: api,
      keys: [{ hash: digestOf(key).toString('base64') }],
    });
    await expect(move(apiId)).rejects.toThrow(`has keys with the strings of these keys: ${keyId}.`);
    expect(await verify(key)).toMatchObject({ valid: true });
  });

  test('is refused while the API is being moved elsewhere, and where it exists', async () => {
    const { apiId, key } = await createKey();
    const third = await createWorkspace();
    await tollgate.store.moves.begin({ from: one.workspaceId, to: third.workspaceId, apiId });
    for (const options of [{ dryRun: true as const }, {}]) {
      await expect(move(apiId, options)).rejects.toThrow(`${apiId} is being moved to ${third.workspaceId}.`);
    }
    await move(apiId, { to: third.workspaceId });
    await expect(move(apiId)).rejects.toThrow(`${apiId} was moved to ${third.workspaceId}.`);
    // An API of the same id, as an import creates it.
    await tollgate.store.apis.createAgain(one.workspaceId, { apiId, name: 'again' }, cliActor);
    for (const options of [{ to: third.workspaceId, dryRun: true as const }, { to: third.workspaceId }]) {
      await expect(move(apiId, options)).rejects.toThrow(`The other workspace has an API of this id, or a deleted one`);
    }
    expect(await verify(key)).toMatchObject({ valid: true });
  });

  test('is refused if the other workspace would have too many records, and never stops because of that', async () => {
    const { apiId, key } = await makeKeys();
    const { keyId } = await createKey({ apiId });
    await ok('keys.deleteKey', { keyId });
    const there = await tollgate.store.sweep.count(other.workspaceId);
    // The API, its three keys, an identity, three permissions, a role and the root key of the forwarding.
    const records = there + 10;
    for (const options of [{ dryRun: true as const }, {}]) {
      await expect(move(apiId, { ...options, recordsMax: records - 1 })).rejects.toThrow(
        `${other.workspaceId} has ${there} record and would get up to 10 more: RECORDS_MAX is ${records - 1}.`,
      );
    }
    expect(await names(other.workspaceId)).not.toContainEqual(expect.stringContaining(apiId.slice(-8)));
    await move(apiId, { recordsMax: records });
    expect(await tollgate.store.sweep.count(other.workspaceId)).toBe(records);
    expect(await verify(key, { ip: '192.0.2.9' })).toMatchObject({ valid: true });
  });

  test('two at once end as one', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'many' });
    const keys: string[] = [];
    for (let made = 0; made < 250; made++) keys.push((await createKey({ apiId, credits: { remaining: 9 } })).key);
    for (const key of keys) await verify(key, { tags: ['a=b'] });
    const both = await Promise.all([move(apiId), move(apiId)]);
    expect(both).toMatchObject([{ json: { keys: 250 } }, { json: { keys: 250 } }]);
    for (const key of keys) expect(await verify(key, { tags: ['a=b'] })).toMatchObject({ valid: true, credits: 7 });
    const query = { apiId, start: clock.now - hourMs, end: clock.now + hourMs, granularity: 'total' as const };
    expect(await okThere('analytics.getVerifications', { ...query, groupBy: [] })).toMatchObject([{ count: 500 }]);
    expect(await okThere('analytics.getVerifications', { ...query, groupBy: ['tag'] })).toMatchObject([{ count: 500 }]);
  });

  test('writes events about the API in both workspaces', async () => {
    const { apiId } = await createKey();
    await move(apiId);
    const eventsOf = async (as: Ok) =>
      (await as('audit.listEvents', { resource: { type: 'api', id: apiId } })).map(({ operation, changes }) => [
        operation,
        changes,
      ]);
    expect(await eventsOf(ok)).toMatchObject([
      ['apis.createApi', expect.anything()],
      ['cli.move', [{ field: 'movesTo', after: other.workspaceId }]],
      ['cli.move', [{ field: 'name' }, { field: 'keyCount', before: '1' }, { field: 'movedTo' }]],
    ]);
    expect(await eventsOf(okThere)).toMatchObject([
      ['cli.move', [{ field: 'name' }, { field: 'movesFrom', after: one.workspaceId }]],
      [
        'cli.move',
        [
          { field: 'movedFrom', after: one.workspaceId },
          { field: 'keyCount', after: '1' },
        ],
      ],
    ]);
  });
});

describe('what is left', () => {
  test('the first workspace has nothing of the API but the states by which verifications are sent on', async () => {
    const { apiId, key, plain, keyId } = await makeKeys();
    await verify(key, { ip: '192.0.2.9', ratelimits: [{ name: 'adhoc', limit: 5, duration: hourMs }] });
    await verify(plain, { tags: ['x=y'] });
    await ok('keys.updateKey', { keyId, ratelimits: [] });
    const records = await tollgate.store.sweep.count(one.workspaceId);
    await move(apiId);
    const api8 = apiId.slice(-8);
    const ofApi = (await names(one.workspaceId)).filter((name) => name.includes(api8) || name.includes(keyId.slice(4)));
    expect(ofApi.sort()).toEqual([`:ms:${api8}`, `:mv:${api8}`]);
    expect(await names(other.workspaceId)).not.toContainEqual(expect.stringMatching(/^:m[ik]:/));
    const record = keyRecordKey(workspaceKey(one.workspaceId), digestOf(key));
    expect(Object.keys(await own.redis.hgetall(record as unknown as string))).toEqual(['state']);
    // The keys, the API and the identity.
    expect(await tollgate.store.sweep.count(one.workspaceId)).toBe(records - 4);
    expect(await tollgate.store.sweep.count(other.workspaceId)).toBe(6 + 4);
  });

  test('units of ad hoc limits, and of limits that were removed, stay counted', async () => {
    const { apiId, key, keyId } = await createKey({
      ratelimits: [{ name: 'old', limit: 5, duration: hourMs, autoApply: true }],
    });
    const ratelimits = [{ name: 'adhoc', limit: 5, duration: hourMs }];
    await verify(key, { ratelimits });
    await ok('keys.updateKey', { keyId, ratelimits: [] });
    await move(apiId);
    expect(await verify(key, { ratelimits })).toMatchObject({ ratelimits: [{ remaining: 3 }] });
    await okThere('keys.updateKey', {
      keyId,
      ratelimits: [{ name: 'old', limit: 5, duration: hourMs, autoApply: true }],
    });
    expect(await verify(key)).toMatchObject({ ratelimits: [{ remaining: 3 }] });
  });
});

describe('a move that is interrupted', () => {
  /** Keys are taken, and do not arrive: the other workspace does not receive them for the time of `during`. */
  async function interrupted(apiId: string, during: () => Promise<void>) {
    const receipt = `${workspaceKey(other.workspaceId)}:mi:${apiId.slice(-8)}`;
    const aside = `${workspaceKey(other.workspaceId)}:-`;
    const moves = {
      ...tollgate.store.moves,
      async moveKeys(...given: Parameters<Store['moves']['moveKeys']>) {
        await own.redis.rename(receipt, aside);
        try {
          return await tollgate.store.moves.moveKeys(...given);
        } finally {
          await own.redis.rename(aside, receipt);
        }
      },
    };
    await expect(move(apiId, {}, { moves })).rejects.toThrow(`${other.workspaceId} does not receive ${apiId}`);
    await during();
  }

  test('keys that are on their way are brought by a verification that waits for them', async () => {
    const { apiId, key, keyId } = await createKey({ credits: { remaining: 10 } });
    const { key: next } = await createKey({ apiId });
    const { hold } = await verify(key, { hold: { ttl: 60_000 } });
    await interrupted(apiId, async () => {
      // In neither workspace an operation finds them.
      expect((await call('keys.getKey', { keyId }, one.rootKey)).code).toBe('key_not_found');
      expect((await call('keys.getKey', { keyId }, other.rootKey)).code).toBe('key_not_found');
      const settling = ok('keys.settleHold', { holdId: hold!.id, credits: { cost: 0 } });
      const verified = await Promise.all([verify(key), verify(key), verify(next)]);
      expect(verified).toMatchObject([{ valid: true }, { valid: true }, { valid: true }]);
      expect(await settling).toMatchObject({ late: false });
      expect(await okThere('keys.getKey', { keyId })).toMatchObject({ credits: { remaining: 8 } });
    });
    expect(await move(apiId)).toMatchObject({ json: { outcome: 'moved', keys: 2 } });
    expect(await verify(key)).toMatchObject({ credits: 7 });
    // Again nothing.
    expect(await move(apiId)).toMatchObject({ json: { outcome: 'moved', keys: 2 } });
    expect(await verify(key)).toMatchObject({ credits: 6 });
  });

  test('verifications of keys that cannot arrive are 503, and nothing is lost', async () => {
    const { apiId, key } = await createKey({ credits: { remaining: 10 } });
    await interrupted(apiId, async () => {
      const receipt = `${workspaceKey(other.workspaceId)}:mi:${apiId.slice(-8)}`;
      const aside = `${workspaceKey(other.workspaceId)}:-`;
      await own.redis.rename(receipt, aside);
      expect(await call('keys.verifyKey', { key }, one.rootKey)).toMatchObject({
        status: 503,
        code: 'store_unavailable',
      });
      await own.redis.rename(aside, receipt);
    });
    await move(apiId);
    expect(await verify(key)).toMatchObject({ credits: 9 });
  });

  test('a key that has arrived and was deleted there does not come back', async () => {
    const { apiId, key, keyId } = await createKey({ externalId: 'ada', credits: { remaining: 10 } });
    await createKey({ apiId });
    const { moveKeys, bring, begin } = tollgate.store.moves;
    await interrupted(apiId, async () => {});
    const given = { from: one.workspaceId, to: other.workspaceId, apiId };
    await begin(given);
    // Another process has read the key, and stores it late.
    const run = tollgate.store.moves.readOnTheWay(given, [digestOf(key)]);
    const late = await run;
    await bring(given, [digestOf(key)]);
    await okThere('keys.deleteKey', { keyId, permanent: true });
    await late.store();
    expect((await call('keys.verifyKey', { key }, other.rootKey)).data.code).toBe('NOT_FOUND');
    expect(await moveKeys(given, [digestOf(key)], false)).toBe(0);
    await move(apiId);
    expect(await verify(key)).toEqual({ valid: false, code: 'NOT_FOUND' });
  });

  test('a key that is added to an identity whose keys are on their way finds no second balance', async () => {
    await ok('identities.createIdentity', { externalId: 'team', credits: { remaining: 100 } });
    const { apiId, key } = await createKey({ externalId: 'team' });
    await verify(key, { credits: { cost: 30 } });
    let added: { key: string } | undefined;
    await interrupted(apiId, async () => {
      added = await createKey({ apiId, externalId: 'team' });
      expect(await verify(key, { credits: { cost: 1 } })).toMatchObject({ identity: { credits: 69 } });
      // The balance has left, and the key has not yet.
      expect(await verify(added.key)).toMatchObject({ code: 'USAGE_EXCEEDED' });
    });
    await move(apiId);
    expect(await verify(added!.key)).toMatchObject({ identity: { credits: 68 } });
    expect(await okThere('identities.getIdentity', { identity: 'team' })).toMatchObject({ credits: { remaining: 68 } });
  });

  test('an API that is deleted in the first workspace meanwhile ends there: its other keys are not moved', async () => {
    const { apiId, key } = await createKey();
    const { key: next } = await createKey({ apiId });
    const given = { from: one.workspaceId, to: other.workspaceId, apiId };
    await tollgate.store.moves.begin(given);
    expect(await tollgate.store.moves.moveKeys(given, [digestOf(key)], false)).toBe(1);
    await ok('apis.deleteApi', { apiId });
    expect(await tollgate.store.moves.moveKeys(given, [digestOf(next)], false)).toBe(0);
    const moving = move(apiId);
    await tollgate.store.sweep.purge(one.workspaceId);
    expect(await moving).toMatchObject({ json: { outcome: 'moved', keys: 1 } });
    expect(await verify(key)).toMatchObject({ valid: true });
    expect(await verify(next)).toEqual({ valid: false, code: 'NOT_FOUND' });
  });

  test('a move that is stopped by what was changed meanwhile says so, and goes on later', async () => {
    const { apiId, key } = await createKey();
    await tollgate.store.moves.begin({ from: one.workspaceId, to: other.workspaceId, apiId });
    const { apiId: api } = await okThere('apis.createApi', { name: 'there' });
    const keys = [{ hash: digestOf(key).toString('base64') }];
    await okThere('keys.migrateKeys', { migrationId: 'import', apiId: api, keys });
    await expect(move(apiId)).rejects.toThrow('The move has stopped. Keys that were not moved stay until');
    expect(await verify(key)).toMatchObject({ valid: true });
    await okThere('apis.deleteApi', { apiId: api, permanent: true });
    await tollgate.store.sweep.purge(other.workspaceId);
    expect(await move(apiId)).toMatchObject({ json: { keys: 1 } });
  });

  test('the API does not leave again before it has arrived', async () => {
    const { apiId, key } = await createKey();
    await verify(key);
    const finish = () => Promise.reject(new Error('killed'));
    await expect(move(apiId, {}, { moves: { ...tollgate.store.moves, finish } })).rejects.toThrow('killed');
    const refusal = `${apiId} is still being moved from ${one.workspaceId} to ${other.workspaceId}`;
    await expect(moveHome(apiId)).rejects.toThrow(refusal);
    expect(await tollgate.store.moves.begin({ from: other.workspaceId, to: one.workspaceId, apiId })).toEqual({
      outcome: 'receiving',
      other: one.workspaceId,
    });
    await move(apiId);
    await moveHome(apiId);
    const usage = { apiId, start: clock.now - hourMs, end: clock.now + hourMs, granularity: 'total' as const };
    expect(await ok('analytics.getVerifications', { ...usage, groupBy: [] })).toMatchObject([{ count: 1 }]);
  });

  test('an API that is deleted in the other workspace meanwhile is created again for the keys that remain', async () => {
    const { apiId, key } = await createKey();
    const { key: next } = await createKey({ apiId });
    const given = { from: one.workspaceId, to: other.workspaceId, apiId };
    await tollgate.store.moves.begin(given);
    expect(await tollgate.store.moves.moveKeys(given, [digestOf(key)], false)).toBe(1);
    await okThere('apis.deleteApi', { apiId });
    expect(await verify(key)).toEqual({ valid: false, code: 'NOT_FOUND' });
    await expect(move(apiId)).rejects.toThrow(`or a deleted one that was not removed yet: ${apiId}.`);
    expect(await verify(next)).toMatchObject({ valid: true });
    await tollgate.store.sweep.purge(other.workspaceId);
    expect(await move(apiId)).toMatchObject({ json: { outcome: 'moved', keys: 2 } });
    expect(await verify(next)).toMatchObject({ valid: true });
    expect(await verify(key)).toEqual({ valid: false, code: 'NOT_FOUND' });
    expect(await okThere('keys.listKeys', { apiId })).toHaveLength(1);
  });

  test('an API that is deleted in the other workspace afterwards is NOT_FOUND in both', async () => {
    const { apiId, key } = await createKey();
    await move(apiId);
    await okThere('apis.deleteApi', { apiId });
    expect(await verify(key)).toEqual({ valid: false, code: 'NOT_FOUND' });
    await tollgate.store.sweep.purge(other.workspaceId);
    expect(await verify(key)).toEqual({ valid: false, code: 'NOT_FOUND' });
    expect(await endForwarding(tollgate.store, { workspace: one.workspaceId, apiId })).toMatchObject({
      json: { keys: 1 },
    });
    expect(await verify(key)).toEqual({ valid: false, code: 'NOT_FOUND' });
  });

  test('keys that are created while the command runs are moved, too', async () => {
    const { apiId } = await createKey();
    let late: { key: string } | undefined;
    const moves = {
      ...tollgate.store.moves,
      async close(given: Parameters<Store['moves']['close']>[0]) {
        late ??= await createKey({ apiId });
        return tollgate.store.moves.close(given);
      },
    };
    expect(await move(apiId, {}, { moves })).toMatchObject({ json: { keys: 2 } });
    expect(await verify(late!.key)).toMatchObject({ valid: true });
  });

  test('counts of the API arrive once, and each record is described in keyspace.ts', async () => {
    const { apiId, key } = await createKey({ externalId: 'ada' });
    for (let times = 0; times < 3; times++) await verify(key, { tags: ['a=b', 'c=d'] });
    clock.advance(hourMs);
    await verify(key, { tags: ['a=b'] });
    for (let times = 0; times < 4; times++) await verify(key);
    const seen = new Set<string>();
    const look = async () => {
      const found = await survey(own.redis as never);
      expect(found.wrong).toEqual([]);
      for (const name of found.seen) seen.add(name);
    };
    const receipt = `${workspaceKey(other.workspaceId)}:mi:${apiId.slice(-8)}`;
    const aside = `${workspaceKey(other.workspaceId)}:-`;
    const { finish } = tollgate.store.moves;
    await interrupted(apiId, look);
    let interruptions = 0;
    const moves = {
      ...tollgate.store.moves,
      async finish(given: Parameters<typeof finish>[0]) {
        await look();
        await own.redis.rename(receipt, aside);
        await expect(finish(given)).rejects.toThrow('does not receive');
        await own.redis.rename(aside, receipt);
        await look();
        interruptions++;
        throw new Error('killed');
      },
    };
    for (let times = 0; times < 2; times++) await expect(move(apiId, {}, { moves })).rejects.toThrow('killed');
    await move(apiId);
    expect(interruptions).toBe(2);
    expect([...seen].filter((name) => /^:m.:/.test(name)).sort()).toEqual(
      keyspace.flatMap(({ name }) => (/^:m.:/.test(name) ? [name] : [])).sort(),
    );
    const query = { apiId, start: clock.now - dayMs, end: clock.now + hourMs, granularity: 'total' as const };
    expect(await okThere('analytics.getVerifications', { ...query, groupBy: [] })).toMatchObject([{ count: 8 }]);
    const byTag = await okThere('analytics.getVerifications', { ...query, groupBy: ['tag'] });
    expect(Object.fromEntries(byTag.map(({ tag, count }) => [tag, count]))).toEqual({
      'a=b': 4,
      'c=d': 3,
      undefined: 4,
    });
    expect(await okThere('analytics.getVerifications', { ...query, groupBy: ['keyId'] })).toMatchObject([{ count: 8 }]);
    // Not among the tags that TAGS_MAX bounds.
    const tags = await own.redis.smembers(`${workspaceKey(other.workspaceId)}:tags:${apiId.slice(-8)}`);
    expect(tags.sort()).toEqual(['a=b', 'c=d']);
  });
});

/** The names of a workspace, without its prefix. */
const names = async (workspaceId: string) => {
  const prefix = workspaceKey(workspaceId);
  return (await own.redis.keys('*')).filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
};
const contents = async (workspaceId: string) =>
  Object.fromEntries(
    await Promise.all(
      (await own.redis.keysBuffer('*'))
        .filter((name) => name.toString('latin1').startsWith(workspaceKey(workspaceId)))
        .sort()
        .map(async (name) => [name.toString('latin1'), await own.redis.dumpBuffer(name)] as const),
    ),
  );
