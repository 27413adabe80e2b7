import { expect, test } from 'vitest';
import { Totals } from '../../../src/operations/analytics/buckets.ts';

test('rows are in order of time, then of their groups, in whatever order they were counted', async () => {
  const totals = new Totals<{ time: number; names: readonly string[] }>();
  const groups = [
    ['b', 'a'],
    ['a\0', 'z'],
    ['aa', ''],
    ['a', 'z'],
    ['a', '\u0001'],
    ['', ''],
  ];
  for (const time of [2, 1]) for (const names of groups) totals.rowOf(time, names, () => ({ time, names }));
  const sorted = [
    ['', ''],
    ['a', '\u0001'],
    ['a', 'z'],
    ['a\0', 'z'],
    ['aa', ''],
    ['b', 'a'],
  ];
  expect(await totals.rows()).toEqual([1, 2].flatMap((time) => sorted.map((names) => ({ time, names }))));
});
