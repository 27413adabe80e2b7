// Time in analytics: hours are counted, and answered by hour, day or month, all in UTC.

import Type from 'typebox';
import { type Period, tooLong } from '../../store/analytics.ts';
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
  if (granularity === 'day') return Math.floor(hour / dayHours) * dayHours * hourMs;
  const date = new Date(hour * hourMs);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1);
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

/** Rows of an answer, and bytes of it as JSON: names and tags may have kilobytes. */
const rowsMax = 50_000;
const bytesMax = 10 * 1024 * 1024;

/** Said of the output of both operations. */
export const rowsDescription = 'In order of time, at most 50 000 rows and 10 MB; a query that makes more is refused.';

/** Rows that counts are added up in, one for each bucket and group. There may be millions of counts. */
export class Totals<Row extends { time: number }> {
  readonly #byTime = new Map<number, Map<string, Row>>();
  #count = 0;
  #bytes = 0;

  /** The row of a group, whose names are given in an order of their own; made when it is its first count. */
  at(time: number, names: readonly string[], make: () => Row): Row {
    let rows = this.#byTime.get(time);
    if (!rows) {
      rows = new Map();
      this.#byTime.set(time, rows);
    }
    let group = '';
    // With their lengths, as a name may look like two.
    for (const name of names) group += `${name.length} ${name}`;
    let row = rows.get(group);
    if (!row) {
      row = make();
      this.#bytes += Buffer.byteLength(JSON.stringify(row));
      if (++this.#count > rowsMax) throw tooLong('50 000 rows');
      if (this.#bytes > bytesMax) throw tooLong('10 MB');
      rows.set(group, row);
    }
    return row;
  }

  /** In order of time. */
  rows(): Row[] {
    return [...this.#byTime].sort(([a], [b]) => a - b).flatMap(([, rows]) => [...rows.values()]);
  }
}

/** The SDK can send nothing but SQL here, which this service does not speak. */
export function refuseSql(query: string | undefined, instead: string) {
  if (query !== undefined) throw invalid('body.query', 'is not taken: there is no SQL here', instead);
}
