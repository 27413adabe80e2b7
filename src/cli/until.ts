// Options of commands that set a limit or an override for some time.

import { type Given, text } from './commandRow.ts';
import { durationOf, expiryOf } from './table.ts';

/** `then` is what applies afterwards. */
export const untilOptions = (then: string) =>
  [
    ['--for <duration>', `only for this long from now, such as 1d; then ${then}`],
    ['--until <time>', 'only until then: a date such as 2027-01-31, or a time with its zone'],
  ] as const;

/** When a temporary limit or override ends; undefined for a permanent one. */
export function untilOf({ for: lasts, until }: Given): number | undefined {
  if (lasts !== undefined && until !== undefined) throw new Error('--for and --until both set the end. Leave one out.');
  const nowMs = Date.now();
  if (until !== undefined) return expiryOf(text(until)!, nowMs, '--until');
  if (lasts === undefined) return undefined;
  const lastsMs = durationOf(text(lasts)!, '--for ');
  if (lastsMs === 0) throw new Error(`--for ${lasts} ends at once.`);
  return nowMs + lastsMs;
}
