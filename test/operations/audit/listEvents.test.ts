import { pino } from 'pino';
import { describe, expect, test } from 'vitest';
import { createPipeline } from '../../../src/http/pipeline.ts';
import { operations } from '../../../src/operations/index.ts';
import { openStore } from '../../../src/store/store.ts';
import { exampleOf, examples, makeThings } from '../../support/examples.ts';
import { harness, requestTo, testSettings } from '../../support/harness.ts';
import { brokenCursors, readPages } from '../../support/lists.ts';
import { testRedisUrl } from '../../support/redis.ts';

const tollgate = harness();
const { call, clock, createWorkspace } = tollgate;

type Events = { id: string; time: number; operation: string; rootKeyId: string; requestId: string }[];

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
  expect((await allEvents(rootKey)).slice(before.length)).toEqual(
    resource ? [{ id: expect.any(String), time, rootKeyId, operation: name, resource, requestId }] : [],
  );
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
    expect([rest.data.length, rest.pagination]).toEqual([1, { hasMore: false }]);
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

test('audit.listEvents: the oldest events beyond the setting are deleted, and a reader continues after the gap', async () => {
  const { rootKey, rootKeyId } = await newWorkspace();
  const store = await openStore({ ...testSettings, auditEventsMax: 200, url: testRedisUrl(), nowMs: () => clock.now });
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
});
