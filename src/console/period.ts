// The period of a screen, and counts in it.

import { useAddress } from './address.ts';
import type { UsageRow } from './records.ts';

export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;

export const periods = [
  ['1h', '1 hour'],
  ['24h', '24 hours'],
  ['7d', '7 days'],
  ['30d', '30 days'],
  ['90d', '90 days'],
] as const;
type PeriodName = (typeof periods)[number][0];

export interface Period {
  start: number;
  end: number;
  granularity: 'hour' | 'day';
  stepMs: number;
  /** The start of each bucket. */
  times: number[];
}

const lengths: Record<PeriodName, number> = {
  '1h': hourMs,
  '24h': dayMs,
  '7d': 7 * dayMs,
  '30d': 30 * dayMs,
  '90d': 90 * dayMs,
};

/**
 * A number of hours or days, the current one included. Its ends move once an hour only, so that cached counts stay
 * usable.
 */
export function lastSteps(granularity: Period['granularity'], steps: number, nowMs = Date.now()): Period {
  const stepMs = granularity === 'hour' ? hourMs : dayMs;
  const end = (Math.floor(nowMs / stepMs) + 1) * stepMs;
  const start = end - steps * stepMs;
  return {
    start,
    end,
    granularity,
    stepMs,
    times: Array.from({ length: steps }, (_, index) => start + index * stepMs),
  };
}

/** The period that ends with the current hour or day. */
export const periodOf = (name: PeriodName): Period =>
  lengths[name] <= 7 * dayMs ? lastSteps('hour', lengths[name] / hourMs) : lastSteps('day', lengths[name] / dayMs);

/** The period that the address names. */
export function usePeriod(first: PeriodName = '24h') {
  const [{ period }, set] = useAddress({ period: first as string });
  const name = periods.some(([known]) => known === period) ? (period as PeriodName) : first;
  return { name, setName: (period: PeriodName) => set({ period }), ...periodOf(name) };
}

/** The counts of each bucket of the period. */
export function byTime<Row extends { time: number }>(
  { times, start, stepMs }: Pick<Period, 'times' | 'start' | 'stepMs'>,
  rows: readonly Row[],
  amount: (row: Row) => number,
): number[] {
  const values: number[] = Array(times.length).fill(0);
  for (const row of rows) {
    const index = Math.floor((row.time - start) / stepMs);
    if (index in values) values[index]! += amount(row);
  }
  return values;
}

export const sumOf = <Row>(rows: readonly Row[], amount: (row: Row) => number): number =>
  rows.reduce((sum, row) => sum + amount(row), 0);

export const countOf = (rows: readonly UsageRow[], outcome?: string): number =>
  sumOf(rows, (row) => (outcome === undefined || row.outcome === outcome ? row.count : 0));
