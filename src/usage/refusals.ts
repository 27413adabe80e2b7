// Lists the recent refusals of a workspace: their rows, and the usage counts of the hours that the rows are in. The
// counts are exact, so a list can state how many refusals have no row, and hours without refusals are not read.

import type { Pagination } from '../domain/pagination.ts';
import { dayMs, hourMs } from '../domain/time.ts';
import { ApiError } from '../errors.ts';
import { workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import type { openAnalytics } from './analytics.ts';
import { filterOf, type UsageQuery } from './query.ts';
import { RefusalRows, type Refusals, type RowFilter } from './refusalRows.ts';

interface RefusalsPage {
  items: Refusals[];
  /** The place after which the next page begins. */
  next: string | undefined;
  /** The earliest time of which refusals are listed. */
  since: number;
  /** The hours with refusals that the page has passed, latest first. */
  counted: NonNullable<Pagination['counted']>;
}

interface RefusalsQuery extends RowFilter {
  /** `next` of the page before. */
  after?: string | undefined;
}

/** A page ends after this many bytes of rows, so that a search for few rows is made in steps. */
const pageBytesMax = 16 * 1024 * 1024;
/** How far ahead of the clock rows are looked for: it may have been set back. */
const aheadMs = dayMs;
/** In a place: all rows of its hour follow. */
const allRows = 999_999_999;

type Analytics = Pick<ReturnType<typeof openAnalytics>, 'verifications'>;

export function openRefusals({ redis, currentMs, refusalHours }: StoreContext, analytics: Analytics) {
  return {
    /** A page of recent refusals, newest first. Refusals of deleted APIs are not listed. */
    async list(workspaceId: string, query: RefusalsQuery): Promise<RefusalsPage> {
      const nowMs = await currentMs();
      const since = nowMs - refusalHours * hourMs + 1;
      const start = Math.max(query.start, since);
      const end = Math.min(query.end, nowMs + aheadMs);
      const page: RefusalsPage = { items: [], next: undefined, since, counted: [] };
      if (start >= end) return page;
      const place = placeOf(query.after);
      const hours = { from: Math.floor(start / hourMs), to: Math.min(Math.ceil(end / hourMs), place.hour + 1) };
      // Before the rows, so that a refusal meanwhile does not count as one without a row.
      const counts = await countsByHour(analytics, workspaceId, query, hours);
      const rows = new RefusalRows(redis, workspaceKey(workspaceId), { ...query, start, end });
      for (const hour of hoursToRead(counts, hours)) {
        if (page.items.length === query.limit || rows.bytes > pageBytesMax) {
          page.next = `${hour}_${allRows}`;
          return page;
        }
        const { listed, next } = await rows.addTo(page.items, hour, hour === place.hour ? place.row : allRows);
        const counted = counts?.get(hour);
        const refused = counted === undefined ? {} : { refused: Math.max(counted, listed) };
        page.counted.push({ time: hour * hourMs, ...refused, listed });
        if (next === undefined) continue;
        page.next = `${hour}_${next}`;
        return page;
      }
      return page;
    },
  };
}

/** The hour and the row before which a page begins. */
function placeOf(after: string | undefined): { hour: number; row: number } {
  const [hour = Number.MAX_SAFE_INTEGER, row = allRows] = after?.split('_').map(Number) ?? [];
  return { hour, row };
}

/** Hours since 1970: the first, and the one after the last. */
interface Hours {
  from: number;
  to: number;
}

/** Refusals by hour; undefined for an hour whose count is not kept. Hours without refusals are missing. */
type Counts = ReadonlyMap<number, number | undefined>;

/** The hours that may have rows, latest first. */
function* hoursToRead(counts: Counts | undefined, { from, to }: Hours) {
  for (let hour = to - 1; hour >= from; hour--) if (!counts || counts.has(hour)) yield hour;
}

/** Counts the refusals that match by hour; undefined if their counts are too many to be read. */
async function countsByHour(
  analytics: Analytics,
  workspaceId: string,
  { apiIds, keyId, externalId, outcome }: RefusalsQuery,
  { from, to }: Hours,
): Promise<Counts | undefined> {
  const counts = new Map<number, number>();
  const unknown = new Map<number, undefined>();
  const query: UsageQuery = {
    fromHour: from,
    toHour: to,
    apiIds,
    keyIds: filterOf(keyId),
    externalIds: filterOf(externalId),
    by: { key: false, externalId: false, tag: false },
    bucketOf: (hour: number) => hour,
    // A page must not take long.
    bounded: true,
  };
  try {
    await analytics.verifications(workspaceId, query, ({ hour, isOfDay, outcome: counted, count }) => {
      if (counted === 'VALID' || (outcome !== undefined && counted !== outcome)) return;
      if (!isOfDay) counts.set(hour, (counts.get(hour) ?? 0) + count);
      // A server with another USAGE_HOURLY_DAYS keeps this day as one sum.
      else for (let each = hour; each < hour + 24; each++) unknown.set(each, undefined);
    });
  } catch (error) {
    if (error instanceof ApiError && error.code === 'invalid_input') return undefined;
    throw error;
  }
  return new Map<number, number | undefined>([...counts, ...unknown]);
}
