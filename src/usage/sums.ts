// Sums of usage by customer and day, in the form of lua/include/usageSums.lua. What is moved from the log of a key into
// its days, by the roll-up or an import, is packed here and added by the same script.

import { dayMs } from '../domain/time.ts';
import type { StoreContext } from '../scripts/context.ts';
import { countPlaces, customerSum, sumWidth, sumWidths } from '../scripts/layout.ts';

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

/** The bytes of the counts of a day are in the numbers from 0 of `sumWidths`. */
const widthFor = (most: number): number => (most < 2 ** 8 ? 0 : most < 2 ** 16 ? 1 : most < 2 ** 32 ? 2 : 3);

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
  const bytes = sumWidths[width]!;
  const packed = Buffer.alloc(2 + bytes * counts.filter((count) => count > 0).length);
  packed[0] = dayOfMonth + sumWidth * width;
  let at = 2;
  for (let place = 0; place < countPlaces; place++) {
    let count = counts[place]!;
    if (count === 0) continue;
    packed[1]! += 1 << place;
    for (let index = at + bytes - 1; index >= at; index--, count = Math.floor(count / 256)) packed[index] = count % 256;
    at += bytes;
  }
  return packed;
}

/** Visits the days of a customer in a month. `counts` is used again for the next call. */
export function visitSums(sums: Buffer, counts: number[], visit: (dayOfMonth: number) => void): void {
  for (let at = 0; at < sums.length; ) {
    const bytes = sumWidths[Math.floor(sums[at]! / sumWidth)]!;
    const dayOfMonth = sums[at]! % sumWidth;
    const bits = sums[at + 1]!;
    at += 2;
    for (let place = 0; place < countPlaces; place++) {
      counts[place] = 0;
      if (!(bits & (1 << place))) continue;
      let count = 0;
      for (const end = at + bytes; at < end; at++) count = 256 * count + sums[at]!;
      counts[place] = count;
    }
    visit(dayOfMonth);
  }
}
