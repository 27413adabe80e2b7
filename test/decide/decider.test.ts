// Batches and their replies: items that a call leaves undecided, and replies that cannot be read.

import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AcceptedRootKeys } from '../../src/decide/accepted.ts';
import { Batch } from '../../src/decide/batch.ts';
import { type Decide, type DecideOptions, openDecide } from '../../src/decide/decide.ts';
import type { Kind } from '../../src/decide/kind.ts';
import { Leasing } from '../../src/decide/leases/leasing.ts';
import { readReply } from '../../src/decide/reply.ts';
import type { CachedSnapshot } from '../../src/decide/snapshots.ts';
import { Tail } from '../../src/decide/tail/tail.ts';
import type { Verification, Verified } from '../../src/decide/verification.ts';
import type { PresentedRootKey } from '../../src/domain/caller.ts';
import { createRootKeyString, digestOf, digestTextOf } from '../../src/domain/keyString.ts';
import { outcomes } from '../../src/domain/verification.ts';
import { cliActor } from '../../src/records/rootKeys.ts';
import { workspaceKey } from '../../src/redis/names.ts';
import type { StoreObserver } from '../../src/redis/observer.ts';
import { batchHead, batchTail, budgetMax, dataVersion } from '../../src/scripts/layout.ts';
import { library } from '../../src/scripts/loader.ts';
import { loadScripts } from '../../src/scripts/scripts.ts';
import { harness, testSettings } from '../support/harness.ts';
import { ownRedis } from '../support/ownRedis.ts';

// A redis-server of this file, because the tests replace a function that other test files use.
const unchanging = { deactivate: async () => {}, mayLengthen: () => true, redisAgeMs: async () => 0 };

const own = ownRedis();
const app = harness(() => own.url);
const { ok, createKey } = app;
let calls = 0;
let presented: PresentedRootKey;
let decide: Decide;

beforeEach(async () => {
  presented = present(app.rootKey);
  decide = await open();
  calls = 0;
});

const present = (rootKey: string): PresentedRootKey => ({
  workspaceId: app.workspaceId,
  digest: digestOf(rootKey),
  digestText: digestTextOf(rootKey),
});

/** A decider without cached snapshots, as in a server that has just started. */
async function open(options: Partial<DecideOptions> = {}) {
  const observe = {
    ran: () => void calls++,
    sent() {},
    verified() {},
    limited() {},
    uncounted() {},
  } as unknown as StoreObserver;
  return openDecide({
    tail: new Tail(own.redis),
    openLeasing: (settle) => new Leasing({ ...testSettings, ...unchanging, redis: own.redis, settle }),
    scripts: await loadScripts(own.redis, workspaceKey, { observe }),
    slugsOf: async () => [],
    digestOf: async () => undefined,
    dataVersion: { current: dataVersion },
    accepted: new AcceptedRootKeys(),
    ...testSettings,
    now: () => app.clock.now,
    ...options,
  });
}

const verify = async (key: string, extras: object = {}, root = presented) =>
  decide.verifications.prepare(root, { digest: digestTextOf(key), cost: 1, ...extras }).decide();

describe('a batch with much work', () => {
  test('is decided in several calls: every item once, each for its own caller', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'test' });
    await ok('permissions.createRole', {
      name: 'many',
      permissions: Array.from({ length: 1000 }, (_, index) => `many.${index}`.padEnd(100, 'x')),
    });
    const keys = await Promise.all(
      Array.from({ length: 24 }, (_, index) =>
        createKey({ apiId, name: `key ${index}`, roles: ['many'], credits: { remaining: 10 } }),
      ),
    );
    calls = 0;
    const verified = await Promise.all(keys.map(({ key }) => verify(key)));
    expect(verified.map(({ snapshot }) => /"name":"([^"]*)"/.exec(snapshot!.fields)![1])).toEqual(
      keys.map((_, index) => `key ${index}`),
    );
    // Each has a snapshot of 100 KB. 24 of these in one call would take Redis 40 ms.
    expect(calls).toBeGreaterThan(5);
    for (const [index, { keyId }] of keys.entries()) {
      expect(verified[index]).toMatchObject({ outcome: 'VALID', credits: 9, atMs: app.clock.now });
      expect((await ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 9 });
    }
  });

  test('is decided in several calls also for many root keys with long grants', async () => {
    const { key } = await createKey({ credits: { remaining: 100 } });
    const roots = await Promise.all(
      Array.from({ length: 24 }, async (_, number) => {
        const grants = Array.from({ length: 240 }, (_, index) => `api.api_${index}${'x'.repeat(240)}.read_key`);
        const { key: rootKey, start } = createRootKeyString(app.workspaceId);
        const permissions = number % 2 === 0 ? [...grants, 'api.*.verify_key'] : grants;
        await app.store.rootKeys.create(app.workspaceId, { digest: digestOf(rootKey), start, permissions }, cliActor);
        return present(rootKey);
      }),
    );
    calls = 0;
    const settled = await Promise.allSettled(roots.map((root) => verify(key, {}, root)));
    expect(settled.map(({ status }) => status)).toEqual(
      roots.map((_, number) => (number % 2 === 0 ? 'fulfilled' : 'rejected')),
    );
    expect(calls).toBeGreaterThan(1);
    expect((await verify(key)).credits).toBe(100 - 12 - 1);
  });

  test('an ordinary batch is one call', async () => {
    const { key } = await createKey({ credits: { remaining: 100 } });
    calls = 0;
    await Promise.all(Array.from({ length: 24 }, () => verify(key)));
    expect(calls).toBe(1);
  });

  test('ends when its budget is used, and each call reports its work and that of all calls', async () => {
    const { key } = await createKey({ credits: { remaining: 100 } });
    const scripts = await loadScripts(own.redis, workspaceKey);
    const heads: { count: number; work: number; allWork: number }[] = [];
    let budget = 1;
    decide = await open({
      scripts: {
        ...scripts,
        async runPacked(name, workspaceId, args) {
          const items = args[1] as Buffer;
          const tail = items.subarray(items.length - batchTail.bytes);
          expect(tail.readUInt16BE(batchTail.at.budget)).toBe(budgetMax);
          tail.writeUInt16BE(budget, batchTail.at.budget);
          const reply = (await scripts.runPacked(name, workspaceId, args)) as Buffer | [Buffer];
          const packed = Buffer.isBuffer(reply) ? reply : reply[0];
          const { count, work, allWork } = batchHead.at;
          heads.push({
            count: packed[count]!,
            work: packed.readUInt16BE(work),
            allWork: packed.readUInt32BE(allWork),
          });
          return reply;
        },
      },
    });
    expect(new Batch().packed(undefined, 0x0102).subarray(0, 2)).toEqual(Buffer.from([1, 2]));
    await verify(key);
    const together = (count: number) => Promise.all(Array.from({ length: count }, () => verify(key)));
    const five = await together(5);
    expect(five.map(({ credits }) => credits)).toEqual([98, 97, 96, 95, 94]);
    expect(heads.map(({ count }) => count)).toEqual([1, 1, 1, 1, 1, 1]);
    const one = heads.at(-1)!.work;
    budget = 2 * one;
    await together(24);
    const more = heads.slice(6);
    expect(more[0]!.count).toBeGreaterThan(1);
    expect(more[0]!.work).toBeGreaterThan(one);
    expect(more.reduce((sum, { count }) => sum + count, 0)).toBe(24);
    for (const [index, { work, allWork }] of heads.slice(1).entries())
      expect(Math.abs(allWork - heads[index]!.allWork - work)).toBeLessThanOrEqual(1);
  });
});

test('a request that is repeated gets the snapshot of its key when that has changed, and no more', async () => {
  const { key, keyId } = await createKey({ name: 'before' });
  const scripts = await loadScripts(own.redis, workspaceKey);
  let snapshots = 0;
  const decider = await open({
    scripts: {
      ...scripts,
      runPacked: async (...args) => {
        const reply = await scripts.runPacked(...args);
        if (Array.isArray(reply)) snapshots += reply.length - 5;
        return reply;
      },
    },
  });
  const prepared = decider.verifications.prepare(presented, { digest: digestTextOf(key), cost: 1 });
  const seen = async () => {
    const names = [];
    for (const _ of [1, 2, 3]) names.push(/"name":"([^"]*)"/.exec((await prepared.decide()).snapshot!.fields)![1]);
    return { names, snapshots };
  };
  // The second use caches it.
  expect(await seen()).toEqual({ names: ['before', 'before', 'before'], snapshots: 2 });
  await ok('keys.updateKey', { keyId, name: 'after' });
  expect(await seen()).toEqual({ names: ['after', 'after', 'after'], snapshots: 3 });
});

describe('the totals of an API', () => {
  const totalsOf = async (workspaceId: string, apiId: string) => {
    const day = Math.floor(app.clock.now / 86_400_000);
    return own.redis.hgetall(`${workspaceKey(workspaceId)}:ua:${apiId.slice(-8)}:${day}`);
  };
  const hour = () => String(Math.floor(app.clock.now / 3_600_000) % 24).padStart(2, '0');

  test('are its own, with more APIs than the library remembers', async () => {
    const made: { apiId: string; key: string }[] = [];
    for (let index = 0; index < 300; index++) {
      const { apiId } = await ok('apis.createApi', { name: `api ${index}` });
      const { key } = await createKey({ apiId, enabled: index % 3 !== 0, credits: { remaining: 100 } });
      made.push({ apiId, key });
    }
    for (let round = 0; round < 2; round++) {
      await Promise.all(
        made.flatMap(({ key }, index) => (index % 2 === 0 ? [verify(key), verify(key)] : [verify(key)])),
      );
    }
    for (const [index, { apiId }] of made.entries()) {
      const times = index % 2 === 0 ? '4' : '2';
      const { [`${hour()}1`]: valid, [`s${hour()}1`]: spent, ...refused } = await totalsOf(app.workspaceId, apiId);
      if (index % 3 !== 0) expect([valid, spent, refused]).toEqual([times, times, {}]);
      else expect([valid, spent, Object.values(refused)]).toEqual([undefined, undefined, [times]]);
    }
  });

  test('are those of its workspace, if two workspaces have an API with this id', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'exported' });
    const others = await Promise.all(
      [1, 2].map(async (number) => {
        const { workspaceId } = await app.store.workspaces.create(`other ${number}`);
        const { key: rootKey, start } = createRootKeyString(workspaceId);
        await app.store.rootKeys.create(
          workspaceId,
          { digest: digestOf(rootKey), start, permissions: ['*'] },
          cliActor,
        );
        await app.store.apis.createAgain(workspaceId, { apiId, name: 'same' }, cliActor);
        const { key } = (await app.call('keys.createKey', { apiId }, rootKey)).data;
        const root = { ...present(rootKey), workspaceId };
        return { workspaceId, key, root };
      }),
    );
    const [one, two] = others as [(typeof others)[0], (typeof others)[0]];
    for (const each of [one, two, one, two, two]) await verify(each.key, {}, each.root);
    expect(await totalsOf(one.workspaceId, apiId)).toEqual({ [`${hour()}1`]: '2' });
    expect(await totalsOf(two.workspaceId, apiId)).toEqual({ [`${hour()}1`]: '3' });
  });

  test('go into the field of their hour', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'hours' });
    const { key } = await createKey({ apiId });
    await verify(key);
    const before = hour();
    app.clock.now += 3_600_000;
    await verify(key);
    await verify(key);
    expect({ ...(await totalsOf(app.workspaceId, apiId)) }).toMatchObject({ [`${hour()}1`]: '2' });
    expect(hour()).not.toBe(before);
  });
});

describe('a broken record', () => {
  const nameOf = (key: string) => Buffer.concat([Buffer.from(`${workspaceKey(app.workspaceId)}:k:`), digestOf(key)]);

  test.each([
    [
      'whose state is too short',
      (name: Buffer) => own.redis.hset(name, 'state', 'x'),
      /lua\/\S+\.lua:\d+: .*too short/,
    ],
    ['of another type', (name: Buffer) => own.redis.multi().unlink(name).set(name, 'x').exec(), /WRONGTYPE/],
  ])('%s fails its own item only, with the cause', async (_what, damage, cause) => {
    const keys = [(await createKey()).key, (await createKey()).key, (await createKey()).key] as const;
    await damage(nameOf(keys[1]));
    calls = 0;
    const [first, broken, last] = await Promise.allSettled(keys.map((key) => verify(key)));
    expect(calls).toBe(1);
    expect(broken).toMatchObject({ status: 'rejected', reason: { message: expect.stringMatching(cause) } });
    for (const each of [first, last]) expect(each).toMatchObject({ value: { outcome: 'VALID' } });
  });

  test('fails a verification with a hold only, not the next ones in its place', async () => {
    const { apiId } = await ok('apis.createApi', { name: 'test' });
    const [held, next] = [await createKey({ apiId }), await createKey({ credits: { remaining: 5 } })];
    await own.redis.set(`${workspaceKey(app.workspaceId)}:tags:${apiId.slice(-8)}`, 'x');
    const request = { digest: digestTextOf(held.key), cost: 1, tags: ['a'] };
    const failing = decide.holds.prepare(presented, request, { ttlMs: 60_000, onExpiry: 'release', id: '' });
    calls = 0;
    const [failed, first] = await Promise.allSettled([failing.decide(), verify(next.key)]);
    expect(calls).toBe(1);
    expect(failed).toMatchObject({ status: 'rejected', reason: { message: expect.stringMatching(/WRONGTYPE/) } });
    expect(first).toMatchObject({ value: { outcome: 'VALID', credits: 4 } });
    expect(await verify(next.key)).toMatchObject({ outcome: 'VALID', credits: 3 });
  });
});

/**
 * Loads the library with a damaged reply: `damage` is Lua that changes `reply`. Every caller must get its own result or
 * an error.
 */
async function damaged(damage: string) {
  const { text, name } = library();
  const changed = text.replace(
    /^return decide_batches\((.+)\)$/m,
    `local reply = decide_batches($1)
     if type(reply) == 'string' then reply = { reply, 0, 0 } end ${damage} return reply`,
  );
  expect(changed).not.toBe(text);
  await own.redis.function('LOAD', 'REPLACE', changed);
  return name;
}

describe('a reply that cannot be read', () => {
  afterEach(async () => void (await own.redis.function('LOAD', 'REPLACE', library().text)));

  /** Replaces byte `at` (from 0) of the packed results, counted from the first byte of the first result. */
  const setByte = (answers: number, at: number, byte: number) =>
    `local at = ${batchHead.bytes + 2 * answers + at}
     reply[1] = string.sub(reply[1], 1, at) .. string.char(${byte}) .. string.sub(reply[1], at + 2)`;

  const setCount = (count: number) =>
    `local at = ${batchHead.at.count}
     reply[1] = string.sub(reply[1], 1, at) .. string.char(${count}) .. string.sub(reply[1], at + 2)`;

  async function three() {
    const { apiId } = await ok('apis.createApi', { name: 'test' });
    const make = (name: string, remaining: number) =>
      createKey({
        apiId,
        name,
        credits: { remaining },
        ratelimits: [{ name: 'requests', limit: remaining, duration: 60_000, autoApply: true }],
      });
    return [await make('one', 100), await make('two', 200), await make('three', 300)] as const;
  }

  const namesOf = (
    settled: PromiseSettledResult<{ snapshot: { fields: string } | undefined; credits: number | undefined }>[],
  ) =>
    settled.map((each) =>
      each.status === 'fulfilled'
        ? [/"name":"([^"]*)"/.exec(each.value.snapshot!.fields)![1], each.value.credits]
        : 'error',
    );

  test.each([
    ['has more limits than it says', 9, 0],
    ['has fewer limits than it says', 9, 50],
    ['has an outcome that there is not', 0, 200],
    ['is of another outcome', 0, outcomes.indexOf('NOT_FOUND') + 1],
    ['is a refusal', 0, 20],
    ['is that of a limit check', 0, 10],
  ])('a result that %s is an error of its caller only', async (_what, at, byte) => {
    const keys = await three();
    await damaged(setByte(3, at, byte));
    const settled = await Promise.allSettled(keys.map(({ key }) => verify(key)));
    expect(namesOf(settled)).toEqual(['error', ['two', 199], ['three', 299]]);
  });

  test('a snapshot that cannot be read is not given to another caller', async () => {
    const keys = await three();
    // The second caller verifies the same key: its snapshot came with the result that cannot be read.
    const asked = [keys[0], keys[0], keys[1], keys[2]].map(({ key }) => key);
    await damaged(setByte(4, 0, 200));
    const settled = await Promise.allSettled(asked.map((key) => verify(key)));
    expect(namesOf(settled)).toEqual(['error', 'error', ['two', 199], ['three', 299]]);
  });

  test.each([
    [
      'a length that is another',
      `local n = string.byte(reply[1], ${batchHead.bytes + 2})
       reply[1] = string.sub(reply[1], 1, ${batchHead.bytes + 1}) .. string.char(n + 1) .. string.sub(reply[1], ${batchHead.bytes + 3})`,
    ],
    ['more answers than were asked for', setCount(200)],
    ['no answer', setCount(0)],
    ['nothing', `reply[1] = ''`],
    ['one snapshot too few', 'reply[#reply] = nil'],
    ['one snapshot too many', `reply[#reply + 1] = reply[4]`],
    ['half of it', 'reply[1] = string.sub(reply[1], 1, #reply[1] / 2)'],
  ])('with %s all requests fail', async (_what, damage) => {
    const keys = await three();
    await damaged(damage);
    const settled = await Promise.allSettled(keys.map(({ key }) => verify(key)));
    expect(namesOf(settled)).toEqual(['error', 'error', 'error']);
  });

  test('a reply to a limit check that is too long or short is an error of its caller only', async () => {
    const check = (identifier: string, limit: number) =>
      decide.limitChecks
        .prepare(presented, [{ namespace: 'damaged', identifier, limit, durationMs: 60_000, cost: 1 }])
        .decide();
    await check('new', 1);
    for (const [at, byte] of [
      [1, 0],
      [1, 2],
      [24, 255],
    ] as const) {
      await damaged(setByte(2, at, byte));
      const identifier = randomBytes(8).toString('hex');
      const settled = await Promise.allSettled([check(identifier, 10), check(`${identifier}.`, 20)]);
      expect(settled[0]!.status).toBe('rejected');
      expect(settled[1]).toMatchObject({
        status: 'fulfilled',
        value: { passed: true, checks: [{ limit: 20, remaining: 19 }] },
      });
    }
  });

  test('a failure after slugs were read is an error of its caller, which does not wait for ever', async () => {
    const [{ key }] = await three();
    const { verifications } = await open({ tail: Object.assign(new Tail(own.redis), { isOpen: true }) });
    const { decider } = verifications;
    const fail = () => {
      throw new Error('a bug');
    };
    const kind: Kind<Verification, Verified, CachedSnapshot | undefined> = {
      isLeased: true,
      pack: (...args) => verifications.pack(...args),
      read: (answer) => verifications.read(answer),
      // As if it read slugs.
      finish: async (decision) => decision,
      correct: fail,
      repeatable: fail,
      unanswered: (request) => verifications.unanswered(request),
      count: () => {},
      offer: fail,
      errorOf: () => undefined,
    };
    const request = verifications.prepare(presented, { digest: digestTextOf(key), cost: 1 }) as Verification;
    await expect(decider.decideAtRedis(kind, request)).rejects.toThrow('a bug');
  });

  test('of random bytes nothing is read beyond one reply', () => {
    const packed = Buffer.from(
      '0197f0000000' + '0102' + '03040506' + '03' + '0002' + '8003' + '0001' + 'aabb' + 'ccddee' + 'ff',
      'hex',
    );
    const snapshot = Buffer.from('snapshot');
    const { answers, work, allWork } = readReply(packed, [snapshot], 5);
    expect({ work, allWork }).toEqual({ work: 0x0102, allWork: 0x03040506 });
    expect(answers.map(({ at, end, snapshot }) => [packed.toString('hex', at, end), snapshot])).toEqual([
      ['aabb', undefined],
      ['ccddee', snapshot],
      ['ff', undefined],
    ]);
    expect(() => readReply(packed, [snapshot], 2)).toThrow('cannot be read');
    for (let round = 0; round < 20_000; round++) {
      const garbage = Buffer.from(packed);
      for (let times = 0; times <= round % 3; times++)
        garbage[(round * 7919 + times * 31) % (batchHead.bytes + 6)] = (round * 131 + times) % 256;
      let read: ReturnType<typeof readReply>['answers'] = [];
      try {
        read = readReply(garbage, [snapshot], 5).answers;
      } catch (error) {
        expect((error as Error).message).toContain('cannot be read');
      }
      let at = batchHead.bytes + 2 * read.length;
      for (const answer of read) {
        expect(answer.at).toBe(at);
        expect(answer.end).toBeGreaterThan(at);
        at = answer.end;
      }
      if (read.length > 0) expect(at).toBe(garbage.length);
    }
  });
});

test('deciders that share a connection add no listeners to it', async () => {
  const listeners = () => own.redis.eventNames().map((event) => [event, own.redis.listenerCount(event)]);
  const before = listeners();
  await open();
  expect(listeners()).toEqual(before);
});
