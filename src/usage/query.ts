// Queries of analytics, their results, and the limits of all queries.

import { dayMs, hourMs } from '../domain/time.ts';
import type { Outcome } from '../domain/verification.ts';
import { ApiError } from '../errors.ts';
import type { StoreContext } from '../scripts/context.ts';
import { wholeDay } from '../scripts/layout.ts';

export interface Period {
  /** Hours since 1970: the first, and the one after the last. */
  fromHour: number;
  toHour: number;
}

/** A period with the first hour of which counts are kept by hour. Counts of earlier hours are kept by day. */
export interface KeptPeriod extends Period {
  hourlyFrom: number;
  /** Days whose counts are read from the sums by customer. They are left out where keys are read. */
  summed?: Days | undefined;
}

/** One count of verifications, by hour, outcome and API; further fields as the query asks for them. */
export interface UsageCount {
  /** Hour since 1970; the first hour of a day that is kept as one sum. */
  hour: number;
  /** The count is of the whole day, because its hours are not kept. */
  isOfDay?: boolean;
  outcome: Outcome;
  count: number;
  spentCredits: number;
  apiId: string;
  keyId?: string;
  externalId?: string;
  tag?: string;
}

export interface UsageQuery extends Period {
  /** The APIs; true for all. */
  apiIds: true | readonly string[];
  keyIds?: ReadonlySet<string> | undefined;
  externalIds?: ReadonlySet<string> | undefined;
  tag?: string | undefined;
  /** Dimensions to group by, besides the API. */
  by: { key: boolean; externalId: boolean; tag: boolean };
  /** The bucket of an hour: the counts of a bucket may be added up before they are visited. */
  bucketOf(hour: number): number;
  /** Refuse the query if so many keys were used in the period that they are not in memory at a time (used.ts). */
  bounded?: boolean;
}

/** The workspace, APIs and period of a query of verifications. */
export interface UsageScope {
  context: StoreContext;
  workspaceId: string;
  /** APIs that exist. */
  apiIds: readonly string[];
  /** APIs whose counts the sums of customers have apart, too. */
  apart?: readonly string[];
  period: KeptPeriod;
  nowMs: number;
  bucketOf: UsageQuery['bucketOf'];
}
export type InWorkspace = Pick<UsageScope, 'context' | 'workspaceId'>;

/** The APIs by the last 8 characters of their ids, which the ids of their keys end with. */
export const api8sOf = ({ apiIds }: UsageScope): string[] => apiIds.map((apiId) => apiId.slice(-8));
/** The current day, in days since 1970. */
export const todayOf = ({ nowMs }: UsageScope): number => Math.floor(nowMs / dayMs);

/** Days since 1970: the first, and the one after the last. */
export interface Days {
  fromDay: number;
  toDay: number;
}

/** A filter of one id; undefined for all. */
export const filterOf = (id: string | undefined): ReadonlySet<string> | undefined =>
  id === undefined ? undefined : new Set([id]);

/** One count of limit checks, by hour and namespace. */
export interface NamespaceCount {
  hour: number;
  isOfDay?: boolean;
  namespace: string;
  /** Present if the query asks for it. */
  identifier?: string;
  passed: number;
  blocked: number;
}

/** Counts were moved while a query read them. It has to be repeated. */
export class CountsMoved extends Error {}

/** Receives the counts of a query one by one, in no order. The counts of an hour may be in several parts. */
export type Visit<Count> = (count: Count) => void;

/** Limit of records that a query reads: totals of a day, lists of used keys, counts by tag. */
export const readsMax = 200_000;

/** Days are named by their number since 1970. */
const dayOf = (hour: number): string => String(Math.floor(hour / 24));

export function daysIn({ fromHour, toHour }: Period): string[] {
  const names = new Set<string>();
  for (let hour = fromHour; hour < toHour; hour += 24) names.add(dayOf(hour));
  if (toHour > fromHour) names.add(dayOf(toHour - 1));
  return [...names];
}

export const hourOf = (day: string, hourOfDay: string): number => 24 * Number(day) + Number(hourOfDay);

/**
 * The hour of a count by tag or identifier. Counts of days before the first one that is kept by hour are of the whole
 * day.
 */
export function keptHour(
  day: string,
  hourOfDay: string,
  { hourlyFrom }: KeptPeriod,
): { hour: number; isOfDay: boolean } {
  const first = 24 * Number(day);
  const isOfDay = hourOfDay === wholeDay || first < hourlyFrom;
  return { hour: isOfDay ? first : first + Number(hourOfDay), isOfDay };
}

/** Whether a count is in the period. The count of a whole day is in it if a part of the day is. */
export const isIn = ({ fromHour, toHour }: Period, { hour, isOfDay }: { hour: number; isOfDay?: boolean }): boolean =>
  hour < toHour && (isOfDay ? hour + 24 > fromHour : hour >= fromHour);

/** The part of a period for which there can be counts: not older than the retention, and not far in the future. */
export function clampPeriod({ fromHour, toHour }: Period, nowMs: number, retentionMs: number): Period {
  const nowHour = Math.floor(nowMs / hourMs);
  // Counts are stored by day, and those of a day expire together.
  const oldest = nowHour - Math.ceil(retentionMs / hourMs) - 24;
  return { fromHour: Math.max(fromHour, oldest), toHour: Math.min(toHour, nowHour + 24 * 32) };
}

/** A period in which days that are kept as one sum are included whole. */
export function keptPeriod({ fromHour, toHour }: Period, nowMs: number, hourlyDays: number): KeptPeriod {
  const hourlyFrom = 24 * (Math.floor(nowMs / hourMs / 24) - hourlyDays);
  return {
    fromHour: fromHour < hourlyFrom ? 24 * Math.floor(fromHour / 24) : fromHour,
    toHour: toHour < hourlyFrom ? 24 * Math.ceil(toHour / 24) : toHour,
    hourlyFrom,
  };
}

const narrowIt = 'Narrow it by time, API, key, identity or namespace.';

const refused = (message: string, fix: string) =>
  new ApiError('invalid_input', `The query ${message}. ${fix}`, { fields: [{ location: 'body', message, fix }] });

export const tooMuch = () => refused('covers too much to be read at once', narrowIt);
/** The response would be too long; `bound` is its limit, such as `1000 rows`. */
export const tooLong = (bound: string) =>
  refused(`makes more than ${bound}`, `${narrowIt} Or group by less, or take a coarser granularity.`);
