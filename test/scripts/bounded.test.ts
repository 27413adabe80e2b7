// Anything that can grow without a bound is removed and read in bounded steps: no single command or script does all of
// it.

import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { digestOf, digestTextOf } from '../../src/domain/keyString.ts';
import {
  apisKey,
  formerMembersKey,
  namespaceNamesKey,
  serversKey,
  tagUsageKey,
  workspaceKey,
  workspacesKey,
} from '../../src/redis/names.ts';
import { openStore } from '../../src/store.ts';
import { dayMs, harness, hourMs, testSettings } from '../support/harness.ts';
import { monitorOf } from '../support/monitor.ts';
import { observing } from '../support/observer.ts';
import { ownRedis } from '../support/ownRedis.ts';

// A redis-server of this file, because the tests read its command statistics.
const own = ownRedis();

const tollgate = harness(() => own.url);
const { ok, call, createKey, createWorkspace, clock } = tollgate;

const presented = (rootKey: string) => ({ digest: digestOf(rootKey), digestText: digestTextOf(rootKey) });

/** Adds `count` notes of keys that were deleted so long ago that no usage of them is kept. */
const oldNotes = (count: number): string[] => {
  const hour = Math.floor((clock.now - testSettings.usageRetentionMs - 60 * dayMs) / hourMs);
  return Array.from({ length: count }, (_, at) => [`${hour}`, `${at}`.padStart(24, 'x')]).flat();
};

describe('notes of deleted keys', () => {
  test.each(['of an API', 'of an externalId'])('%s: a call removes at most 100 expired ones', async (which) => {
    const workspace = workspaceKey(tollgate.workspaceId);
    const { apiId } = await createKey();
    const externalId = `gone-${which.length}`;
    const list = which === 'of an API' ? `${workspace}:uz:${apiId.slice(-8)}` : formerMembersKey(workspace, externalId);
    await own.redis.zadd(list, ...oldNotes(250));
    const left: number[] = [];
    for (let call = 0; call < 4; call++) {
      const { keyId } = await createKey({ apiId, externalId });
      await ok('keys.deleteKey', { keyId });
      left.push(await own.redis.zcard(list));
    }
    // Each call adds one.
    expect(left).toEqual([151, 52, 3, 4]);
  });
});

test('a workspace is listed with its name and the time of its creation', async () => {
  const made = await tollgate.store.workspaces.create('listed');
  expect(await tollgate.store.workspaces.list()).toContainEqual({ ...made, isImporting: false });
  expect(made).toMatchObject({ name: 'listed', createdAt: clock.now });
});

test('an identifier that is counted already is not reported as left out', async () => {
  const leftOut: number[] = [];
  const observe = observing({ uncounted: (identifiers) => void leftOut.push(identifiers) });
  const store = await openStore({
    ...testSettings,
    url: own.url,
    identifiersMax: 1,
    nowMs: () => clock.now,
    observe,
  });
  const rootKey = { ...presented(tollgate.rootKey), workspaceId: tollgate.workspaceId };
  const check = (identifier: string, limit: number) =>
    store.decide.limitChecks
      .prepare(rootKey, [{ namespace: 'counted', identifier, limit, durationMs: 60_000, cost: 1 }])
      .decide();
  await check('first', 1);
  // The same identifier has another count, of blocked checks.
  await check('first', 1);
  expect(leftOut).toEqual([]);
  await check('second', 1);
  expect(leftOut).toEqual([1]);
  await store.close();
});

test('workspaces are listed in steps, in order, and none is missed', async () => {
  const made: string[] = [];
  for (let index = 0; index < 1001; index++) {
    made.push((await tollgate.store.workspaces.create(`many ${index}`)).workspaceId);
  }
  const ids = await tollgate.store.workspaces.ids();
  expect(ids).toHaveLength(await own.redis.zcard(workspacesKey));
  expect(new Set(ids).size).toBe(ids.length);
  expect(made.every((id) => ids.includes(id))).toBe(true);
  const listed = await tollgate.store.workspaces.list();
  expect(listed.map(({ workspaceId }) => workspaceId)).toEqual(ids);
  expect(listed.find(({ workspaceId }) => workspaceId === made[1000])).toMatchObject({ name: 'many 1000' });
});

test('a namespace that several checks of one call use for the first time is created once', async () => {
  const { workspaceId, rootKey } = await createWorkspace();
  const check = { namespace: 'new', limit: 10, duration: 60_000 };
  const checks = ['a', 'b'].map((identifier) => ({ ...check, identifier }));
  await call('ratelimits.multiLimit', checks, rootKey);
  expect(await own.redis.hvals(namespaceNamesKey(workspaceKey(workspaceId)))).toEqual(['new']);
});

/** The number of calls of each command while `act` ran, also in scripts; without those of the heartbeat of servers. */
async function commandsDuring(act: () => Promise<unknown>): Promise<Record<string, number>> {
  const commands: Record<string, number> = {};
  const end = `end of ${randomUUID()}`;
  let finish = () => {};
  const ended = new Promise<void>((resolve) => (finish = resolve));
  const stop = await monitorOf(own.url, ([command = '', name]) => {
    if (name === end) finish();
    const lower = command.toLowerCase();
    if (name !== serversKey) commands[lower] = (commands[lower] ?? 0) + 1;
  });
  await act();
  await own.redis.exists(end);
  await ended;
  stop();
  return commands;
}

test('deletePlan with a replacement moves at most 100 keys and identities with each script', async () => {
  const { of } = await tollgate.openWorkspace();
  for (const planId of ['old', 'new']) await of('plans.createPlan', { planId });
  const { apiId } = await of('apis.createApi', { name: 'many' });
  const hashOf = (at: number) => digestOf(`many ${at}`).toString('base64');
  const keys = Array.from({ length: 580 }, (_, at) => ({ hash: hashOf(at), planId: 'old' }));
  await of('keys.migrateKeys', { migrationId: 'many', apiId, keys });
  for (let at = 0; at < 20; at++) await of('identities.createIdentity', { externalId: `many.${at}`, planId: 'old' });
  const { hdel, fcall } = await commandsDuring(() => of('plans.deletePlan', { planId: 'old', replaceWith: 'new' }));
  expect(hdel).toBe(600);
  expect(fcall).toBeGreaterThanOrEqual(6);
  expect(await of('plans.listPlans', {})).toMatchObject([{ planId: 'new', keyCount: 580, identityCount: 20 }]);
});

/** An unused id of 16 characters, in ascending order. */
const fakeId = (at: number) => `zzzzzzzz${String(at + 1e7).replaceAll('0', 'z')}`;

describe('analytics', () => {
  const hour = () => Math.floor(clock.now / hourMs);

  test('more namespaces than a query reads are refused before any of their names is read', async () => {
    const { workspaceId, rootKey } = await createWorkspace();
    const names = namespaceNamesKey(workspaceKey(workspaceId));
    for (let first = 0; first < 120_000; first += 10_000) {
      const fields = Array.from({ length: 10_000 }, (_, at) => [fakeId(first + at), `n${first + at}`]);
      await own.redis.hset(names, Object.fromEntries(fields));
    }
    const commands = await commandsDuring(async () => {
      const answer = await call('analytics.getRatelimits', {}, rootKey);
      expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
      expect(answer.error.detail).toContain('covers too much');
    });
    expect(Object.keys(commands)).not.toContain('hgetall');
    expect(Object.keys(commands)).not.toContain('hscan');
  });

  test('many namespaces are read in steps, and none is missed', async () => {
    const { workspaceId, rootKey } = await createWorkspace();
    const names = namespaceNamesKey(workspaceKey(workspaceId));
    const check = { identifier: 'a', limit: 10, duration: 60_000 };
    const used = Array.from({ length: 250 }, (_, at) => `used ${at}`);
    for (const namespace of used) await call('ratelimits.limit', { namespace, ...check }, rootKey);
    const unused = Array.from({ length: 5000 }, (_, at) => [fakeId(at), `${at}`.padStart(500, 'n')]);
    await own.redis.hset(names, Object.fromEntries(unused));
    const commands = await commandsDuring(async () => {
      const { data } = await call('analytics.getRatelimits', {}, rootKey);
      expect(data.map(({ namespace, passed, blocked }) => ({ namespace, passed, blocked })).sort()).toEqual(
        expect.arrayContaining(used.map((namespace) => ({ namespace, passed: 1, blocked: 0 }))),
      );
      expect(data).toHaveLength(used.length);
    });
    expect(Object.keys(commands)).not.toContain('hgetall');
    expect(commands.hscan).toBeGreaterThan(5);
  });

  test('more APIs than a query reads are refused before they are listed', async () => {
    const { workspaceId, rootKey } = await createWorkspace();
    const list = apisKey(workspaceKey(workspaceId));
    for (let first = 0; first < 210_000; first += 10_000) {
      await own.redis.zadd(list, ...Array.from({ length: 10_000 }, (_, at) => ['0', fakeId(first + at)]).flat());
    }
    const commands = await commandsDuring(async () => {
      const answer = await call('analytics.getVerifications', {}, rootKey);
      expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    });
    expect(Object.keys(commands)).not.toContain('zrange');
  });

  test('APIs are listed in steps, and none is missed', async () => {
    const { rootKey } = await createWorkspace();
    const apiIds: string[] = [];
    // A few at a time, because a busy machine would refuse requests that wait too long.
    while (apiIds.length < 1100) {
      const made = Array.from({ length: 50 }, () => call('apis.createApi', { name: 'one of many' }, rootKey));
      apiIds.push(...(await Promise.all(made)).map(({ data }) => data.apiId));
    }
    for (const apiId of [apiIds[0]!, apiIds[999]!, apiIds[1000]!, apiIds.at(-1)!]) {
      const { key } = (await call('keys.createKey', { apiId }, rootKey)).data;
      await call('keys.verifyKey', { key }, rootKey);
    }
    const { data } = await call('analytics.getVerifications', { groupBy: ['apiId'] }, rootKey);
    expect(new Set(data.map(({ apiId }) => apiId))).toEqual(
      new Set([apiIds[0], apiIds[999], apiIds[1000], apiIds.at(-1)]),
    );
  });

  test('a response of more than 10 MB is refused while it is added up', async () => {
    const { workspaceId, rootKey } = await createWorkspace();
    const { apiId } = (await call('apis.createApi', { name: 'long tags' }, rootKey)).data;
    const { keyId } = (await call('keys.createKey', { apiId }, rootKey)).data;
    const day = `${Math.floor(hour() / 24)}`;
    const record = tagUsageKey(workspaceKey(workspaceId), apiId, day);
    const head = `${String(hour() % 24).padStart(2, '0')}1${keyId.slice(4)}\0`;
    // Tags of the maximum length in characters of four bytes: 2 KB each.
    const tag = (at: number) => `${at}`.padEnd(6, '-') + '\u{1f511}'.repeat(506);
    const write = async (from: number, to: number) => {
      for (let first = from; first < to; first += 500) {
        await own.redis.hset(
          record,
          Object.fromEntries(Array.from({ length: 500 }, (_, at) => [head + tag(first + at), '1'])),
        );
      }
    };
    await write(0, 4500);
    const within = await call('analytics.getVerifications', { groupBy: ['tag'] }, rootKey);
    expect(within.data).toHaveLength(4500);
    await write(4500, 20_000);
    const before = process.memoryUsage().rss;
    const beyond = await call('analytics.getVerifications', { groupBy: ['tag', 'keyId'] }, rootKey);
    expect(beyond).toMatchObject({ status: 400, code: 'invalid_input' });
    expect(beyond.error.detail).toMatch(/more than 10 MB/);
    expect(process.memoryUsage().rss - before).toBeLessThan(150e6);
    // The same counts as one row.
    const summed = await call('analytics.getVerifications', { tag: tag(7) }, rootKey);
    expect(summed.data).toEqual([expect.objectContaining({ count: 1 })]);
  });

  test('a key whose history is longer than a script reads is refused before it is read', async () => {
    const { workspaceId, rootKey } = await createWorkspace();
    const { apiId } = (await call('apis.createApi', { name: 'long history' }, rootKey)).data;
    const { keyId } = (await call('keys.createKey', { apiId }, rootKey)).data;
    // The key changes its identity each time, so its hour is written again each time.
    const record = `${workspaceKey(workspaceId)}:uk:${keyId.slice(4)}`;
    const entry = Buffer.concat([Buffer.from([0, 0, 0, 0, 1, 0, 0, 0, 1, 255]), Buffer.alloc(255, 'e')]);
    entry.writeUInt32BE(hour(), 0);
    await own.redis.set(record, Buffer.concat(Array.from({ length: 15_000 }, () => entry)));
    const query = { keyId, groupBy: ['externalId' as const] };
    expect((await call('analytics.getVerifications', query, rootKey)).data).toMatchObject([{ count: 15_000 }]);
    await own.redis.append(record, Buffer.concat(Array.from({ length: 2000 }, () => entry)));
    const commands = await commandsDuring(async () => {
      const answer = await call('analytics.getVerifications', query, rootKey);
      expect(answer).toMatchObject({ status: 400, code: 'invalid_input' });
    });
    expect(Object.keys(commands)).not.toContain('get');
  });
});
