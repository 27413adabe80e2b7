// Tables, times and durations on a terminal.

import type { Shared } from '../domain/columns.ts';
import { defaultAnchor, type Periodic } from '../domain/quota.ts';
import { dayMs, hourMs, timeMax } from '../domain/time.ts';

/** Headings, and the cells of a row below them. */
export interface Columns<Row> {
  headings: readonly string[];
  rowOf: (row: Row) => string[];
}

type RowOf<C> = C[keyof C] extends Shared<infer Row> ? Row : unknown;
type TextRow<T> = [keyof T] extends [never] ? unknown : T[keyof T] extends (row: infer Row) => string ? Row : unknown;

/** Columns that the console displays, too. `texts` has other formats of cells, and the cells of this table only. */
export function columnsOf<C extends Record<string, Shared<never>>, T extends Record<string, (row: never) => string>>(
  shared: C,
  names: readonly ((keyof C | keyof T) & string)[],
  texts: T,
): Columns<RowOf<C> & TextRow<T>> {
  const cellOf = (name: string, row: never): string => {
    const format = texts[name];
    if (format) return format(row);
    const { kind, value } = shared[name]!;
    const content = value(row, Date.now());
    return kind === 'time' ? timeText(content as number | undefined) : String(content ?? '');
  };
  return {
    headings: names.map((name) => name.toUpperCase()),
    rowOf: (row) => names.map((name) => cellOf(name, row as never)),
  };
}

/** The name of the column of plans, which a table has only if a row has a plan. */
export const planIfAny = (rows: readonly { planId?: string | undefined }[]): readonly 'Plan'[] =>
  rows.some(({ planId }) => planId !== undefined) ? ['Plan'] : [];

/** Rows with aligned columns below their headings. */
export function tableOf(headings: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const all = [headings, ...rows];
  const widths = headings.map((_, column) => Math.max(...all.map((row) => row[column]!.length)));
  return all.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  );
}

export const timeText = (ms: number | undefined): string =>
  ms === undefined ? '' : new Date(ms).toISOString().replace('.000Z', 'Z');

const units = { w: 7 * dayMs, d: dayMs, h: hourMs, m: 60_000, s: 1000, ms: 1 } as const;

/** Milliseconds of `90s`, `15m`, `12h`, `30d` or `1w`. An error begins with `of`, such as the name of an option. */
export function durationOf(text: string, of = ''): number {
  const [, count, unit] = /^(\d{1,12})(ms|s|m|h|d|w)$/.exec(text) ?? [];
  if (!unit) throw new Error(`${of}${text} is not a duration. Use, for example, 90s, 15m, 12h, 30d or 1w.`);
  return Number(count) * units[unit as keyof typeof units];
}

/** A duration in its largest unit up to days, as `durationOf` reads it. */
export function durationText(ms: number): string {
  const unit = (['d', 'h', 'm', 's'] as const).find((one) => ms !== 0 && ms % units[one] === 0) ?? 'ms';
  return `${ms / units[unit]}${unit}`;
}

interface LimitFigures extends Periodic {
  name: string;
  limit: number;
  type?: string | undefined;
  /** False: only requests that name the limit are checked. */
  autoApply?: boolean | undefined;
  /** The end of a temporary limit. */
  until?: number | undefined;
  former?: Amount | undefined;
}

type Amount = Pick<LimitFigures, 'limit' | 'autoApply' | keyof Periodic>;

/** How long a limit lasts, such as `per 1m`, `slots for 1m`, or `per month from 2026-01-31 00:00:00`. */
export function lastsText({ duration, period, anchor }: Periodic, type?: string): string {
  if (period === undefined) return `${type === 'concurrency' ? 'slots for' : 'per'} ${durationText(duration!)}`;
  const isDefault = anchor === undefined || anchor === defaultAnchor(period);
  return `per ${period}${isDefault ? '' : ` from ${timeText(anchor)}`}`;
}

/** The units or slots of a limit, such as `100 per 1m`, or `10 slots for 1m (only when named)`. */
export const amountText = ({ limit, autoApply, ...lasts }: Amount, type?: string): string =>
  `${limit} ${lastsText(lasts, type)}${autoApply === false ? ' (only when named)' : ''}`;

/** When a temporary limit ends, and what applies then, after a space; '' for a permanent one. */
export const endText = ({ until, former, type }: Omit<LimitFigures, 'name' | 'limit' | 'duration'>): string =>
  until === undefined ? '' : ` (until ${timeText(until)}, then ${former ? amountText(former, type) : 'none'})`;

/** A limit, such as `requests 100 per 1m`. */
export const limitText = (limit: LimitFigures): string =>
  `${limit.name} ${amountText(limit, limit.type)}${endText(limit)}`;

/** The first of a list that may be long. */
export function firstOf(items: readonly string[], max: number, separator = ', '): string {
  const rest = items.length - max;
  return items.slice(0, max).join(separator) + (rest > 0 ? `${separator}and ${rest} more` : '');
}

const clockTime = /^\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?$/;
const isoTime = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?$/;

/** `Date.parse` reads February 31 as March 3. */
const isDay = (day: string): boolean => {
  const ms = Date.parse(day);
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(day);
};

/**
 * Unix milliseconds of a time, in UTC if it has no zone. A time without a date is the last one at or before `nowMs`.
 */
export function timeOf(text: string, nowMs: number): number {
  const hasDate = isoTime.test(text);
  const iso = hasDate ? text : `${new Date(nowMs).toISOString().slice(0, 10)}T${text}`;
  const hasZone = /(Z|[+-]\d\d:\d\d)$/.test(text);
  const ms = Date.parse(hasZone || !iso.includes(':') ? iso : `${iso}Z`);
  if (!(hasDate || clockTime.test(text)) || !isDay(iso.slice(0, 10)) || Number.isNaN(ms))
    throw new Error(`${text} is not a time. Use a time of UTC such as 14:03, 2026-11-22 or 2026-11-22T14:03.`);
  if (ms < 0) throw new Error(`${text} is before 1970, when times begin.`);
  // A zone may move a time without a date to the day before or after.
  return hasDate ? ms : ms - Math.ceil((ms - nowMs) / dayMs) * dayMs;
}

/** The end of a period that begins at `startMs`: a time without a date is the first one after that. */
export function endOf(text: string, startMs: number | undefined, nowMs: number): number {
  const ms = timeOf(text, nowMs);
  return startMs !== undefined && clockTime.test(text) && ms <= startMs ? ms + dayMs : ms;
}

/** Unix milliseconds of an expiry: a date, a time with its zone, or a duration from `nowMs`. */
export function expiryOf(text: string, nowMs: number, option = '--expires'): number {
  const isDate =
    /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/.test(text) && isDay(text.slice(0, 10));
  const ms = isDate ? Date.parse(text) : /^\d+[a-z]+$/.test(text) ? nowMs + durationOf(text, `${option} `) : Number.NaN;
  if (ms > nowMs && ms <= timeMax) return ms;
  if (ms <= nowMs) throw new Error(`${option} ${text} is in the past.`);
  throw new Error(
    `${option} ${text} is not valid. Use a date (2027-01-31), a time with its zone (2027-01-31T12:00Z), ` +
      'or a duration from now (15m, 12h, 30d, 1w), up to the end of 2099.',
  );
}

/** A whole number, at least 0. `option` is named in the error. */
export function numberOf(text: string, option: string): number {
  if (!/^\d{1,16}$/.test(text) || Number(text) > Number.MAX_SAFE_INTEGER)
    throw new Error(`${option} ${text} is not a whole number. Write it in digits, such as 1000.`);
  return Number(text);
}
