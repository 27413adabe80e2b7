// The suffixes of holds: the ends of their ids (domain/holdId.ts) and as they are stored.

import { holdNumber } from '../scripts/layout.ts';
import { readUint } from '../scripts/struct.ts';

const dot = '.'.charCodeAt(0);
const numbersEnd = 2 ** (8 * holdNumber.fields.number.bytes);

export function packSuffix(suffix: string): Buffer {
  if (!suffix.startsWith('.')) return Buffer.from(suffix, 'latin1');
  const number = Number(suffix.slice(1));
  // No hold has a larger number, nor the suffix `.`.
  if (number >= numbersEnd) return Buffer.from('.');
  const packed = Buffer.alloc(holdNumber.bytes);
  holdNumber.write(packed, 0, { dot, number });
  return packed;
}

export function readSuffix(packed: Buffer, from: number, to: number): string {
  if (packed[from] !== dot) return packed.toString('latin1', from, to);
  return `.${readUint(packed, from + holdNumber.at.number, holdNumber.fields.number.bytes)}`;
}
