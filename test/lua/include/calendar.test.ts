// Compares lua/include/calendar.lua with JavaScript's calendar.

import { expect, test } from 'vitest';
import { snippets } from '../../support/snippet.ts';

const { run } = snippets();
const dayMs = 86_400_000;
const years = Array.from({ length: 2100 - 1970 + 1 }, (_, index) => 1970 + index);

/** Returns refill_after for each pair of a time and a refill day. */
const refillsAfter = (pairs: readonly (readonly [now: number, refillDay: number])[]) =>
  run(
    `local due = {}
     for index = 1, #ARGV, 2 do due[#due + 1] = int(refill_after(tonumber(ARGV[index]), tonumber(ARGV[index + 1]))) end
     return due`,
    'tg:{none}',
    pairs.flat(),
  ).then((due) => (due as string[]).map(Number));

const refillMoment = (year: number, month: number, refillDay: number) =>
  Date.UTC(year, month, Math.min(refillDay, new Date(Date.UTC(year, month + 1, 0)).getUTCDate()));

/** The model: the first refill time in the future, searched month by month. */
function expected(now: number, refillDay: number): number {
  const date = new Date(now);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth()];
  if (refillDay === 0) return Date.UTC(year, month, date.getUTCDate() + 1);
  const ahead = [month, month + 1, month + 2].map((m) => refillMoment(year, m, refillDay)).filter((due) => due > now);
  return Math.min(...ahead);
}

test('monthly refills of every month and day, just before, at and just after', async () => {
  for (const year of years) {
    const pairs: [number, number][] = [];
    for (let month = 0; month < 12; month++) {
      for (let refillDay = 1; refillDay <= 31; refillDay++) {
        const moment = refillMoment(year, month, refillDay);
        for (const now of [moment - 1, moment, moment + 1]) if (now >= 0) pairs.push([now, refillDay]);
      }
    }
    expect(await refillsAfter(pairs)).toEqual(pairs.map((pair) => expected(...pair)));
  }
});

test('daily refills of every day, just before, at and just after midnight', async () => {
  for (const year of years) {
    const pairs: [number, number][] = [];
    for (let day = Date.UTC(year, 0, 1); day < Date.UTC(year + 1, 0, 1); day += dayMs) {
      for (const now of [day - 1, day, day + 1]) if (now >= 0) pairs.push([now, 0]);
    }
    expect(await refillsAfter(pairs)).toEqual(pairs.map((pair) => expected(...pair)));
  }
});

test.each([
  ['2024-02-10T00:00:00Z', 31, '2024-02-29T00:00:00Z'],
  ['2024-02-29T00:00:00Z', 31, '2024-03-31T00:00:00Z'],
  ['2023-02-10T00:00:00Z', 30, '2023-02-28T00:00:00Z'],
  ['2100-02-10T00:00:00Z', 29, '2100-02-28T00:00:00Z'],
  ['2000-02-28T23:59:59.999Z', 29, '2000-02-29T00:00:00Z'],
  ['2026-12-31T12:00:00Z', 31, '2027-01-31T00:00:00Z'],
  ['2026-12-31T12:00:00Z', 1, '2027-01-01T00:00:00Z'],
  ['2026-12-31T23:59:59.999Z', 0, '2027-01-01T00:00:00Z'],
])('after %s, day %i: %s', async (now, refillDay, due) => {
  expect(await refillsAfter([[Date.parse(now), refillDay]])).toEqual([Date.parse(due)]);
});

test('every day is in its year and month, and every month begins on its day', async () => {
  for (const year of years) {
    const days: number[] = [];
    for (let at = Date.UTC(year, 0, 1); at < Date.UTC(year + 1, 0, 1); at += dayMs) days.push(at / dayMs);
    const found = await run(
      `local found = {}
       for index, day in ipairs(ARGV) do
         local year, month = month_of(tonumber(day))
         found[index] = { year, month, days_to_month(year, month) }
       end
       return found`,
      'tg:{none}',
      days,
    );
    const wanted = days.map((day) => {
      const month = new Date(day * dayMs).getUTCMonth();
      return [year, month, Date.UTC(year, month, 1) / dayMs];
    });
    expect(found).toEqual(wanted);
  }
});
