import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import { workspaceOfRootKey } from '../../../src/domain/keyString.ts';
import type { Request } from '../../../src/http/message.ts';
import { createPipeline } from '../../../src/http/pipeline.ts';
import { type OperationName, operations } from '../../../src/operations/index.ts';
import { connect } from '../../../src/redis/connection.ts';
import { openStore } from '../../../src/store.ts';
import { exampleOf, examples, hash, makeThings } from '../../support/examples.ts';
import { harness, type InputOf, requestTo, testSettings } from '../../support/harness.ts';
import { brokenCursors, readPages } from '../../support/lists.ts';
import { testRedisUrl } from '../../support/redis.ts';
import { volumeTest } from '../../support/testIf.ts';

const tollgate = harness();
const { call, clock, createWorkspace } = tollgate;

type Events = {
  id: string;
  time: number;
  operation: string;
  rootKeyId: string;
  requestId: string;
  changes?: { field: string }[];
}[];

async function allEvents(rootKey: string): Promise<Events> {
  return (await readPages<Events[number]>((at) => call('audit.listEvents', at, rootKey) as never)).flat();
}

/** A workspace, and the id of its own root key. */
async function newWorkspace() {
  const { rootKey } = await createWorkspace();
  const { rootKeyId } = (await call('rootKeys.listRootKeys', {}, rootKey)).data[0]!;
  return { rootKey, rootKeyId };
}

/** Creates this many events, one millisecond apart. Returns their request ids. */
async function makeEvents(rootKey: string, count: number): Promise<string[]> {
  const requests: string[] = [];
  for (let index = 0; index < count; index++) {
    clock.advance(1);
    requests.push((await call('apis.createApi', { name: 'event' }, rootKey)).requestId);
  }
  return requests;
}

test.each(operations.map(({ name }) => name))('%s adds one event if it changes something, else none', async (name) => {
  const { rootKey, rootKeyId } = await newWorkspace();
  const things = await makeThings(call, rootKey);
  const before = await allEvents(rootKey);
  clock.advance(1);
  const time = clock.now;
  const { input, changes } = exampleOf(name);
  const { status, data, requestId } = await call(name, input(things), rootKey);
  expect(status).toBe(200);
  clock.advance(1);
  const expected = changes?.(things, data);
  const resource = expected && { type: expected[0], id: expected[1] };
  const events = (await allEvents(rootKey)).slice(before.length);
  const withoutChanges = events.map(({ changes: _changes, ...event }) => event);
  expect(withoutChanges).toEqual(
    resource ? [{ id: expect.any(String), time, rootKeyId, operation: name, resource, requestId }] : [],
  );
  // Every change has the values that it changed, and never a key string.
  if (resource) expect(events[0]!.changes).not.toEqual([]);
  const strings = [things.key, (data as { key?: string }).key].filter((key) => key !== undefined);
  for (const key of strings) expect(JSON.stringify(events)).not.toContain(key);
});

describe('audit.listEvents: before and after', () => {
  /** Calls an operation and returns the changes of its event, as {field: [before, after]}. */
  async function changesOf<Name extends OperationName>(rootKey: string, name: Name, input: InputOf<Name>) {
    const { status, error } = await call(name, input, rootKey);
    expect(status, error?.detail).toBe(200);
    const [event] = (await call('audit.listEvents', { order: 'desc', limit: 1 }, rootKey)).data;
    expect(event).toMatchObject({ operation: name });
    return Object.fromEntries((event!.changes ?? []).map(({ field, before, after }) => [field, [before, after]]));
  }

  test('of a key', async () => {
    const { rootKey } = await newWorkspace();
    const run = <Name extends OperationName>(name: Name, input: InputOf<Name>) => changesOf(rootKey, name, input);
    const { apiId } = (await call('apis.createApi', { name: 'audited' }, rootKey)).data;
    for (const name of ['one', 'two']) await call('permissions.createRole', { name }, rootKey);
    const limit = { name: 'requests', limit: 9, duration: 1000 };
    expect(
      await run('keys.createKey', { apiId, prefix: 'pk', name: 'Ada', externalId: 'ada', ratelimits: [limit] }),
    ).toEqual({
      name: [undefined, 'Ada'],
      start: [undefined, expect.stringMatching(/^pk_.{4}$/)],
      externalId: [undefined, 'ada'],
      ratelimits: [undefined, 'requests 9 per 1000 ms'],
    });
    const { keyId } = (await call('keys.listKeys', {}, rootKey)).data[0]!;
    expect(
      await run('keys.updateKey', {
        keyId,
        name: 'Grace',
        externalId: null,
        meta: { plan: 'pro' },
        expires: 4e12,
        enabled: false,
        credits: { remaining: 9_007_199_254_740_991, refill: { interval: 'monthly', amount: 5, refillDay: 3 } },
        ratelimits: [{ ...limit, limit: 8, autoApply: true }],
        roles: ['two', 'one'],
        permissions: ['a.b'],
      }),
    ).toEqual({
      name: ['Ada', 'Grace'],
      externalId: ['ada', undefined],
      meta: [undefined, '{"plan":"pro"}'],
      expires: [undefined, '4000000000000'],
      enabled: ['true', 'false'],
      'credits.remaining': ['unlimited', '9007199254740991'],
      'credits.refill': [undefined, '5 monthly on day 3'],
      ratelimits: ['requests 9 per 1000 ms', 'requests 8 per 1000 ms, autoApply'],
      roles: [undefined, 'two, one'],
      permissions: [undefined, 'a.b'],
    });
    // A field with the same value is no change.
    expect(
      await run('keys.updateKey', { keyId, name: 'Grace', enabled: false, meta: null, permissions: ['a.b'] }),
    ).toEqual({
      meta: ['{"plan":"pro"}', undefined],
    });
    expect(await run('keys.updateCredits', { keyId, operation: 'set', value: 3 })).toEqual({
      'credits.remaining': ['9007199254740991', '3'],
    });
    expect(await run('keys.addPermissions', { keyId, permissions: ['c.d', 'a.b'] })).toEqual({
      permissions: ['a.b', 'a.b, c.d'],
    });
    expect(await run('keys.removePermissions', { keyId, permissions: ['a.b'] })).toEqual({
      permissions: ['a.b, c.d', 'c.d'],
    });
    expect(await run('keys.setPermissions', { keyId, permissions: [] })).toEqual({ permissions: ['c.d', undefined] });
    expect(await run('keys.removeRoles', { keyId, roles: ['two'] })).toEqual({ roles: ['two, one', 'one'] });
    expect(await run('keys.setRoles', { keyId, roles: ['two'] })).toEqual({ roles: ['one', 'two'] });
    expect(await run('keys.rerollKey', { keyId, expiration: 1000 })).toEqual({
      successor: [undefined, expect.stringMatching(/^key_/)],
      expires: ['4000000000000', `${clock.now + 1000}`],
    });
    const start = expect.stringMatching(/^pk_.{4}$/);
    expect(await run('keys.deleteKey', { keyId })).toEqual({ name: ['Grace', undefined], start: [start, undefined] });
    expect(await run('keys.restoreKey', { keyId })).toEqual({ name: [undefined, 'Grace'], start: [undefined, start] });
    expect(await run('keys.deleteKey', { keyId, permanent: true })).toMatchObject({ permanent: [undefined, 'true'] });
    expect(await run('keys.migrateKeys', { migrationId: 'abc', apiId, keys: [{ hash: hash() }] })).toEqual({
      keyCount: [undefined, '1'],
      migrationId: [undefined, 'abc'],
    });
  });

  test('of other records', async () => {
    const { rootKey } = await newWorkspace();
    const run = <Name extends OperationName>(name: Name, input: InputOf<Name>) => changesOf(rootKey, name, input);
    const limit = { name: 'requests', limit: 9, duration: 1000 };
    expect(await run('apis.createApi', { name: 'audited' })).toEqual({ name: [undefined, 'audited'] });
    const identity = { externalId: 'ada', meta: { a: 1 }, ratelimits: [limit] };
    expect(await run('identities.createIdentity', identity)).toEqual({
      externalId: [undefined, 'ada'],
      meta: [undefined, '{"a":1}'],
      ratelimits: [undefined, 'requests 9 per 1000 ms'],
    });
    expect(await run('identities.updateIdentity', { identity: 'ada', meta: {}, ratelimits: [] })).toEqual({
      meta: ['{"a":1}', undefined],
      ratelimits: ['requests 9 per 1000 ms', undefined],
    });
    expect(await run('identities.deleteIdentity', { identity: 'ada' })).toEqual({ externalId: ['ada', undefined] });
    expect(await run('permissions.createPermission', { name: 'Read', slug: 'a.b' })).toEqual({
      slug: [undefined, 'a.b'],
      name: [undefined, 'Read'],
    });
    expect(await run('permissions.createRole', { name: 'reader', permissions: ['a.b'] })).toEqual({
      name: [undefined, 'reader'],
      permissions: [undefined, 'a.b'],
    });
    const { roleId } = { roleId: 'reader' };
    expect(await run('permissions.setRolePermissions', { roleId, permissions: ['c.d', 'a.b'] })).toEqual({
      permissions: ['a.b', 'c.d, a.b'],
    });
    expect(await run('permissions.deleteRole', { role: 'reader' })).toEqual({
      name: ['reader', undefined],
      permissions: ['c.d, a.b', undefined],
    });
    expect(await run('permissions.deletePermission', { permission: 'a.b' })).toEqual({
      slug: ['a.b', undefined],
      name: ['Read', undefined],
    });
    const override = { namespace: 'email', identifier: 'a*', limit: 3, duration: 1000 };
    expect(await run('ratelimits.setOverride', override)).toEqual({
      namespace: [undefined, 'email'],
      identifier: [undefined, 'a*'],
      limit: [undefined, '3'],
      duration: [undefined, '1000'],
    });
    expect(await run('ratelimits.setOverride', { ...override, limit: 0 })).toEqual({ limit: ['3', '0'] });
    expect(await run('ratelimits.deleteOverride', { namespace: 'email', identifier: 'a*' })).toMatchObject({
      identifier: ['a*', undefined],
      limit: ['0', undefined],
    });
    const created = await run('rootKeys.createRootKey', { name: 'gateway', permissions: ['api.*.read_api'] });
    expect(created).toEqual({ name: [undefined, 'gateway'], permissions: [undefined, 'api.*.read_api'] });
    const { rootKeyId } = (await call('rootKeys.listRootKeys', {}, rootKey)).data[1]!;
    expect(await run('rootKeys.updateRootKey', { rootKeyId, name: null, enabled: false, permissions: ['*'] })).toEqual({
      name: ['gateway', undefined],
      permissions: ['api.*.read_api', '*'],
      enabled: ['true', 'false'],
    });
    expect(await run('rootKeys.deleteRootKey', { rootKeyId })).toEqual({ permissions: ['*', undefined] });
  });

  test('values are cut between characters, and an event has a bounded size', async () => {
    const { rootKey } = await newWorkspace();
    const things = await makeThings(call, rootKey);
    const { keyId } = things;
    const name = `${'x'.repeat(199)}ü\u0000"`;
    const cut = await changesOf(rootKey, 'keys.updateKey', { keyId, name });
    expect(cut.name![1]).toBe(`${'x'.repeat(199)}…`);
    // The texts are the same up to the cut.
    expect(await changesOf(rootKey, 'keys.updateKey', { keyId, name: `${'x'.repeat(199)}ö` })).toHaveProperty('name');
    const permissions = Array.from({ length: 25 }, (_, index) => `p.${index}`);
    const many = await changesOf(rootKey, 'keys.setPermissions', { keyId, permissions });
    expect(many.permissions![1]).toMatch(/^p\.0, p\.1, .*p\.19, … \(25 in all\)$/);
    expect(
      await changesOf(rootKey, 'keys.setPermissions', { keyId, permissions: [...permissions.slice(0, 24), 'q.x'] }),
    ).toHaveProperty('permissions');
    const long = 'y'.repeat(255);
    const wide = Object.fromEntries(Array.from({ length: 99 }, (_, index) => [`${index}`.padEnd(90, 'm'), 1]));
    await call('keys.updateKey', { keyId, name: long, meta: wide, externalId: long }, rootKey);
    const { data } = await call('audit.listEvents', { order: 'desc', limit: 1 }, rootKey);
    expect(JSON.stringify(data).length).toBeLessThan(4000);
    expect(data[0]!.changes!.map(({ field }) => field).sort()).toEqual(['externalId', 'meta', 'name']);
  });
});

describe('audit.listEvents: filters', () => {
  test('by resource, root key and operation, and how far it has looked', async () => {
    const { rootKey, rootKeyId } = await newWorkspace();
    await makeEvents(rootKey, 3);
    const { key, rootKeyId: otherId } = (await call('rootKeys.createRootKey', { permissions: ['*'] }, rootKey)).data;
    const { apiId } = (await call('apis.createApi', { name: 'filtered' }, key)).data;
    await call('apis.deleteApi', { apiId }, rootKey);
    const found = async (input: InputOf<'audit.listEvents'>) => {
      const { data, pagination } = await call('audit.listEvents', input, rootKey);
      expect(pagination).toMatchObject({ hasMore: false, total: 7 });
      return data.map(
        ({ operation, rootKeyId: by }) => `${operation} ${by === rootKeyId ? 'first' : by === otherId ? 'other' : by}`,
      );
    };
    expect(await found({ rootKeyId: otherId })).toEqual(['apis.createApi other']);
    expect(await found({ rootKeyId: 'cli' })).toEqual(['rootKeys.createRootKey cli']);
    expect(await found({ operation: 'apis.deleteApi' })).toEqual(['apis.deleteApi first']);
    expect(await found({ resource: { id: apiId } })).toEqual(['apis.createApi other', 'apis.deleteApi first']);
    expect(await found({ resource: { type: 'root_key' }, order: 'desc' })).toEqual([
      'rootKeys.createRootKey first',
      'rootKeys.createRootKey cli',
    ]);
    expect(await found({ resource: { type: 'api', id: apiId }, rootKeyId, operation: 'apis.deleteApi' })).toHaveLength(
      1,
    );
    expect(await found({ resource: { type: 'key', id: apiId } })).toEqual([]);
    const first = await call('audit.listEvents', { resource: { type: 'api' }, limit: 2 }, rootKey);
    expect(first.pagination).toMatchObject({ hasMore: true, looked: 3, total: 7 });
    const pages = await readPages(
      (at) => call('audit.listEvents', { resource: { type: 'api' }, limit: 2, ...at }, rootKey) as never,
    );
    expect(pages.flat()).toHaveLength(5);
  });

  volumeTest('a filter examines a bounded number of events, and continues', { timeout: 60_000 }, async () => {
    const { rootKey } = await newWorkspace();
    const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
    const workspaceId = workspaceOfRootKey(rootKey)!;
    const fields = [
      'time',
      '1',
      'rootKeyId',
      'root_1',
      'operation',
      'x',
      'type',
      'api',
      'id',
      'api_1',
      'requestId',
      'r',
    ];
    for (let index = 0; index < 10_050; index++) redis.xadd(`tg:{${workspaceId}}:audit`, '*', ...fields);
    await redis.quit();
    const operation = 'apis.createApi';
    const { requestId } = await call(operation, { name: 'last' }, rootKey);
    const first = await call('audit.listEvents', { operation }, rootKey);
    expect(first).toMatchObject({ data: [], pagination: { hasMore: true, looked: 10_000, total: 10_052 } });
    const rest = await call('audit.listEvents', { operation, cursor: first.pagination.cursor! }, rootKey);
    expect(rest.data).toMatchObject([{ requestId }]);
    expect(rest.pagination).toEqual({ hasMore: false, looked: 52, total: 10_052 });
  });

  test.each(['asc', 'desc'] as const)('by time, %s: from start on, before end', async (order) => {
    const { rootKey } = await newWorkspace();
    const redis = await connect(testRedisUrl(), { commandTimeoutMs: 5000 });
    const stream = `tg:{${workspaceOfRootKey(rootKey)!}}:audit`;
    // With ids of their times; those of the workspace are from today.
    await redis.del(stream);
    const from = 1e12;
    const ids = [`${from}-0`, `${from}-1`, `${from + 999}-5`, `${from + 1000}-0`, `${from + 2000}-0`];
    for (const id of ids) {
      await redis.xadd(
        stream,
        id,
        'time',
        id.split('-')[0]!,
        'rootKeyId',
        'r',
        'operation',
        'o',
        'type',
        't',
        'id',
        'i',
        'requestId',
        'q',
      );
    }
    await redis.quit();
    const found = async (input: InputOf<'audit.listEvents'>) => {
      const pages = await readPages<Events[number]>(
        (at) => call('audit.listEvents', { order, limit: 1, ...input, ...at }, rootKey) as never,
      );
      const listed = pages.flat().map(({ id }) => id);
      return order === 'asc' ? listed : listed.toReversed();
    };
    expect(await found({ start: from, end: from + 1000 })).toEqual(ids.slice(0, 3));
    expect(await found({ start: from + 1 })).toEqual(ids.slice(2));
    expect(await found({ end: from + 2000 })).toEqual(ids.slice(0, 4));
    expect(await found({ end: 0 })).toEqual([]);
    expect(await found({ start: from + 2001, end: from })).toEqual([]);
    expect(await found({ start: 0, end: 4_102_444_800_000 })).toEqual(ids);
  });

  test.each<[string, object]>([
    ['body.rootKeyId', { rootKeyId: 'a b' }],
    ['body.operation', { operation: '' }],
    ['body.resource', { resource: 'key_1' }],
    ['body.resource.kind', { resource: { kind: 'key' } }],
    ['body.resource.id', { resource: { id: '' } }],
    ['body.start', { start: -1 }],
    ['body.end', { end: 4_102_444_800_001 }],
  ])('400 for a wrong %s', async (location, input) => {
    const { status, error } = await call('audit.listEvents', input as never);
    expect(status).toBe(400);
    expect(error.errors).toEqual([expect.objectContaining({ location })]);
  });
});

describe('audit.listEvents: the address of the caller', () => {
  const addressAfter = async (parts: Partial<Request>) => {
    const { rootKey } = await newWorkspace();
    await tollgate.send('/v2/apis.createApi', {
      ...parts,
      authorization: `Bearer ${rootKey}`,
      body: '{"name":"address"}',
    } as never);
    return ((await call('audit.listEvents', { order: 'desc', limit: 1 }, rootKey)).data[0] as { address?: string })
      .address;
  };
  const peerOf = (text: string) => ({ getRemoteAddressAsText: () => Uint8Array.from(Buffer.from(text)).buffer });

  test.each([
    ['127.0.0.1', '127.0.0.1'],
    ['0000:0000:0000:0000:0000:ffff:c000:0201', '192.0.2.1'],
    ['2001:0db8:0000:0000:0000:0000:0000:0001', '2001:db8::1'],
    ['', undefined],
  ])('%s of the connection is %s', async (text, address) => {
    expect(await addressAfter({ peer: peerOf(text) })).toBe(address);
  });

  test.each([
    ['192.0.2.7', '192.0.2.7'],
    ['10.0.0.1, 192.0.2.7', '192.0.2.7'],
    ['spoofed, 2001:DB8::1', '2001:db8::1'],
    // Without an address, that of the connection.
    ['192.0.2.7, unknown', '127.0.0.1'],
    ['"><script>', '127.0.0.1'],
    ['', '127.0.0.1'],
  ])('of the header %j it is %s', async (forwardedFor, address) => {
    expect(await addressAfter({ forwardedFor, peer: peerOf('127.0.0.1') })).toBe(address);
  });
});

test('audit.listEvents: refused calls add no event', async () => {
  const { rootKey } = await newWorkspace();
  const { keyId, apiId } = await makeThings(call, rootKey);
  const before = await allEvents(rootKey);
  for (const refused of [
    await call('apis.createApi', { name: 'a' }, rootKey),
    await call('keys.createKey', { apiId, roles: ['unknown'] }, rootKey),
    await call('keys.createKey', { apiId: 'api_unknown' }, rootKey),
    await call('keys.updateCredits', { keyId, operation: 'increment', value: Number.MAX_SAFE_INTEGER }, rootKey),
    await call('permissions.deleteRole', { role: 'unknown' }, rootKey),
    await call('identities.deleteIdentity', { identity: 'unknown' }, rootKey),
  ]) {
    expect(refused.status).toBeGreaterThanOrEqual(400);
  }
  expect(await allEvents(rootKey)).toEqual(before);
});

test('audit.listEvents: a migration without a new key adds no event', async () => {
  const { rootKey } = await newWorkspace();
  const things = await makeThings(call, rootKey);
  const input = examples['keys.migrateKeys'].input(things);
  await call('keys.migrateKeys', input, rootKey);
  const before = await allEvents(rootKey);
  expect((await call('keys.migrateKeys', input, rootKey)).data.failed).toHaveLength(input.keys.length);
  expect(await allEvents(rootKey)).toEqual(before);
});

test('audit.listEvents: a call by an alias is recorded under the operation’s name', async () => {
  const { rootKey } = await newWorkspace();
  const body = JSON.stringify({ namespace: 'a', identifier: 'a', limit: 1, duration: 1000 });
  await tollgate.send('/v2/ratelimit.setOverride', { body, authorization: `Bearer ${rootKey}` });
  expect((await allEvents(rootKey)).at(-1)).toMatchObject({ operation: 'ratelimits.setOverride' });
});

test('audit.listEvents: an event names the root key', async () => {
  const { rootKey } = await newWorkspace();
  const { rootKeyId, key } = (await call('rootKeys.createRootKey', { permissions: ['api.*.create_api'] }, rootKey))
    .data;
  await call('apis.createApi', { name: 'by the other' }, key);
  expect((await allEvents(rootKey)).at(-1)).toMatchObject({ rootKeyId, operation: 'apis.createApi' });
});

describe('audit.listEvents: order and pages of events', () => {
  test('the default order is oldest first', async () => {
    const { rootKey } = await newWorkspace();
    const requests = await makeEvents(rootKey, 5);
    const order = async (input: object) =>
      (await call('audit.listEvents', input, rootKey)).data.map(({ requestId }) => requestId);
    expect((await order({})).slice(-5)).toEqual(requests);
    expect((await order({ order: 'asc' })).slice(-5)).toEqual(requests);
    expect((await order({ order: 'desc' })).slice(0, 5)).toEqual(requests.toReversed());
  });

  test.each(['asc', 'desc'] as const)('%s: each event is listed exactly once while others are added', async (order) => {
    const { rootKey } = await newWorkspace();
    await makeEvents(rootKey, 9);
    const before = (await allEvents(rootKey)).map(({ id }) => id);
    let more = 6;
    const pages = await readPages<Events[number]>(
      (at) => call('audit.listEvents', { limit: 2, order, ...at }, rootKey) as never,
      async () => void (more-- > 0 && (await makeEvents(rootKey, 1))),
    );
    const seen = pages.flat().map(({ id }) => id);
    const expected = order === 'asc' ? (await allEvents(rootKey)).map(({ id }) => id) : before.toReversed();
    expect(seen).toEqual(expected);
  });

  test('the default page size is 100; the last full page has no cursor', async () => {
    const { rootKey } = await newWorkspace();
    const there = (await allEvents(rootKey)).length;
    await makeEvents(rootKey, 101 - there);
    const first = await call('audit.listEvents', {}, rootKey);
    expect([first.data.length, first.pagination.hasMore]).toEqual([100, true]);
    const rest = await call('audit.listEvents', { cursor: first.pagination.cursor! }, rootKey);
    expect([rest.data.length, rest.pagination]).toEqual([1, { hasMore: false, looked: 1, total: 101 }]);
  });

  test('a workspace does not see events of another', async () => {
    const [one, two] = [await newWorkspace(), await newWorkspace()];
    const requests = await makeEvents(one.rootKey, 2);
    const seen = (await allEvents(two.rootKey)).map(({ requestId }) => requestId);
    expect(seen.filter((id) => requests.includes(id))).toEqual([]);
  });

  test('400 for a malformed cursor, one of the other order, and an invalid size or order', async () => {
    const { rootKey } = await newWorkspace();
    await makeEvents(rootKey, 3);
    const { data, pagination } = await call('audit.listEvents', { limit: 1 }, rootKey);
    const bad = [
      ...brokenCursors(pagination.cursor!, data[0]!.id).map((cursor) => ({ cursor })),
      { cursor: pagination.cursor!, order: 'desc' },
      { limit: 0 },
      { limit: 101 },
      { order: 'newest' },
    ];
    for (const input of bad) {
      const refused = await call('audit.listEvents', input as never, rootKey);
      expect(refused, JSON.stringify(input)).toMatchObject({ status: 400, code: 'invalid_input' });
    }
  });
});

volumeTest(
  'audit.listEvents: the oldest events beyond the setting are deleted, and a reader continues after the gap',
  async () => {
    const { rootKey, rootKeyId } = await newWorkspace();
    const store = await openStore({
      ...testSettings,
      auditEventsMax: 200,
      url: testRedisUrl(),
      nowMs: () => clock.now,
    });
    try {
      const answer = createPipeline(operations, { store, log: pino({ level: 'silent' }), metaBytesMax: 10_240 });
      const make = async (count: number) => {
        for (let index = 0; index < count; index++) {
          const parts = { requestId: `req_${index}`, body: '{"name":"bounded"}' };
          await answer(requestTo('/v2/apis.createApi', rootKey, parts));
        }
      };
      await make(150);
      const { pagination } = await call('audit.listEvents', { limit: 1 }, rootKey);
      await make(800);
      // Redis removes whole nodes of a hundred entries.
      const events = await allEvents(rootKey);
      expect(events.length).toBeGreaterThanOrEqual(200);
      expect(events.length).toBeLessThanOrEqual(300);
      expect(events.at(-1)).toMatchObject({ rootKeyId, requestId: 'req_799' });
      const behind = await call('audit.listEvents', { cursor: pagination.cursor! }, rootKey);
      expect(behind.data.map(({ id }) => id)).toEqual(events.slice(0, 100).map(({ id }) => id));
    } finally {
      await store.close();
    }
  },
);

test('audit.listEvents: events have the present names of their root keys, as long as these exist', async () => {
  const { rootKey } = await newWorkspace();
  const made = await Promise.all(
    ['deploys', 'support'].map(
      async (name) => (await call('rootKeys.createRootKey', { name, permissions: ['*'] }, rootKey)).data,
    ),
  );
  for (const { key } of made) await makeEvents(key, 2);
  const namesOf = async () =>
    (await call('audit.listEvents', { operation: 'apis.createApi' }, rootKey)).data.map(
      ({ rootKeyId, rootKeyName }) => [rootKeyId, rootKeyName],
    );
  const [first, second] = made.map(({ rootKeyId }) => rootKeyId);
  expect(await namesOf()).toEqual([
    [first, 'deploys'],
    [first, 'deploys'],
    [second, 'support'],
    [second, 'support'],
  ]);
  await call('rootKeys.updateRootKey', { rootKeyId: first!, name: null }, rootKey);
  await call('rootKeys.deleteRootKey', { rootKeyId: second! }, rootKey);
  expect(await namesOf()).toEqual([
    [first, undefined],
    [first, undefined],
    [second, undefined],
    [second, undefined],
  ]);
});
