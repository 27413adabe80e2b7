import { readFileSync } from 'node:fs';
import { beforeEach, describe, expect, test } from 'vitest';
import { workspaceKey } from '../../../src/redis/names.ts';
import { newName } from '../../decide/leases/heldServers.ts';
import { dayMs, harness, hourMs, testSettings } from '../../support/harness.ts';
import { snippets } from '../../support/snippet.ts';

const app = harness();
const { clock, call, ok, createKey, createWorkspace } = app;
const redis = snippets();

const startMs = clock.now;
let externalId = '';
beforeEach(() => {
  clock.now = startMs;
  externalId = newName();
});

async function sweep(steps: readonly ('holds' | 'refill' | 'purge' | 'ended' | 'rollUp')[]) {
  for (const step of steps) while (await app.store.sweep[step](app.workspaceId));
}
const verify = (key: string, more: object = {}) => ok('keys.verifyKey', { key, ...more });
const requests = { name: 'requests', limit: 3, duration: dayMs, autoApply: true };
const create = async (more: object = {}) => (await ok('identities.createIdentity', { externalId, ...more })).identityId;
const remove = (identity: string, permanent = false) => ok('identities.deleteIdentity', { identity, permanent });
const restore = (identityId: string) => ok('identities.restoreIdentity', { identityId });
const deletedOnes = async () =>
  (await ok('identities.listIdentities', { deleted: true, search: externalId })) as object[];

describe('identities.restoreIdentity: 200', () => {
  test.each([true, false])(
    'everything of it is as before: data, counts, credits, usage and keys, which were verified meanwhile: %s',
    async (isVerified) => {
      const until = clock.now + 9 * dayMs;
      const identityId = await create({ meta: { a: 1 }, ratelimits: [requests], credits: { remaining: 9 } });
      await ok('identities.updateIdentity', {
        identity: identityId,
        ratelimit: { name: 'extra', limit: 5, duration: dayMs, autoApply: false, until },
      });
      const { apiId, key } = await createKey({ externalId });
      const { key: second } = await createKey({ apiId, externalId });
      await verify(key, { credits: { cost: 2 } });
      const read = () =>
        Promise.all([
          ok('identities.getIdentity', { identity: externalId }),
          ok('apis.listKeys', { apiId, externalId }),
          ok('ratelimits.listTemporary', { before: until + 1 }),
          ok('analytics.getVerifications', { apiId, groupBy: ['externalId', 'outcome'], granularity: 'total' }),
        ]);
      const before = await read();
      await remove(externalId);
      expect(await deletedOnes()).toEqual([{ ...before[0], restorableUntil: clock.now + testSettings.keyRetentionMs }]);
      expect(await ok('identities.listIdentities', { search: externalId })).toEqual([]);
      expect((await call('identities.getIdentity', { identity: identityId })).status).toBe(404);
      if (isVerified) for (const each of [key, second, key]) expect(await verify(each)).not.toHaveProperty('identity');
      expect(await call('identities.restoreIdentity', { identityId })).toMatchObject({ status: 200, data: {} });
      expect(await deletedOnes()).toEqual([]);
      const after = await read();
      expect(after[0]).toEqual(before[0]);
      const unused = ({ lastUsedAt: _, ...rest }: { lastUsedAt?: number | undefined }) => rest;
      expect(after[1].map(unused)).toEqual(before[1].map(unused));
      expect(after[2]).toEqual(before[2]);
      // What was counted meanwhile is of no identity.
      const meanwhile = isVerified ? [{ count: 3, outcome: 'VALID' }] : [];
      expect(after[3]).toHaveLength(before[3].length + meanwhile.length);
      expect(after[3]).toEqual(
        expect.arrayContaining([...before[3], ...meanwhile.map((row) => expect.objectContaining(row))]),
      );
      expect(await verify(second)).toMatchObject({
        valid: true,
        identity: { id: identityId, externalId, meta: { a: 1 }, credits: 6 },
        ratelimits: [{ name: 'requests', remaining: 1 }],
      });
      await verify(key);
      expect(await verify(second)).toMatchObject({ code: 'RATE_LIMITED' });
    },
  );

  test('holds that were open: what expired meanwhile came back, and late settlements charge it', async () => {
    const identityId = await create({ credits: { remaining: 100 }, ratelimits: [{ ...requests, limit: 100 }] });
    const { key, keyId } = await createKey({ externalId });
    const hold = async (ttl: number) =>
      (await verify(key, { credits: { cost: 10 }, ratelimits: [{ name: 'requests', cost: 10 }], hold: { ttl } })).hold!
        .id;
    const [expires, settled, open, extended] = [
      await hold(60_000),
      await hold(dayMs / 2),
      await hold(dayMs / 2),
      await hold(60_000),
    ];
    const { key: doomed, keyId: doomedId } = await createKey({ externalId });
    await verify(doomed, { credits: { cost: 5 }, hold: { ttl: dayMs / 2 } });
    await remove(identityId);
    await ok('keys.settleHold', { holdId: settled, credits: { cost: 4 }, ratelimits: [{ name: 'requests', cost: 4 }] });
    await ok('keys.extendHold', { holdId: extended, ttl: dayMs / 2 });
    await ok('keys.deleteKey', { keyId: doomedId, permanent: true });
    clock.advance(hourMs);
    await sweep(['holds']);
    await restore(identityId);
    const left = async () => {
      const { identity, ratelimits } = await verify(key, {
        credits: { cost: 0 },
        ratelimits: [{ name: 'requests', cost: 0 }],
      });
      return [identity!.credits, ratelimits![0]!.remaining];
    };
    expect(await left()).toEqual([76, 75]);
    await ok('keys.settleHold', { holdId: expires, credits: { cost: 3 } });
    await ok('keys.releaseHold', { holdId: open });
    await ok('keys.settleHold', {
      holdId: extended,
      credits: { cost: 1 },
      ratelimits: [{ name: 'requests', cost: 1 }],
    });
    expect((await left())[0]).toBe(92);
    expect(await ok('keys.listHolds', { keyId })).toEqual([]);
  });

  test('a refill that was due applies, and a temporary limit that ended gives way', async () => {
    const identityId = await create({
      credits: { remaining: 5, refill: { interval: 'daily', amount: 5 } },
      ratelimits: [requests],
    });
    const until = clock.now + dayMs;
    await ok('identities.updateIdentity', { identity: identityId, ratelimit: { name: 'requests', limit: 50, until } });
    const { key } = await createKey({ externalId });
    await verify(key, { credits: { cost: 5 } });
    await remove(identityId);
    clock.advance(10 * dayMs);
    await sweep(['refill', 'rollUp', 'purge', 'ended']);
    await restore(identityId);
    expect(await ok('identities.getIdentity', { identity: identityId })).toMatchObject({
      credits: { remaining: 5 },
      ratelimits: [{ name: 'requests', limit: 3 }],
    });
  });

  test('keys that were changed meanwhile: what their callers said last counts', async () => {
    const identityId = await create({ ratelimits: [requests] });
    const other = `${externalId}.other`;
    const { apiId } = await createKey({});
    const keyOf = () => createKey({ apiId, externalId });
    const [deleted, back, gone, moved, freed, rotated, kept] = [
      await keyOf(),
      await keyOf(),
      await keyOf(),
      await keyOf(),
      await keyOf(),
      await keyOf(),
      await keyOf(),
    ];
    await ok('keys.deleteKey', { keyId: deleted.keyId });
    for (const { key } of [back, gone, moved]) await verify(key);
    const usage = async () => {
      const rows = await ok('analytics.getVerifications', { externalId, granularity: 'total' });
      return rows.map(({ count }) => count);
    };
    expect(await usage()).toEqual([3]);
    await remove(identityId);
    // Half of them were verified before their change.
    for (const { key } of [back, moved, rotated]) await verify(key);
    await ok('keys.restoreKey', { keyId: deleted.keyId });
    await ok('keys.deleteKey', { keyId: back.keyId });
    await ok('keys.deleteKey', { keyId: gone.keyId, permanent: true });
    await ok('keys.updateKey', { keyId: moved.keyId, externalId: other });
    await ok('keys.updateKey', { keyId: freed.keyId, externalId: other });
    await ok('keys.updateKey', { keyId: freed.keyId, externalId: null });
    const { keyId: successor } = await ok('keys.rerollKey', { keyId: rotated.keyId, expiration: hourMs });
    await restore(identityId);
    await ok('keys.restoreKey', { keyId: back.keyId });

    const linked = [deleted.keyId, back.keyId, rotated.keyId, kept.keyId, successor];
    expect((await ok('apis.listKeys', { apiId, externalId })).map(({ keyId }) => keyId)).toEqual([...linked].sort());
    expect(await ok('identities.getIdentity', { identity: identityId })).toMatchObject({ keyCount: linked.length });
    for (const keyId of linked) expect(await ok('keys.getKey', { keyId })).toMatchObject({ externalId });
    expect(await ok('keys.getKey', { keyId: moved.keyId })).toMatchObject({ externalId: other });
    expect(await ok('keys.getKey', { keyId: freed.keyId })).not.toHaveProperty('externalId');
    expect(await usage()).toEqual([3]);
  });

  test('keys of an API that is deleted as well, restored after it', async () => {
    const identityId = await create({ ratelimits: [requests] });
    const { apiId, key } = await createKey({ externalId });
    await remove(identityId);
    await verify(key);
    await ok('apis.deleteApi', { apiId });
    await restore(identityId);
    await ok('apis.restoreApi', { apiId });
    expect(await verify(key)).toMatchObject({ identity: { id: identityId }, ratelimits: [{ remaining: 2 }] });
  });

  test('keys that are rotated, or linked by their callers, between two steps', async () => {
    const identityId = await create({ ratelimits: [{ ...requests, limit: 1000 }] });
    const { apiId } = await createKey({});
    const keys: { keyId: string; key: string }[] = [];
    while (keys.length < 150) keys.push(await createKey({ apiId, externalId }));
    const [rotated, linked] = [keys[140]!, keys[141]!];
    await remove(identityId);
    for (const { key } of [rotated, linked]) await verify(key);
    const step = readFileSync(new URL('../../../lua/identities/restore.lua', import.meta.url), 'utf8');
    const given = [0, testSettings.usageRetentionMs, '{"isQuiet":true}', clock.now];
    expect(await redis.run(step, workspaceKey(app.workspaceId), [identityId, ...given])).toEqual([['more'], []]);
    const { keyId: successor, key } = await ok('keys.rerollKey', { keyId: rotated.keyId, expiration: hourMs });
    await ok('keys.updateKey', { keyId: linked.keyId, externalId });
    const count = async () => (await ok('identities.getIdentity', { identity: identityId })).keyCount;
    const listed = async () => {
      const found: string[] = [];
      for (let cursor: string | undefined = ''; cursor !== undefined; ) {
        const { data, pagination }: { data: { keyId: string }[]; pagination: { cursor?: string } } = await call(
          'apis.listKeys',
          { apiId, externalId, cursor },
        );
        found.push(...data.map(({ keyId }) => keyId));
        cursor = pagination.cursor;
      }
      return found;
    };
    const expectListed = async (...ids: string[]) => {
      const found = await listed();
      expect([found.length, await count()]).toEqual([ids.length, ids.length]);
      expect(new Set(found)).toEqual(new Set(ids));
    };
    const all = [...keys.map(({ keyId }) => keyId), successor];
    await expectListed(...all);
    await sweep(['purge']);
    await expectListed(...all);
    expect(await verify(key)).toMatchObject({ valid: true, identity: { id: identityId } });
    // What was counted while it was deleted is of no identity.
    const counted = await ok('analytics.getVerifications', { apiId, groupBy: ['externalId'], granularity: 'total' });
    expect(counted.map(({ externalId: of, count: times }) => [of, times])).toEqual(
      expect.arrayContaining([
        [undefined, 2],
        [externalId, 1],
      ]),
    );
    await ok('keys.updateKey', { keyId: linked.keyId, externalId: null });
    await expectListed(...all.filter((keyId) => keyId !== linked.keyId));
  });

  test('350 keys, some of which are verified: in steps, which the sweeper continues', async () => {
    const identityId = await create({ ratelimits: [{ ...requests, limit: 1000 }] });
    const { apiId } = await createKey({});
    const keys: { keyId: string; key: string }[] = [];
    while (keys.length < 350) keys.push(await createKey({ apiId, externalId }));
    const verifySome = async () => {
      for (const [index, { key }] of keys.entries()) if (index % 3 > 0) await verify(key);
    };
    const linked = async () => {
      const found = [];
      for (const { keyId } of keys) found.push('identity' in (await ok('keys.getKey', { keyId })));
      return found;
    };
    // The first step of a server that is killed then.
    const step = readFileSync(new URL('../../../lua/identities/restore.lua', import.meta.url), 'utf8');
    const given = [0, testSettings.usageRetentionMs, '{"isQuiet":true}', clock.now];
    const begin = () => redis.run(step, workspaceKey(app.workspaceId), [identityId, ...given]);

    await remove(identityId);
    await verifySome();
    expect(await begin()).toEqual([['more'], []]);
    expect(await ok('identities.getIdentity', { identity: identityId })).toMatchObject({ keyCount: 350 });
    const half = await linked();
    expect([half.slice(0, 100).includes(false), half.slice(100).includes(false)]).toEqual([false, true]);
    await sweep(['purge']);
    expect(await linked()).not.toContain(false);
    expect(await call('identities.restoreIdentity', { identityId })).toMatchObject({ status: 404 });

    // Its caller repeats the request; another one has deleted it again before the sweeper continued.
    await remove(identityId);
    await verifySome();
    expect(await begin()).toEqual([['more'], []]);
    await restore(identityId);
    expect(await linked()).not.toContain(false);
    await remove(identityId);
    await verifySome();
    expect(await begin()).toEqual([['more'], []]);
    await remove(identityId);
    await sweep(['purge']);
    await verifySome();
    expect(await linked()).not.toContain(true);
    await restore(identityId);
    expect(await linked()).not.toContain(false);
  });

  test('again after another deletion, as long as it is kept; then the sweeper removes all of it', async () => {
    const identityId = await create({ ratelimits: [requests] });
    const { key } = await createKey({ externalId });
    for (let round = 0; round < 2; round++) {
      await remove(identityId);
      await verify(key);
      clock.advance(testSettings.keyRetentionMs - 1);
      await sweep(['purge']);
      await restore(identityId);
      clock.advance(2);
      await sweep(['purge']);
      expect(await verify(key)).toMatchObject({ identity: { id: identityId } });
    }
    await remove(identityId);
    clock.advance(testSettings.keyRetentionMs);
    await sweep(['purge']);
    expect(await call('identities.restoreIdentity', { identityId })).toMatchObject({ status: 404 });
    expect(await deletedOnes()).toEqual([]);
  });

  test('it counts as a record until it is removed, so restoring needs no room', async () => {
    const count = () => app.store.sweep.count(app.workspaceId);
    const identityId = await create();
    const before = await count();
    await remove(identityId);
    expect(await count()).toBe(before);
    await restore(identityId);
    expect(await count()).toBe(before);
    await remove(identityId, true);
    expect(await count()).toBe(before - 1);
  });

  test('an import of it meanwhile makes another one, which has another id', async () => {
    const identityId = await create({ meta: { a: 1 } });
    await remove(identityId);
    const actor = { rootKeyId: 'cli', operation: 'cli.import', requestId: '' };
    const keptId = identityId.slice('id_'.length);
    const [made] = (await app.store.identities.create(
      app.workspaceId,
      [{ externalId: `${externalId}.imported`, ratelimits: [], keptId }],
      actor,
    )) as string[];
    expect(made).not.toBe(identityId);
    await restore(identityId);
    expect(await ok('identities.getIdentity', { identity: identityId })).toMatchObject({ externalId, meta: { a: 1 } });
  });

  test('an import of one that was deleted for good has another id while the list of its keys is kept', async () => {
    const identityId = await create();
    const { apiId } = await createKey({ externalId });
    await createKey({ apiId, externalId });
    await remove(identityId, true);
    const actor = { rootKeyId: 'cli', operation: 'cli.import', requestId: '' };
    const line = { externalId, ratelimits: [], keptId: identityId.slice('id_'.length) };
    const [made] = (await app.store.identities.create(app.workspaceId, [line], actor)) as string[];
    for (let keys = 0; keys < 2; keys++) await createKey({ apiId, externalId });
    expect(await ok('identities.getIdentity', { identity: externalId })).toMatchObject({ id: made, keyCount: 2 });
    const list = `${workspaceKey(app.workspaceId)}:ik:${made!.slice('id_'.length)}`;
    expect([await redis.redis.exists(list), await redis.redis.pttl(list)]).toEqual([1, -1]);
  });

  test('lists of deleted identities are searched, filtered and paged as those of others', async () => {
    const { rootKey } = await createWorkspace();
    const mine = <Name extends 'identities.createIdentity' | 'identities.deleteIdentity' | 'identities.listIdentities'>(
      name: Name,
      input: object,
    ) => call(name, input as never, rootKey);
    for (const [name, remaining] of [
      ['first', 1],
      ['second', 1],
      ['third', 9],
    ] as const)
      await mine('identities.createIdentity', { externalId: name, credits: { remaining } });
    for (const identity of ['second', 'third']) await mine('identities.deleteIdentity', { identity });
    const names = async (more: object) => {
      const { data, pagination } = await mine('identities.listIdentities', { deleted: true, ...more });
      return [data.map((one: { externalId: string }) => one.externalId), pagination.cursor];
    };
    expect((await names({}))[0]).toEqual(['second', 'third']);
    expect((await names({ search: 'THIR' }))[0]).toEqual(['third']);
    expect((await names({ creditsBelow: 5 }))[0]).toEqual(['second']);
    const [found, cursor] = await names({ limit: 1 });
    expect(found).toEqual(['second']);
    expect((await names({ limit: 1, cursor }))[0]).toEqual(['third']);
    expect(await mine('identities.listIdentities', { limit: 1, cursor })).toMatchObject({ status: 400 });
  });
});

test('identities.restoreIdentity: 409 with the other identity that has its externalId since', async () => {
  const identityId = await create({ meta: { a: 1 } });
  await remove(identityId);
  const { key } = await createKey({ externalId });
  const { id: other } = await ok('identities.getIdentity', { identity: externalId });
  const refused = await call('identities.restoreIdentity', { identityId });
  expect(refused).toMatchObject({ status: 409, code: 'identity_already_exists' });
  expect(refused.error.detail).toContain(other);
  expect(refused.error.detail).toContain(externalId);
  // Both can be restored, one after the other.
  await remove(other);
  expect((await deletedOnes()).length).toBe(2);
  await restore(identityId);
  expect(await ok('identities.getIdentity', { identity: externalId })).toMatchObject({
    id: identityId,
    meta: { a: 1 },
  });
  await remove(identityId);
  await restore(other);
  expect(await verify(key)).toMatchObject({ identity: { id: other } });
});

test('identities.restoreIdentity: 404 for one that is unknown, not deleted, deleted for good, or elsewhere', async () => {
  const identityId = await create();
  const notFound = { status: 404, code: 'identity_not_found' };
  for (const unknown of ['id_unknown', identityId])
    expect(await call('identities.restoreIdentity', { identityId: unknown })).toMatchObject(notFound);
  await remove(identityId);
  const { rootKey } = await createWorkspace();
  expect(await call('identities.restoreIdentity', { identityId }, rootKey)).toMatchObject(notFound);
  await restore(identityId);
  await remove(identityId, true);
  expect(await call('identities.restoreIdentity', { identityId })).toMatchObject(notFound);
});

describe('KEY_RETENTION_DAYS=0', () => {
  const atOnce = harness(undefined, { keyRetentionMs: 0 });

  test('what is deleted cannot be restored, is in no list, and the sweeper removes its records', async () => {
    const { apiId, keyId } = await atOnce.createKey({ externalId });
    const { keyId: second } = await atOnce.ok('keys.createKey', { apiId });
    const { id: identityId } = await atOnce.ok('identities.getIdentity', { identity: externalId });
    const count = () => atOnce.store.sweep.count(atOnce.workspaceId);
    const before = await count();
    await atOnce.ok('keys.deleteKey', { keyId });
    await atOnce.ok('identities.deleteIdentity', { identity: identityId });
    expect(await count()).toBe(before - 2);
    await atOnce.ok('apis.deleteApi', { apiId });
    expect((await atOnce.call('keys.restoreKey', { keyId })).status).toBe(404);
    expect((await atOnce.call('keys.restoreKey', { keyId: second })).status).toBe(404);
    expect((await atOnce.call('identities.restoreIdentity', { identityId })).status).toBe(404);
    expect((await atOnce.call('apis.restoreApi', { apiId })).status).toBe(404);
    expect(await atOnce.ok('identities.listIdentities', { deleted: true })).toEqual([]);
    expect(await atOnce.ok('apis.listApis', { deleted: true })).toEqual([]);
    while (await atOnce.store.sweep.purge(atOnce.workspaceId));
    expect(await count()).toBe(before - 4);
  });
});
