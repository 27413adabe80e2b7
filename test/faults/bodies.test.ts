// Bodies of the maximum length, valid and invalid, for every operation: how long one blocks the event loop, and how
// much memory it takes. Time is processor time of the main thread, because wall-clock time includes what other
// processes do, in milliseconds of an idle machine (unit.ts).

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { loadConfig } from '../../src/config.ts';
import type { AnyOperation } from '../../src/operation.ts';
import { operations as registry } from '../../src/operations/index.ts';
import { arbitraryOf } from '../support/arbitrary.ts';
import { harness, requestTo, testSettings } from '../support/harness.ts';
import { longImports, longValues, withLongValue } from '../support/longBodies.ts';
import { build } from '../support/processes.ts';
import { testRedisUrl } from '../support/redis.ts';
import { isLong, longTest } from '../support/testIf.ts';
import { type Largest, largest, makeLargest, runsOnce } from './largest.ts';
import { report } from './report.ts';
import { inUnits } from './unit.ts';

const operations: readonly AnyOperation[] = registry;
const { bodyBytesMax } = loadConfig({});
/** Limits for one body; beside other tests the time has more room. */
const heldMsMax = isLong ? 50 : 100;
const heapMbMax = 64;

const tollgate = harness();
let pipeline: ChildProcess;
beforeAll(async () => {
  build();
  const options = JSON.stringify({ ...testSettings, url: testRedisUrl() });
  pipeline = fork('test/faults/costs.mjs', [options], { execArgv: ['--expose-gc'] });
  await once(pipeline, 'message');
});
afterAll(async () => {
  pipeline.disconnect();
  await once(pipeline, 'exit');
});

interface Cost {
  status: number;
  /** The longest turn of the event loop, in milliseconds, or in units if it is too long. */
  heldMs: number;
  heapMb: number;
}

async function costOnce(path: string, body: string, rootKey: string): Promise<Cost> {
  pipeline.send({ ...requestTo(`/v2/${path}`, rootKey), body });
  const [cost] = (await once(pipeline, 'message')) as [Cost];
  return { ...cost, heldMs: await inUnits(cost.heldMs, heldMsMax, unitMs) };
}

async function unitMs(): Promise<number> {
  pipeline.send('unit');
  const [ms] = await once(pipeline, 'message');
  return ms;
}

/**
 * The minimum of several runs: code that runs for the first time is slow, any turn may contain a full garbage
 * collection, and on a busy machine the main thread does the work of the threads that should help it.
 */
async function costOf(path: string, body: string, rootKey = tollgate.rootKey, heldMax = heldMsMax): Promise<Cost> {
  let least = await costOnce(path, body, rootKey);
  for (let run = 0; run < 20 && (least.heldMs > heldMax || least.heapMb > heapMbMax); run++) {
    const again = await costOnce(path, body, rootKey);
    least = {
      status: least.status,
      heldMs: Math.min(least.heldMs, again.heldMs),
      heapMb: Math.min(least.heapMb, again.heapMb),
    };
  }
  return least;
}

const few = ['items {}', 'objects of 20 names each', 'nested arrays'];

/**
 * Long bodies for an operation: the whole body, or one of its members, is a long value. Operations with lists get all
 * values.
 */
function* longBodiesOf({ name, input }: AnyOperation): Generator<[what: string, body: string]> {
  const { properties = {} } = input as unknown as { properties?: Record<string, { items?: unknown }> };
  const bytes = bodyBytesMax - 5000;
  const [valid] = fc.sample(arbitraryOf(input, {}), { numRuns: 1, seed: 1 });
  const isThorough = isLong && /verifyKey|multiLimit|migrateKeys/.test(name);
  for (const [what, make] of Object.entries(longValues)) {
    if (!isThorough && !few.includes(what)) continue;
    const value = make(bytes);
    yield [what, value];
    for (const [member, { items }] of Object.entries(properties)) {
      if (!items && !(isLong && what === few[1])) continue;
      yield [`${member}: ${what}`, withLongValue(valid as object, member, value).slice(0, bodyBytesMax)];
    }
  }
}

type Row = Cost & { what: string };

function worst(rows: readonly Row[]): string {
  const by = (of: 'heldMs' | 'heapMb') => rows.reduce((most, row) => (row[of] > most[of] ? row : most));
  const [held, heap] = [by('heldMs'), by('heapMb')];
  return `at most ${held.heldMs.toFixed(0)} ms (${held.what}) and ${heap.heapMb.toFixed(0)} MB (${heap.what})`;
}

const beyond = (rows: readonly Row[]) => rows.filter((row) => row.heldMs > heldMsMax || row.heapMb > heapMbMax);

test('no body of 1 MB, valid or not, with or without a root key, blocks the event loop or takes much memory', async () => {
  const illegal: Row[] = [];
  const legal: Row[] = [];
  const some = /verifyKey|multiLimit|migrateKeys/;
  for (const operation of operations.filter(({ name }) => isLong || some.test(name))) {
    for (const [what, body] of longBodiesOf(operation)) {
      const cost = await costOf(operation.name, body);
      illegal.push({ what: `${operation.name} ${what}`, ...cost });
      expect([400, 404], `${operation.name} ${what}`).toContain(cost.status);
    }
    const ofUnknown = heldMsMax / 2;
    const unknown = await costOf(operation.name, longValues['items {}']!(bodyBytesMax), 'nobody', ofUnknown);
    expect(unknown.status).toBe(401);
    expect(unknown.heldMs).toBeLessThanOrEqual(ofUnknown);
  }
  const { apiId } = await tollgate.ok('apis.createApi', { name: 'long' });
  for (const [what, body] of Object.entries(longImports(apiId, bodyBytesMax))) {
    const cost = await costOf('keys.migrateKeys', body);
    legal.push({ what: `keys.migrateKeys ${what}`, ...cost });
    expect(cost.status, what).toBe(200);
  }
  expect(beyond([...illegal, ...legal])).toEqual([]);
  report({
    order: '10.8',
    fault: `Bodies of ${bodyBytesMax / 1024} KB made to cost as much as they can: ${illegal.length} that are refused, ${legal.length} imports`,
    expected: `none holds the event loop for more than ${heldMsMax} ms at a time or takes more than ${heapMbMax} MB`,
    measured: `refused: ${worst(illegal)}; imports: ${worst(legal)}, of processor time and of heap`,
  });
}, 1_800_000);

longTest(
  'nor does the largest request of any operation and its response',
  async () => {
    const things = await makeLargest(tollgate.ok);
    const rows: Row[] = [];
    for (const [name, ways] of Object.entries(largest) as [string, Record<string, (of: Largest) => unknown>][]) {
      for (const [way, make] of Object.entries(ways)) {
        let least: Cost | undefined;
        const runsMax = runsOnce.test(name) ? 1 : 20;
        for (let run = 0; run < runsMax && (run < 3 || least!.heldMs > heldMsMax); run++) {
          const cost = await costOnce(name, JSON.stringify(make(things)), tollgate.rootKey);
          if (!least || cost.heldMs < least.heldMs) least = cost;
        }
        expect(least!.status, name).toBe(200);
        rows.push({ what: way ? `${name} (${way})` : name, ...least! });
      }
    }
    expect(beyond(rows)).toEqual([]);
    report({
      order: '10.8',
      fault: `The largest request of each of ${Object.keys(largest).length} operations and what is answered`,
      expected: `none holds the event loop for more than ${heldMsMax} ms at a time or takes more than ${heapMbMax} MB`,
      measured: `${worst(rows)}, of processor time and of heap`,
    });
  },
  600_000,
);
