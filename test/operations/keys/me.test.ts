// What a key reads of itself (GET /v2/me) equals keys.explainKey and analytics.getVerifications, over random histories.

import { beforeEach, describe, expect, test } from 'vitest';
import { print } from '../../../src/domain/json.ts';
import { digestTextOf } from '../../../src/domain/keyString.ts';
import { readHolder } from '../../../src/operations/keys/me.ts';
import { dayMs, harness, hourMs, type OutputOf } from '../../support/harness.ts';
import { random, seed } from '../../support/random.ts';

type Explained = OutputOf<'keys.explainKey'>;
const ruleOf = ({ rules }: Explained, name: string) => rules.find(({ rule }) => rule === name)!;

/** A server with its clock, and a comparison on it. */
function comparing(app: ReturnType<typeof harness>) {
  const explainAll = (key: string, names: readonly string[]) =>
    app.ok('keys.explainKey', {
      key,
      credits: { cost: 0 },
      ratelimits: names.map((name) => ({ name, cost: 0 })),
    });

  async function holderOf(key: string) {
    const found = await readHolder(
      app.store,
      { workspaceId: app.workspaceId, digest: digestTextOf(key), ip: undefined },
      [],
    );
    if ('refused' in found) throw new Error(`The key is refused: ${found.refused}.`);
    return JSON.parse(print(found)) as typeof found;
  }

  /** Servers settle leases at any time: then both are read again. */
  async function readBoth(key: string) {
    for (let times = 0; times < 20; times++) {
      const first = await holderOf(key);
      const names = first.ratelimits.map(({ name }) => name);
      const readAll = async () => [await explainAll(key, names), await rowsOf(first)] as const;
      const before = await readAll();
      const holder = await holderOf(key);
      const after = await readAll();
      const [explained, rows] = before;
      if (JSON.stringify(before) === JSON.stringify(after)) return { explained, rows, holder };
    }
    throw new Error('The figures change all the time.');
  }

  return async function compare(key: string) {
    const { explained, rows, holder } = await readBoth(key);
    const expected = (ruleOf(explained, 'ratelimits').ratelimits ?? []).map(
      ({ id, of, planId, autoApply, former, cost, exceeded, ...figures }) => ({
        ...figures,
        ...(of === 'identity' && { shared: true }),
      }),
    );
    expect(holder.ratelimits).toEqual(expected);
    const { balance, debt, refill, identity } = ruleOf(explained, 'credits');
    const { shared: _shared, ...credits } = holder.credits ?? {};
    expect(credits).toEqual(
      balance === undefined ? {} : { remaining: balance, ...(debt && { debt }), ...(refill && { refill }) },
    );
    expect(holder.identity?.credits).toEqual(
      identity && {
        remaining: identity.balance,
        ...(identity.debt && { debt: identity.debt }),
        ...(identity.refill && { refill: identity.refill }),
      },
    );
    expect(holder.holds).toEqual(explained.holds);
    expect([holder.keyId, holder.time]).toEqual([explained.keyId, explained.time]);
    compareUsage(holder, rows);
    return holder;
  };

  function rowsOf({ keyId, usage, time }: Awaited<ReturnType<typeof holderOf>>) {
    const start = Math.min(usage.days[0]!.time, usage.month.time);
    return app.ok('analytics.getVerifications', { keyId, start, end: time + hourMs, granularity: 'day' });
  }

  function compareUsage({ usage }: Awaited<ReturnType<typeof holderOf>>, rows: OutputOf<'analytics.getVerifications'>) {
    const sumOf = (since: number, until: number) => {
      const sum = { count: 0, refused: 0, spentCredits: 0 };
      for (const row of rows.filter((each) => each.time >= since && each.time < until)) {
        sum.count += row.count;
        sum.refused += row.outcome === 'VALID' ? 0 : row.count;
        sum.spentCredits += row.spentCredits;
      }
      return { time: since, ...sum };
    };
    expect(usage.days).toHaveLength(30);
    expect(usage.days).toEqual(usage.days.map((day) => sumOf(day.time, day.time + dayMs)));
    expect(usage.month).toEqual(sumOf(usage.month.time, Number.POSITIVE_INFINITY));
  }
}

const app = harness(undefined, { leaseMs: 0 });
const startMs = app.clock.now;
beforeEach(() => {
  app.clock.now = startMs;
});

const periods = ['hour', 'day', 'week', 'month'] as const;
const limitOf = (name: string, pick: (min: number, max: number) => number) => {
  const common = { name, limit: pick(1, 30), autoApply: pick(0, 1) === 1 };
  const kind = pick(0, 2);
  if (kind === 0) return { ...common, duration: pick(1, 100) * 60_000 };
  if (kind === 1) return { ...common, period: periods[pick(0, 3)]! };
  return { ...common, duration: hourMs, type: 'concurrency' as const };
};

async function makeKey({ ok, createKey }: Pick<ReturnType<typeof harness>, 'ok' | 'createKey'>, round: number) {
  const pick = random(seed + round);
  const [externalId, planId] = [`customer-${round}`, `plan-${round}`];
  const names = ['aaa', 'bbb', 'ccc', 'ddd', 'eee'];
  const some = () => names.filter(() => pick(0, 2) > 0).map((name) => limitOf(name, pick));
  await ok('plans.createPlan', { planId, ratelimits: some() });
  const refill = { interval: 'daily' as const, amount: pick(1, 40) };
  await ok('identities.createIdentity', {
    externalId,
    ratelimits: some(),
    ...(pick(0, 1) && { credits: { remaining: pick(0, 60), refill } }),
    ...(pick(0, 1) && { planId }),
  });
  const given = {
    externalId,
    ratelimits: some(),
    ...(pick(0, 2) && { credits: { remaining: pick(0, 60), refill } }),
    ...(pick(0, 1) && { planId }),
  };
  const first = await createKey(given);
  const second = await createKey({ externalId, apiId: first.apiId });
  return { pick, planId, externalId, keys: [first, second], some };
}

describe('equals keys.explainKey and analytics.getVerifications', () => {
  const compare = comparing(app);
  const { call, clock } = app;

  test.each([1, 2, 3, 4, 5, 6])(`random history %i (seed ${seed})`, async (round) => {
    const { pick, keys, planId, externalId, some } = await makeKey(app, round);
    const holds: string[] = [];
    for (let step = 0; step < 60; step++) {
      const { key, keyId } = keys[pick(0, keys.length - 1)]!;
      const kind = pick(0, 11);
      if (kind <= 5) {
        const named = pick(0, 1) ? [{ name: 'aaa', cost: pick(0, 3) }] : [];
        const held = pick(0, 2) === 0 && { hold: { ttl: pick(1, 100) * 60_000 } };
        const { data } = await call('keys.verifyKey', {
          key,
          credits: { cost: pick(0, 4) },
          ...(named.length > 0 && { ratelimits: named }),
          ...held,
        });
        if (data?.hold) holds.push(data.hold.id);
      } else if (kind === 6 && holds.length > 0) {
        const holdId = holds.splice(pick(0, holds.length - 1), 1)[0]!;
        if (pick(0, 1)) await call('keys.settleHold', { holdId, credits: { cost: pick(0, 9) } });
        else await call('keys.releaseHold', { holdId });
      } else if (kind === 7) clock.advance(pick(1, 20) * 60_000);
      else if (kind === 8) clock.advance(pick(0, 1) ? dayMs : hourMs);
      else if (kind === 9) await call('plans.updatePlan', { planId, ratelimits: some() });
      else if (kind === 10) await call('identities.updateIdentity', { identity: externalId, ratelimits: some() });
      else await call('keys.updateKey', { keyId, ratelimits: some() });
      if (step % 6 === 0) for (const each of keys) await compare(each.key);
    }
    for (const each of keys) await compare(each.key);
  });

  test('a key that draws on its successor, and both after it', async () => {
    const { keyId, key } = await app.createKey({ credits: { remaining: 20 } });
    const next = await app.ok('keys.rerollKey', { keyId, expiration: dayMs, credits: 'move' });
    await app.ok('keys.verifyKey', { key, credits: { cost: 3 } });
    for (const each of [key, next.key]) expect((await compare(each)).credits).toEqual({ remaining: 17, shared: true });
    clock.advance(2 * dayMs);
    expect((await compare(next.key)).credits).toEqual({ remaining: 17 });
  });

  test('a key with ten thousand permissions has all of them', async () => {
    const roles: string[] = [];
    for (let role = 0; role < 10; role++) {
      const name = `role ${role}`;
      const permissions = Array.from({ length: 1000 }, (_, index) => `r${role}.p${index}`);
      await app.ok('permissions.createRole', { name, permissions });
      roles.push(name);
    }
    const { key, keyId } = await app.createKey({ roles });
    const holder = await compare(key);
    expect(holder.roles).toEqual(roles);
    expect(holder.permissions).toHaveLength(10_000);
    expect(holder.permissions).toEqual((await app.ok('keys.getKey', { keyId })).permissions);
  });
});

describe('with leases', () => {
  const leasing = harness(undefined, {
    leaseMs: 500,
    leaseCredits: true,
    leaseAfter: 2,
    leaseNowMs: () => performance.now(),
  });
  const compare = comparing(leasing);

  test('what servers hold in leases counts as used, as explainKey has it', async () => {
    const requests = { name: 'requests', limit: 100_000, duration: hourMs, autoApply: true };
    await leasing.ok('identities.createIdentity', {
      externalId: 'leased',
      ratelimits: [{ ...requests, name: 'of all' }],
    });
    const { key } = await leasing.createKey({
      externalId: 'leased',
      ratelimits: [requests],
      credits: { remaining: 100_000 },
    });
    const startedAt = performance.now();
    let leased = 0;
    for (let round = 0; leased === 0 ? performance.now() - startedAt < 10_000 : round < 100; round++) {
      await Promise.all(Array.from({ length: 20 }, () => leasing.ok('keys.verifyKey', { key })));
      leased ||= (await leasing.ok('keys.explainKey', { key })).leased?.key ?? 0;
      if (round % 20 === 0) await compare(key);
    }
    expect(leased).toBeGreaterThan(0);
    await compare(key);
  });
});
