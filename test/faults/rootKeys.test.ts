// What a root key must not do, for every operation of the registry: reach another workspace, be used after it was
// revoked, or grant more than it has.

import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { actions, isScoped, type Resource } from '../../src/domain/grants.ts';
import { createKeyString } from '../../src/domain/keyString.ts';
import { recordKinds } from '../../src/domain/records.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { type OperationName, operations as registry } from '../../src/operations/index.ts';
import { connect, type RedisClient } from '../../src/redis/connection.ts';
import { reads } from '../support/everyRead.ts';
import { exampleOf, freshName, makeThings, type Things } from '../support/examples.ts';
import { harness } from '../support/harness.ts';
import { seed } from '../support/random.ts';
import { namesLike, testRedisUrl } from '../support/redis.ts';
import { thorough } from '../support/testIf.ts';
import { report } from './report.ts';

const tollgate = harness();
const { call, send, createWorkspace, createRootKey } = tollgate;
const operations: readonly AnyOperation[] = registry;

let redis: RedisClient;
let theirs: { workspaceId: string; rootKey: string };
let theirThings: Things;
const counts = { foreign: 0, takenBack: 0, granted: 0, refused: 0 };

beforeAll(async () => {
  redis = await connect(testRedisUrl(), { commandTimeoutMs: 10_000 });
  theirs = await createWorkspace();
  theirThings = await makeThings(call, theirs.rootKey);
});
afterAll(async () => void (await redis.quit()));

type Bytes = Map<string, { bytes: string | undefined; expiresAt: number }>;

/** All Redis records of a workspace, as bytes. */
async function bytesOf(workspaceId: string): Promise<Bytes> {
  const names = (await namesLike(redis, `*${workspaceId}*`)).sort(Buffer.compare);
  const read = async (name: Buffer) => {
    const [expiresAt, dump] = await Promise.all([redis.pexpiretime(name), redis.dumpBuffer(name)]);
    return [name.toString('latin1'), { bytes: dump?.toString('base64'), expiresAt }] as const;
  };
  return new Map(await Promise.all(names.map(read)));
}

/** Those that Redis has not expired by then: a busy machine takes long. */
const lastingAt = (records: Bytes, at: number) =>
  new Map([...records].filter(([, { expiresAt }]) => expiresAt === -1 || expiresAt > at));

/** Ids in the same format that no record has. */
function absentThings(): Things {
  const other = (id: string) => `${id.slice(0, -3)}${id.endsWith('zzz') ? 'yyy' : 'zzz'}`;
  return {
    ...(Object.fromEntries(Object.entries(theirThings).map(([name, id]) => [name, other(id)])) as Things),
    key: createKeyString({ byteLength: 16 }).key,
    name: freshName(),
  };
}

const post = async (name: string, input: unknown, rootKey: string) => {
  const { status, body } = await send(`/v2/${name}`, {
    body: JSON.stringify(input),
    authorization: `Bearer ${rootKey}`,
  });
  return { status, body };
};

/** The input with its n-th id of `ours` replaced by that of `others`; undefined when it has fewer. */
function swapped(input: unknown, ours: Things, others: Things, n: number): unknown {
  let at = 0;
  let found = false;
  const kinds = Object.entries(ours) as [keyof Things, string][];
  const text = JSON.stringify(input, (_name, value) => {
    const kind = kinds.find(([, id]) => id === value)?.[0];
    if (!kind || at++ !== n) return value;
    found = true;
    return others[kind];
  });
  return found ? JSON.parse(text) : undefined;
}

const prefixes = [...recordKinds.map(([, { prefix }]) => prefix), 'rl', 'ws', 'req'];
const ids = new RegExp(`\\b(${prefixes.join('|')})_[1-9A-HJ-NP-Za-km-z]{16,}(_\\w+)?`, 'g');

/**
 * A response with placeholders for everything that differs between calls: requested ids, new ids, key strings, hashes,
 * names.
 */
function masked({ status, body }: { status: number; body: string }, asked: Things) {
  let text = body;
  for (const id of Object.values(asked)) text = text.replaceAll(new RegExp(`\\b${id}(?!\\d)`, 'g'), '<asked>');
  return `${status} ${text
    .replaceAll(ids, '<$1>')
    .replaceAll(/things\.\d+/g, '<name>')
    .replaceAll(/[A-Za-z0-9+/]{43}=/g, '<hash>')
    .replaceAll(/"\d{13}-\d+"/g, '"<event>"')
    .replaceAll(/"key":"\w+"/g, '"key":"<new>"')
    .replaceAll(/"(uptimeMs|memoryBytes|roundTripMs|usedBytes|sweptAt)":[\d.]+/g, '"$1":<measured>')
    .replaceAll(/"decisions":\{[^}]*\}/g, '"decisions":<measured>')
    .replaceAll(/"found":"[^"]*"/g, '"found":"<measured>"')}`;
}

describe('calls with ids of another workspace', () => {
  test.each(operations.map(({ name }) => name as OperationName))('%s', async (name) => {
    const before = await bytesOf(theirs.workspaceId);
    const example = exampleOf(name).input;
    const mentions = (n: number) => swapped(example(theirThings), theirThings, theirThings, n) !== undefined;
    for (let n = 0; mentions(n); n++) {
      // Two equal workspaces, as the first call may change the result of the second.
      const answers = await Promise.all(
        [theirThings, absentThings()].map(async (others) => {
          const { rootKey } = await createWorkspace();
          const ours = await makeThings(call, rootKey);
          const input = swapped(example(ours), ours, others, n);
          return masked(await post(name, input, rootKey), others);
        }),
      );
      expect(answers[0], `mention ${n}`).toBe(answers[1]);
      counts.foreign++;
    }
    // All ids at once.
    const [answer, absent] = await Promise.all(
      [theirThings, absentThings()].map(async (others) => {
        const { rootKey } = await createWorkspace();
        return { others, ...(await post(name, example(others), rootKey)) };
      }),
    );
    expect(masked(answer!, answer!.others)).toBe(masked(absent!, absent!.others));
    counts.foreign++;
    const after = await bytesOf(theirs.workspaceId);
    const now = Date.now();
    expect(lastingAt(after, now)).toEqual(lastingAt(before, now));
  });

  const lists = operations.filter((operation) => operation.kind === 'manages' && operation.list);
  test.each(lists.map(({ name, input }) => ({ name, required: (input as { required?: string[] }).required ?? [] })))(
    '$name with a cursor of another workspace lists only the caller’s own items',
    async ({ name, required }) => {
      const { rootKey } = await createWorkspace();
      const ours = await makeThings(call, rootKey);
      const more = await makeThings(call, theirs.rootKey);
      // Every list has more than one item.
      await call('keys.createKey', { apiId: more.apiId }, theirs.rootKey);
      await call('keys.verifyKey', { key: more.key, permissions: 'not.held' }, theirs.rootKey);
      const list = async (things: Things, rootKey: string, paging: object) => {
        const named = Object.entries(exampleOf(name).input(things)).filter(([field]) => required.includes(field));
        return (await post(name, { ...Object.fromEntries(named), ...paging }, rootKey)).body;
      };
      const { cursor } = JSON.parse(await list(more, theirs.rootKey, { limit: 1 })).pagination;
      expect(cursor).toBeTypeOf('string');
      const body = await list(ours, rootKey, { limit: 100, cursor });
      for (const id of [...Object.values(more), ...Object.values(theirThings)]) expect(body).not.toContain(id);
    },
  );

  test('a root key with another workspace’s id in it is unknown', async () => {
    const [part, otherPart] = [theirs.workspaceId.slice(3), tollgate.workspaceId.slice(3)];
    expect(tollgate.rootKey).toContain(otherPart);
    const forged = tollgate.rootKey.replace(otherPart, part);
    for (const { name } of operations) {
      const answer = await post(name, exampleOf(name).input(theirThings), forged);
      expect(answer.status, name).toBe(401);
    }
  });
});

describe('a root key that was', () => {
  const takenBack = [
    ['deleted', 401, 'unauthorized', (rootKeyId: string) => call('rootKeys.deleteRootKey', { rootKeyId })],
    [
      'disabled',
      403,
      'root_key_disabled',
      (rootKeyId: string) => call('rootKeys.updateRootKey', { rootKeyId, enabled: false }),
    ],
    [
      'expired',
      403,
      'root_key_expired',
      (rootKeyId: string) => call('rootKeys.updateRootKey', { rootKeyId, expires: tollgate.clock.now }),
    ],
    [
      'narrowed',
      403,
      'insufficient_permissions',
      (rootKeyId: string) =>
        call('rootKeys.updateRootKey', { rootKeyId, permissions: ['api.other_one.read_analytics'] }),
    ],
  ] as const;

  // What is read, and what a refused call names: neither is changed.
  let unchanged: Things;
  beforeAll(async () => {
    unchanged = await makeThings(call, tollgate.rootKey);
  });
  const isRead = (name: OperationName) => reads.some((read) => read.name === name);

  /** One of each kind of decision, and of the operations that manage: one that changes, a read, a list and a stream. */
  const ofEachKind: OperationName[] = [
    ...(['keys.verifyKey', 'ratelimits.limit', 'ratelimits.multiLimit', 'keys.settleHold', 'keys.whoami'] as const),
    ...(['keys.updateKey', 'keys.getKey', 'keys.listKeys', 'analytics.getTop', 'analytics.tail'] as const),
    'rootKeys.whoami',
  ];

  describe.each(takenBack)('%s', (how, status, code, takeBack) => {
    test.each(
      thorough(
        operations.map(({ name }) => name as OperationName),
        ofEachKind,
      ),
    )('%s, from the next request on', async (name) => {
      const { rootKeyId, key } = (await call('rootKeys.createRootKey', { permissions: ['*'] })).data;
      const things = isRead(name) ? unchanged : await makeThings(call, tollgate.rootKey);
      expect((await call(name, exampleOf(name).input(things), key)).status).toBe(200);
      expect((await takeBack(rootKeyId)).status).toBe(200);
      const refused = await call(name, exampleOf(name).input(unchanged), key);
      counts.takenBack++;
      // A narrowed root key may still read analytics, which have no rows for it.
      const rows = ['analytics.getVerifications', 'analytics.listCustomers', 'analytics.listRefusals'];
      if (how === 'narrowed' && rows.includes(name)) {
        expect(refused).toMatchObject({ status: 200, data: [] });
      } else if (how === 'narrowed' && name === 'analytics.getTop') {
        expect(refused).toMatchObject({ status: 200, data: { top: [] } });
      } else if (how === 'narrowed' && name === 'rootKeys.whoami') {
        expect(refused).toMatchObject({ status: 200, data: { permissions: ['api.other_one.read_analytics'] } });
      } else if (how === 'narrowed' && name === 'analytics.tail') {
        expect(refused.status).toBe(200);
      } else if (how === 'narrowed' && name === 'system.find') {
        expect(refused).toMatchObject({ status: 200, data: { items: [] } });
      } else if (how === 'narrowed' && name === 'keys.whoami') {
        expect(refused).toMatchObject({ status: 404, code: 'key_not_found' });
      } else expect(refused).toMatchObject({ status, code });
    });
  });

  test('of many concurrent requests none that was sent after the deletion passes', async () => {
    const { rootKeyId, key } = (await call('rootKeys.createRootKey', { permissions: ['*'] })).data;
    const things = await makeThings(call, tollgate.rootKey);
    const ask = () => call('keys.verifyKey', { key: things.key, credits: { cost: 0 } }, key);
    const early = Array.from({ length: 200 }, ask);
    await call('rootKeys.deleteRootKey', { rootKeyId });
    const late = await Promise.all(Array.from({ length: 200 }, ask));
    expect(new Set(late.map(({ status }) => status))).toEqual(new Set([401]));
    await Promise.all(early);
  });
});

describe('a root key cannot grant what it lacks', () => {
  const some = Object.entries(actions).flatMap(([resource, named]) => {
    const ids = isScoped(resource as Resource) ? ['*', 'one_1', 'two_2'] : ['*'];
    return named.slice(0, 2).flatMap((action) => ids.map((id) => `${resource as Resource}.${id}.${action}`));
  });
  const grants = (max: number) => fc.uniqueArray(fc.constantFrom('*', ...some), { minLength: 1, maxLength: max });

  /** A simple model: a grant is held if the root key has it, has it for any id, or has `*`. */
  const holds = (held: readonly string[], grant: string) =>
    held.includes('*') || held.includes(grant) || held.includes(grant.replace(/^(\w+)\.\w+\./, '$1.*.'));

  test(`to a new root key, to another, or to itself (seed ${seed})`, async () => {
    await fc.assert(
      fc.asyncProperty(grants(8), grants(3), async (held, given) => {
        const manage = ['root_key.*.create_root_key', 'root_key.*.update_root_key', 'root_key.*.delete_root_key'];
        const caller = await createRootKey([...held, ...manage]);
        const may = given.every((grant) => holds([...held, ...manage], grant));
        const expected = may ? 200 : 403;

        const made = await call('rootKeys.createRootKey', { permissions: given }, caller);
        expect(made.status).toBe(expected);
        // Neither can it change a root key that holds the grant, nor add the grant to another root key.
        const holder = (await call('rootKeys.createRootKey', { permissions: given })).data;
        const changes = { rootKeyId: holder.rootKeyId, name: 'taken over' };
        expect((await call('rootKeys.updateRootKey', changes, caller)).status).toBe(expected);
        expect((await call('rootKeys.deleteRootKey', { rootKeyId: holder.rootKeyId }, caller)).status).toBe(expected);
        const empty = (await call('rootKeys.createRootKey', { permissions: [held[0]!] })).data;
        const widened = { rootKeyId: empty.rootKeyId, permissions: given };
        expect((await call('rootKeys.updateRootKey', widened, caller)).status).toBe(expected);
        counts[may ? 'granted' : 'refused']++;
      }),
      { seed, numRuns: thorough(150, 50) },
    );
    expect(counts.granted).toBeGreaterThan(5);
    expect(counts.refused).toBeGreaterThan(5);
  });
});

test('the counts of these tests, for test/faults/RESULTS.md', () => {
  report({
    order: '12.2',
    fault: 'root keys used beyond their grants: in another workspace, after they were revoked, to grant what they lack',
    expected:
      'another workspace looks absent and stays byte for byte; revoking applies from the next request on; grants never grow',
    measured:
      `${counts.foreign} calls of ${operations.length} operations with ids of another workspace, all with the response for unknown ids; ` +
      `${counts.takenBack} calls after deletion, disabling, expiry and narrowing, all refused; ` +
      `${counts.refused} attempts to give more than is held, all refused (${counts.granted} that may)`,
  });
});
