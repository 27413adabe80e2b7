// A workspace that asks for all it may, as fast as it can. How long any script of the largest requests keeps Redis, and
// what another workspace sees meanwhile.

import { afterAll, beforeAll, expect, test } from 'vitest';
import type { OperationName } from '../../src/operations/index.ts';
import { type Largest, largest, makeLargest } from './largest.ts';
import { report } from './report.ts';
import { atRate, percentile, type Rig, startRig } from './rig.ts';

/** A script may keep Redis so long, in milliseconds. Imports are all or nothing, and so one script. */
const scriptMsMax = 30;
const importMsMax = 100;

let rig: Rig;
let things: Largest;
let otherRootKey: string;
let otherKey: string;

beforeAll(async () => {
  // Slower than 50 µs is said by Redis, script by script; what is faster needs no saying.
  rig = await startRig({
    redis: ['--slowlog-log-slower-than', '50', '--slowlog-max-len', '10000'],
    env: { REDIS_TIMEOUT_MS: '10000' },
  });
  things = await makeLargest(rig.ok);
  otherRootKey = await rig.createWorkspace();
  const { apiId } = await rig.ok('apis.createApi', { name: 'other' }, otherRootKey);
  ({ key: otherKey } = await rig.ok('keys.createKey', { apiId, credits: { remaining: 1e9 } }, otherRootKey));
}, 120_000);
afterAll(() => rig.stop());

/**
 * The longest that Redis was kept by one script of a call, in milliseconds: by Redis's clock, or, as that goes on while other
 * processes have the processor, the script's share of the processor time of the whole call.
 */
async function longestMs(operation: OperationName, input: unknown): Promise<number> {
  const body = JSON.stringify(input);
  await rig.admin.slowlog('RESET');
  const before = rig.redis.cpuUs();
  const { status, body: answer } = await rig.send(operation, body);
  expect(status, `${operation}: ${answer.slice(0, 200)}`).toBe(200);
  const cpuUs = rig.redis.cpuUs() - before;
  const slow = (await rig.admin.slowlog('GET', '10000')) as [number, number, number, string[]][];
  const scripts = slow.filter(([, , , [command]]) => /^eval(sha)?$/i.test(command!));
  const tookUs = scripts.map(([, , us]) => us);
  const longestUs = Math.max(50, ...tookUs);
  const allUs = Math.max(
    longestUs,
    tookUs.reduce((sum, us) => sum + us, 0),
  );
  return Math.max(50, Math.min(longestUs, (cpuUs * longestUs) / allUs)) / 1000;
}

test('no script of the largest request of any operation keeps Redis for long', async () => {
  const rows: { what: string; took: number; most: number }[] = [];
  for (const [operation, ways] of Object.entries(largest) as [
    OperationName,
    Record<string, (of: Largest) => unknown>,
  ][]) {
    for (const [way, make] of Object.entries(ways)) {
      let took = Number.POSITIVE_INFINITY;
      // The machine does other things as well: the least of some. What deletes can do so once.
      for (let run = 0; run < (operation.includes('.delete') ? 1 : 7); run++) {
        took = Math.min(took, await longestMs(operation, make(things)));
      }
      rows.push({
        what: way ? `${operation} (${way})` : operation,
        took,
        most: operation === 'keys.migrateKeys' ? importMsMax : scriptMsMax,
      });
    }
  }
  rows.sort((a, b) => b.took - a.took);
  console.log(rows.map(({ what, took }) => `${took.toFixed(2).padStart(8)} ms  ${what}`).join('\n'));
  expect(rows.filter(({ took, most }) => took > most)).toEqual([]);
  const long = rows.filter(({ took }) => took >= 2);
  report({
    order: '10.5',
    fault: `The largest request of each of ${Object.keys(largest).length} operations, alone`,
    expected: `no script keeps Redis longer than ${scriptMsMax} ms, that of an import not longer than ${importMsMax} ms`,
    measured: `${long.map(({ what, took }) => `${what} ${took.toFixed(1)} ms`).join('; ')}; all others below 2 ms`,
  });
}, 240_000);
