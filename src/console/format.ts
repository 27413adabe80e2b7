// Numbers and times as text. Times are in UTC, like the buckets of counts.

import { defaultAnchor, type Quota } from '../domain/quota.ts';
import { visible } from './visibleText.ts';
import { localTime } from './zone.ts';

const whole = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });

export const count = (value: number | bigint): string => whole.format(value);
/** At most four digits: 12.3K. */
export const compact = (value: number): string =>
  Math.abs(value) < 10_000 ? whole.format(value) : short.format(value);
export function percent(part: number, all: number): string {
  if (all === 0) return '–';
  const value = (100 * part) / all;
  return value > 0 && value < 0.1 ? '< 0.1 %' : `${value.toFixed(part === all || part === 0 ? 0 : 1)} %`;
}

/** 0.07 ms, 12.3 ms, 840 ms. */
export const milliseconds = (ms: number): string => `${ms.toFixed(ms < 10 ? 2 : ms < 100 ? 1 : 0)} ms`;

/** 1536 as "1.5 KB". */
export function bytes(value: number): string {
  const power = Math.min(4, Math.max(0, Math.floor(Math.log2(value || 1) / 10)));
  return `${(value / 1024 ** power).toFixed(power > 1 ? 1 : 0)} ${['B', 'KB', 'MB', 'GB', 'TB'][power]}`;
}

const pad = (value: number) => `${value}`.padStart(2, '0');
/** 2026-11-22 14:03:07, in UTC. */
export function dateTime(ms: number, { seconds = true } = {}): string {
  const text = new Date(ms).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, seconds ? 19 : 16)}`;
}
/** 2026-11-22 14:03:07 UTC, followed by the local time if that is chosen. */
export const moment = (ms: number, of?: { seconds: boolean }): string => `${dateTime(ms, of)} UTC${localTime(ms)}`;
/** The time in files. */
export const isoOf = (ms: number | undefined): string | undefined =>
  ms === undefined ? undefined : new Date(ms).toISOString();
export const date = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
/** How long a deleted record can be restored. */
export const retention = 'KEY_RETENTION_DAYS: 30 days by default, and never with 0';
/** "2026-11-22 14:00 to 15:00", or days. The end is exclusive. */
export function timeSpan(start: number, end: number): string {
  const isDays = start % 86_400_000 === 0 && end % 86_400_000 === 0;
  const [from, to] = isDays
    ? [date(start), date(end - 86_400_000)]
    : [dateTime(start, { seconds: false }), dateTime(end, { seconds: false })];
  if (from === to) return from;
  return `${from} to ${!isDays && date(start) === date(end - 1) ? to.slice(11) : to}`;
}
export const timeOfDay = (ms: number): string => new Date(ms).toISOString().slice(11, 19);
export const hourOfDay = (ms: number): string => `${pad(new Date(ms).getUTCHours())}:00`;

const units = [
  ['year', 31_557_600_000],
  ['month', 2_629_800_000],
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1000],
] as const;

/** "3 days ago", "in 2 hours". */
export function ago(ms: number, nowMs = Date.now()): string {
  const difference = ms - nowMs;
  const [unit, length] = units.find(([, size]) => Math.abs(difference) >= size) ?? (['second', 1000] as const);
  return Math.abs(difference) < 1000 ? 'now' : relative.format(Math.trunc(difference / length), unit);
}

/**
 * 60000 as "1 min"; of many units the largest two. A form displays all units, so that it saves the value that it read.
 */
export function duration(ms: number, unitsMax = 2): string {
  const parts: string[] = [];
  let rest = ms;
  for (const [name, size] of [
    ['d', 86_400_000],
    ['h', 3_600_000],
    ['min', 60_000],
    ['s', 1000],
    ['ms', 1],
  ] as const) {
    const n = Math.floor(rest / size);
    if (n > 0) parts.push(`${n} ${name}`);
    rest -= n * size;
  }
  return parts.slice(0, unitsMax).join(' ') || '0 s';
}

/** Reads "10 s", "5min", "1h", "30d" or milliseconds; undefined for anything else. */
export function readDuration(text: string): number | undefined {
  const match = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|sec|m|min|h|d)?\s*$/.exec(text);
  if (!match) return undefined;
  const factor = { ms: 1, s: 1000, sec: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000 };
  return Math.round(Number(match[1]) * factor[(match[2] ?? 'ms') as keyof typeof factor]);
}

export function download(name: string, file: Blob) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(file);
  link.download = visible(name);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

export interface Amount extends Partial<Quota> {
  limit: number;
  duration: number;
}

/** Such as `month`, or `month, from 31 Jan 2026, 09:40 UTC` with an anchor of its own. */
export const periodText = (period: Quota['period'], anchor: number | undefined): string =>
  anchor === undefined || anchor === defaultAnchor(period)
    ? period
    : `${period}, from ${moment(anchor, { seconds: false })}`;

/** The units of a limit, or its slots. */
export function unitsOf({ limit, duration: ms, type, period, anchor }: Amount & { type?: string }): string {
  if (type === 'concurrency') return `${count(limit)} slots, each for ${duration(ms)} at most`;
  return `${count(limit)} ${period ? `each ${periodText(period, anchor)}` : `in any ${duration(ms)}`}`;
}
