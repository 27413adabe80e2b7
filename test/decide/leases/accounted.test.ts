// Usage is what was answered: also of keys that are deleted, and in the hour, the day and the month of the decision,
// whenever it is settled.

import { describe, expect, test } from 'vitest';
import { dayMs, hourMs, type InputOf } from '../../support/harness.ts';
import { testRedisUrl } from '../../support/redisUrl.ts';
import { heldServers, newName } from './heldServers.ts';
import { redisProxy } from './proxy.ts';

const proxy = redisProxy();
// The holder is behind the proxy.
const held = heldServers(2, {}, { url: (number) => (number === 1 ? proxy.url() : testRedisUrl()) });
const [other, holder] = held.servers as [typeof held.first, typeof held.first];
const { ok } = other;
const { createKey, clock } = held;

/** Verifications by hour of the period. */
async function hoursOf(filter: InputOf<'analytics.getVerifications'>) {
  const period = { start: clock.now - 3 * hourMs, end: clock.now + hourMs, granularity: 'hour' as const };
  const rows = await ok('analytics.getVerifications', { ...period, ...filter });
  return new Map(rows.map(({ time, count, spentCredits }) => [time, { count, spentCredits }]));
}

describe('a key that was deleted', () => {
  const deletions: [string, (key: { keyId: string; apiId: string }) => Promise<unknown>][] = [
    ['for good', ({ keyId }) => ok('keys.deleteKey', { keyId, permanent: true })],
    ['with a time to restore it', ({ keyId }) => ok('keys.deleteKey', { keyId })],
    ['with others', ({ keyId }) => ok('keys.changeKeys', { keyIds: [keyId], change: { deleted: true } })],
  ];
  test.each(deletions)('%s: all its decisions are counted', async (_how, remove) => {
    const externalId = newName();
    await ok('identities.createIdentity', { externalId });
    const { key, keyId, apiId } = await createKey({ externalId, credits: { remaining: 1000 } });
    for (let time = 0; time < 100; time++) {
      expect((await holder.ok('keys.verifyKey', { key, tags: ['t'] })).valid).toBe(true);
    }
    expect(holder.counts.decided).toBeGreaterThan(50);
    // Its settlement arrives when the key is gone.
    proxy.delays = true;
    await remove({ keyId, apiId });
    proxy.release();
    await holder.recall();
    const hour = clock.now - (clock.now % hourMs);
    const all = new Map([[hour, { count: 100, spentCredits: 100 }]]);
    expect({
      key: await hoursOf({ apiId, keyId }),
      api: await hoursOf({ apiId }),
      tag: await hoursOf({ apiId, tag: 't' }),
      identity: await hoursOf({ apiId, externalId }),
    }).toEqual({ key: all, api: all, tag: all, identity: all });
  });
});

test.each([1, 3])('requests with different tags share a lease, and each is counted, at cost %i', async (cost) => {
  const { key, keyId, apiId } = await createKey({ credits: { remaining: 2000 } });
  const lists = [['a'], ['b', 'é "\n'], undefined, ['a', 'b'], []];
  const before = holder.counts.decided;
  for (let number = 0; number < 500; number++) {
    const data = await holder.ok('keys.verifyKey', { key, tags: lists[number % 5], credits: { cost } });
    expect(data.credits).toBe(2000 - cost * (number + 1));
  }
  expect(holder.counts.decided - before).toBeGreaterThan(400);
  await holder.recall();
  const hour = clock.now - (clock.now % hourMs);
  const counted = (count: number) => new Map([[hour, { count, spentCredits: cost * count }]]);
  const tags = { a: 200, b: 200, 'é "\n': 100 };
  for (const [tag, count] of Object.entries(tags)) expect(await hoursOf({ apiId, tag }), tag).toEqual(counted(count));
  expect(await hoursOf({ keyId })).toEqual(counted(500));
  expect((await ok('keys.getKey', { keyId })).credits?.remaining).toBe(2000 - cost * 500);
});

describe('the hour of a decision', () => {
  const endOf = (ms: number) => (Math.floor(clock.now / ms) + 1) * ms;
  const month = () => Date.UTC(new Date(clock.now).getUTCFullYear(), new Date(clock.now).getUTCMonth() + 1);
  const edges: [string, () => number][] = [
    ['hour', () => endOf(hourMs)],
    ['day', () => endOf(dayMs)],
    ['month', month],
  ];

  test.each(edges)('is that of its time, by leases that are out at the end of the %s', async (_what, edge) => {
    const end = edge();
    clock.set(end - 40);
    const { key, keyId, apiId } = await createKey({ credits: { remaining: 10_000 } });
    const off = await createKey({ enabled: false });
    const check = { namespace: newName(), identifier: 'one', limit: 10_000, duration: hourMs };
    for (let time = 0; time < 80; time++) {
      clock.advance(1);
      expect((await holder.ok('keys.verifyKey', { key: off.key })).code).toBe('DISABLED');
      expect((await holder.ok('keys.verifyKey', { key, tags: ['t'] })).valid).toBe(true);
      expect((await holder.ok('ratelimits.limit', check)).success).toBe(true);
    }
    expect(holder.counts.decided).toBeGreaterThan(60);
    await holder.recall();
    // The first 39 are before the end.
    const hoursWith = (before: number, after: number) =>
      new Map([
        [end - hourMs, { count: 39, spentCredits: before }],
        [end, { count: 41, spentCredits: after }],
      ]);
    const hours = hoursWith(39, 41);
    expect(await hoursOf({ keyId: off.keyId })).toEqual(hoursWith(0, 0));
    expect({
      key: await hoursOf({ keyId }),
      api: await hoursOf({ apiId }),
      tag: await hoursOf({ apiId, tag: 't' }),
    }).toEqual({ key: hours, api: hours, tag: hours });
    const period = { start: clock.now - 2 * hourMs, end: clock.now + hourMs, granularity: 'hour' as const };
    expect(await ok('analytics.getRatelimits', { ...period, namespace: check.namespace })).toMatchObject([
      { time: end - hourMs, passed: 39 },
      { time: end, passed: 41 },
    ]);
  });

  test('is that of its time, also when it is settled much later', async () => {
    const end = endOf(hourMs);
    clock.set(end - 40);
    const { key, keyId, apiId } = await createKey({ credits: { remaining: 10_000 } });
    for (let time = 0; time < 50; time++) await holder.ok('keys.verifyKey', { key, tags: ['t'] });
    const usedAt = clock.now;
    proxy.delays = true;
    // Its leases end, and their settlement waits.
    const recalled = holder.recall();
    clock.advance(4000);
    proxy.release();
    await recalled;
    const hours = new Map([[end - hourMs, { count: 50, spentCredits: 50 }]]);
    expect({ key: await hoursOf({ keyId }), tag: await hoursOf({ apiId, tag: 't' }) }).toEqual({
      key: hours,
      tag: hours,
    });
    expect((await ok('keys.getKey', { keyId })).lastUsedAt).toBe(usedAt);
  });

  test('is that of its time, when the settlement was lost and is sent again later', async () => {
    const end = endOf(hourMs);
    clock.set(end - 40);
    const { key, keyId } = await createKey({ credits: { remaining: 10_000 } });
    for (let time = 0; time < 50; time++) await holder.ok('keys.verifyKey', { key });
    const usedAt = clock.now;
    proxy.delays = true;
    const recalled = holder.recall().catch(() => {});
    await expect.poll(() => proxy.delayed.length).toBeGreaterThan(0);
    proxy.delayed.length = 0;
    proxy.delays = false;
    proxy.disconnect();
    await recalled;
    clock.advance(4000);
    await expect
      .poll(
        () =>
          holder.recall().then(
            () => 'settled',
            () => 'lost',
          ),
        { timeout: 10_000 },
      )
      .toBe('settled');
    expect(await hoursOf({ keyId })).toEqual(new Map([[end - hourMs, { count: 50, spentCredits: 50 }]]));
    expect((await ok('keys.getKey', { keyId })).lastUsedAt).toBe(usedAt);
  });
});
