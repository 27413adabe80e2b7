// Sums of usage by customer and day, in the form of lua/include/usageSums.lua. Counts that the roll-up or an import
// moves from the log of a key into its days are packed here and added by the same script.

import { dayMs } from '../domain/time.ts';
import type { StoreContext } from '../scripts/context.ts';
import { countPlaces, customerSum, sumWidth, sumWidths } from '../scripts/layout.ts';
import { readCounts, widthFor, writeCounts } from './counts.ts';

/** A day of a key and an externalId. */
interface DaySums {
  day: number;
  externalId: string;
  /** By their place (countPlaces of layout.ts). */
  sums: readonly number[];
}

/** The version of the stored data that has sums. */
const sumsSince = 6;
export const hasSums = ({ dataVersion }: Pick<StoreContext, 'dataVersion'>): boolean =>
  dataVersion.current >= sumsSince;

/** Months since January 1970, of a day since 1970. */
export function monthOf(day: number): number {
  const date = new Date(day * dayMs);
  return 12 * (date.getUTCFullYear() - 1970) + date.getUTCMonth();
}

/** The day before the first one of a month. */
export const dayBefore = (month: number): number => Date.UTC(1970, month, 1) / dayMs - 1;

/** Packs days of a key, to be added to the sums of its customers. */
export function packSums(days: readonly DaySums[]): Buffer {
  return Buffer.concat(
    days.map(({ day, externalId, sums }) => {
      const month = monthOf(day);
      const fields = { day, month, externalId: Buffer.from(externalId), sum: packDay(day - dayBefore(month), sums) };
      const packed = Buffer.alloc(customerSum.size(fields));
      customerSum.write(packed, 0, fields);
      return packed;
    }),
  );
}

function packDay(dayOfMonth: number, counts: readonly number[]): Buffer {
  const width = widthFor(Math.max(...counts));
  const packed = Buffer.alloc(2 + width * countPlaces);
  const [bits, end] = writeCounts(packed, 2, counts, width);
  packed[0] = dayOfMonth + sumWidth * sumWidths.indexOf(width);
  packed[1] = bits;
  return packed.subarray(0, end);
}

/** Visits the days of a customer in a month. `counts` is used again for the next call. */
export function visitSums(sums: Buffer, counts: number[], visit: (dayOfMonth: number) => void): void {
  for (let at = 0; at < sums.length; ) {
    const width = sumWidths[Math.floor(sums[at]! / sumWidth)]!;
    const dayOfMonth = sums[at]! % sumWidth;
    at = readCounts(sums, at + 2, sums[at + 1]!, width, counts);
    visit(dayOfMonth);
  }
}
