// A broken record of every kind, at each place that a decision touches: a caller that was charged gets no error, and an
// item that does not need the record does not fail. The kinds are those of src/redis/keyspace.md, so a new one is
// covered, or fails here for want of values of its placeholders.

import { expect, test } from 'vitest';
import { digestOf } from '../../src/domain/keyString.ts';
import type { OperationName } from '../../src/operations/index.ts';
import { workspaceKey } from '../../src/redis/names.ts';
import { dayMs, harness, hourMs, type InputOf } from '../support/harness.ts';
import { type KeyspaceEntry, keyspace } from '../support/keyspace.ts';
import { observing } from '../support/observer.ts';
import { redisOfFile } from '../support/ofFile.ts';
import { testRedisUrl } from '../support/redis.ts';
import { sample } from '../support/testIf.ts';

const unwritten: number[] = [];
const events: string[] = [];
const observe = observing({ unwritten: (failures) => void unwritten.push(failures) });
const onEvent = (message: string) => void events.push(message);
const tollgate = harness(testRedisUrl, { leaseMs: 0 });
const { clock, call, ok } = tollgate;
/** Another server, which has logged nothing yet. */
const observed = harness(testRedisUrl, { leaseMs: 0, observe, onEvent });
const leased = harness(testRedisUrl, { leaseMs: 1000, leaseLongMs: 10_000, leaseAfter: 2 });

const redis = await redisOfFile();

type World = Awaited<ReturnType<typeof makeWorld>>;

/** A key for which every kind of record is read or written, and another one of the workspace that shares none. */
async function makeWorld() {
  const { workspaceId, rootKey } = await tollgate.createWorkspace();
  const of = <Name extends OperationName>(name: Name, input: InputOf<Name>) => ok(name, input, rootKey);
  const { apiId } = await of('apis.createApi', { name: 'main' });
  const window = { name: 'requests', limit: 1e9, duration: 60_000, autoApply: true };
  await of('permissions.createRole', { name: 'reader', permissions: ['documents.read'] });
  await of('plans.createPlan', {
    planId: 'pro',
    ratelimits: [{ ...window, name: 'planned' }],
    permissions: ['documents.write'],
    roles: ['reader'],
    meta: { seats: 5 },
  });
  const slots = { name: 'slots', limit: 10_000, duration: hourMs, type: 'concurrency' as const };
  const { identityId } = await of('identities.createIdentity', {
    externalId: 'customer',
    planId: 'pro',
    credits: { remaining: 1e12 },
    ratelimits: [
      { ...window, name: 'all' },
      { ...slots, name: 'places' },
    ],
  });
  const { key, keyId } = await of('keys.createKey', {
    apiId,
    externalId: 'customer',
    planId: 'pro',
    credits: { remaining: 1e12 },
    ratelimits: [window, slots, { ...window, name: 'short', until: clock.now + 5000 * hourMs }],
    roles: ['reader'],
    permissions: ['documents.write'],
  });
  const override = { namespace: 'email', identifier: 'alice', limit: 1e9, duration: 60_000 };
  await of('ratelimits.setOverride', override);
  await of('ratelimits.limit', { namespace: 'email', identifier: 'alice*', limit: 1e9, duration: 60_000 });
  const { namespaceId } = await of('ratelimits.getOverride', { namespace: 'email', identifier: 'alice' });
  const neighbourApi = await of('apis.createApi', { name: 'neighbour' });
  const neighbour = {
    ...(await of('keys.createKey', { apiId: neighbourApi.apiId })),
    rootKey: await tollgate.createRootKey(['*'], workspaceId),
  };
  return { workspaceId, rootKey, apiId, key, keyId, identityId, namespaceId, neighbour };
}

const id16 = (id: string) => id.split('_')[1]!.slice(0, 16);

/** What a placeholder of a name stands for, now. */
const placeholders: Record<string, (world: World) => (string | Buffer)[]> = {
  digest: ({ key, rootKey }) => [digestOf(key), digestOf(rootKey)],
  api8: ({ apiId }) => [apiId.slice(-8)],
  key24: ({ keyId }) => [keyId.slice(-24)],
  id16: ({ namespaceId, identityId }) => [id16(namespaceId), id16(identityId)],
  owner: ({ keyId, namespaceId, identityId }) => [keyId.slice(-24), id16(namespaceId), id16(identityId)],
  duration: () => ['60000'],
  name: () => ['ad hoc', 'alice', 'requests'],
  externalId: () => ['customer'],
  planId: () => ['pro'],
  number: () => ['1'],
  bound: () => [''],
  hour: () => [`${Math.floor(clock.now / hourMs)}`, `${Math.floor(clock.now / hourMs) - 1}`],
  day: () => [`${Math.floor(clock.now / dayMs)}`],
  week: () => [`${Math.floor(clock.now / dayMs / 7)}`],
  month: () => [`${(new Date(clock.now).getUTCFullYear() - 1970) * 12 + new Date(clock.now).getUTCMonth()}`],
};

/** The names of a kind of records, each with its bytes. */
function namesOf({ name }: KeyspaceEntry, world: World): Buffer[] {
  let names = [Buffer.from(workspaceKey(world.workspaceId))];
  for (const part of name.split(/(<\w+>)/)) {
    const placeholder = /^<(\w+)>$/.exec(part)?.[1];
    if (placeholder !== undefined && !placeholders[placeholder]) throw new Error(`${name}: no values for ${part}`);
    const values = placeholder === undefined ? [part] : placeholders[placeholder]!(world);
    names = names.flatMap((head) => values.map((value) => Buffer.concat([head, Buffer.from(value)])));
  }
  return names;
}

const garbage = Buffer.from(`\xff\xfe\x00\x01${'\x80'.repeat(40)}`, 'latin1');
const edge = Buffer.from('9223372036854775807');
type Break = (name: Buffer) => Promise<unknown>;

/** The ways in which a record may be broken: another type, or a value that cannot be read. */
async function breaksOf({ type }: KeyspaceEntry, name: Buffer): Promise<[how: string, Break][]> {
  const replaced =
    (write: Break): Break =>
    async (name) => [await redis.del(name), await write(name)];
  const asString = (value: Buffer) => replaced((name) => redis.set(name, value));
  const asHash = replaced((name) => redis.hset(name, 'a', 'b'));
  if (type === 'string')
    return [
      ['a hash', asHash],
      ['garbage', asString(garbage)],
    ];
  const fields = type === 'hash' ? (await redis.hkeysBuffer(name)).slice(-16) : [];
  return [
    ['a string', asString(garbage)],
    ...(type === 'hash' ? [] : [['a hash', asHash] as [string, Break]]),
    ...fields.flatMap((field): [string, Break][] => [
      [`with garbage in ${field.toString('latin1')}`, (name) => redis.hset(name, field, garbage)],
      [`with a number at the edge in ${field.toString('latin1')}`, (name) => redis.hset(name, field, edge)],
    ]),
  ];
}

/** All records of a workspace by name, as digests; without the times at which root keys were last used. */
const contents = async (workspaceId: string) =>
  (await redis.call(
    'EVAL',
    `local found = {}
     for _, name in ipairs(redis.call('KEYS', ARGV[1])) do
       local value = name:find(':rk:', 1, true) and '' or redis.call('DUMP', name)
       found[#found + 1] = redis.sha1hex(name) .. redis.sha1hex(value)
     end
     table.sort(found)
     return found`,
    0,
    `${workspaceKey(workspaceId)}*`,
  )) as string[];

interface Asked {
  name: OperationName;
  input: unknown;
}

/** A call for each thing that a decision does. Holds are made before the record is broken. */
async function callsOf({ key, rootKey }: World): Promise<Asked[]> {
  const held = async (hold: object) =>
    (await ok('keys.verifyKey', { key, credits: { cost: 2 }, hold: { ttl: 2 * hourMs, ...hold } }, rootKey)).hold!.id;
  const adHoc = [
    { name: 'ad hoc', limit: 1e9, duration: 60_000 },
    { name: 'requests', cost: 2 },
  ];
  const check = { limit: 1e9, duration: 60_000 };
  const [settled, charged, released, extended] = [await held({}), await held({}), await held({}), await held({})];
  for (const onExpiry of ['release', 'charge'] as const)
    await ok('keys.verifyKey', { key, ratelimits: adHoc, tags: ['a'], hold: { ttl: 1000, onExpiry } }, rootKey);
  const verify = (more: object): Asked => ({ name: 'keys.verifyKey', input: { key, ...more } });
  return [
    // Also settles the two holds that expire.
    verify({}),
    verify({ credits: { cost: 3 } }),
    verify({ permissions: 'documents.read AND documents.write', tags: ['a', `b${clock.now}`], ratelimits: adHoc }),
    verify({ ratelimits: [{ name: `new ${clock.now}`, limit: 10, duration: 60_000 }] }),
    verify({ permissions: 'not.held' }),
    verify({ hold: { ttl: 60_000 } }),
    verify({ hold: { ttl: 60_000, id: `own${clock.now}` }, tags: ['a'], ratelimits: adHoc }),
    verify({ ratelimits: [{ name: 'slots' }, { name: 'places' }] }),
    { name: 'keys.settleHold', input: { holdId: settled } },
    { name: 'keys.settleHold', input: { holdId: settled } },
    {
      name: 'keys.settleHold',
      input: { holdId: charged, credits: { cost: 9 }, ratelimits: [{ name: 'requests', cost: 4 }] },
    },
    { name: 'keys.extendHold', input: { holdId: extended, ttl: 3 * hourMs } },
    { name: 'keys.releaseHold', input: { holdId: released } },
    { name: 'ratelimits.limit', input: { namespace: 'email', identifier: 'alice', ...check } },
    { name: 'ratelimits.limit', input: { namespace: `new ${clock.now}`, identifier: 'bob', ...check } },
    {
      name: 'ratelimits.multiLimit',
      input: [
        { namespace: 'email', identifier: 'carol', ...check },
        { namespace: 'sms', identifier: 'alice', ...check },
      ],
    },
  ];
}

const failures: string[] = [];

async function decideAll(world: World, calls: Asked[], what: string) {
  for (const [index, { name, input }] of calls.entries()) {
    const send = () => call(name as never, input as never, world.rootKey);
    if ((await send()).status < 500) continue;
    // The first call may have settled what had expired. A second one that fails as well must not change anything.
    const before = await contents(world.workspaceId);
    const { status } = await send();
    const after = await contents(world.workspaceId);
    const where = `${what}: ${name} ${index}`;
    if (status < 500) failures.push(`${where}: failed once only`);
    else if (`${before}` !== `${after}`) failures.push(`${where}: ${status}, and something was written`);
    const [, other] = await Promise.all([
      send(),
      call('keys.verifyKey', { key: world.neighbour.key }, world.neighbour.rootKey),
    ]);
    if (other.status !== 200) failures.push(`${where}: ${status}, and ${other.status} for another key of the batch`);
  }
}

const kinds = keyspace.filter(({ isOld }) => !isOld);
test.each(sample(kinds))(
  'a broken record $name: no error after a charge, and none of others',
  async (entry) => {
    failures.length = 0;
    const world = await makeWorld();
    for (let at = 0; at < namesOf(entry, world).length; at++) {
      for (let number = 0; ; number++) {
        clock.advance(hourMs);
        const [early, late] = [await callsOf(world), await callsOf(world)];
        await call('keys.verifyKey', { key: world.key, permissions: 'not.held' }, world.rootKey);
        const names = namesOf(entry, world);
        const broken = (await breaksOf(entry, names[at]!))[number];
        if (!broken) break;
        const [how, apply] = broken;
        const stored = await redis.dumpBuffer(names[at]!);
        const what = `${names[at]!.toString('latin1').slice(22)} is ${how}`;
        await apply(names[at]!);
        await decideAll(world, early, what);
        clock.advance(hourMs);
        const next = namesOf(entry, world)[at]!;
        const isOther = !next.equals(names[at]!);
        if (isOther) await apply(next);
        await decideAll(world, late, `an hour later ${what}`);
        if (isOther) await redis.del(next);
        await redis.del(names[at]!);
        if (stored) await redis.restore(names[at]!, 0, stored);
        const { status } = await call('keys.verifyKey', { key: world.key }, world.rootKey);
        if (status !== 200) failures.push(`${what}: ${status} afterwards`);
      }
    }
    expect(failures).toEqual([]);
  },
  60_000,
);

test('failed writes are counted, and one line in a minute says so without names of records', async () => {
  const { workspaceId, rootKey, key, apiId } = await makeWorld();
  const usage = `${workspaceKey(workspaceId)}:ua:${apiId.slice(-8)}:${Math.floor(observed.clock.now / dayMs)}`;
  await redis.del(usage);
  await redis.set(usage, 'secret');
  unwritten.length = 0;
  for (let count = 0; count < 3; count++)
    expect(await observed.ok('keys.verifyKey', { key }, rootKey)).toMatchObject({ valid: true });
  expect(unwritten).toEqual([2, 2, 2]);
  const lines = events.filter((event) => event.includes('could not be written'));
  expect(lines).toHaveLength(1);
  expect(lines[0]).toMatch(/in ws_\w+: [\w/.: ]*WRONGTYPE [\w ]+$/);
});

test.each(['9007199254740990', '9223372036854775806'])(
  'a sum of %s stays at 2^53 - 1, and no request is refused',
  async (sum) => {
    const { workspaceId, rootKey, key, apiId } = await makeWorld();
    const [day, hour] = [Math.floor(clock.now / dayMs), Math.floor(clock.now / hourMs) % 24];
    const usage = `${workspaceKey(workspaceId)}:ua:${apiId.slice(-8)}:${day}`;
    const fields = ['', 's'].map((kind) => `${kind}${`${hour}`.padStart(2, '0')}1`);
    await redis.hset(usage, Object.fromEntries(fields.map((field) => [field, sum])));
    for (const remaining of [1e12 - 5, 1e12 - 10])
      expect(await ok('keys.verifyKey', { key, credits: { cost: 5 } }, rootKey)).toMatchObject({
        valid: true,
        credits: remaining,
      });
    expect(await redis.hmget(usage, ...fields)).toEqual(fields.map(() => `${Number.MAX_SAFE_INTEGER}`));
    expect(await ok('analytics.getVerifications', { apiId }, rootKey)).toMatchObject([
      { count: Number.MAX_SAFE_INTEGER, spentCredits: Number.MAX_SAFE_INTEGER },
    ]);
  },
);

test.each(['leases', 'lw'])('a broken record of leases (%s) refuses no request', async (kind) => {
  const { rootKey, workspaceId } = await leased.createWorkspace();
  const { apiId } = await leased.ok('apis.createApi', { name: 'leased' }, rootKey);
  const { key } = await leased.ok('keys.createKey', { apiId, credits: { remaining: 1000 } }, rootKey);
  const check = { namespace: 'email', identifier: 'alice', limit: 1000, duration: 60_000 };
  await leased.ok('ratelimits.limit', check, rootKey);
  const { id } = (await leased.ok('ratelimits.listNamespaces', {}, rootKey))[0]!;
  const record = `${workspaceKey(workspaceId)}:${kind === 'leases' ? kind : `lw:${id16(id)}:60000:alice`}`;
  for (let count = 0; count < 6; count++) {
    await redis.del(record);
    await (kind === 'leases' ? redis.set(record, 'garbage') : redis.lpush(record, 'garbage'));
    expect((await leased.call('keys.verifyKey', { key }, rootKey)).status).toBe(200);
    expect((await leased.call('ratelimits.limit', check, rootKey)).status).toBe(200);
    await leased.store.decide.leasing.leases.recall().catch(() => {});
  }
});
