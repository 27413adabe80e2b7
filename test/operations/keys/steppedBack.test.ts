// Holds that are open while Redis's clock steps back: what they give back later is never what
// others charged when the clock reached the same slice again.

import { describe, expect, test } from 'vitest';
import { dayMs, harness, hourMs } from '../../support/harness.ts';

const plain = harness();
const { clock, ok } = plain;
const duration = 60_000;
const slice = Math.floor(duration / 64);
const stepMs = 10_000;

const limited = { name: 'units', limit: 100, duration, autoApply: true };
const owners: Record<string, () => Promise<{ key: string; other: string; asked?: object }>> = {
  async 'a key'() {
    const { key } = await plain.createKey({ ratelimits: [limited] });
    return { key, other: key };
  },
  async 'an identity, whose windows a request of another key moves'() {
    const externalId = `customer${clock.now}`;
    await ok('identities.createIdentity', { externalId, ratelimits: [limited] });
    const [{ key }, { key: other }] = await Promise.all([
      plain.createKey({ externalId }),
      plain.createKey({ externalId }),
    ]);
    return { key, other };
  },
  async 'an ad hoc limit'() {
    const { key } = await plain.createKey({});
    return { key, other: key, asked: { limit: 100, duration } };
  },
};

/** Ends of the hold, when the clock has reached the slice in which it was made again. */
const ends: Record<string, (holdId: string) => Promise<unknown>> = {
  released: (holdId) => ok('keys.releaseHold', { holdId }),
  'settled for less': (holdId) => ok('keys.settleHold', { holdId, ratelimits: [{ name: 'units', cost: 10 }] }),
  'settled for more': (holdId) => ok('keys.settleHold', { holdId, ratelimits: [{ name: 'units', cost: 60 }] }),
};

describe.each(Object.keys(owners))('a hold of %s that was open while the clock stepped back', (name) => {
  test.each(Object.keys(ends))('%s: never more than the limit in any duration', async (end) => {
    const { key, other, asked } = await owners[name]!();
    const verify = async (from: string, cost: number, more = {}) =>
      ok('keys.verifyKey', { key: from, ratelimits: [{ name: 'units', cost, ...asked }], ...more });
    clock.now = (Math.floor(clock.now / slice) + 100) * slice;
    const madeAt = clock.now;
    const held = await verify(key, 50, { hold: { ttl: 3_600_000 } });

    clock.now = madeAt - stepMs;
    expect(await verify(other, 1)).toMatchObject({ valid: true });
    clock.now = madeAt + 100;
    expect(await verify(other, 40)).toMatchObject({ valid: true });
    await ends[end]!(held.hold!.id);

    // What was moved leaves at this time, and what was charged now counts on.
    let admitted = 40;
    for (const at of [madeAt + 200, madeAt - stepMs + slice + duration + 1]) {
      clock.now = at;
      while ((await verify(other, 1)).valid) admitted++;
    }
    expect(admitted).toBeLessThanOrEqual(100);
    // And then they are there again.
    clock.now += 2 * duration;
    expect((await verify(other, 100)).valid).toBe(true);
  });

  test('later holds give back as before', async () => {
    const { key, other, asked } = await owners[name]!();
    const verify = async (from: string, cost: number, more = {}) =>
      ok('keys.verifyKey', { key: from, ratelimits: [{ name: 'units', cost, ...asked }], ...more });
    clock.now = (Math.floor(clock.now / slice) + 100) * slice;
    const madeAt = clock.now;
    expect(await verify(other, 1)).toMatchObject({ valid: true });
    clock.now = madeAt - stepMs;
    expect(await verify(other, 1)).toMatchObject({ valid: true });
    clock.now = madeAt + 2 * slice;
    const held = await verify(key, 98, { hold: { ttl: 3_600_000 } });
    await ends.released!(held.hold!.id);
    expect(await verify(other, 98)).toMatchObject({ valid: true });
  });
});

test('an export has what such a hold holds: it gives nothing back of what others charged', async () => {
  const { apiId } = await ok('apis.createApi', { name: 'exported' });
  const daily = { ...limited, duration: 2 * dayMs };
  const { key } = await ok('keys.createKey', { apiId, ratelimits: [daily] });
  const verify = async (cost: number, more = {}) =>
    ok('keys.verifyKey', { key, ratelimits: [{ name: 'units', cost }], ...more });
  const slice = daily.duration / 64;
  clock.now = (Math.floor(clock.now / slice) + 100) * slice;
  const madeAt = clock.now;
  await verify(50, { hold: { ttl: dayMs } });
  clock.now = madeAt - 3 * hourMs;
  await verify(1);
  clock.now = madeAt + 100;
  await verify(40);
  const page = await plain.store.keys.export(plain.workspaceId, { apiId, count: 1 });
  const [[, used] = []] = [...page!.items[0]!.used];
  expect(used!.map(([, units]) => units)).toEqual([51, 40]);
});
