// Stored data of every released data version, with the responses of every read operation to it: this release responds
// the same before and after it migrates the data.

import { readdirSync } from 'node:fs';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { workspaceKey } from '../../src/redis/names.ts';
import { dataVersion, oldestDataVersion } from '../../src/scripts/layout.ts';
import { openStore, type Store } from '../../src/store.ts';
import { answersOf, comparable } from '../fixtures/data/answers.ts';
import { type Fixture, loadFixture, makeFixture, readFixture } from '../fixtures/data/make.ts';
import { earlierRelease, lastCommits } from '../support/earlierRelease.ts';
import type { Read } from '../support/everyRead.ts';
import { dayMs, hourMs, testSettings } from '../support/harness.ts';
import { keyspace, namesIn, survey } from '../support/keyspace.ts';
import { redisOfFile } from '../support/ofFile.ts';
import { endAll } from '../support/processes.ts';
import { testRedisUrl } from '../support/redis.ts';
import { isThorough, testIf } from '../support/testIf.ts';

const url = testRedisUrl();
const redis = await redisOfFile();
afterEach(endAll);

const folders = readdirSync(new URL('../fixtures/data/', import.meta.url)).filter((name) => /^v\d+$/.test(name));

test.runIf(process.env.UPDATE_FIXTURES)(
  'makes the data of versions without a fixture',
  { timeout: 600_000 },
  async () => {
    for (const [version, commit] of Object.entries(lastCommits)) {
      if (folders.includes(`v${version}`)) continue;
      await makeFixture(commit, earlierRelease(commit)!, Number(version), url);
    }
  },
);

/** What fixtures lack: an API that is being moved, sums of hundreds of customers, and what later servers added. */
const notMade = [
  ...[':mv:<api8>', ':mp:<api8>', ':ms:<api8>', ':mo:<api8>', ':mi:<api8>', ':mk:<api8>', ':sc:<api8>:<month>'],
  ...[':da:<api8>', ':das', ':dq'],
];

const versions = Array.from({ length: dataVersion - oldestDataVersion }, (_, index) => oldestDataVersion + index);

test('each earlier data version has a fixture', () => {
  expect(folders.sort()).toEqual(versions.map((version) => `v${version}`));
});

describe.each(versions)('data version %i', (version) => {
  let fixture: Fixture;
  beforeAll(() => {
    fixture = readFixture(version);
  });

  test('has a record of every kind', async () => {
    await loadFixture(redis, fixture);
    const { seen } = await survey(redis);
    const missing = keyspace.filter(({ name, isOld, since = 0 }) => !isOld && !seen.has(name) && since <= version);
    // Only data that was migrated has a place of the migration.
    const notExpected = new Set([':data', ...notMade]);
    expect(missing.map(({ name }) => name).filter((name) => !notExpected.has(name))).toEqual([]);
  });

  // The oldest one needs all steps of the migration, and servers read the last one before it. The others, and all of
  // them before it: npm run test:faults.
  const [isFirst, isLast] = [version === versions[0], version === versions.at(-1)];
  testIf(isThorough || isFirst || isLast)('is read the same before and after its migration', async () => {
    await loadFixture(redis, fixture);
    const store = await openStore({ ...testSettings, url, nowMs: () => fixture.nowMs });
    const expected = fixture.answers.map(comparable);
    try {
      expect(store.dataVersion.current).toBe(version);
      if (isThorough || isLast) expect(await answersOf(store, fixture)).toEqual(expected);
      expect(await store.migrations.migrate({ force: true })).toBe('migrated');
      expect(store.dataVersion.current).toBe(dataVersion);
      expect(await answersOf(store, fixture)).toEqual(expected);
      // Among them the fields of keys, of which `leases` is none.
      const { wrong } = await survey(redis);
      expect(wrong).toEqual([]);
      expect(await identitiesWith('leases')).toEqual([]);
      const expiring = fixture.answers.map(expiringKeys);
      expect(await Promise.all(fixture.workspaces.map(({ workspaceId }) => indexed(workspaceId)))).toEqual(expiring);
      expect(expiring.every((keys) => keys.length > 5)).toBe(true);
    } finally {
      await store.close();
    }
  });

  test('is billed the same before its migration, and before and after sums by customer begin', async () => {
    await loadFixture(redis, fixture);
    let nowMs = fixture.nowMs;
    const store = await openStore({ ...testSettings, url, nowMs: () => nowMs });
    const expected = fixture.answers.map(billedOf);
    expect(expected.every(({ customers }) => customers.length > 3)).toBe(true);
    try {
      expect(await billsOf(store, fixture)).toEqual(expected);
      expect(await store.migrations.migrate({ force: true })).toBe('migrated');
      for (let day = 0; day < 4; day++) {
        for (const { workspaceId } of fixture.workspaces) while (await store.sweep.rollUp(workspaceId));
        expect(await billsOf(store, fixture), `day ${day}`).toEqual(expected);
        nowMs += dayMs;
      }
      const begun = fixture.workspaces.map(({ workspaceId }) => redis.hget(workspaceKey(workspaceId), 'summed'));
      const areEarlier = (await Promise.all(begun)).map((summed) => Number(summed) * dayMs <= fixture.nowMs);
      // Data of version 6 has had sums from the beginning.
      expect(areEarlier).toEqual(areEarlier.map(() => version >= 6));
    } finally {
      await store.close();
    }
  });
});

/** The customers of the recorded response to a query by customer, and those of the bill of its period. */
function billedOf(answers: readonly Read[]) {
  const isTotal = ({ input }: Read) => JSON.stringify(input).includes('"granularity":"total","groupBy":["externalId"]');
  const { input, data } = answers.find((read) => read.name === 'analytics.getVerifications' && isTotal(read))!;
  const { start, end } = input as { start: number; end: number };
  const rows = data as { externalId?: string; count: number; spentCredits: number }[];
  const customers = rows.map(({ externalId = '', count, spentCredits }) => ({ externalId, count, spentCredits }));
  return { start, end, customers: customers.sort((a, b) => (a.externalId < b.externalId ? -1 : 1)) };
}

async function billsOf(store: Store, { workspaces, answers }: Fixture) {
  const bills = workspaces.map(async ({ workspaceId }, index) => {
    const { start, end } = billedOf(answers[index]!);
    const period = { fromHour: Math.floor(start / hourMs), toHour: Math.ceil(end / hourMs) };
    const page = await store.analytics.customers(workspaceId, {
      ...period,
      apiIds: true,
      from: undefined,
      limit: 1000,
    });
    return {
      start,
      end,
      customers: page.customers.map(({ externalId, count, spentCredits }) => ({ externalId, count, spentCredits })),
    };
  });
  return Promise.all(bills);
}

const workspaceNames = async (workspaceId: string, part: string) =>
  (await namesIn(redis)).filter((name) => name.toString('latin1').startsWith(`${workspaceKey(workspaceId)}:${part}:`));

/** The number of keys in the index of an API by expiry, and the times. */
async function indexed(workspaceId: string): Promise<string[]> {
  const entries: string[] = [];
  for (const name of await workspaceNames(workspaceId, 'ke')) {
    const flat = await redis.zrangeBuffer(name, '0', '-1', 'WITHSCORES');
    const api8 = name.toString('latin1').slice(-8);
    for (let at = 0; at < flat.length; at += 2) entries.push(`${api8} ${flat[at + 1]}`);
  }
  return entries.sort();
}

/** The same of the keys that listKeys returns. */
function expiringKeys(answers: readonly Read[]): string[] {
  const lists = answers.filter(({ name, input }) => name === 'keys.listKeys' && JSON.stringify(input) === '{}');
  const keys = lists.flatMap(({ data }) => data as { keyId: string; expires?: number }[]);
  return keys.flatMap(({ keyId, expires }) => (expires === undefined ? [] : [`${keyId.slice(-8)} ${expires}`])).sort();
}

async function identitiesWith(field: string): Promise<string[]> {
  const names = (await namesIn(redis)).filter((name) => /^tg:\{\w+\}:i:/.test(name.toString('latin1')));
  const has = await Promise.all(names.map((name) => redis.hexists(name, field)));
  return names.filter((_, index) => has[index] === 1).map(String);
}
