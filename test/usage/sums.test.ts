// Sums by customer are what summing over keys gives, to the unit: over random histories of verifications, changes,
// deletions, late counts, a clock that steps back, sweepers that race or are killed, and an import.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { workspaceKey } from '../../src/redis/names.ts';
import { spentPlace } from '../../src/scripts/layout.ts';
import { openStore, type Store } from '../../src/store.ts';
import type { UsageCount } from '../../src/usage/query.ts';
import { dayBefore, monthOf, packSums, visitSums } from '../../src/usage/sums.ts';
import { dayMs, harness, hourMs, testSettings } from '../support/harness.ts';
import { observing } from '../support/observer.ts';
import { random, seed } from '../support/random.ts';
import { testRedisUrl } from '../support/redis.ts';
import { snippets } from '../support/snippet.ts';
import { thorough } from '../support/testIf.ts';

const tollgate = harness();
const { ok, call, clock, createKey } = tollgate;
const snippet = snippets();
/** Servers that sweep, each with a script that may fail. */
const servers: Store[] = [];
/** All keys of APIs that exist, also deleted ones. */
let keyIds: string[] = [];
/** Pages of sums that were read. */
let pages = 0;
beforeAll(async () => {
  const observe = observing({
    ran(script) {
      if (script === 'analytics/sums') pages++;
    },
  });
  for (let server = 0; server < 3; server++) {
    // One of them has room for a few keys and customers at a time.
    const usageBounds = server === 1 ? { keys: 7, customers: 9 } : undefined;
    servers.push(
      await openStore({ ...testSettings, url: testRedisUrl(), nowMs: () => clock.now, observe, usageBounds }),
    );
  }
});
afterAll(async () => {
  await Promise.all(servers.map((store) => store.close()));
});

type Query = { fromHour: number; toHour: number; apiIds: true | readonly string[]; bucketOf(hour: number): number };

/** The counts by bucket, API, customer and outcome; `byKey` reads them from keys only. */
async function countsOf({ analytics }: Store, query: Query, byKey: boolean) {
  const found = new Map<string, number[]>();
  const all = { ...query, by: { key: byKey, externalId: true, tag: false } };
  await analytics.verifications(tollgate.workspaceId, all, (usage: UsageCount) => {
    const { hour, apiId, externalId, outcome, count, spentCredits } = usage;
    const name = [query.bucketOf(hour), apiId, externalId, outcome].join(' ');
    const [counted = 0, spent = 0] = found.get(name) ?? [];
    found.set(name, [counted + count, spent + spentCredits]);
  });
  return Object.fromEntries([...found].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** The rows of all customers, in pages of a random length. */
async function listed({ analytics }: Store, query: Omit<Query, 'bucketOf'>, limit: () => number) {
  const rows: Record<string, [number, number]> = {};
  let before: string | undefined;
  let from: Awaited<ReturnType<Store['analytics']['customers']>>['next'];
  do {
    const page = await analytics.customers(tollgate.workspaceId, { ...query, from, limit: limit() });
    for (const { externalId, count, outcomes, spentCredits } of page.customers) {
      expect(before === undefined || before < externalId, 'in order, each once').toBe(true);
      before = externalId;
      expect(Object.values(outcomes).reduce((sum, each) => sum + each, 0)).toBe(count);
      rows[externalId] = [count, spentCredits];
    }
    from = page.next;
  } while (from);
  return rows;
}

const noneLeftOut = (keyId: string) => expect.fail(keyId);

/** The same of whole days, from all that is stored of keys, as it is exported. */
async function exported({ usageExport }: Store, { fromHour, toHour }: Query, keyIds: readonly string[]) {
  const rows: Record<string, [number, number]> = {};
  for (const days of (await usageExport.keys(tollgate.workspaceId, keyIds, noneLeftOut)).values()) {
    for (const { day, externalId, sums } of days) {
      if (24 * day < fromHour || 24 * day >= toHour) continue;
      const [counted, credits] = rows[externalId] ?? [0, 0];
      const count = sums.reduce((sum, each) => sum + each, 0) - sums[spentPlace]!;
      rows[externalId] = [counted + count, credits + sums[spentPlace]!];
    }
  }
  return rows;
}

/** The same from counts. */
function rowsOf(counts: Awaited<ReturnType<typeof countsOf>>) {
  const rows: Record<string, [number, number]> = {};
  for (const [name, [count, spent]] of Object.entries(counts)) {
    const externalId = name.split(' ').slice(2, -1).join(' ');
    const [counted, credits] = rows[externalId] ?? [0, 0];
    rows[externalId] = [counted + count!, credits + spent!];
  }
  return rows;
}

/** Counts a VALID late, as the settlement of a lease does (lua/decide/verification/settle.lua). */
const lateLua = `
  local counts = {}
  for outcome = 1, OUTCOMES_IN_TAIL do counts[outcome] = outcome == VALID and tonumber(ARGV[4]) or 0 end
  counts[OUTCOMES_IN_TAIL + 1] = tonumber(ARGV[4]) * 3
  local usage = struct.pack(USAGE, tonumber(ARGV[3]), unpack(counts))
  flush_usage(KEYS[1], ARGV[1], ARGV[2], usage, 0, tonumber(ARGV[5]))
  add_used(KEYS[1], ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[5]), true)`;

const sweepers = () => servers.map(({ sweep }) => sweep.rollUp);
const settled = async () => {
  while (await servers[0]!.sweep.rollUp(tollgate.workspaceId));
};
const today = () => Math.floor(clock.now / dayMs);

/** Changes a workspace in many ways, and compares what is read of it. */
async function compare(pick: (min: number, max: number) => number, steps: number) {
  const oneOf = <Item>(items: readonly Item[]) => items[pick(0, items.length - 1)]!;
  const apiIds: string[] = [];
  for (const name of ['first', 'second', 'third']) apiIds.push((await ok('apis.createApi', { name })).apiId);
  const customer = () => oneOf(['', 'x'.repeat(255), `c_${pick(0, 40)}`, `C.${pick(0, 40)}`, `${pick(0, 400)}`]);
  interface Key {
    keyId: string;
    key: string;
  }
  const keys: Key[] = [];
  const deleted: Key[] = [];
  const holds: string[] = [];
  const create = async () => {
    const externalId = customer();
    const credits = pick(0, 2) > 0 ? { credits: { remaining: pick(0, 400) } } : {};
    const ranged = pick(0, 6) === 0 ? { allowedIps: ['10.0.0.0/8'] } : {};
    const key = await createKey({ apiId: oneOf(apiIds), ...(externalId && { externalId }), ...credits, ...ranged });
    keys.push(key);
    keyIds.push(key.keyId);
  };
  for (let count = 0; count < 60; count++) await create();
  const verify = async () => {
    const { key } = oneOf(keys);
    const refusing = pick(0, 3) === 0 ? { permissions: 'none' } : {};
    const held = pick(0, 6) === 0 ? { hold: { ttl: dayMs, onExpiry: 'charge' as const } } : {};
    const { data } = await call('keys.verifyKey', { key, credits: { cost: pick(0, 300) }, ...refusing, ...held });
    if (data?.hold) holds.push(data.hold.id);
  };
  /** Counted after its hour, as by a server that was paused: in the log only. */
  const late = async () => {
    const { keyId } = oneOf([...keys, ...deleted]);
    const workspace = workspaceKey(tollgate.workspaceId);
    const day = today() - pick(0, 12);
    await snippet.run(lateLua, workspace, [
      keyId.slice(4),
      customer(),
      24 * day + pick(0, 23),
      pick(1, 70_000),
      testSettings.usageRetentionMs,
    ]);
  };
  const killed = async () => {
    // A sweeper that dies between its two scripts.
    await servers[0]!.sweep.rollUp(tollgate.workspaceId).catch(() => {});
  };
  const changes: [number, () => Promise<unknown>][] = [
    [30, async () => void (await Promise.all(Array.from({ length: pick(1, 15) }, verify)))],
    [6, create],
    [8, () => ok('keys.updateKey', { keyId: oneOf(keys).keyId, externalId: customer() || null })],
    [4, () => call('identities.deleteIdentity', { identity: customer() || 'none' })],
    [
      3,
      async () => {
        const [gone] = keys.splice(pick(0, keys.length - 1), 1);
        await ok('keys.deleteKey', { keyId: gone!.keyId, permanent: pick(0, 1) === 0 });
        deleted.push(gone!);
        await create();
      },
    ],
    [2, async () => void (deleted.length > 0 && (await call('keys.restoreKey', { keyId: oneOf(deleted).keyId })))],
    [6, late],
    [
      3,
      async () => {
        if (holds.length > 0) await call('keys.settleHold', { holdId: oneOf(holds), credits: { cost: pick(0, 500) } });
      },
    ],
    [10, async () => clock.advance(pick(1, 30) * hourMs)],
    [2, async () => clock.advance(-pick(1, 30) * hourMs)],
    [1, async () => clock.advance(pick(2, 12) * dayMs)],
    [12, settled],
    [8, async () => void (await Promise.all(sweepers().map((rollUp) => rollUp(tollgate.workspaceId))))],
    [4, killed],
    [4, async () => void (await Promise.all([settled(), verify(), verify(), late()]))],
  ];
  const weighted = changes.flatMap(([weight, change]) => Array.from({ length: weight }, () => change));
  const queries: (() => Query)[] = [
    () => ({ fromHour: 0, toHour: 24 * 40_000, apiIds: true, bucketOf: () => 0 }),
    () => ({
      fromHour: 24 * (today() - pick(0, oneOf([0, 2, 60]))),
      toHour: 24 * (today() - pick(-1, oneOf([-1, 20]))),
      apiIds: true,
      bucketOf: (hour) => Math.floor(hour / 24),
    }),
    () => ({
      fromHour: 24 * today() - pick(0, 1000),
      toHour: 24 * today() - pick(-24, 200),
      apiIds: [oneOf(apiIds)],
      bucketOf: () => 0,
    }),
    () => ({
      fromHour: 24 * today() - pick(0, 1000),
      toHour: 24 * (today() + 1),
      apiIds: true,
      bucketOf: (hour) => hour,
    }),
  ];
  let compared = 0;
  for (let step = 0; step < steps; step++) {
    await oneOf(weighted)();
    if (step % 4 > 0) continue;
    const query = oneOf(queries)();
    const server = oneOf(servers);
    const byKeys = await countsOf(server, query, true);
    const what = `step ${step}: ${JSON.stringify(query)}`;
    // Once, so that the changes of a seed do not depend on how many pages there are.
    const limit = pick(1, 30);
    expect(await countsOf(server, query, false), what).toEqual(byKeys);
    expect(await listed(server, query, () => limit), what).toEqual(rowsOf(byKeys));
    if (query.apiIds !== true || query.fromHour === 0 || query.fromHour % 24 > 0 || query.toHour % 24 > 0) continue;
    expect(rowsOf(byKeys), what).toEqual(await exported(server, query, keyIds));
    compared++;
  }
  expect(compared).toBeGreaterThan(0);
  await ok('apis.deleteApi', { apiId: apiIds[0]! });
  keyIds = keyIds.filter((keyId) => !keyId.endsWith(apiIds[0]!.slice(-8)));
  // Sums have begun by then at the latest, and have a day.
  for (const days of [3, 2]) {
    clock.advance(days * dayMs);
    await Promise.all(keys.map(({ key }) => call('keys.verifyKey', { key })));
    await settled();
  }
  const query = queries[0]!();
  const byKeys = await countsOf(servers[0]!, query, true);
  pages = 0;
  expect(await countsOf(servers[0]!, query, false)).toEqual(byKeys);
  expect(await listed(servers[0]!, query, () => 1000)).toEqual(rowsOf(byKeys));
  expect(pages).toBeGreaterThan(1);
}

test(`sums are those of keys (seed ${seed})`, { timeout: 300_000 }, async () => {
  await compare(random(seed), thorough(400, 120));
});

test(`also where an earlier version rolled up without sums (seed ${seed})`, { timeout: 300_000 }, async () => {
  // Its keys have days and logs already, also of tomorrow, and the sums begin with the next roll-up.
  const workspace = workspaceKey(tollgate.workspaceId);
  await snippet.redis.hdel(workspace, 'summed', 'daysTo');
  clock.advance(-dayMs);
  await compare(random(seed + 1), thorough(200, 100));
  expect(Number(await snippet.redis.hget(workspace, 'summed'))).toBeGreaterThan(19_000);
});

test('an import adds the sums of what it stores, each once', { timeout: 60_000 }, async () => {
  // The days that it stores are later than the first sums of the test before.
  clock.advance(20 * dayMs);
  await settled();
  const { apiId, keyId } = await createKey();
  const other = await createKey({ apiId });
  const api8 = apiId.slice(-8);
  const dayOf = (day: number, externalId: string, count: number) => ({
    day,
    externalId,
    sums: [count, 0, 1, 0, 0, 0, 2, 0],
    hours: undefined,
  });
  const early = { keyId, part: 1, days: [dayOf(today() - 40, 'ada', 7), dayOf(today() - 40, '', 1)] };
  const later = { keyId, part: 2, days: [dayOf(today() - 9, 'ada', 70_000), dayOf(today() - 1, 'bob', 5)] };
  const others = { keyId: other.keyId, part: 1, days: [dayOf(today() - 9, 'ada', 3)] };
  const { usageImport } = tollgate.store;
  const imported = (...keys: (typeof early)[]) => usageImport.keys(tollgate.workspaceId, api8, keys, false);
  // A line may be repeated, and so may an import.
  expect(await imported(early, early, others)).toEqual(['stored', 'exists', 'stored']);
  expect(await imported(early, later)).toEqual(['exists', 'stored']);
  expect(await imported(later, others)).toEqual(['exists', 'exists']);
  const query = {
    fromHour: 0,
    toHour: 24 * 40_000,
    apiIds: [apiId],
    bucketOf: (hour: number) => Math.floor(hour / 24),
  };
  const byKeys = await countsOf(servers[0]!, query, true);
  pages = 0;
  const counts = await countsOf(servers[0]!, query, false);
  expect(counts).toEqual(byKeys);
  expect(counts).toMatchObject({ [`${today() - 9} ${apiId} ada VALID`]: [70_003, 4] });
  expect(pages).toBeGreaterThan(0);
  expect(await listed(servers[0]!, query, () => 1)).toEqual({
    '': [2, 2],
    ada: [70_000 + 7 + 3 + 3, 6],
    bob: [6, 2],
  });
  // Rolled up again, nothing is added again.
  clock.advance(3 * dayMs);
  await settled();
  expect(await countsOf(servers[0]!, query, false)).toEqual(byKeys);
});

test('usage that is in the state of a key only exists for an import', async () => {
  const { apiId, keyId, key } = await createKey({ externalId: 'ada' });
  await ok('keys.verifyKey', { key });
  const { usageExport, usageImport } = tollgate.store;
  const days = (await usageExport.keys(tollgate.workspaceId, [keyId], noneLeftOut)).get(keyId)!;
  const line = { keyId, part: 1, days, externalId: 'ada' };
  expect(await usageImport.keys(tollgate.workspaceId, apiId.slice(-8), [line], false)).toEqual(['exists']);
  const query = { fromHour: 0, toHour: 24 * 40_000, apiIds: [apiId], bucketOf: () => 0 };
  expect(Object.values(await countsOf(servers[0]!, query, true))).toEqual([[1, 0]]);
});

test('a count that is late for a day whose list was dropped hides no other key of the day', async () => {
  const { apiId, keyId, key } = await createKey({ externalId: 'late' });
  const other = await createKey({ apiId, externalId: 'other' });
  for (const each of [key, other.key]) await ok('keys.verifyKey', { key: each });
  const day = today();
  clock.advance((testSettings.usageHourlyDays + 3) * dayMs);
  await settled();
  const workspace = workspaceKey(tollgate.workspaceId);
  await snippet.run(lateLua, workspace, [keyId.slice(4), 'late', 24 * day, 1, testSettings.usageRetentionMs]);
  const query = { fromHour: 24 * day, toHour: 24 * day + 24, apiIds: [apiId], bucketOf: () => 0 };
  for (let times = 0; times < 2; times++) {
    expect(rowsOf(await countsOf(servers[0]!, query, true))).toEqual({ late: [2, 3], other: [1, 0] });
    expect(await listed(servers[0]!, query, () => 1)).toEqual({ late: [2, 3], other: [1, 0] });
    await settled();
  }
});

test('many customers are in leaves that are split, and any of them is found', { timeout: 60_000 }, async () => {
  const pick = random(seed);
  const workspace = `${workspaceKey(tollgate.workspaceId)}x`;
  const add = (all: readonly [externalId: string, day: number, sums: number[]][]) =>
    snippet.run("usage_sums.adding(KEYS[1], 'ApiApi88', { ARGV[1] }, 100, 86400000)()", workspace, [
      packSums(all.map(([externalId, day, sums]) => ({ externalId, day, sums }))),
    ]);
  const expected = new Map<string, number[]>();
  const zeros = () => [0, 0, 0, 0, 0, 0, 0, 0];
  for (let step = 0; step < 60; step++) {
    const added = Array.from({ length: pick(1, 100) }, (): [string, number, number[]] => {
      const name = step % 3 === 0 ? `u${step}_${pick(0, 500)}` : `${pick(0, 5000)}`;
      const sums = zeros().map(() => (pick(0, 2) === 0 ? pick(0, oneIn(pick, [9, 300, 70_000, 2 ** 33])) : 0));
      return [step % 7 === 0 ? '' : name, 20_400 + pick(0, 80), sums];
    });
    for (const [externalId, day, sums] of added) {
      const name = `${externalId} ${day}`;
      expected.set(
        name,
        (expected.get(name) ?? zeros()).map((count, place) => count + sums[place]!),
      );
    }
    await add(added);
  }
  await add([['before the first day', 99, zeros().fill(1)]]);
  const found = new Map<string, number[]>();
  const leaves: number[] = [];
  for (let month = monthOf(20_400); month <= monthOf(20_480); month++) {
    const bounds = await snippet.redis.zrange(`${workspace}:sc:ApiApi88:${month}`, '0', '-1');
    for (const [index, bound] of ['', ...bounds].entries()) {
      const leaf = await snippet.redis.hgetallBuffer(`${workspace}:sm:ApiApi88:${month}:${bound}`);
      leaves.push(Object.keys(leaf).length);
      for (const [externalId, sums] of Object.entries(leaf)) {
        expect(externalId >= bound && (index === bounds.length || externalId < bounds[index]!)).toBe(true);
        const counts = zeros();
        visitSums(sums, counts, (dayOfMonth) =>
          found.set(`${externalId} ${dayBefore(month) + dayOfMonth}`, [...counts]),
        );
      }
    }
  }
  const some = ([, sums]: [string, number[]]) => sums.some((count) => count > 0);
  expect(new Map([...found].sort().filter(some))).toEqual(new Map([...expected].sort().filter(some)));
  expect(leaves.length).toBeGreaterThan(9);
  expect(Math.max(...leaves)).toBeLessThanOrEqual(228);
  const names = await snippet.redis.keys(`${workspace}:s[cm]:*`);
  for (const name of names) expect(await snippet.redis.pttl(name)).toBeGreaterThan(dayMs);
  await snippet.redis.unlink(names);
});

const oneIn = <Item>(pick: (min: number, max: number) => number, items: readonly Item[]) =>
  items[pick(0, items.length - 1)]!;
