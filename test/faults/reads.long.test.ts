// Reads of one workspace, forty at a time: a contract suite, a deployment script, a console with a few colleagues. They
// wait for each other, and none is refused.

import { expect, test } from 'vitest';
import type { OperationName } from '../../src/operations/index.ts';
import { reads } from '../support/everyRead.ts';
import { exampleOf, makeThings } from '../support/examples.ts';
import { report } from './report.ts';
import { atRate, percentile, startRig } from './rig.ts';

const callers = 40;
const count = 19_000;

test('of 19,000 reads of one workspace, forty at a time, none is refused, and others are served', async () => {
  const rig = await startRig();
  const other = await rig.createWorkspace();
  const { apiId } = await rig.ok('apis.createApi', { name: 'other' }, other);
  const { key } = await rig.ok('keys.createKey', { apiId }, other);
  const things = await makeThings(rig.call, rig.rootKey);
  const requests = reads.map(({ name }) => ({ name, body: JSON.stringify(exampleOf(name).input(things)) }));

  const refused: string[] = [];
  const tookMs: number[] = [];
  let next = 0;
  async function caller() {
    while (next < count) {
      const { name, body } = requests[next++ % requests.length]!;
      const answer = await rig.send(name as OperationName, body);
      tookMs.push(answer.tookMs);
      if (answer.status !== 200) refused.push(`${name}: ${answer.status} ${answer.body}`);
    }
  }
  const flood = Promise.all(Array.from({ length: callers }, caller));
  const seen = await atRate(20, 5, () => rig.send('keys.verifyKey', JSON.stringify({ key }), other));
  await flood;
  await rig.stop();

  expect(refused).toEqual([]);
  expect(seen.filter(({ status }) => status !== 200)).toEqual([]);
  const p99 = percentile(
    seen.map(({ tookMs }) => tookMs),
    99,
  );
  report({
    order: '10.13',
    fault: `${count} reads of ${requests.length} kinds of one workspace, ${callers} at a time`,
    expected: 'none is refused, and every verification of another workspace is answered',
    measured: `p99 ${percentile(tookMs, 99).toFixed(0)} ms; that of the other ${p99.toFixed(0)} ms`,
  });
}, 240_000);
