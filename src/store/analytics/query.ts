// What a query of analytics asks for and returns, and the limits of all queries.

import { hourMs } from '../../domain/time.ts';
import type { Outcome } from '../../domain/verification.ts';
import { ApiError } from '../../errors.ts';

export interface Period {
  /** Hours since 1970: the first, and the one after the last. */
  fromHour: number;
  toHour: number;
}

/** One count of verifications, by hour, outcome and API; further fields as the query asks for them. */
export interface UsageCount {
  hour: number;
  outcome: Outcome;
  count: number;
  spentCredits: number;
  apiId: string;
  keyId?: string;
  externalId?: string;
  tag?: string;
}

export interface UsageQuery extends Period {
  /** True: all APIs. */
  apiIds: true | readonly string[];
  keyId?: string | undefined;
  externalId?: string | undefined;
  tag?: string | undefined;
  /** Dimensions to group by, besides the API. */
  by: { key: boolean; externalId: boolean; tag: boolean };
}

/** One count of limit checks, by hour and namespace. */
export interface NamespaceCount {
  hour: number;
  namespace: string;
  passed: number;
  blocked: number;
}

/** Receives the counts of a query one by one, in no order. The counts of an hour may be in several parts. */
export type Visit<Count> = (count: Count) => void;

/** Limit of records that a query reads: totals of a day, months of a key, counts by tag. */
export const readsMax = 200_000;

/** Days are named by their number since 1970. */
const dayOf = (hour: number): string => String(Math.floor(hour / 24));
/** Months are named `202611`. */
const monthOf = (hour: number): string => new Date(hour * hourMs).toISOString().slice(0, 7).replace('-', '');

export const daysIn = (period: Period): string[] => namesIn(period, dayOf);
export const monthsIn = (period: Period): string[] => namesIn(period, monthOf);

function namesIn({ fromHour, toHour }: Period, nameOf: (hour: number) => string): string[] {
  const names = new Set<string>();
  for (let hour = fromHour; hour < toHour; hour += 24) names.add(nameOf(hour));
  if (toHour > fromHour) names.add(nameOf(toHour - 1));
  return [...names];
}

export const hourOf = (day: string, hourOfDay: string): number => 24 * Number(day) + Number(hourOfDay);

/** The part of a period for which there can be counts: not older than the retention, and not far in the future. */
export function clampPeriod({ fromHour, toHour }: Period, nowMs: number, retentionMs: number): Period {
  const nowHour = Math.floor(nowMs / hourMs);
  // Counts are stored by day and month, and expire together: some are up to a month older.
  const oldest = nowHour - Math.ceil(retentionMs / hourMs) - 24 * 32;
  return { fromHour: Math.max(fromHour, oldest), toHour: Math.min(toHour, nowHour + 24 * 32) };
}

const narrowIt = 'Narrow it by time, API, key, identity or namespace.';

const refused = (message: string, fix: string) =>
  new ApiError('invalid_input', `The query ${message}. ${fix}`, { fields: [{ location: 'body', message, fix }] });

export const tooMuch = () => refused('covers too much to be read at once', narrowIt);

/** The response would be too long; `bound` is its limit, such as `1000 rows`. */
export const tooLong = (bound: string) =>
  refused(`makes more than ${bound}`, `${narrowIt} Or group by less, or take a coarser granularity.`);
