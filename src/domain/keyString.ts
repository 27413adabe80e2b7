// Key strings (docs/contract.md §3). A key string ends in a checksum of everything before it, so anyone can tell a mistyped or
// made-up key without asking the server.

import { hash, randomBytes, randomFillSync } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { base58 } from '@scure/base';

const alphabet = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';

/** `number` in base58, padded on the left with `1` to `width`. */
function base58Number(number: number, width: number): string {
  let text = '';
  let rest = number;
  while (rest > 0) {
    text = alphabet[rest % 58] + text;
    rest = Math.floor(rest / 58);
  }
  return text.padStart(width, '1');
}

/** The six characters that end a key string: CRC-32 of what stands before them. */
export const checksum = (text: string): string => base58Number(crc32(text), 6);

/** Random bytes in a key string, where nobody asks for another number. */
export const defaultByteLength = 16;

interface NewKeyString {
  /** The whole string: the only time it exists in plaintext. */
  key: string;
  /** What may be shown of it ever after. */
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

/** A root key string carries its workspace, so that a request costs no look-up to find it. */
export const createRootKeyString = (workspaceId: string): NewKeyString =>
  createKeyString({ prefix: `root_${workspaceId.slice('ws_'.length)}`, byteLength: defaultByteLength });

const rootKeyPattern = /^root_([1-9A-HJ-NP-Za-km-z]{16})_[1-9A-HJ-NP-Za-km-z]+$/;

/** The workspace a root key string names, whether or not either exists. */
export function workspaceOfRootKey(key: string): string | undefined {
  const part = rootKeyPattern.exec(key)?.[1];
  return part && `ws_${part}`;
}

/** What is stored in place of a key string. */
export const digestOf = (key: string | Buffer): Buffer => hash('sha256', key, 'buffer');

/** The same, a byte a character: a text is made in half the time, and found in a map as it is. */
export const digestTextOf = (key: string): string => hash('sha256', key, 'binary');

/** Random bytes are fetched for many ids at once: asking for six costs as much as asking for thousands. */
const pool = Buffer.alloc(6 * 1024);
let poolAt = pool.length;

function randomNumber(): number {
  if (poolAt === pool.length) {
    randomFillSync(pool);
    poolAt = 0;
  }
  poolAt += 6;
  return pool.readUIntBE(poolAt - 6, 6) % 58 ** 8;
}

/** Sixteen characters of an id from the twelve bytes that a list of keys has of it, as lua/include/ids.lua packs them. */
export const unpackId = (packed: Buffer): string =>
  base58Number(packed.readUIntBE(0, 6), 8) + base58Number(packed.readUIntBE(6, 6), 8);

/** The present millisecond, spelt once for all requests that fall into it. */
let spelt = { ms: -1, text: '' };

function timeText(nowMs: number): string {
  if (spelt.ms !== nowMs) spelt = { ms: nowMs, text: base58Number(nowMs, 8) };
  return spelt.text;
}

/** Sixteen base58 characters, eight of time and eight at random: ids that Redis does not make (requests, workspaces). */
export const createId = (prefix: 'req' | 'ws', nowMs: number): string =>
  `${prefix}_${timeText(nowMs)}${base58Number(randomNumber(), 8)}`;
