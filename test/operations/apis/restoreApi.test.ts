import { beforeEach, describe, expect, test } from 'vitest';
import { digestOf } from '../../../src/domain/keyString.ts';
import { dayMs, harness, hourMs, testSettings } from '../../support/harness.ts';

const app = harness();
const { clock, call, ok, createKey, createWorkspace } = app;

const startMs = clock.now;
beforeEach(() => {
  clock.now = startMs;
});

async function sweep(steps: readonly ('holds' | 'refill' | 'purge' | 'ended' | 'rollUp')[]) {
  for (const step of steps) while (await app.store.sweep[step](app.workspaceId));
}
const deletedApis = () => ok('apis.listApis', { deleted: true });
const verify = (key: string, more: object = {}) => ok('keys.verifyKey', { key, ...more });

describe('apis.restoreApi: 200', () => {
  test('everything of its keys is as before: fields, counts, credits, usage, lists and deleted keys', async () => {
    const whole = {
      externalId: 'back',
      prefix: 'back',
      meta: { a: 1 },
      expires: clock.now + 9 * dayMs,
      credits: { remaining: 9 },
      ratelimits: [{ name: 'requests', limit: 3, duration: dayMs, autoApply: true }],
    };
    const { apiId, keyId, key } = await createKey(whole);
    const { apiId: other } = await ok('apis.createApi', { name: 'another' });
    const { keyId: deleted, key: deletedKey } = await ok('keys.createKey', { apiId });
    await ok('keys.deleteKey', { keyId: deleted });
    await verify(key, { tags: ['plan=pro'] });
    await verify(key);
    const read = () =>
      Promise.all([
        ok('keys.getKey', { keyId }),
        ok('apis.getApi', { apiId }),
        ok('apis.listKeys', { apiId, externalId: 'back' }),
        ok('keys.listKeys', { apiId, expiresBefore: clock.now + 10 * dayMs }),
        ok('keys.listKeys', { start: 'back_' }),
        ok('keys.listKeys', { apiId, deleted: true }),
        ok('analytics.getVerifications', { apiId, groupBy: ['keyId', 'externalId', 'outcome'], granularity: 'total' }),
        ok('analytics.getVerifications', { apiId, groupBy: ['tag'], granularity: 'total' }),
      ]);
    const before = await read();
    await ok('apis.deleteApi', { apiId });
    expect(await verify(key)).toEqual({ valid: false, code: 'NOT_FOUND' });
    expect(await ok('keys.listKeys', { start: 'back_' })).toEqual([]);
    expect((await ok('apis.listApis', {})).map(({ id }) => id)).toEqual(expect.arrayContaining([other]));
    expect((await ok('apis.listApis', {})).map(({ id }) => id)).not.toContain(apiId);
    expect(await deletedApis()).toEqual([{ ...before[1], restorableUntil: clock.now + testSettings.keyRetentionMs }]);

    expect(await call('apis.restoreApi', { apiId })).toMatchObject({ status: 200, data: {} });
    expect(await read()).toEqual(before);
    expect(await deletedApis()).toEqual([]);
    expect(await verify(key)).toMatchObject({ valid: true, credits: 6, identity: { externalId: 'back' } });
    expect(await verify(key)).toMatchObject({ code: 'RATE_LIMITED' });
    await ok('keys.restoreKey', { keyId: deleted });
    expect(await verify(deletedKey)).toMatchObject({ valid: true });
  });

  test('holds that were open: what expired meanwhile came back, the others are settled as usual', async () => {
    await ok('identities.createIdentity', { externalId: 'holder', credits: { remaining: 100 } });
    const ratelimits = [{ name: 'tokens', limit: 100, duration: dayMs, autoApply: true }];
    const { apiId, key } = await createKey({ externalId: 'holder', credits: { remaining: 100 }, ratelimits });
    const hold = async (ttl: number) => {
      const { hold: held } = await verify(key, { credits: { cost: 10 }, hold: { ttl } });
      return held!.id;
    };
    await hold(60_000);
    const longer = await hold(dayMs / 2);
    await ok('apis.deleteApi', { apiId });
    expect((await call('keys.settleHold', { holdId: longer, credits: { cost: 1 } })).status).toBe(404);
    clock.advance(hourMs);
    await sweep(['holds']);
    await ok('apis.restoreApi', { apiId });
    expect(await verify(key, { credits: { cost: 0 } })).toMatchObject({ credits: 90, identity: { credits: 90 } });
    await ok('keys.settleHold', { holdId: longer, credits: { cost: 4 } });
    expect(await verify(key, { credits: { cost: 0 } })).toMatchObject({ credits: 96, identity: { credits: 96 } });
  });

  test('usage of a day that ended meanwhile is rolled up, and a refill that was due applies', async () => {
    const { apiId, keyId, key } = await createKey({
      externalId: 'rolled',
      credits: { remaining: 5, refill: { interval: 'daily', amount: 5 } },
    });
    await verify(key);
    clock.advance(hourMs);
    await verify(key);
    const usage = () =>
      ok('analytics.getVerifications', {
        ...{ apiId, groupBy: ['keyId', 'externalId'], granularity: 'day' },
        ...{ start: startMs - dayMs, end: startMs + 20 * dayMs },
      });
    const before = await usage();
    expect(before.map(({ count }) => count)).toEqual([2]);
    await ok('apis.deleteApi', { apiId });
    clock.advance(10 * dayMs);
    await sweep(['refill', 'rollUp', 'purge']);
    await ok('apis.restoreApi', { apiId });
    expect(await usage()).toEqual(before);
    expect(await ok('keys.getKey', { keyId })).toMatchObject({ credits: { remaining: 5 } });
  });

  test('again after another deletion, as long as it is kept; then the sweeper removes all of it', async () => {
    const { apiId, key } = await createKey();
    for (let round = 0; round < 2; round++) {
      await ok('apis.deleteApi', { apiId });
      clock.advance(testSettings.keyRetentionMs - 1);
      await sweep(['purge']);
      await ok('apis.restoreApi', { apiId });
      clock.advance(2);
      await sweep(['purge']);
      expect(await verify(key)).toMatchObject({ valid: true });
    }
    await ok('apis.deleteApi', { apiId });
    clock.advance(testSettings.keyRetentionMs);
    await sweep(['purge']);
    expect(await call('apis.restoreApi', { apiId })).toMatchObject({ status: 404, code: 'api_not_found' });
    expect(await deletedApis()).toEqual([]);
  });

  test('it counts as a record until it is removed, so restoring needs no room', async () => {
    const count = () => app.store.sweep.count(app.workspaceId);
    const { apiId } = await createKey();
    const before = await count();
    await ok('apis.deleteApi', { apiId });
    expect(await count()).toBe(before);
    await ok('apis.restoreApi', { apiId });
    expect(await count()).toBe(before);
    await ok('apis.deleteApi', { apiId, permanent: true });
    await sweep(['purge']);
    expect(await count()).toBe(before - 2);
  });

  test('an import cannot use its id meanwhile', async () => {
    const { apiId } = await createKey();
    await ok('apis.deleteApi', { apiId });
    const actor = { rootKeyId: 'cli', operation: 'cli.import', requestId: '' };
    expect(await app.store.apis.createAgain(app.workspaceId, { apiId, name: 'again' }, actor)).toBe(false);
    await ok('apis.restoreApi', { apiId });
  });

  test('an import of one that was deleted for good creates its keys, those that were deleted before, too', async () => {
    const { apiId, keyId, key } = await createKey();
    await ok('keys.deleteKey', { keyId });
    await ok('apis.deleteApi', { apiId, permanent: true });
    await sweep(['purge']);
    const actor = { rootKeyId: 'cli', operation: 'cli.import', requestId: '' };
    expect(await app.store.apis.createAgain(app.workspaceId, { apiId, name: 'again' }, actor)).toBe(true);
    const keys = [{ digest: digestOf(key), start: '', keptId: keyId }];
    const made = await app.store.keys.create(app.workspaceId, { apiId, keys, mayCreatePermissions: false }, actor);
    expect(made).toMatchObject({ created: [keyId] });
    expect(await verify(key)).toMatchObject({ valid: true });
  });

  test('lists of deleted APIs are searched, ordered and paged as those of others', async () => {
    const workspace = await createWorkspace();
    const mine = <Name extends 'apis.createApi' | 'apis.deleteApi' | 'apis.listApis'>(name: Name, input: object) =>
      call(name, input as never, workspace.rootKey);
    const ids: string[] = [];
    for (const name of ['first', 'second', 'third']) ids.push((await mine('apis.createApi', { name })).data.apiId);
    for (const apiId of ids.slice(1)) await mine('apis.deleteApi', { apiId });
    const names = async (more: object) => {
      const { data, pagination } = await mine('apis.listApis', { deleted: true, ...more });
      return [data.map(({ name }: { name: string }) => name), pagination.cursor];
    };
    expect((await names({ order: 'desc' }))[0]).toEqual(['third', 'second']);
    expect((await names({ search: 'THIR' }))[0]).toEqual(['third']);
    const [first, cursor] = await names({ limit: 1 });
    expect(first).toEqual(['second']);
    expect((await names({ limit: 1, cursor }))[0]).toEqual(['third']);
    expect(await mine('apis.listApis', { limit: 1, cursor })).toMatchObject({ status: 400 });
  });
});

test('apis.restoreApi: 404 for an API that is unknown, not deleted, deleted for good, or of another workspace', async () => {
  const { apiId } = await createKey();
  const notFound = { status: 404, code: 'api_not_found' };
  expect(await call('apis.restoreApi', { apiId: 'api_unknown' })).toMatchObject(notFound);
  expect(await call('apis.restoreApi', { apiId })).toMatchObject(notFound);
  await ok('apis.deleteApi', { apiId });
  const { rootKey } = await createWorkspace();
  expect(await call('apis.restoreApi', { apiId }, rootKey)).toMatchObject(notFound);
  await ok('apis.restoreApi', { apiId });
  await ok('apis.deleteApi', { apiId, permanent: true });
  expect(await call('apis.restoreApi', { apiId })).toMatchObject(notFound);
});
