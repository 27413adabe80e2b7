// Messages between a server with leases and Redis get lost, or arrive late: nothing is counted, charged or given back
// twice. A proxy is between the server and Redis.

import { expect, test, vi } from 'vitest';
import { hourMs } from '../../support/harness.ts';
import { heldServers, newName } from './heldServers.ts';
import { redisProxy } from './proxy.ts';

const proxy = redisProxy();
const held = heldServers(1, {}, { url: proxy.url });
const { first, clock, createKey, untilGranted } = held;
const { call, ok, counts } = first;

const limit = { name: 'requests', limit: 1000, duration: hourMs, autoApply: true };
const period = () => ({ start: clock.now - hourMs, end: clock.now + hourMs });

/** Until everything is settled, on a connection that works. */
const settled = () => vi.waitFor(() => first.recall(), { timeout: 10_000, interval: 10 });

test('a settlement whose answer is lost is sent again, and counted once', async () => {
  const { key, keyId, apiId } = await createKey({ credits: { remaining: 1000 }, ratelimits: [limit] });
  const check = { namespace: newName(), identifier: 'one', limit: 1000, duration: hourMs };
  for (let times = 0; times < 20; times++) {
    expect((await ok('keys.verifyKey', { key })).valid).toBe(true);
    expect((await ok('ratelimits.limit', check)).success).toBe(true);
  }
  expect(counts.granted.filter((units) => units > 0).length).toBeGreaterThan(1);
  expect(counts.decided).toBeGreaterThan(10);

  proxy.losesAnswers = true;
  await first.recall().catch(() => {});
  expect(proxy.lost).toBeGreaterThan(0);
  proxy.losesAnswers = false;
  await settled();

  for (const by of [{ keyId }, { apiId }]) {
    const rows = await ok('analytics.getVerifications', { ...period(), ...by });
    expect(rows.map(({ outcome, count, spentCredits }) => ({ outcome, count, spentCredits }))).toEqual([
      { outcome: 'VALID', count: 20, spentCredits: 20 },
    ]);
  }
  expect(await ok('analytics.getRatelimits', { ...period(), namespace: check.namespace })).toMatchObject([
    { passed: 20, blocked: 0 },
  ]);
  expect((await ok('keys.getKey', { keyId })).credits).toEqual({ remaining: 980 });
  const { ratelimits } = await ok('keys.verifyKey', {
    key,
    credits: { cost: 0 },
    ratelimits: [{ name: 'requests', cost: 0 }],
  });
  expect(ratelimits).toMatchObject([{ remaining: 980 }]);
  expect((await ok('ratelimits.limit', { ...check, cost: 0 })).remaining).toBe(980);
});

/** How to charge a unit of 1000, and how many are left. */
const kinds = {
  async 'a verification'() {
    const { key } = await createKey({ ratelimits: [limit] });
    return {
      async request() {
        const { status, data } = await call('keys.verifyKey', { key });
        return status === 200 && data.valid;
      },
      async left() {
        const { ratelimits } = await ok('keys.verifyKey', { key, ratelimits: [{ name: 'requests', cost: 0 }] });
        return ratelimits![0]!.remaining;
      },
    };
  },
  async 'a limit check'() {
    const check = { namespace: newName(), identifier: 'one', limit: 1000, duration: hourMs };
    return {
      async request() {
        const { status, data } = await call('ratelimits.limit', check);
        return status === 200 && data.success;
      },
      left: async () => (await ok('ratelimits.limit', { ...check, cost: 0 })).remaining,
    };
  },
};

test.each(Object.entries(kinds))(
  '%s that asked for a lease and arrives after others is granted none',
  async (_kind, make) => {
    const { request, left } = await make();
    let charged = 0;
    // Until the next request asks for a lease: no lease is left, and it was decided often.
    charged += await untilGranted(first, request);
    await first.recall();
    proxy.delays = true;
    const asking = request();
    await vi.waitFor(() => expect(proxy.delayed.length).toBeGreaterThan(0), { timeout: 10_000, interval: 1 });
    const late = proxy.delayed.splice(0);
    proxy.delays = false;
    proxy.disconnect();
    expect(await asking).toBe(false);

    await settled();
    charged += await untilGranted(first, request);
    await settled();
    expect(await left()).toBe(1000 - charged);
    for (const send of late) send();
    // It is decided, and charged as such.
    await vi.waitFor(async () => expect(await left()).toBeLessThan(1000 - charged), { timeout: 10_000, interval: 1 });
    expect(await left()).toBe(1000 - charged - 1);
  },
);

test.each(['key', 'identity'])('units of a grant whose answer is lost come back to the %s', async (owner) => {
  const externalId = newName();
  if (owner === 'identity') await ok('identities.createIdentity', { externalId, ratelimits: [limit] });
  const { key } = await createKey(owner === 'identity' ? { externalId } : { ratelimits: [limit] });
  const charged = await untilGranted(first, async () => (await ok('keys.verifyKey', { key })).valid);
  await first.recall();
  proxy.losesAnswers = true;
  expect((await call('keys.verifyKey', { key })).status).not.toBe(200);
  proxy.losesAnswers = false;
  await settled();
  const look = () => ok('keys.verifyKey', { key, ratelimits: [{ name: 'requests', cost: 0 }] });
  const { ratelimits } = await vi.waitFor(look, { timeout: 10_000, interval: 10 });
  // The decision whose answer was lost was made.
  expect(ratelimits![0]!.remaining).toBe(1000 - charged - 1);
});

/** Under an override with this one before it, which has `ended` since or which a temporary one has `replaced`. */
test.each([
  ['none', 'ended'],
  ['one', 'ended'],
  ['one', 'replaced'],
])('units of a grant whose answer is lost, with %s override before that has %s since', async (former, since) => {
  const of = { namespace: newName(), identifier: 'one', limit: 1000 };
  const set = (hours: number, more: object = {}) =>
    ok('ratelimits.setOverride', { ...of, duration: hours * hourMs, ...more });
  if (former === 'one') await set(3);
  const until = () => ({ until: clock.now + 1000 });
  if (since === 'ended') await set(2, until());
  const check = { ...of, duration: hourMs };
  const charged = await untilGranted(first, async () => (await ok('ratelimits.limit', check)).success);
  await first.recall();
  proxy.losesAnswers = true;
  expect((await call('ratelimits.limit', check)).status).not.toBe(200);
  if (since === 'ended') clock.advance(1000);
  proxy.losesAnswers = false;
  const replace = () => vi.waitFor(() => set(2, since === 'ended' ? {} : until()), { timeout: 10_000, interval: 10 });
  const ends = since === 'ended' ? [settled, replace] : [replace, settled];
  for (const end of ends) await end();
  if (since === 'replaced') clock.advance(1000);
  // The decision whose answer was lost was made.
  expect((await ok('ratelimits.limit', { ...check, cost: 0 })).remaining).toBe(1000 - charged - 1);
});
