// Workspaces that share calls to Redis. Random requests of several workspaces are decided as if each had been the only
// one: the same answers, and the same records. What is broken, full or refused in one workspace fails there only.

import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { digestOf } from '../../src/domain/keyString.ts';
import type { OperationName } from '../../src/operations/index.ts';
import { workspaceKey } from '../../src/redis/names.ts';
import { budgetMax } from '../../src/scripts/layout.ts';
import { library } from '../../src/scripts/loader.ts';
import { harness, type InputOf } from '../support/harness.ts';
import { observing } from '../support/observer.ts';
import { ownRedis } from '../support/ownRedis.ts';
import { random, seed } from '../support/random.ts';
import { freePort, redisNodes, until } from '../support/redisNodes.ts';
import { thorough } from '../support/testIf.ts';

const recordsMax = 24;
const own = ownRedis();
let calls = 0;
const observe = observing({
  ran(name) {
    if (name === 'decide') calls++;
  },
});
const { clock, call, openWorkspace, createRootKey } = harness(() => own.url, { leaseMs: 0, recordsMax, observe });

const window = { limit: 6, duration: 60_000, autoApply: true };
const nobody = 'key_nobody';

async function open() {
  const { workspaceId, rootKey, of } = await openWorkspace();
  const { apiId } = await of('apis.createApi', { name: 'main' });
  const { apiId: otherApi } = await of('apis.createApi', { name: 'other' });
  await of('permissions.createRole', { name: 'reader', permissions: ['documents.read'] });
  const ratelimits = [{ ...window, name: 'shared', limit: 20 }];
  await of('identities.createIdentity', { externalId: 'customer', credits: { remaining: 40 }, ratelimits });
  const slots = { name: 'slots', limit: 3, duration: 60_000, type: 'concurrency' as const, autoApply: true };
  const made = [
    { apiId },
    { apiId, credits: { remaining: 30, refill: { interval: 'daily' as const, amount: 30 } } },
    { apiId, ratelimits: [{ ...window, name: 'requests' }] },
    { apiId, externalId: 'customer', roles: ['reader'], meta: { plan: 'pro' } },
    { apiId: otherApi, externalId: 'customer', permissions: ['documents.write'], ratelimits: [slots] },
    { apiId, enabled: false },
    { apiId: otherApi, expires: clock.now + 200_000, credits: { remaining: 1000 } },
  ];
  const keys: string[] = [nobody];
  for (const input of made) keys.push((await of('keys.createKey', input)).key);
  await of('ratelimits.limit', { namespace: 'calls', identifier: 'nobody', limit: 1, duration: 1000 });
  const narrow = await createRootKey([`api.${otherApi}.verify_key`], workspaceId);
  await call('keys.verifyKey', { key: keys.at(-1)! }, narrow);
  return { workspaceId, apiId, rootKeys: [rootKey, rootKey, rootKey, narrow], keys };
}
type World = Awaited<ReturnType<typeof open>>;
interface Step {
  name: OperationName;
  input: object;
  as: string;
}

function stepOf(worlds: readonly World[], pick: (min: number, max: number) => number): Step {
  const among = <T>(all: readonly T[]): T => all[pick(0, all.length - 1)]!;
  const { rootKeys, keys } = among(worlds);
  const as = among(rootKeys);
  const check = () => ({ namespace: among(['calls', 'calls', 'new']), identifier: among(['a', 'b']), ...limited });
  const limited = { limit: pick(2, 8), duration: 60_000 };
  if (pick(0, 4) === 0) return { name: 'ratelimits.limit', input: check(), as };
  if (pick(0, 9) === 0) return { name: 'ratelimits.multiLimit', input: [check(), check()], as };
  const input = {
    key: among(keys),
    ...among([{}, {}, { credits: { cost: pick(0, 9) } }, { tags: ['a', among(['b', 'c'])] }]),
    ...among([{}, {}, { permissions: among(['documents.read', 'documents.write OR documents.read']) }]),
    ...among([{}, {}, { ratelimits: [{ name: 'ad hoc', ...limited }] }]),
    ...among([{}, {}, { hold: { ttl: 30_000, onExpiry: among(['release', 'charge']) } }]),
  };
  return { name: 'keys.verifyKey', input, as };
}

const send = async ({ name, input, as }: Step) => {
  const { status, code, data, error } = await call(name, input as InputOf<typeof name>, as);
  return { status, code, data, detail: error?.detail };
};

const namesOf = () => own.redis.keysBuffer('tg:{ws_*');

/** All records of the workspaces, without the order of their members. Expiries are by the real clock. */
async function contents() {
  const found: Record<string, unknown> = {};
  for (const name of await namesOf()) {
    const type = await own.redis.type(name);
    const latin1 = (values: Buffer[]) => values.map((value) => value.toString('latin1'));
    const pairs = (values: string[]) => values.flatMap((value, at) => (at % 2 === 0 ? [[value, values[at + 1]]] : []));
    const read: Record<string, () => Promise<unknown>> = {
      // The bytes of counts by tag are an estimate: a field without credits counts half, also if a later call adds
      // some.
      hash: async () =>
        pairs(latin1((await own.redis.callBuffer('HGETALL', name)) as Buffer[]))
          .filter(([field]) => field !== 'tags')
          .sort(),
      set: async () => latin1(await own.redis.smembersBuffer(name)).sort(),
      zset: async () => latin1((await own.redis.callBuffer('ZRANGE', name, 0, -1, 'WITHSCORES')) as Buffer[]),
    };
    const value = await (read[type] ?? (async () => (await own.redis.dumpBuffer(name)).toString('latin1')))();
    found[name.toString('latin1')] = [value, (await own.redis.pttl(name)) > 0];
  }
  return found;
}

/** Puts the workspaces and the state of the library back. */
async function backup() {
  const names = await namesOf();
  const dumps = await Promise.all(names.map((name) => own.redis.dumpBuffer(name)));
  const startMs = clock.now;
  return async () => {
    clock.now = startMs;
    await own.redis.unlink(...(await namesOf()));
    await Promise.all(names.map((name, at) => own.redis.restore(name, 0, dumps[at]!)));
    await own.redis.function('LOAD', 'REPLACE', library().text);
    calls = 0;
  };
}

test(`requests of several workspaces are decided as if each were alone (SEED=${seed})`, async () => {
  const pick = random(seed);
  for (let run = 0; run < thorough(20, 3); run++) {
    const worlds = await Promise.all([1, 2, 3, 4].map(open));
    const [broken, full] = worlds as [World, World, ...World[]];
    const nameOf = (key: string) =>
      Buffer.concat([Buffer.from(`${workspaceKey(broken.workspaceId)}:k:`), digestOf(key)]);
    await own.redis.multi().unlink(nameOf(broken.keys[1]!)).set(nameOf(broken.keys[1]!), 'x').exec();
    await own.redis.hset(nameOf(broken.keys[2]!), 'state', 'x');
    await own.redis.set(`${workspaceKey(broken.workspaceId)}:tags:${broken.apiId.slice(-8)}`, 'x');
    while ((await call('apis.createApi', { name: 'one more' }, full.rootKeys[0])).status === 200);
    const turns = Array.from({ length: 25 }, () => ({
      steps: Array.from({ length: pick(1, 16) }, () => stepOf(worlds, pick)),
      ms: pick(0, 2) === 0 ? pick(0, 40_000) : 0,
    }));
    const restore = await backup();
    const play = async (decide: (steps: Step[]) => Promise<unknown[]>) => {
      await restore();
      const answers = [];
      for (const { steps, ms } of turns) {
        answers.push(await decide(steps));
        clock.advance(ms);
      }
      return { calls, answers, records: await contents() };
    };
    const together = await play((steps) => Promise.all(steps.map(send)));
    const alone = await play(async (steps) => {
      const answers = [];
      for (const step of steps) answers.push(await send(step));
      return answers;
    });
    expect(together.answers).toEqual(alone.answers);
    expect(together.records).toEqual(alone.records);
    const statuses = together.answers.flat().map((answer) => (answer as { status: number }).status);
    for (const status of [200, 403, 500]) expect(statuses).toContain(status);
    // Most turns have all of the workspaces.
    const ofWorkspaces = turns.reduce((sum, { steps }) => sum + new Set(steps.map(({ as }) => as)).size, 0);
    expect(together.calls).toBeLessThan(0.7 * ofWorkspaces);
    await own.redis.unlink(...(await namesOf()).filter((name) => worlds.some((w) => name.includes(w.workspaceId))));
  }
});

/** The name of the record of the only root key. */
const rootKeyRecord = async (workspace: string) => (await own.redis.keysBuffer(`${workspace}:rk:*`))[0]!;

describe('three workspaces that share a call', () => {
  afterEach(async () => {
    await own.redis.config('SET', 'maxmemory', '0');
    await own.redis.function('LOAD', 'REPLACE', library().text);
  });

  async function three() {
    const made = await Promise.all(
      [1, 2, 3].map(async () => {
        const { workspaceId, rootKey, of } = await openWorkspace();
        const { apiId } = await of('apis.createApi', { name: 'main' });
        return { workspaceId, rootKey, of, ...(await of('keys.createKey', { apiId, credits: { remaining: 10 } })) };
      }),
    );
    const verify = async () => {
      calls = 0;
      const answers = await Promise.all(made.map(({ key, rootKey }) => call('keys.verifyKey', { key }, rootKey)));
      expect(calls).toBe(1);
      return answers.map(({ status, code, data }) => [status, status === 200 ? data.credits : code]);
    };
    expect(await verify()).toEqual(Array(3).fill([200, 9]));
    return { verify, made };
  }

  test.each([
    ['before it is decided', 'local packed_session, items_end = begin_batch(workspace, items)', "error('injected')", 9],
    ['after its charges', 'local identifiers, tags = write_totals()', "error('injected')", 8],
    ['by a refused write', 'local identifiers, tags = write_totals()', "error({ err = 'OOM injected' })", 8],
    ['by a command', 'local identifiers, tags = write_totals()', "local_redis_call('GET', workspace .. ':apis')", 8],
  ])('one batch that fails %s fails alone', async (_when, place, failure, left) => {
    const { verify, made } = await three();
    const { workspaceId, of, keyId } = made[1]!;
    const { text } = library();
    const failing = `${place} if workspace == '${workspaceKey(workspaceId)}' then ${failure} end`;
    expect(text.split(place)).toHaveLength(2);
    await own.redis.function('LOAD', 'REPLACE', text.replace(place, failing));
    const problem = failure.includes('OOM') ? [503, 'store_full'] : [500, 'internal'];
    expect(await verify()).toEqual([[200, 8], problem, [200, 8]]);
    await own.redis.function('LOAD', 'REPLACE', text);
    expect((await of('keys.getKey', { keyId })).credits).toEqual({ remaining: left });
    expect(await verify()).toEqual([
      [200, 7],
      [200, left - 1],
      [200, 7],
    ]);
  });

  test.each<[string, (workspace: string) => Promise<unknown>, [number, string]]>([
    [
      'whose root key is disabled',
      async (workspace) => own.redis.hset(await rootKeyRecord(workspace), 'enabled', '0'),
      [403, 'root_key_disabled'],
    ],
    [
      'whose root key is broken',
      async (workspace) => {
        const name = await rootKeyRecord(workspace);
        await own.redis.multi().unlink(name).set(name, 'x').exec();
      },
      [500, 'internal'],
    ],
    [
      'whose records are gone',
      async (workspace) => own.redis.unlink(...(await own.redis.keysBuffer(`${workspace}*`))),
      [401, 'unauthorized'],
    ],
  ])('one %s is refused alone', async (_what, damage, problem) => {
    const { verify, made } = await three();
    await damage(workspaceKey(made[1]!.workspaceId));
    expect(await verify()).toEqual([[200, 8], problem, [200, 8]]);
    // Redis had accepted the root key; now its caller is unknown, in a queue of its own.
    expect(await verify()).toEqual([[200, 7], problem, [200, 7]]);
  });

  test('a library that Redis has lost is loaded, and the call is sent again, once', async () => {
    const { verify } = await three();
    await own.redis.function('FLUSH');
    expect(await verify()).toEqual(Array(3).fill([200, 8]));
  });

  test('a call that Redis refuses charges none of them', async () => {
    const { verify } = await three();
    await own.redis.config('SET', 'maxmemory', '1');
    expect(await verify()).toEqual(Array(3).fill([503, 'store_full']));
    await own.redis.config('SET', 'maxmemory', '0');
    expect(await verify()).toEqual(Array(3).fill([200, 8]));
  });

  test('what the work of a call leaves undecided is decided by the next ones, once', async () => {
    const { verify, made } = await three();
    await own.redis.function(
      'LOAD',
      'REPLACE',
      library().text.replace(`left, count = ${budgetMax}`, 'left, count = 1'),
    );
    calls = 0;
    const twice = [...made, ...made].map(({ key, rootKey }) => call('keys.verifyKey', { key }, rootKey));
    expect((await Promise.all(twice)).map(({ data }) => data.credits)).toEqual([8, 8, 8, 7, 7, 7]);
    // The work of each call was used by its first request.
    expect(calls).toBe(6);
    await own.redis.function('LOAD', 'REPLACE', library().text);
    expect(await verify()).toEqual(Array(3).fill([200, 6]));
  });
});

describe('a count that cannot be written', () => {
  const events: string[] = [];
  const noting = harness(() => own.url, { leaseMs: 0, onEvent: (message) => void events.push(message) });

  test('is reported with its workspace', async () => {
    const made = await Promise.all(
      [1, 2, 3].map(async () => {
        const { workspaceId, rootKey, of } = await noting.openWorkspace();
        const { apiId } = await of('apis.createApi', { name: 'main' });
        return { workspaceId, rootKey, ...(await of('keys.createKey', { apiId })) };
      }),
    );
    const verify = () =>
      Promise.all(made.map(({ key, rootKey }) => noting.call('keys.verifyKey', { key, tags: ['a'] }, rootKey)));
    await verify();
    const { workspaceId } = made[1]!;
    const counts = await own.redis.keysBuffer(`${workspaceKey(workspaceId)}:ua:*`);
    expect(counts).not.toEqual([]);
    for (const name of counts) await own.redis.multi().unlink(name).set(name, 'x').exec();
    expect(await verify()).toMatchObject(Array(3).fill({ status: 200 }));
    expect(events).toEqual([expect.stringMatching(`could not be written in ${workspaceId}: .*WRONGTYPE`)]);
  });
});

describe('a Cluster behind one address, without +cluster in its URL', () => {
  const nodes = redisNodes();
  let port = 0;
  beforeAll(async () => {
    const busPort = await freePort();
    const node = await nodes.startNode(() => ['--cluster-enabled', 'yes', '--cluster-port', `${busPort}`]);
    await node.admin.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
    await until('the Cluster is well', 20_000, async () =>
      `${await node.admin.cluster('INFO')}`.includes('cluster_state:ok'),
    );
    port = node.port;
  });
  afterAll(() => nodes.stop());
  const clustered = harness(() => `redis://127.0.0.1:${port}`, { leaseMs: 0 });

  test('refuses a call of several slots: its batches are sent one by one from then on', async () => {
    const made = await Promise.all(
      [1, 2, 3].map(async () => {
        const { rootKey, of } = await clustered.openWorkspace();
        const { apiId } = await of('apis.createApi', { name: 'main' });
        return { rootKey, ...(await of('keys.createKey', { apiId, credits: { remaining: 10 } })) };
      }),
    );
    for (const left of [9, 8, 7]) {
      const answers = await Promise.all(
        made.map(({ key, rootKey }) => clustered.call('keys.verifyKey', { key }, rootKey)),
      );
      expect(answers.map(({ status, data }) => [status, data.credits])).toEqual(Array(3).fill([200, left]));
    }
  });
});
