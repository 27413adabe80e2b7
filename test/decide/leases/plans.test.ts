// A change of a plan is current from its answer on, on servers that decide about its keys by leases.

import { afterEach, describe, expect, test, vi } from 'vitest';
import { harness, hourMs } from '../../support/harness.ts';
import { heldServers, newName } from './heldServers.ts';

const held = heldServers(2, { leaseMs: 2000 });
const { first, servers, clock } = held;
// Each test begins with an hour: no lease of it ends because the hour ends in which its decisions are counted.
afterEach(() => clock.set(Math.floor(clock.now / hourMs) * hourMs + 2 * hourMs));

const most = { name: 'most', limit: 20_000, duration: hourMs, autoApply: true };

/** A key with a plan, its own or that of its identity, of which each server has a lease. */
async function leased(of: 'key' | 'identity', more: object = {}) {
  const planId = newName();
  await first.ok('plans.createPlan', { planId, ratelimits: [most], permissions: ['a.read'], meta: { tier: 1 } });
  const externalId = newName();
  await first.ok('identities.createIdentity', { externalId, ...(of === 'identity' && { planId }) });
  const { key, keyId } = await held.createKey({ externalId, ...(of === 'key' && { planId }), ...more });
  let passed = 0;
  const send = async (server: (typeof servers)[number], permissions?: string) => {
    const answer = await server.ok('keys.verifyKey', { key, ...(permissions && { permissions }) });
    passed += answer.valid ? 1 : 0;
    return answer;
  };
  /** Until each server decides without Redis. */
  const lease = async () => {
    for (const server of servers) {
      const before = server.counts.decided;
      await vi.waitFor(async () => {
        clock.advance(1);
        await send(server);
        expect(server.counts.decided).toBeGreaterThan(before);
      });
    }
  };
  await lease();
  return { planId, keyId, externalId, send, lease, passed: () => passed };
}
/** What is left once everything is settled. */
async function leftOf({ send }: Awaited<ReturnType<typeof leased>>) {
  await held.recallAll();
  return (await send(first)).ratelimits![0]!.remaining;
}

describe.each(['key', 'identity'] as const)('of a plan of its %s', (of) => {
  test('updatePlan: limits, permissions and metadata', async () => {
    const made = await leased(of);
    const { planId, send } = made;
    await first.ok('plans.updatePlan', { planId, ratelimits: [{ ...most, limit: 30_000 }] });
    for (const server of servers) expect((await send(server)).ratelimits).toMatchObject([{ limit: 30_000 }]);
    await made.lease();
    await first.ok('plans.updatePlan', { planId, permissions: ['b.read'], meta: null });
    for (const server of servers) {
      expect((await send(server, 'a.read')).code).toBe('INSUFFICIENT_PERMISSIONS');
      const { plan, permissions } = await send(server);
      expect([plan, permissions]).toEqual([{ planId }, ['b.read']]);
    }
    expect(await leftOf(made)).toBe(30_000 - made.passed());
    await first.ok('plans.updatePlan', { planId, ratelimits: [{ ...most, limit: 1 }] });
    for (const server of servers) expect((await send(server)).code).toBe('RATE_LIMITED');
    await first.ok('plans.updatePlan', { planId, ratelimits: [] });
    for (const server of servers) expect((await send(server)).ratelimits).toBeUndefined();
    await made.lease();
    const counted = made.passed();
    await first.ok('plans.updatePlan', { planId, ratelimits: [most] });
    const [answer] = [await send(servers[1]!)];
    // Those without the limit were not counted by it.
    expect(answer.ratelimits![0]!.limit).toBe(20_000);
    expect(answer.ratelimits![0]!.remaining).toBeGreaterThan(20_000 - counted - 1);
  });

  test('deletePlan with another one in its place, and no plan any more', async () => {
    const made = await leased(of);
    const replaceWith = newName();
    await first.ok('plans.createPlan', { planId: replaceWith, ratelimits: [{ ...most, limit: 40_000 }] });
    await first.ok('plans.deletePlan', { planId: made.planId, replaceWith });
    for (const server of servers) {
      const { plan, ratelimits } = await made.send(server);
      expect([plan, ratelimits![0]!.limit]).toEqual([{ planId: replaceWith }, 40_000]);
    }
    await made.lease();
    expect(await leftOf(made)).toBe(40_000 - made.passed());
    await made.lease();
    if (of === 'key') await first.ok('keys.updateKey', { keyId: made.keyId, planId: null });
    else await first.ok('identities.updateIdentity', { identity: made.externalId, planId: null });
    for (const server of servers) {
      const { plan, ratelimits } = await made.send(server);
      expect([plan, ratelimits]).toEqual([undefined, undefined]);
    }
  });
});

describe('with terms of 100 ms and the real clock', () => {
  const settings = { leaseMs: 100, leaseAfter: 2, nowMs: () => undefined, leaseNowMs: () => performance.now() };
  const leasing = [harness(undefined, settings), harness(undefined, settings)];
  const plain = harness(undefined, { leaseMs: 0, nowMs: () => undefined });
  const [one] = leasing as [(typeof leasing)[number]];

  test('no answer has the former limit of a plan that was changed, and every unit is counted', async () => {
    const planId = newName();
    const quota = { name: 'most', limit: 1_000_000, period: 'year' as const, autoApply: true };
    await one.ok('plans.createPlan', { planId, ratelimits: [quota] });
    const externalId = newName();
    await one.ok('identities.createIdentity', { externalId, planId });
    const { key } = await one.createKey({ externalId });
    let [current, isOver, passed] = [1_000_000, false, 0];
    const old: string[] = [];
    const all = [...leasing, plain];
    const caller = async (server: (typeof all)[number]) => {
      while (!isOver) {
        const least = current;
        const { data } = await server.call('keys.verifyKey', { key }, one.rootKey);
        passed += data.valid ? 1 : 0;
        const { limit } = data.ratelimits![0]!;
        if (limit < least) old.push(`${limit} after ${least}`);
      }
    };
    const callers = all.flatMap((server) => [caller(server), caller(server), caller(server)]);
    for (let change = 1; change <= 12; change++) {
      await new Promise((done) => setTimeout(done, 150));
      const next = 1_000_000 + change;
      await plain.ok('plans.updatePlan', { planId, ratelimits: [{ ...quota, limit: next }] }, one.rootKey);
      current = next;
    }
    isOver = true;
    await Promise.all(callers);
    expect(old).toEqual([]);
    for (const { store } of leasing) await store.decide.leasing.leases.recall();
    const { data } = await plain.call('keys.verifyKey', { key }, one.rootKey);
    expect(data.ratelimits![0]).toMatchObject({ limit: 1_000_012, remaining: 1_000_012 - passed - 1 });
  });
});
