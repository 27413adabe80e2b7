// Periods of quotas (lua/include/quotaPeriods.lua, src/domain/quota.ts) compared with counting from the anchor on, and
// their counters (quotaLog.lua) with a sum for each period.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  anchorMax,
  codeOf,
  hasLength,
  lengthOf,
  periodAt,
  type QuotaPeriod,
  quotaOf,
  quotaPeriods,
} from '../../../src/domain/quota.ts';
import { dayMs, hourMs } from '../../../src/domain/time.ts';
import { snippets } from '../../support/snippet.ts';

const snippet = snippets();
const lengths = { hour: hourMs, day: dayMs, week: 7 * dayMs };

/** The beginning of the nth period after the anchor. */
function startOf(period: QuotaPeriod, anchor: number, n: number): number {
  if (period !== 'month' && period !== 'year') return anchor + n * lengths[period];
  const date = new Date(anchor);
  const month = date.getUTCMonth() + n * (period === 'year' ? 12 : 1);
  const last = new Date(Date.UTC(date.getUTCFullYear(), month + 1, 0)).getUTCDate();
  return Date.UTC(date.getUTCFullYear(), month, Math.min(date.getUTCDate(), last)) + (anchor % dayMs);
}

const about = { hour: hourMs, day: dayMs, week: 7 * dayMs, month: 30.436875 * dayMs, year: 365.2425 * dayMs };

/** The period that a time is in, by counting. */
function counted(period: QuotaPeriod, anchor: number, time: number) {
  let n = Math.floor((time - anchor) / about[period]) - 2;
  while (startOf(period, anchor, n + 1) <= time) n++;
  return { start: startOf(period, anchor, n), end: startOf(period, anchor, n + 1) };
}

const inLua = async (codes: readonly number[], times: readonly number[]): Promise<{ start: number; end: number }[]> => {
  const body = `
    local replies = {}
    for index = 1, #ARGV, 2 do
      local starts, ends = quota_periods.at(tonumber(ARGV[index]), tonumber(ARGV[index + 1]))
      replies[#replies + 1] = string.format('%.0f', starts)
      replies[#replies + 1] = string.format('%.0f', ends)
    end
    return replies`;
  const args = codes.flatMap((code, index) => [code.toFixed(0), times[index]!]);
  const replies = ((await snippet.run(body, 'tg:{ws_quotas}', args)) as string[]).map(Number);
  return codes.map((_, index) => ({ start: replies[2 * index]!, end: replies[2 * index + 1]! }));
};

const at = (text: string) => Date.parse(`${text}Z`);

test('periods begin at the anchor: months on its day or their last one, years on its date', async () => {
  const rows: [QuotaPeriod, string, string, string, string][] = [
    ['month', '2026-01-31T00:00', '2026-02-15T00:00', '2026-01-31T00:00', '2026-02-28T00:00'],
    ['month', '2026-01-31T00:00', '2026-02-28T00:00', '2026-02-28T00:00', '2026-03-31T00:00'],
    ['month', '2026-01-31T00:00', '2028-02-28T23:59', '2028-01-31T00:00', '2028-02-29T00:00'],
    ['month', '2026-01-31T00:00', '2028-02-29T00:00', '2028-02-29T00:00', '2028-03-31T00:00'],
    ['month', '2026-01-30T10:30', '2027-02-28T10:29', '2027-01-30T10:30', '2027-02-28T10:30'],
    ['month', '2026-01-29T00:00', '2028-02-29T00:00', '2028-02-29T00:00', '2028-03-29T00:00'],
    ['month', '2026-05-31T00:00', '2026-01-02T00:00', '2025-12-31T00:00', '2026-01-31T00:00'],
    ['year', '2024-02-29T06:00', '2026-03-01T00:00', '2026-02-28T06:00', '2027-02-28T06:00'],
    ['year', '2024-02-29T06:00', '2028-02-29T05:59', '2027-02-28T06:00', '2028-02-29T06:00'],
    ['year', '2024-07-01T00:00', '2026-06-30T23:59', '2025-07-01T00:00', '2026-07-01T00:00'],
    ['week', '2026-01-07T12:00', '2026-01-14T11:59', '2026-01-07T12:00', '2026-01-14T12:00'],
    ['day', '2026-01-07T09:00', '2026-03-29T08:59', '2026-03-28T09:00', '2026-03-29T09:00'],
    ['hour', '2026-01-07T00:15', '2026-01-07T00:14', '2026-01-06T23:15', '2026-01-07T00:15'],
  ];
  const codes = rows.map(([period, anchor]) => codeOf(period, at(anchor)));
  const found = await inLua(
    codes,
    rows.map(([, , time]) => at(time)),
  );
  for (const [index, [period, anchor, time, start, end]] of rows.entries()) {
    const expected = { start: at(start), end: at(end) };
    expect(found[index], `${rows[index]}`).toEqual(expected);
    expect(periodAt({ period, anchor: at(anchor) }, at(time)), `${rows[index]}`).toEqual(expected);
  }
});

test('without an anchor periods begin at midnight, on Monday, on the 1st, on 1 January', async () => {
  const time = at('2026-11-28T18:45');
  const starts = ['2026-11-28T18:00', '2026-11-28T00:00', '2026-11-23T00:00', '2026-11-01T00:00', '2026-01-01T00:00'];
  const found = await inLua(
    quotaPeriods.map((period) => codeOf(period)),
    quotaPeriods.map(() => time),
  );
  expect(found.map(({ start }) => start)).toEqual(starts.map(at));
});

test('the period of any time is that of counting, in Lua and in TypeScript, and codes are exact', async () => {
  const time = fc.integer({ min: 0, max: anchorMax });
  const aroundMonths = fc
    .tuple(fc.integer({ min: 0, max: 1500 }), fc.integer({ min: -1, max: 1 }))
    .map(([n, ms]) => Math.max(0, Date.UTC(1970, n) + ms));
  const times = fc.oneof(time, aroundMonths);
  const cases = fc.array(fc.tuple(fc.constantFrom(...quotaPeriods), times, times), { minLength: 50, maxLength: 50 });
  await fc.assert(
    fc.asyncProperty(cases, async (rows) => {
      const codes = rows.map(([period, anchor]) => codeOf(period, anchor));
      const found = await inLua(
        codes,
        rows.map(([, , each]) => each),
      );
      for (const [index, [period, anchor, each]] of rows.entries()) {
        expect(quotaOf(codes[index]!)).toEqual({ period, anchor });
        const expected = counted(period, anchor, each);
        expect(found[index], `${rows[index]}`).toEqual(expected);
        expect(periodAt({ period, anchor }, each), `${rows[index]}`).toEqual(expected);
        expect(lengthOf(codes[index]!, each)).toBe(expected.end - expected.start);
        expect(hasLength(period, expected.end - expected.start)).toBe(true);
      }
    }),
    { numRuns: 60 },
  );
});

/** Charges in turn, as verifications do. Returns the units before each, its end, and whether it was charged. */
const charge = `
  local text, results = '', {}
  local code, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
  for index = 3, #ARGV, 2 do
    local now, cost = tonumber(ARGV[index]), tonumber(ARGV[index + 1])
    local total, _, ends, kept, suffix = quota_charge(text, 1, #text, now, limit, code, cost, true)
    local moved = 0
    if total == AHEAD then
      text, moved = quota_log.repaired(text, now, code), 1
      total, _, ends, kept, suffix = quota_charge(text, 1, #text, now, limit, code, cost, true)
    end
    if suffix then text = string.sub(text, 1, kept) .. suffix end
    local read = text == '' or read_window(text)
    results[#results + 1] = { total, string.format('%.0f', ends), suffix and 1 or 0, moved, read and 1 or 0, #text }
  end
  return results`;

type Charged = [total: number, ends: string, charged: 0 | 1, moved: 0 | 1, isWhole: 0 | 1, bytes: number];

test('a counter admits the limit in each period, also after steps of the clock between neighbours', async () => {
  const step = fc.record({
    move: fc.oneof(
      { weight: 6, arbitrary: fc.constant(0) },
      { weight: 4, arbitrary: fc.integer({ min: 1, max: 3 }) },
      { weight: 2, arbitrary: fc.constant(-1) },
    ),
    cost: fc.oneof(fc.integer({ min: 0, max: 5 }), fc.constantFrom(300, 70_000, 2 ** 33)),
  });
  const histories = fc.record({
    period: fc.constantFrom(...quotaPeriods),
    anchor: fc.integer({ min: 0, max: anchorMax }),
    limit: fc.constantFrom(3, 20, 400, 100_000, 2 ** 40),
    steps: fc.array(step, { minLength: 1, maxLength: 40 }),
  });
  let moves = 0;
  await fc.assert(
    fc.asyncProperty(histories, async ({ period, anchor, limit, steps }) => {
      let { start, end } = counted(period, anchor, at('2026-01-31T12:00'));
      const used = new Map<number, number>();
      let newest = 0;
      const args: number[] = [];
      const expected: [number, number, number][] = [];
      for (const { move, cost } of steps) {
        for (let n = 0; n < move; n++) ({ start, end } = counted(period, anchor, end));
        // Back into the period before the newest only: what is before that is forgotten.
        if (move < 0 && end >= newest) ({ start, end } = counted(period, anchor, start - 1));
        moves += move < 0 ? 1 : 0;
        newest = Math.max(newest, end);
        const total = used.get(end) ?? 0;
        const fits = cost > 0 && total + cost <= limit;
        if (fits) used.set(end, total + cost);
        args.push(start + (cost % 7), cost);
        expected.push([total, end, fits ? 1 : 0]);
      }
      const given = [codeOf(period, anchor).toFixed(0), limit, ...args];
      const results = (await snippet.run(charge, 'tg:{ws_quotas}', given)) as Charged[];
      expect(results.map(([total, ends, charged]) => [total, Number(ends), charged])).toEqual(expected);
      expect(results.every(([, , , moved, isWhole, bytes]) => moved === 0 && isWhole === 1 && bytes <= 60)).toBe(true);
    }),
    { numRuns: 300 },
  );
  expect(moves).toBeGreaterThan(100);
});

test('units of a clock that was more than a period ahead count in the present period, and no longer', async () => {
  const code = codeOf('month');
  const given = [
    code.toFixed(0),
    10,
    ...[at('2026-01-15T00:00'), 4],
    ...[at('2027-06-15T00:00'), 5],
    // The clock was ahead.
    ...[at('2026-01-16T00:00'), 1],
    ...[at('2026-01-17T00:00'), 1],
    ...[at('2026-02-01T00:00'), 10],
    ...[at('2027-06-15T00:00'), 10],
  ];
  const results = (await snippet.run(charge, 'tg:{ws_quotas}', given)) as Charged[];
  expect(results.map(([total, , charged, moved]) => [total, charged, moved])).toEqual([
    [0, 1, 0],
    [0, 1, 0],
    [9, 1, 1],
    [10, 0, 0],
    [0, 1, 0],
    [0, 1, 0],
  ]);
});
