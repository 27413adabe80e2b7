import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { dayMs, harness, type InputOf } from '../../support/harness.ts';
import { random, seed } from '../../support/random.ts';
import { volumeTest } from '../../support/testIf.ts';

const tollgate = harness();
const { call, clock, createWorkspace, openWorkspace } = tollgate;

const choose = random(seed);

type Filters = Omit<InputOf<'keys.getAttention'>, 'apiId' | 'limit'>;

/**
 * A workspace with APIs of so many keys, of which some expire, some have few credits, and some are used after they were
 * rerolled.
 */
async function withKeys(counts: readonly number[]) {
  const { rootKey, of } = await openWorkspace();
  const apis: string[] = [];
  for (const [index, count] of counts.entries()) {
    const { apiId } = (await call('apis.createApi', { name: `api ${index}` }, rootKey)).data;
    apis.push(apiId);
    const keys = Array.from({ length: count }, (_, number) => ({
      hash: createHash('sha256').update(`${apiId} ${number}`).digest('base64'),
      name: `key ${index} ${number}`,
      ...(choose(1, 20) === 1 && { expires: clock.now + choose(1, 60 * dayMs) }),
      ...(choose(1, 20) === 1 && { credits: { remaining: choose(0, 200) } }),
    }));
    for (let from = 0; from < count; from += 100) {
      await of('keys.migrateKeys', { migrationId: 'unkey', apiId, keys: keys.slice(from, from + 100) });
      clock.advance(1);
    }
    // Some are used after they were rerolled.
    for (let left = 15; left > 0 && count > 0; left--) {
      const { key, keyId } = await of('keys.createKey', { apiId });
      await of('keys.rerollKey', { keyId, expiration: dayMs });
      clock.advance(1);
      await of('keys.verifyKey', { key });
    }
  }
  return { rootKey, apis };
}

describe('keys.getAttention', () => {
  test(`lists for each filter what keys.listKeys lists for it alone (seed ${seed})`, { timeout: 30_000 }, async () => {
    const { rootKey, apis } = await withKeys([620, 0, 70, 310]);
    const between = clock.now - 2;
    const filters: Filters = {
      expiresBefore: clock.now + 30 * dayMs,
      creditsBelow: 100,
      unusedSince: between,
      rerolledInUse: true,
    };
    for (const apiId of [undefined, apis[0]!, apis[1]!]) {
      for (const limit of [1, 7, 100]) {
        const given = { ...(apiId && { apiId }), limit };
        const { data } = await call('keys.getAttention', { ...given, ...filters }, rootKey);
        expect(Object.keys(data).sort()).toEqual(Object.keys(filters).sort());
        const expiries = data.expiresBefore!.keys.map(({ expires }) => expires!);
        expect(expiries).toEqual(expiries.toSorted((one, other) => one - other));
        const ids = data.creditsBelow!.keys.map(({ keyId }) => keyId);
        expect(ids).toEqual(ids.toSorted());
        for (const [name, value] of Object.entries(filters)) {
          const part = data[name as keyof Filters]!;
          const alone = await call('keys.listKeys', { ...given, [name]: value }, rootKey);
          expect(part.keys, name).toEqual(alone.data);
          expect({ ...part, keys: undefined }, name).toEqual({ ...alone.pagination, keys: undefined });
          const { cursor } = part;
          if (!cursor) continue;
          const [next, nextAlone] = await Promise.all(
            [cursor, alone.pagination.cursor].map((cursor) =>
              call('keys.listKeys', { ...given, [name]: value, cursor }, rootKey),
            ),
          );
          expect(next!.status).toBe(200);
          expect(next!.data, name).toEqual(nextAlone!.data);
        }
      }
    }
  });

  test('lists only what was asked for, and nothing in an empty workspace', async () => {
    const { rootKey } = await createWorkspace();
    const empty = { keys: [], hasMore: false, looked: 0, total: 0 };
    expect((await call('keys.getAttention', { creditsBelow: 1 }, rootKey)).data).toEqual({ creditsBelow: empty });
  });

  volumeTest('all lists together have at most some megabytes of metadata', async () => {
    const { rootKey } = await createWorkspace();
    const { apiId } = (await call('apis.createApi', { name: 'large' }, rootKey)).data;
    const meta = { text: 'x'.repeat(9000) };
    await call('identities.createIdentity', { externalId: 'ada', meta }, rootKey);
    for (let index = 0; index < 150; index++) {
      const key = { apiId, meta, externalId: 'ada', expires: clock.now + dayMs, credits: { remaining: 1 } };
      expect((await call('keys.createKey', key, rootKey)).status).toBe(200);
    }
    clock.advance(1);
    const filters = { expiresBefore: clock.now + 2 * dayMs, creditsBelow: 2, unusedSince: clock.now };
    const { data } = await call('keys.getAttention', { limit: 100, ...filters }, rootKey);
    const parts = Object.values(data);
    const bytes = JSON.stringify(data).length;
    expect(bytes).toBeGreaterThan(4 * 1024 * 1024);
    // And what one more script returns.
    expect(bytes).toBeLessThan(5.4e6);
    expect(parts.map(({ hasMore }) => hasMore)).toEqual([true, true, true]);
  });

  test('400 without a filter, and for wrong ones', async () => {
    for (const [field, input] of Object.entries({
      body: {},
      'body.limit': { creditsBelow: 1, limit: 101 },
      'body.expiresBefore': { expiresBefore: -1 },
      'body.unusedSince': { unusedSince: 4_102_444_800_001 },
      'body.creditsBelow': { creditsBelow: 0.5 },
      'body.rerolledInUse': { rerolledInUse: 'yes' },
      'body.apiId': { creditsBelow: 1, apiId: '*' },
    })) {
      const { status, error } = await call('keys.getAttention', input as never);
      expect([status, ...new Set(error.errors.map(({ location }) => location))], field).toEqual([400, field]);
    }
  });

  test('404 for an unknown API, 403 for all APIs with grants for one', async () => {
    const { apiId } = (await call('apis.createApi', { name: 'granted' })).data;
    const unknown = await call('keys.getAttention', { creditsBelow: 1, apiId: 'api_unknown' });
    expect(unknown).toMatchObject({ status: 404, code: 'api_not_found' });
    const grants = [`api.${apiId}.read_api`, `api.${apiId}.read_key`];
    expect((await call('keys.getAttention', { creditsBelow: 1 }, grants)).status).toBe(403);
    expect((await call('keys.getAttention', { creditsBelow: 1, apiId }, grants)).status).toBe(200);
  });
});
