// The period of a screen, and counts in it.

import { useAddress } from './address.ts';
import type { UsageRow } from './records.ts';

export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;

/** A time from now, rounded down to the hour, so that the cached response is used again. */
export const fromNow = (ms: number, toMs = hourMs): number => Math.floor((Date.now() + ms) / toMs) * toMs;

export const periods = [
  ['1h', '1 hour'],
  ['24h', '24 hours'],
  ['7d', '7 days'],
  ['30d', '30 days'],
  ['90d', '90 days'],
] as const;
/** A name of the list, or `<start>-<end>`, in milliseconds: what was chosen in a chart. */
type PeriodName = (typeof periods)[number][0] | `${number}-${number}`;

export interface Period {
  start: number;
  end: number;
  granularity: 'hour' | 'day';
  stepMs: number;
  /** The start of each bucket. */
  times: number[];
  /** Makes a part of this period that of the screen. */
  choose?: (start: number, end: number) => void;
}

const lengths: Record<(typeof periods)[number][0], number> = {
  '1h': hourMs,
  '24h': dayMs,
  '7d': 7 * dayMs,
  '30d': 30 * dayMs,
  '90d': 90 * dayMs,
};

/**
 * A number of hours or days, including the current one. Its ends move once an hour, so that cached counts can be used
 * again.
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

const between = (start: number, end: number, granularity: Period['granularity']): Period => {
  const stepMs = granularity === 'hour' ? hourMs : dayMs;
  const [first, last] = [Math.floor(start / stepMs), Math.ceil(end / stepMs)];
  const times = Array.from({ length: last - first }, (_, index) => (first + index) * stepMs);
  return { start: first * stepMs, end: last * stepMs, granularity, stepMs, times };
};

const granularityOf = (lengthMs: number) => (lengthMs <= 7 * dayMs ? 'hour' : 'day');

/** Usage by day has a longest period, and an address may contain any text. */
const longestMs = 1000 * dayMs;

/** The ends of a period that was selected in a chart; undefined for any other name. */
export function endsOf(name: string): [start: number, end: number] | undefined {
  const [, start, end] = (/^(\d{1,14})-(\d{1,14})$/.exec(name) ?? []).map(Number);
  if (start === undefined || end === undefined || end <= start || end - start > longestMs) return undefined;
  return [start, end];
}

/** A period that was chosen, or that ends with the current hour or day. */
export function periodOf(name: PeriodName): Period {
  const ends = endsOf(name);
  if (ends) return between(...ends, granularityOf(ends[1] - ends[0]));
  const length = lengths[name as keyof typeof lengths];
  const granularity = granularityOf(length);
  return lastSteps(granularity, length / (granularity === 'hour' ? hourMs : dayMs));
}

/** The months of which there may be counts, in UTC, such as 2026-11, the current one first. */
export function lastMonths(nowMs = Date.now()): string[] {
  const now = new Date(nowMs);
  return Array.from({ length: 13 }, (_, back) =>
    new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back)).toISOString().slice(0, 7),
  );
}

/** A month, in days of UTC. */
export function monthOf(name: string): Period {
  const [year, number] = name.split('-').map(Number) as [number, number];
  return between(Date.UTC(year, number - 1), Date.UTC(year, number), 'day');
}

/** The same period in days. */
export const inDays = ({ start, end }: Period): Period => between(start, end, 'day');

/** The period that the address names. */
export function usePeriod(first: PeriodName = '24h') {
  const [{ period }, set] = useAddress({ period: first as string });
  const isKnown = periods.some(([known]) => known === period) || endsOf(period);
  const name = isKnown ? (period as PeriodName) : first;
  const setName = (period: PeriodName) => set({ period });
  return { name, setName, ...periodOf(name), choose: (start: number, end: number) => setName(`${start}-${end}`) };
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
