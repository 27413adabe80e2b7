// A workspace with a long history that queries all of it, repeatedly. The server must not keep the history in memory,
// and must still serve other workspaces.

import { afterAll, beforeAll, expect, test } from 'vitest';
import { addUsedKeys, keyLogOf } from '../support/usage.ts';
import { report } from './report.ts';
import { atRate, percentile, type Rig, startRig } from './rig.ts';

const keysCount = 2500;
const days = 30;
const heapMegabytes = 192;

let rig: Rig;
let apiId: string;
let otherRootKey: string;
let otherKey: string;

beforeAll(async () => {
  rig = await startRig({
    env: { NODE_OPTIONS: `--max-old-space-size=${heapMegabytes}` },
  });
  ({ apiId } = await rig.ok('apis.createApi', { name: 'old' }));
  const keyIds: string[] = [];
  while (keyIds.length < keysCount) {
    const made = Array.from({ length: 50 }, () => rig.ok('keys.createKey', { apiId }));
    keyIds.push(...(await Promise.all(made)).map(({ keyId }) => keyId));
  }
  const [workspace] = await rig.admin.zrange('tg:workspaces', '0', '0');
  const nowHour = Math.floor(Date.now() / 3_600_000);
  const hours = Array.from({ length: 24 * days }, (_, back) => nowHour - 24 * days + back);
  for (const keyId of keyIds) {
    const writing = rig.admin.pipeline();
    const { name, log } = keyLogOf(workspace!, keyId, hours);
    writing.set(name, log);
    await writing.exec();
  }
  await addUsedKeys(rig.admin, workspace!, keyIds, hours);
  otherRootKey = await rig.createWorkspace();
  const { apiId: otherApiId } = await rig.ok('apis.createApi', { name: 'other' }, otherRootKey);
  ({ key: otherKey } = await rig.ok('keys.createKey', { apiId: otherApiId }, otherRootKey));
});
afterAll(() => rig.stop());

test('the history of all keys, eight queries at a time, is added up without being kept in memory', async () => {
  const other = (seconds: number) =>
    atRate(50, seconds, () => rig.send('keys.verifyKey', JSON.stringify({ key: otherKey }), otherRootKey));
  await other(1); // Warm.
  const before = (await other(3)).map(({ tookMs }) => tookMs);
  const end = Date.now();
  const start = end - days * 86_400_000;
  const query = { apiId, start, end, granularity: 'day', groupBy: ['keyId'] };
  // Every hour of every key has two outcomes, one of 3 and one of 1.
  const hoursInAll = keysCount * days * 24;

  let queries = 0;
  let refused = 0;
  let longest = 0;
  const until = performance.now() + 8000;
  const ask = async (groupBy: string[]) => {
    while (performance.now() < until) {
      const startedAt = performance.now();
      const { status, body } = await rig.send('analytics.getVerifications', JSON.stringify({ ...query, groupBy }));
      if (status === 503 || status === 429) refused++;
      else if (groupBy[0] === 'keyId') expect({ status, body: body.slice(0, 120) }).toMatchObject({ status: 400 });
      else {
        expect(status, body.slice(0, 200)).toBe(200);
        const rows = JSON.parse(body).data as { count: number }[];
        const counted = rows.reduce((sum, { count }) => sum + count, 0);
        // All but the hours of the first day before `start`.
        expect(counted).toBeGreaterThan(4 * keysCount * (days - 1) * 24);
        expect(counted).toBeLessThanOrEqual(4 * hoursInAll);
        queries++;
        longest = Math.max(longest, performance.now() - startedAt);
      }
    }
  };
  const [seen] = await Promise.all([
    other(8),
    ...Array.from({ length: 6 }, () => ask(['externalId', 'outcome'])),
    // Slightly more rows than one response may have.
    ...Array.from({ length: 2 }, () => ask(['keyId'])),
  ]);
  expect(queries).toBeGreaterThan(0);
  expect(seen.filter(({ status }) => status !== 200)).toEqual([]);
  const during = seen.map(({ tookMs }) => tookMs);
  const of = (tookMs: number[]) => [50, 99].map((share) => percentile(tookMs, share).toFixed(0)).join(' and ');
  report({
    order: '10.7',
    fault: `A history of ${keysCount} keys over ${days} days asked for, eight queries at a time`,
    expected: `it is added up within a heap of ${heapMegabytes} MB; every verification of another workspace is answered`,
    measured:
      `${queries} queries of ${hoursInAll.toLocaleString('en')} hours, the slowest in ${(longest / 1000).toFixed(1)} s, and ${refused} refused ` +
      `(two run at once); p50 and p99 of another's verifications ${of(before)} ms alone, ${of(during)} ms meanwhile`,
  });
});
