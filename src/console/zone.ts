// Whether local times are displayed after those in UTC, and typed. The choice is stored in localStorage: it is not
// secret.

import { dayMs } from '../domain/time.ts';
import { redraw } from './redraw.ts';

const stored = 'tollgate.times';
let local = localStorage.getItem(stored) === 'local';

export const isLocal = (): boolean => local;

export function setLocal(isLocal: boolean) {
  local = isLocal;
  localStorage.setItem(stored, isLocal ? 'local' : 'utc');
  redraw();
}

const localOf = (ms: number) => new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString();

/** 2026-11-22 14:03, in the zone in which times are typed. */
export const typedTime = (ms: number): string =>
  (local ? localOf(ms) : new Date(ms).toISOString()).slice(0, 16).replace('T', ' ');

/** " (15:03 here)", with its date if that is another one. Empty if only UTC is displayed. */
export function localTime(ms: number): string {
  if (!local) return '';
  const here = typedTime(ms);
  return ` (${new Date(ms).toISOString().startsWith(here.slice(0, 10)) ? here.slice(11) : here} here)`;
}

const days = { yesterday: -1, today: 0, tomorrow: 1 };
const timeForm = /^(?:(yesterday|today|tomorrow)|(\d{4}-\d\d-\d\d))?[ t]*(?:(\d\d?):(\d\d))?$/;

/**
 * Reads `14:03`, `yesterday 14:03`, `2026-11-22` and `2026-11-22 14:03`. A time without a day is the last one, or the
 * next one if it is `ahead`. Undefined for another text.
 */
export function readTime(text: string, ahead: boolean, nowMs = Date.now()): number | undefined {
  const [, name, date, hour, minute] = timeForm.exec(text.trim().toLowerCase()) ?? [];
  if (!name && !date && !hour) return undefined;
  const on = (ms: number) => {
    const iso = `${date ?? typedTime(ms).slice(0, 10)}T${(hour ?? '').padStart(2, '0')}:${minute ?? '00'}`;
    const read = Date.parse(local ? iso : `${iso}Z`);
    // A day that the month does not have is read as one of the next month, or not at all.
    return Number.isNaN(read) || typedTime(read) !== iso.replace('T', ' ') ? undefined : read;
  };
  const read = on(nowMs + dayMs * (name ? days[name as keyof typeof days] : 0));
  if (read === undefined || name || date) return read;
  if (ahead) return read > nowMs ? read : on(nowMs + dayMs);
  return read <= nowMs ? read : on(nowMs - dayMs);
}
