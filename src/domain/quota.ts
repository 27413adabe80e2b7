// The periods of quotas, in UTC. The same rules are in lua/include/quotaPeriods.lua.
//
// Where windows have a duration, a quota has its *code*: a number above all durations that has the period and the
// anchor. So everything that finds a counter by a duration finds that of a quota.

import { dayMs, hourMs } from './time.ts';

export const quotaPeriods = ['hour', 'day', 'week', 'month', 'year'] as const;
export type QuotaPeriod = (typeof quotaPeriods)[number];

export interface Quota {
  period: QuotaPeriod;
  /** Unix milliseconds. Each period begins at its time of day, weekday, day of the month, month. */
  anchor: number;
}

/** Codes are from here on: 2^55 plus 8 times a number, which numbers up to 2^56 have without rounding. */
export const quotaCodes = 2 ** 55;
/** A code has the number of its period, and above it its anchor. */
export const codeUnit = 8;
/** The first second of 2100. */
export const anchorMax = 4_102_444_800_000;

/** Monday for weeks, the beginning of 1970 for others. */
export const defaultAnchor = (period: QuotaPeriod): number => (period === 'week' ? 4 * dayMs : 0);

export const codeOf = (period: QuotaPeriod, anchor = defaultAnchor(period)): number =>
  quotaCodes + codeUnit * (codeUnit * anchor + quotaPeriods.indexOf(period));

/** A limit as requests and responses have it. */
export interface Periodic {
  duration?: number | undefined;
  period?: QuotaPeriod | undefined;
  anchor?: number | undefined;
}

/** The duration that is stored of a limit: of a quota its code. */
export const storedDuration = ({ duration, period, anchor }: Periodic): number =>
  period === undefined ? duration! : codeOf(period, anchor);

/** The quota of a stored duration; undefined for that of a window or slots. */
export function quotaOf(duration: number): Quota | undefined {
  if (duration < quotaCodes) return undefined;
  const number = (duration - quotaCodes) / codeUnit;
  return { period: quotaPeriods[number % codeUnit]!, anchor: Math.floor(number / codeUnit) };
}

const lengths = { hour: hourMs, day: dayMs, week: 7 * dayMs };
const monthsIn = { month: 1, year: 12 };

/** The time at which the anchor's day begins in a month since 1970, or the last day of a shorter month. */
function inMonth(month: number, anchor: number): number {
  const day = new Date(anchor).getUTCDate();
  const first = Date.UTC(1970, month);
  const days = (Date.UTC(1970, month + 1) - first) / dayMs;
  return first + (Math.min(day, days) - 1) * dayMs + (anchor % dayMs);
}

const monthOf = (time: number): number => {
  const date = new Date(time);
  return 12 * (date.getUTCFullYear() - 1970) + date.getUTCMonth();
};

/** The period of a quota that a time is in. */
export function periodAt({ period, anchor }: Quota, time: number): { start: number; end: number } {
  if (period !== 'month' && period !== 'year') {
    const length = lengths[period];
    const start = time - ((((time - anchor) % length) + length) % length);
    return { start, end: start + length };
  }
  const step = monthsIn[period];
  const month = monthOf(time);
  let first = month - ((((month - monthOf(anchor)) % step) + step) % step);
  if (inMonth(first, anchor) > time) first -= step;
  return { start: inMonth(first, anchor), end: inMonth(first + step, anchor) };
}

/** The milliseconds of a stored duration: of a quota, of its period that a time is in. */
export function lengthOf(duration: number, time: number): number {
  const quota = quotaOf(duration);
  if (!quota) return duration;
  const { start, end } = periodAt(quota, time);
  return end - start;
}

/** Whether a period may have this length, which a response has as its duration. */
export function hasLength(period: QuotaPeriod, length: number): boolean {
  const days = length / dayMs;
  if (period === 'month') return Number.isInteger(days) && days >= 28 && days <= 31;
  return period === 'year' ? days === 365 || days === 366 : length === lengths[period];
}
