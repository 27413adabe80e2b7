// Time in analytics: hours are counted, and answered by hour, day or month, all in UTC.

import Type from 'typebox';
import type { Period } from '../../store/analytics.ts';
import { invalid } from '../rules.ts';
import { Int } from '../schemas.ts';

const hourMs = 3_600_000;
const dayHours = 24;
const bucketsMax = 1000;
const timeMax = 4_102_444_800_000;

export type Granularity = 'hour' | 'day' | 'month';

export const timeFields = {
  start: Type.Optional(
    Int({
      minimum: 0,
      maximum: timeMax,
      description: 'Unix milliseconds; the hour it lies in counts. A day before `end` if left out.',
    }),
  ),
  end: Type.Optional(
    Int({ minimum: 0, maximum: timeMax, description: 'Unix milliseconds, not included. Now if left out.' }),
  ),
  granularity: Type.Optional(Type.Enum(['hour', 'day', 'month'], { default: 'hour' })),
};

/** The beginning of the bucket that an hour lies in, in Unix milliseconds. */
export function bucketOf(hour: number, granularity: Granularity): number {
  if (granularity === 'hour') return hour * hourMs;
  const date = new Date(hour * hourMs);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), granularity === 'day' ? date.getUTCDate() : 1);
}

/** How many buckets lie between this hour's and that of 1970. */
function bucketNumber(hour: number, granularity: Granularity): number {
  if (granularity !== 'month') return Math.floor(hour / (granularity === 'day' ? dayHours : 1));
  const date = new Date(hour * hourMs);
  return 12 * (date.getUTCFullYear() - 1970) + date.getUTCMonth();
}

/** The hours a query covers; refuses more than a thousand buckets. */
export function periodOf(
  input: { start?: number | undefined; end?: number | undefined },
  granularity: Granularity,
  nowMs: number,
): Period {
  const end = input.end ?? nowMs + 1;
  const start = input.start ?? Math.max(0, end - dayHours * hourMs);
  if (start > end) throw invalid('body.start', 'is after end');
  const period = { fromHour: Math.floor(start / hourMs), toHour: Math.ceil(end / hourMs) };
  if (bucketNumber(period.toHour - 1, granularity) - bucketNumber(period.fromHour, granularity) >= bucketsMax) {
    throw invalid(
      'body.granularity',
      `makes more than ${bucketsMax} buckets of this time`,
      'Take a coarser one, or less time.',
    );
  }
  return period;
}

/** Adds up what has the same bucket and groups, in order of time. */
export function addUp<Row extends { time: number }>(rows: Iterable<Row>, sums: readonly (keyof Row)[]): Row[] {
  const totals = new Map<string, Row>();
  for (const row of rows) {
    const key = JSON.stringify(Object.entries(row).filter(([name]) => !sums.includes(name as keyof Row)));
    const total = totals.get(key);
    if (!total) totals.set(key, row);
    else for (const name of sums) total[name] = ((total[name] as number) + (row[name] as number)) as Row[keyof Row];
  }
  return [...totals.values()].sort((a, b) => a.time - b.time);
}

/** The SDK can send nothing but SQL here, which this service does not speak. */
export function refuseSql(query: string | undefined, instead: string) {
  if (query !== undefined) throw invalid('body.query', 'is not taken: there is no SQL here', instead);
}
