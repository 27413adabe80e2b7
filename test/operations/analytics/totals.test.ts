// Pages of many rows.

import { expect, test } from 'vitest';
import { pagedResult, Totals } from '../../../src/operations/analytics/buckets.ts';
import { random } from '../../support/random.ts';
import { volumeTest } from '../../support/testIf.ts';

interface Row {
  time: number;
  name: string;
  count: number;
}

/** Rows of many groups at a few times, with few different counts. */
function manyRows(rows: number) {
  const pick = random(1);
  const totals = new Totals<Row>(pagedResult);
  for (let index = 0; index < rows; index++) {
    const [time, name] = [pick(0, 3), `group ${index}`];
    totals.rowOf(time, [name], () => ({ time, name, count: pick(0, 5) }));
  }
  return totals;
}

test.each([
  ['count', (row: Row) => row.count, (a: Row, b: Row) => b.count - a.count || a.time - b.time],
  ['time', () => 0, (a: Row, b: Row) => a.time - b.time],
])('pages by %s have each row once, in order', async (_by, sizeOf, compare) => {
  const totals = manyRows(9000);
  const rows: Row[] = [];
  let after: string | undefined;
  do {
    const { items, next } = await totals.page(1000, after, sizeOf);
    expect(items).toHaveLength(1000);
    rows.push(...items);
    after = next;
  } while (after !== undefined);
  expect(new Set(rows.map(({ name }) => name)).size).toBe(9000);
  expect(rows).toEqual(rows.toSorted(compare));
});

volumeTest('other requests are served while a page of many rows is made, or many rows are put in order', async () => {
  await expectTurns(manyRows(100_000), (totals) => totals.page(1000, undefined, () => 0));
  await expectTurns(manyRows(50_000), (totals) => totals.rows());
});

async function expectTurns(totals: Totals<Row>, work: (totals: Totals<Row>) => Promise<unknown>) {
  let turns = 0;
  let isOver = false;
  const turn = () => {
    turns++;
    if (!isOver) setImmediate(turn);
  };
  setImmediate(turn);
  await work(totals);
  isOver = true;
  expect(turns).toBeGreaterThan(40);
}
