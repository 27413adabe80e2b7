// Tables on a terminal.

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

const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Milliseconds of `90s`, `15m`, `12h` or `30d`. */
export function durationOf(text: string): number {
  const [, count, unit] = /^(\d{1,12})(ms|s|m|h|d)$/.exec(text) ?? [];
  if (!unit) throw new Error(`${text} is not a duration. Use, for example, 90s, 15m, 12h or 30d.`);
  return Number(count) * units[unit]!;
}

const dayMs = 86_400_000;

const clockTime = /^\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?$/;
const isoTime = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?$/;

/** Unix milliseconds of a time, of UTC without a zone. One without a date is the last one at or before `nowMs`. */
export function timeOf(text: string, nowMs: number): number {
  const hasDate = isoTime.test(text);
  const iso = hasDate ? text : `${new Date(nowMs).toISOString().slice(0, 10)}T${text}`;
  const hasZone = /(Z|[+-]\d\d:\d\d)$/.test(text);
  const ms = Date.parse(hasZone || !iso.includes(':') ? iso : `${iso}Z`);
  if (!(hasDate || clockTime.test(text)) || Number.isNaN(ms) || ms < 0)
    throw new Error(`${text} is not a time. Use a time of UTC such as 14:03, 2026-11-22 or 2026-11-22T14:03.`);
  // A zone may move a time without a date to the day before or after.
  return hasDate ? ms : ms - Math.ceil((ms - nowMs) / dayMs) * dayMs;
}

/** A whole number, at least 0. */
export function numberOf(text: string): number {
  if (!/^\d{1,16}$/.test(text) || Number(text) > Number.MAX_SAFE_INTEGER)
    throw new Error(`${text} is not a whole number.`);
  return Number(text);
}
