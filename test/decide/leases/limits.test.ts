// Leases of limit checks as callers see them: four servers on one Redis, with real terms and the real clock.

import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { harness, type InputOf } from '../../support/harness.ts';
import { survey } from '../../support/keyspace.ts';
import { observing } from '../../support/observer.ts';
import { redisOfFile } from '../../support/ofFile.ts';

// Longer than a test, so that it is known what is decided locally.
const leaseMs = 2000;
const counts = { decided: 0, granted: 0, units: 0, returned: 0 };
const observe = observing({
  decided: () => void counts.decided++,
  granted(units: number) {
    counts.granted++;
    counts.units += units;
  },
  returned(units: number) {
    counts.returned += units;
  },
});
afterEach(() => void Object.assign(counts, { decided: 0, granted: 0, units: 0, returned: 0 }));

const settings = { leaseMs, leaseAfter: 2, nowMs: () => undefined, leaseNowMs: () => performance.now(), observe };
const servers = [1, 2, 3, 4].map(() => harness(undefined, settings));
const [first] = servers as [(typeof servers)[number]];
const redis = await redisOfFile();
type Server = typeof first;
type Check = InputOf<'ratelimits.limit'>;

const limit = async (server: Server, check: Check, rootKey = first.rootKey) => {
  const { status, data, error } = await server.call('ratelimits.limit', check, rootKey);
  if (status !== 200) throw new Error(`${status} ${error.detail}`);
  return data;
};
const multiLimit = async (server: Server, checks: Check[]) => {
  const { status, data, error } = await server.call('ratelimits.multiLimit', checks, first.rootKey);
  if (status !== 200) throw new Error(`${status} ${error.detail}`);
  return data;
};
// The slice of a limit with this duration is longer than a test.
const hour = 3_600_000;
let made = 0;
const check = (most: number, more: Partial<Check> = {}): Check => ({
  namespace: 'leases',
  identifier: `hot ${++made}`,
  limit: most,
  duration: hour,
  ...more,
});

beforeAll(async () => {
  // A server asks for leases from a term after it connected on, once it hears of recalls.
  const warm = check(1_000_000);
  const endsAt = performance.now() + 9000;
  while (counts.granted < servers.length) {
    if (performance.now() > endsAt) throw new Error('No leases are granted.');
    for (const server of servers) await limit(server, warm);
    await delay(5);
  }
});

/**
 * Checks on all servers at once, each with this many callers, until each has `times` answers: whether these passed, in
 * order.
 */
async function hammer(checks: Check | Check[], callers: number, times: number): Promise<boolean[]> {
  const passes: boolean[] = [];
  let isRefused = false;
  const caller = async (server: Server) => {
    for (let count = 0; count < times; count++) {
      const isLate = isRefused;
      const answer = Array.isArray(checks) ? await multiLimit(server, checks) : await limit(server, checks);
      const passed = 'passed' in answer ? answer.passed : answer.success;
      passes.push(passed);
      // Otherwise the refusal was wrong: a server had units left.
      if (isLate) expect(passed).toBe(false);
      isRefused ||= !passed;
    }
  };
  await Promise.all(servers.flatMap((server) => Array.from({ length: callers }, () => caller(server))));
  return passes;
}

const passedOf = (passes: readonly boolean[]): number => passes.filter(Boolean).length;
const recallAll = () => Promise.all(servers.map(({ store }) => store.decide.leasing.leases.recall()));
/** What is left of a limit, and what was counted, once everything is settled. */
async function leftOf(of: Check) {
  await recallAll();
  return (await limit(first, { ...of, cost: 0 })).remaining;
}
async function usageOf({ namespace, identifier }: Check, looks = 0) {
  await recallAll();
  const rows = await first.ok('analytics.getRatelimits', {
    namespace,
    identifier,
    start: Date.now() - 86_400_000,
    end: Date.now() + 3_600_000,
  } as never);
  const sum = { passed: 0, blocked: 0 };
  for (const row of rows as unknown as (typeof sum)[]) {
    sum.passed += row.passed;
    sum.blocked += row.blocked;
  }
  return { passed: sum.passed - looks, blocked: sum.blocked };
}

describe('the same request', () => {
  test('is decided locally, with the answers that Redis gives, and counted', async () => {
    const of = check(1000, { cost: 2 });
    const remaining: number[] = [];
    const resets = new Set<number>();
    for (let times = 0; times < 20; times++) {
      const answer = await limit(first, of);
      expect(answer).toMatchObject({ success: true, limit: 1000 });
      remaining.push(answer.remaining);
      resets.add(answer.reset);
    }
    expect(counts.decided).toBeGreaterThan(5);
    expect(new Set(remaining).size).toBe(20);
    expect(Math.max(...remaining)).toBe(998);
    expect(Math.min(...resets)).toBeGreaterThan(Date.now());
    expect(await leftOf(of)).toBe(960);
    expect(await usageOf(of, 1)).toEqual({ passed: 20, blocked: 0 });
  });

  test('is refused locally until something changes, with the answer that Redis gives', async () => {
    const of = check(100);
    await limit(first, { ...of, cost: 100 });
    const refusal = await limit(first, of);
    for (let times = 0; times < 4; times++) await limit(first, of);
    const before = counts.decided;
    for (let times = 0; times < 10; times++) expect(await limit(first, of)).toEqual(refusal);
    expect(counts.decided).toBe(before + 10);
    expect(refusal).toMatchObject({ success: false, remaining: 0 });
    expect(await usageOf(of)).toEqual({ passed: 1, blocked: 15 });
  });

  test('with another cost, limit, duration, identifier, namespace or root key is not the same', async () => {
    const of = check(1000);
    const otherRootKey = await first.createRootKey(['ratelimit.*.limit']);
    for (let times = 0; times < 6; times++) await limit(first, of);
    const before = counts.decided;
    await limit(first, { ...of, cost: 2 });
    await limit(first, { ...of, limit: 1001 });
    await limit(first, { ...of, duration: hour + 1 });
    await limit(first, { ...of, identifier: `${of.identifier}0` });
    await limit(first, { ...of, namespace: 'leases2' });
    await limit(first, of, otherRootKey);
    expect(counts.decided).toBe(before);
    await limit(first, of);
    expect(counts.decided).toBe(before + 1);
  });

  test('that costs nothing sees what others charge, at once', async () => {
    const of = check(1000);
    for (let times = 0; times < 10; times++) {
      expect(await limit(first, { ...of, cost: 0 })).toMatchObject({ remaining: 1000 - times });
      await limit(servers[1]!, { ...of, cost: 1 });
      await recallAll();
    }
  });

  test('that can never pass is reset one duration from now', async () => {
    const of = check(10, { cost: 11 });
    const resets: number[] = [];
    for (let times = 0; times < 10; times++) {
      resets.push((await limit(first, of)).reset);
      await delay(2);
    }
    expect(counts.decided).toBeGreaterThan(5);
    expect(new Set(resets).size).toBe(10);
    expect(resets).toEqual(resets.toSorted((a, b) => a - b));
    expect(resets.at(-1)).toBeLessThanOrEqual(Date.now() + hour);
  });
});

describe('never over, and never wrongly refused', () => {
  test.each([300, 2000])('four servers admit a limit of %i exactly', async (most) => {
    const of = check(most);
    const passes = await hammer(of, 8, Math.ceil((most * 2) / 32));
    expect(passedOf(passes)).toBe(most);
    expect(counts.units).toBeGreaterThan(0);
    expect(await usageOf(of)).toEqual({ passed: most, blocked: passes.length - most });
  });

  test('requests of several costs and limits share a counter', async () => {
    const of = check(6000);
    const [ones, twos, others] = await Promise.all([
      hammer(of, 2, 300),
      hammer({ ...of, cost: 2 }, 2, 300),
      hammer([{ ...of, limit: 10_000 }, check(100_000)], 2, 100),
    ]);
    // The counter has 6000 units for two of them.
    const charged = passedOf(ones!) + 2 * passedOf(twos!) + passedOf(others!);
    expect(passedOf(others!)).toBe(others!.length);
    expect(charged).toBeLessThanOrEqual(6000 + passedOf(others!));
    expect(await leftOf({ ...of, limit: 10_000 })).toBe(10_000 - charged);
    expect(counts.units).toBeGreaterThan(0);
  });

  test('a request that another lease would refuse gets its units back first', async () => {
    const of = check(2000);
    for (let times = 0; times < 60; times++) await limit(first, of);
    expect(counts.units).toBeGreaterThan(100);
    // More than what is left beside the units of the lease.
    expect(await limit(servers[1]!, { ...of, cost: 2000 - 60 })).toMatchObject({ success: true, remaining: 0 });
    expect(await limit(first, of)).toMatchObject({ success: false, remaining: 0 });
  });

  test('multiLimit: all checks or none, by leases too', async () => {
    const [small, large] = [check(500), check(100_000, { cost: 3 })];
    const passes = await hammer([small, large], 4, 60);
    expect(passedOf(passes)).toBe(500);
    expect(counts.units).toBeGreaterThan(0);
    expect(await leftOf(large)).toBe(100_000 - 1500);
    expect(await usageOf(small)).toEqual({ passed: 500, blocked: passes.length - 500 });
    expect(await usageOf(large, 1)).toEqual({ passed: 500, blocked: passes.length - 500 });
  });

  test('multiLimit: checks of one counter add up', async () => {
    const of = check(1000);
    const passes = await hammer([of, { ...of, cost: 2 }], 2, 60);
    expect(passedOf(passes)).toBe(333);
    expect(await leftOf(of)).toBe(1);
  });
});

describe('current', () => {
  test('an override that is lowered under load admits nothing more', async () => {
    const of = check(1_000_000);
    await first.ok('ratelimits.setOverride', { ...overrideOf(of), limit: 900_000 });
    const late: boolean[] = [];
    let isDone = false;
    let isChanged = false;
    const caller = async (server: Server) => {
      while (!isDone) {
        const isLate = isChanged;
        const { success } = await limit(server, of);
        if (isLate) late.push(success);
        await delay(0);
      }
    };
    const callers = servers.flatMap((server) => Array.from({ length: 4 }, () => caller(server)));
    await delay(100);
    await first.ok('ratelimits.setOverride', { ...overrideOf(of), limit: 10 });
    isChanged = true;
    await delay(50);
    await first.ok('ratelimits.setOverride', { ...overrideOf(of), limit: 0 });
    await delay(50);
    isDone = true;
    await Promise.all(callers);
    expect(counts.decided).toBeGreaterThan(0);
    expect(late.length).toBeGreaterThan(0);
    expect(new Set(late)).toEqual(new Set([false]));
  });

  test('an override that is deleted admits again at once', async () => {
    const of = check(1000);
    await first.ok('ratelimits.setOverride', { ...overrideOf(of), limit: 0 });
    for (const server of servers)
      for (let times = 0; times < 5; times++) expect((await limit(server, of)).success).toBe(false);
    expect(counts.decided).toBeGreaterThan(0);
    const { namespace, identifier } = of;
    await first.ok('ratelimits.deleteOverride', { namespace, identifier });
    for (const server of servers) expect((await limit(server, of)).success).toBe(true);
  });

  test('a root key that lost its grant for the namespace decides nothing more', async () => {
    const of = check(1000);
    await limit(first, of);
    const { namespaceId } = await namespaceOf(of);
    const created = await first.ok('rootKeys.createRootKey', {
      permissions: [`ratelimit.${namespaceId}.limit`] as never,
    });
    const by = (server: Server) => server.call('ratelimits.limit', of, created.key);
    for (let times = 0; times < 5; times++) for (const server of servers) expect((await by(server)).status).toBe(200);
    expect(counts.decided).toBeGreaterThan(0);
    await first.ok('rootKeys.updateRootKey', { rootKeyId: created.rootKeyId, permissions: ['api.*.verify_key'] });
    for (const server of servers) expect((await by(server)).status).toBe(403);
  });
});

const overrideOf = ({ namespace, identifier, duration }: Check) => ({ namespace, identifier, duration });
const namespaceOf = async ({ namespace }: Check) => {
  const found = await first.store.overrides.findNamespace(first.workspaceId, namespace);
  return { namespaceId: found!.id };
};

test('leases are noted under names of keyspace.md, and settled', async () => {
  const of = check(10_000);
  for (let times = 0; times < 10; times++) await limit(first, of);
  const names = async () => (await redis.keys('*:lw:*')).filter((name) => name.endsWith(of.identifier));
  expect(await names()).toHaveLength(1);
  expect((await survey(redis)).wrong).toEqual([]);
  await recallAll();
  expect(await names()).toEqual([]);
});
