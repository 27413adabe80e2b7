import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  checksum,
  createId,
  createKeyString,
  createRootKeyString,
  digestOf,
  workspaceOfRootKey,
} from '../../src/domain/keyString.ts';

const alphabet = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';
const base58 = /^[1-9A-HJ-NP-Za-km-z]*$/;

/** CRC-32 bit by bit, from its definition. */
function crc32(text: string): number {
  let crc = 0xffffffff;
  for (const byte of Buffer.from(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return ~crc >>> 0;
}

/** The number that a base58 text represents. */
const numberOf = (text: string): bigint =>
  [...text].reduce((number, digit) => number * 58n + BigInt(alphabet.indexOf(digit)), 0n);

/** Checks a key string without the server, as anyone can. */
const looksReal = (key: string) => numberOf(key.slice(-6)) === BigInt(crc32(key.slice(0, -6)));

const prefixes = fc.option(fc.stringMatching(/^[a-zA-Z0-9_]{1,16}$/), { nil: undefined });
const byteLengths = fc.oneof(fc.integer({ min: 16, max: 255 }), fc.constantFrom(16, 255));

describe('an API key string', () => {
  test('is its prefix, base58 of `byteLength` random bytes, and the checksum of both', () => {
    fc.assert(
      fc.property(prefixes, byteLengths, (prefix, byteLength) => {
        const { key, start } = createKeyString({ prefix, byteLength });
        const head = prefix === undefined ? '' : `${prefix}_`;
        expect(key.startsWith(head)).toBe(true);
        const random = key.slice(head.length, -6);
        expect(key.slice(head.length)).toMatch(base58);
        expect(looksReal(key)).toBe(true);
        // In base58, leading zero bytes are leading ones, so the length is known.
        const zeros = random.length - random.replace(/^1+/, '').length;
        const number = numberOf(random);
        const bytes = number === 0n ? 0 : Math.ceil(number.toString(16).length / 2);
        expect(zeros + bytes).toBe(byteLength);
        expect(start).toBe(head + random.slice(0, 4));
        expect(key.length).toBeLessThanOrEqual(512);
      }),
      { numRuns: 1000 },
    );
  });

  test('never repeats', () => {
    const keys = Array.from({ length: 1000 }, () => createKeyString({ byteLength: 16 }).key);
    expect(new Set(keys).size).toBe(keys.length);
  });

  test('with any one character changed, or two neighbours swapped, does not match its checksum', () => {
    fc.assert(
      fc.property(prefixes, fc.nat(), fc.nat(), (prefix, where, shift) => {
        const { key } = createKeyString({ prefix, byteLength: 16 });
        const first = prefix === undefined ? 0 : prefix.length + 1;
        const at = first + (where % (key.length - first));
        const other = alphabet[(alphabet.indexOf(key[at]!) + 1 + (shift % 57)) % 58]!;
        expect(looksReal(key.slice(0, at) + other + key.slice(at + 1))).toBe(false);
        const [a, b] = [key[at]!, key[at + 1]];
        if (b !== undefined && at < key.length - 7 && a !== b) {
          expect(looksReal(key.slice(0, at) + b + a + key.slice(at + 2))).toBe(false);
        }
      }),
      { numRuns: 1000 },
    );
  });
});

describe('the checksum', () => {
  test('is CRC-32 in base58, padded to six characters', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 300 }), (text) => {
        expect(checksum(text)).toMatch(/^[1-9A-HJ-NP-Za-km-z]{6}$/);
        expect(numberOf(checksum(text))).toBe(BigInt(crc32(text)));
      }),
      { numRuns: 1000 },
    );
  });

  test('of texts with a small CRC-32 is padded with 1', () => {
    // Found by search.
    const small = Array.from({ length: 200_000 }, (_, n) => `${n}`).filter((text) => crc32(text) < 58 ** 4);
    expect(small.length).toBeGreaterThan(100);
    for (const text of ['', ...small]) {
      expect(checksum(text)).toMatch(/^11/);
      expect(numberOf(checksum(text))).toBe(BigInt(crc32(text)));
    }
    expect(checksum('')).toBe('111111');
  });

  test('of the nine digits is the value that every implementation gives', () => {
    // The published check value of CRC-32.
    expect(crc32('123456789')).toBe(0xcbf43926);
    expect(checksum('123456789')).toBe('6DNX4R');
  });
});

describe('a root key string', () => {
  const workspaceId = createId('ws', Date.UTC(2026, 0, 15));

  test('a root key string contains its workspace’s id', () => {
    const { key, start } = createRootKeyString(workspaceId);
    expect(key).toMatch(new RegExp(`^root_${workspaceId.slice(3)}_[1-9A-HJ-NP-Za-km-z]{22,}$`));
    expect(workspaceOfRootKey(key)).toBe(workspaceId);
    expect(key.startsWith(start)).toBe(true);
    expect(start).toHaveLength('root_'.length + 16 + '_'.length + 4);
    expect(looksReal(key)).toBe(true);
  });

  test.each([
    '',
    'root_',
    'root_short_abc',
    `root_${'1'.repeat(16)}`,
    `root_${'1'.repeat(16)}_`,
    `root_${'1'.repeat(17)}_abc`,
    `root_${'0'.repeat(16)}_abc`,
    `Root_${'1'.repeat(16)}_abc`,
    `root_${'1'.repeat(16)}_abc\n`,
    ` root_${'1'.repeat(16)}_abc`,
    `root_${'1'.repeat(16)}_a}b`,
    createKeyString({ byteLength: 16 }).key,
    createKeyString({ prefix: 'root', byteLength: 16 }).key,
  ])('%j has no workspace', (key) => {
    expect(workspaceOfRootKey(key)).toBeUndefined();
  });
});

test('the digest is SHA-256 of the whole string in UTF-8', () => {
  expect(digestOf('schlüssel')).toEqual(createHash('sha256').update(Buffer.from('schlüssel')).digest());
});

test('ids made by the server have sixteen characters, in order of time', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 4_102_444_800_000 }), fc.nat({ max: 1000 }), (now, later) => {
      const id = createId('req', now);
      expect(id).toMatch(/^req_[1-9A-HJ-NP-Za-km-z]{16}$/);
      expect(numberOf(id.slice(4, 12))).toBe(BigInt(now));
      if (later > 0) expect(createId('req', now + later) > id).toBe(true);
    }),
  );
});

test('ids of one millisecond differ', () => {
  const ids = Array.from({ length: 5000 }, () => createId('req', Date.UTC(2026, 0, 15)));
  expect(new Set(ids).size).toBe(ids.length);
});
