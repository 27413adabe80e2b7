// The packed form of counts by their place (countPlaces of layout.ts), in the days of keys and the sums by customer. A
// byte has a bit for each count that is not 0, from the lowest; these follow, all as numbers of the same width.

import { countPlaces, type sumWidths } from '../scripts/layout.ts';
import { writeUint } from '../scripts/struct.ts';

/** Bytes of a number. */
export type Width = (typeof sumWidths)[number];
export const widthFor = (most: number): Width => (most < 2 ** 8 ? 1 : most < 2 ** 16 ? 2 : most < 2 ** 32 ? 4 : 7);

/** As readUint of struct.ts, without checks, as a query reads millions of numbers. */
export function uintAt(packed: Buffer, at: number, width: number): number {
  let value = 0;
  for (let index = at; index < at + width; index++) value = value * 256 + packed[index]!;
  return value;
}

/** Returns the offset after the counts. */
export function readCounts(packed: Buffer, from: number, bits: number, width: Width, counts: number[]): number {
  let at = from;
  for (let place = 0; place < countPlaces; place++) {
    if (bits & (1 << place)) {
      counts[place] = uintAt(packed, at, width);
      at += width;
    } else counts[place] = 0;
  }
  return at;
}

/** Returns the bits of the counts that are written, and the offset after them. */
export function writeCounts(packed: Buffer, from: number, counts: readonly number[], width: Width): [number, number] {
  let [bits, at] = [0, from];
  for (let place = 0; place < countPlaces; place++) {
    if (counts[place] === 0) continue;
    bits += 1 << place;
    writeUint(packed, counts[place]!, at, width);
    at += width;
  }
  return [bits, at];
}
