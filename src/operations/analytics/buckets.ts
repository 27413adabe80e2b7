// Shared by the operations of analytics. Usage is counted by hour and returned by hour, day or month, all in UTC, or in
// one sum.

import { setTimeout as delay, setImmediate as otherRequests } from 'node:timers/promises';
import type { Static } from 'typebox';
import { digestOf } from '../../domain/keyString.ts';
import { dayMs, hourMs } from '../../domain/time.ts';
import { outcomes } from '../../domain/verification.ts';
import { ApiError } from '../../errors.ts';
import type { ManageContext, Page } from '../../operation.ts';
import { Ordered } from '../../usage/ordered.ts';
import { CountsMoved, type Period, tooLong } from '../../usage/query.ts';
import { Steps } from '../../usage/steps.ts';
import { monthOf } from '../../usage/sums.ts';
import { checkMilliseconds, invalid } from '../rules.ts';
import { OneOf, optional, out, UnixTime } from '../schemas.ts';

const dayHours = 24;
const bucketsMax = 1000;

/** The `time` of a row. */
export const Time = out.int(
  'Start of the hour, day or month, or of the whole period that was counted, in Unix milliseconds.',
);

/** The `granularity` of a row. */
export const WholeDay = OneOf(
  ['day'],
  'Present in a row of a whole day whose hours were asked for and are no longer kept.',
);

export const timeFields = optional({
  start: UnixTime(
    'Start of the period in Unix milliseconds, rounded down to the hour, not after `end`. Defaults to a day before `end`.',
  ),
  end: UnixTime('End of the period in Unix milliseconds, exclusive. Defaults to now.'),
});

export const Granularity = OneOf(
  ['hour', 'day', 'month', 'total'],
  'Period of a row. A query has at most 1000 of these. `total` is one row for each group.',
  'hour',
);
export type Granularity = Static<typeof Granularity>;

/** The outcomes that are counted. */
export const counted = outcomes.filter((outcome) => outcome !== 'NOT_FOUND');

/** Returns the start of the bucket that contains an hour, in Unix milliseconds. */
export function bucketOf(hour: number, granularity: Granularity): number {
  const number = bucketNumber(hour, granularity);
  return granularity === 'month' ? Date.UTC(1970, number, 1) : number * (granularity === 'day' ? dayMs : hourMs);
}

/** Counts buckets from that of 1970. */
function bucketNumber(hour: number, granularity: Granularity): number {
  if (granularity === 'total') return 0;
  if (granularity === 'hour') return hour;
  const day = Math.floor(hour / dayHours);
  return granularity === 'month' ? monthOf(day) : day;
}

/** Returns the hours a query covers. Rejects more than a thousand buckets. */
export function periodOf(
  { start: from, end: to }: { start?: number | undefined; end?: number | undefined },
  granularity: Granularity,
  nowMs: number,
): Period {
  checkMilliseconds({ start: from, end: to });
  const end = to ?? nowMs + 1;
  const start = from ?? Math.max(0, end - dayHours * hourMs);
  if (start > end) throw invalid('body.start', 'is after end');
  const period = { fromHour: Math.floor(start / hourMs), toHour: Math.ceil(end / hourMs) };
  if (bucketNumber(period.toHour - 1, granularity) - bucketNumber(period.fromHour, granularity) >= bucketsMax) {
    throw invalid(
      'body.granularity',
      `results in more than ${bucketsMax} buckets`,
      'Use a coarser granularity or a shorter period.',
    );
  }
  return period;
}

/** Bounds of a result: rows, and bytes as JSON, because names and tags may have kilobytes. */
interface Bounds {
  rows: number;
  megabytes: number;
}
export const wholeResult: Bounds = { rows: 50_000, megabytes: 10 };
/** Bounds of a result that is returned in pages. All of it is in memory while a page is made. */
export const pagedResult: Bounds = { rows: 100_000, megabytes: 40 };

/** Describes the operations that add up what is stored. */
export const readsDescription =
  'A query that covers too much to be read at once is rejected: narrow it by time, API, key, identity or namespace.';

/** Describes the output of both operations. */
export const rowsDescription =
  'Rows in order of time. A query that results in more than 50 000 rows or 10 MB is rejected.';

/** Sums counts, of which there may be millions, into one row for each bucket and group. */
export class Totals<Row extends { time: number }> {
  readonly #byTime = new Map<number, Map<string, Row>>();
  readonly #bounds: Bounds;
  #count = 0;
  #bytes = 0;

  constructor(bounds: Bounds = wholeResult) {
    this.#bounds = bounds;
  }

  /** Returns the row of a group, and creates it on first use. `names` must always come in the same order. */
  rowOf(time: number, names: readonly string[], make: () => Row): Row {
    let rows = this.#byTime.get(time);
    if (!rows) {
      rows = new Map();
      this.#byTime.set(time, rows);
    }
    let group = '';
    // Groups are in the order of their names. A name may contain the separator of names.
    for (const name of names) group += `${name.includes('\0') ? name.replaceAll('\0', '\0\u0001') : name}\0\0`;
    let row = rows.get(group);
    if (!row) {
      row = make();
      this.#bytes += Buffer.byteLength(JSON.stringify(row));
      const { rows: rowsMax, megabytes } = this.#bounds;
      if (++this.#count > rowsMax) throw tooLong(`${rowsMax / 1000} 000 rows`);
      if (this.#bytes > megabytes * 2 ** 20) throw tooLong(`${megabytes} MB`);
      rows.set(group, row);
    }
    return row;
  }

  /** Removes rows. */
  remove(isUnwanted: (row: Row) => boolean) {
    for (const rows of this.#byTime.values()) {
      for (const [group, row] of rows) if (isUnwanted(row)) rows.delete(group);
    }
  }

  /**
   * Returns the rows in order of time, and those of a time in the order of their groups. Other requests are served
   * between steps.
   */
  async rows(): Promise<Row[]> {
    const sorted: Row[] = [];
    const steps = new Steps();
    for (const [, rows] of [...this.#byTime].sort(([a], [b]) => a - b)) {
      const ordered = new Ordered<Row>();
      for (const [group, row] of rows) {
        ordered.getOrAdd(group, () => row);
        if (steps.isOver) await steps.next();
      }
      for (const some of ordered.after(undefined)) {
        for (const group of some) sorted.push(rows.get(group)!);
        if (steps.isOver) await steps.next();
      }
    }
    return sorted;
  }

  /**
   * Returns `limit` rows, the largest `sizeOf` first and then the earliest, and the cursor of the last one if more
   * follow. `after` is such a cursor. Rows that are equal in both are in an order of their own, which no later count
   * changes. Other requests are served between steps: the digests of 100,000 rows take 0.3 s.
   */
  async page(limit: number, after: string | undefined, sizeOf: (row: Row) => number): Promise<Page<Row>> {
    const [value, time, tie] = after?.split('_') ?? [];
    const last = after === undefined ? undefined : { value: Number(value), time: Number(time), tie: () => tie! };
    let first: Entry<Row>[] = [];
    for (const some of this.#steps(sizeOf)) {
      const beyond = first[limit];
      const following = some.filter(
        (entry) => (!last || order(last, entry) < 0) && (!beyond || order(entry, beyond) < 0),
      );
      if (following.length > 0) first = [...first, ...following].sort(order).slice(0, limit + 1);
      await otherRequests();
    }
    const page = first.slice(0, limit);
    const end = page.at(-1);
    const next = first.length > limit && end ? `${end.value}_${end.time}_${end.tie()}` : undefined;
    return { items: page.map(({ row }) => row), next };
  }

  *#steps(sizeOf: (row: Row) => number): Generator<Entry<Row>[]> {
    let some: Entry<Row>[] = [];
    for (const [time, rows] of this.#byTime) {
      for (const [group, row] of rows) {
        let tie: string | undefined;
        some.push({ time, value: sizeOf(row), row, tie: () => (tie ??= digestOf(group).toString('hex')) });
        if (some.length < pageStep) continue;
        yield some;
        some = [];
      }
    }
    yield some;
  }
}

/** Rows that are compared in one turn of the event loop, in some milliseconds. */
const pageStep = 2000;

interface Place {
  value: number;
  time: number;
  tie(): string;
}

interface Entry<Row> extends Place {
  row: Row;
}

function order(a: Place, b: Place): number {
  if (a.value !== b.value) return b.value - a.value;
  if (a.time !== b.time) return a.time - b.time;
  const [one, other] = [a.tie(), b.tie()];
  return one < other ? -1 : one > other ? 1 : 0;
}

/** A record is rolled up in less than this, once. */
const movedMax = 40;
const movedPauseMs = 250;

/** Repeats a query whose counts were moved while it read them. */
export async function withoutMoves<Result>(query: () => Promise<Result>): Promise<Result> {
  for (let times = 1; ; times++) {
    try {
      return await query();
    } catch (error) {
      if (!(error instanceof CountsMoved)) throw error;
      if (times === movedMax) throw new ApiError('store_unavailable', 'Usage is being rolled up. Retry later.', error);
      await delay(movedPauseMs);
    }
  }
}

/** The namespaces whose usage a caller may read: the one with this name or id, or all of them. True is every one. */
export async function readableNamespaces(
  namespace: string | undefined,
  { store, caller: { workspaceId, grants } }: Pick<ManageContext, 'store' | 'caller'>,
): Promise<true | string[]> {
  if (namespace === undefined) return grants.idsFor('ratelimit', 'read_analytics');
  const found = await store.overrides.findNamespace(workspaceId, namespace);
  return found ? grants.idsFor('ratelimit', 'read_analytics', found.id) : [];
}

/** Unkey's SDKs can send nothing but SQL, which Tollgate does not support. */
export function rejectSql(query: string | undefined, fix: string) {
  if (query !== undefined) throw invalid('body.query', 'is not accepted: SQL is not supported', fix);
}
