// Key strings (docs/contract.md §3). A key string ends with a checksum of everything before it, so a mistyped or
// invented key can be detected without a request.

import { hash, randomBytes, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { base58 } from '@scure/base';
import type { PresentedRootKey } from './caller.ts';

const alphabet = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';

/** Returns `number` in base58, padded on the left with `1` to `width`. */
function base58Number(number: number, width: number): string {
  let text = '';
  let rest = number;
  while (rest > 0) {
    text = alphabet[rest % 58] + text;
    rest = Math.floor(rest / 58);
  }
  return text.padStart(width, '1');
}

/** All numbers of two base58 digits as text. */
const pairs = Array.from({ length: 58 ** 2 }, (_, number) => base58Number(number, 2));

/** As base58Number of width 8, for a number below 58^8. Eight times as fast, because each request has an id. */
function base58Of8(number: number): string {
  const high = Math.floor(number / 58 ** 4);
  const low = number - high * 58 ** 4;
  const first = Math.floor(high / 58 ** 2);
  const third = Math.floor(low / 58 ** 2);
  return pairs[first]! + pairs[high - first * 58 ** 2] + pairs[third] + pairs[low - third * 58 ** 2];
}

/** Returns the last six characters of a key string: the CRC-32 of everything before them. */
export const checksum = (text: string): string => base58Number(crc32(text), 6);

/** Whether a text ends as the key strings that Tollgate creates. Those from elsewhere may have any form. */
export const endsAsKeyString = (text: string): boolean =>
  text.length > 6 && checksum(text.slice(0, -6)) === text.slice(-6);

/** Default number of random bytes in a key string. */
export const defaultByteLength = 16;

interface NewKeyString {
  /** The whole string. It is never stored. */
  key: string;
  /** The part that is stored, to recognise the key by. */
  start: string;
}

export function createKeyString({
  prefix,
  byteLength,
}: {
  prefix?: string | undefined;
  byteLength: number;
}): NewKeyString {
  const head = prefix === undefined ? '' : `${prefix}_`;
  const random = base58.encode(randomBytes(byteLength));
  const body = head + random;
  return { key: body + checksum(body), start: head + random.slice(0, 4) };
}

/** A root key string contains its workspace, so that no lookup is needed to find it. */
export const createRootKeyString = (workspaceId: string): NewKeyString =>
  createKeyString({ prefix: `root_${workspaceId.slice('ws_'.length)}`, byteLength: defaultByteLength });

const rootKeyPattern = /^root_([1-9A-HJ-NP-Za-km-z]{16})_[1-9A-HJ-NP-Za-km-z]+$/;

/** Returns the workspace in a root key string. Neither need exist. */
export function workspaceOfRootKey(key: string): string | undefined {
  const part = rootKeyPattern.exec(key)?.[1];
  return part && `ws_${part}`;
}

/** Returns the digest that is stored instead of a key string. */
export const digestOf = (key: string | Buffer): Buffer => hash('sha256', key, 'buffer');

/**
 * A string without a workspace is looked up in one that does not exist, so that it fails like any unknown root key, in
 * the same order and time.
 */
export function presented(token: string): PresentedRootKey {
  const digest = digestOf(token);
  return { workspaceId: workspaceOfRootKey(token) ?? 'ws_none', digest, digestText: digest.toString('latin1') };
}

/** The digest with one character per byte: this takes half the time, and is a key of a Map. */
export const digestTextOf = (key: string | Buffer): string => hash('sha256', key, 'binary');

/** Returns the sixteen characters of an id from its twelve bytes in a list of keys, see lua/include/ids.lua. */
export const unpackId = (packed: Buffer): string =>
  base58Of8(packed.readUIntBE(0, 6)) + base58Of8(packed.readUIntBE(6, 6));

/** The values of base58 digits by their character codes. */
const digits = new Map([...alphabet].map((digit, value) => [digit.charCodeAt(0), value]));
const digitOf = Array.from({ length: 128 }, (_, code) => digits.get(code) ?? Number.NaN);

/** The reverse, of the first sixteen characters of a text. The id of no key, zeros, if one is not base58. */
export const packId = (text: string): Buffer => packIdInto(Buffer.allocUnsafe(12), 0, text);

/** Writes a packed id at an offset of a buffer. */
export function packIdInto(buffer: Buffer, offset: number, text: string): Buffer {
  const time = number8At(text, 0);
  const number = number8At(text, 8);
  if (Number.isNaN(time + number)) return buffer.fill(0, offset, offset + 12);
  buffer.writeUIntBE(time, offset, 6);
  buffer.writeUIntBE(number, offset + 6, 6);
  return buffer;
}

/** The number of eight base58 digits; NaN if one of them is none. */
function number8At(text: string, first: number): number {
  let number = 0;
  for (let at = first; at < first + 8; at++) number = number * 58 + (digitOf[text.charCodeAt(at)] ?? Number.NaN);
  return number;
}

/** The time in the first eight characters of an id without prefix; NaN if one of them is not base58. */
export const timeOfId = (id: string): number => number8At(id, 0);

type IdPrefix = 'req' | 'ws';

/**
 * The common part of ids: the prefix, the time and six random characters. It serves one millisecond, and as many ids as
 * there are pairs.
 */
let shared = { prefix: '', ms: -1, text: '', used: 0 };

function shareHead(prefix: IdPrefix, nowMs: number) {
  const random = base58Of8(randomInt(58 ** 6)).slice(2);
  shared = { prefix, ms: nowMs, text: `${prefix}_${base58Of8(nowMs)}${random}`, used: 0 };
}

/**
 * Returns an id that Redis does not create: sixteen base58 characters, eight for the time, six random ones, and two
 * that count. Every request has one, so most of its text is made once for all ids of a millisecond.
 */
export function createId(prefix: IdPrefix, nowMs: number): string {
  if (shared.ms !== nowMs || shared.prefix !== prefix || shared.used === pairs.length) shareHead(prefix, nowMs);
  return shared.text + pairs[shared.used++]!;
}
