// What an answer shows of a key beside the decision, as lua/decide.lua tells it where the version that was sent is out of
// date; and the memory of it.

import { JsonText } from '../domain/json.ts';
import { type PrintedLimit, printShown, type Ratelimit, type Shown, type ShownText } from '../domain/verification.ts';

/** Bytes of printed keys held in memory, in each of two generations. */
const shownBytesMax = 32 * 1024 * 1024;

/** Keys seen once are told apart by so many bits of their digests, and forgotten when there are so many. */
const seenBits = 20;
const seenMax = 2 ** 17;

/** Of a key of which nothing is known. */
export const noVersion = '\0'.repeat(9);

export interface CachedShown {
  workspaceId: string;
  /** Bytes as latin1, which the script compares with what is stored. */
  version: string;
  shown: ShownText;
  bytes: number;
  /** How many plain ones a verification costs beside itself. */
  moreWork: number;
}

/**
 * Printed keys by digest, each with its workspace and version; the script confirms the version in the round trip that
 * decides. A key is held from the second time on: keys that are asked for once, be they ever so many, take no memory, no
 * collector's time and no other key's place. One that was imported into two workspaces is held for the last to ask.
 */
export class ShownCache {
  readonly #seen = new Uint8Array(2 ** seenBits / 8);
  #seenCount = 0;
  #young = new Map<string, CachedShown>();
  #old = new Map<string, CachedShown>();
  #youngBytes = 0;

  find(workspaceId: string, digest: string): CachedShown | undefined {
    const entry = this.#young.get(digest) ?? this.#old.get(digest);
    return entry?.workspaceId === workspaceId ? entry : undefined;
  }

  /** Holds on to an entry that was just confirmed. */
  keep(digest: string, entry: CachedShown): ShownText {
    // An earlier one on the way may have brought a newer version.
    if (!this.#young.has(digest)) this.#put(digest, entry);
    return entry.shown;
  }

  /** `known` is what was held of it, of a version that is out of date. */
  add(workspaceId: string, digest: string, { version, shown }: Told, known: CachedShown | undefined): ShownText {
    // Of several requests on the way, an earlier one may have brought it.
    const brought = this.find(workspaceId, digest);
    if (brought?.version === version) return this.keep(digest, brought);
    const printed = printShown(shown);
    if (!known && !this.#wasSeen(digest)) return printed;
    const held = inOnePiece(printed);
    const bytes = 250 + bytesOf(held);
    this.#put(digest, { workspaceId, version, shown: held, bytes, moreWork: moreWorkOf(held, bytes) });
    return held;
  }

  /** Was it, or one whose digest ends alike, seen of late? From now on it was. */
  #wasSeen(digest: string): boolean {
    const number = (digest.charCodeAt(31) << 16) | (digest.charCodeAt(30) << 8) | digest.charCodeAt(29);
    const at = (number & (2 ** seenBits - 1)) >> 3;
    const bit = 1 << (number & 7);
    if (this.#seen[at]! & bit) return true;
    if (++this.#seenCount > seenMax) {
      this.#seen.fill(0);
      this.#seenCount = 1;
    }
    this.#seen[at]! |= bit;
    return false;
  }

  #put(digest: string, entry: CachedShown) {
    if (this.#youngBytes + entry.bytes > shownBytesMax) {
      this.#old = this.#young;
      this.#young = new Map();
      this.#youngBytes = 0;
    }
    this.#young.set(digest, entry);
    this.#youngBytes += entry.bytes;
  }
}

/** What is shown of a key, of this version. */
export interface Told {
  version: string;
  shown: Shown;
}

export function readTold(packed: Buffer): Told {
  const versionBytes = 9 + packed[8]!;
  // Of its own: a piece of the reader's text would hold on to all of it.
  const version = packed.toString('latin1', 0, versionBytes);
  return { version, shown: readShown(new Reader(packed.subarray(versionBytes))) };
}

/** V8 keeps joined texts as trees of their parts, and would walk them for each answer they stand in: 3 % of the server's time. */
const inOnePiece = ({ apiId, externalId, fields, keyLimits, identityLimits, ...ranges }: ShownText): ShownText => ({
  apiId: copied(apiId),
  externalId: externalId && copied(externalId),
  fields: copied(fields),
  keyLimits: keyLimits.map(copiedLimit),
  identityLimits: identityLimits.map(copiedLimit),
  ...ranges,
});
const copiedLimit = ({ name, text, ...limit }: PrintedLimit) => ({ name: copied(name), text: copied(text), ...limit });
const copied = (text: string): string => Buffer.from(text).toString();

/** A text takes no more than its bytes in UTF-8, beside what every one takes. */
const bytesOf = ({ apiId, externalId = '', fields, keyLimits, identityLimits }: ShownText): number =>
  [apiId, externalId, fields, ...[...keyLimits, ...identityLimits].flatMap(({ name, text }) => [name, text])].reduce(
    (sum, text) => sum + 40 + Buffer.byteLength(text),
    0,
  );

/**
 * Each 16 KB, as a key may have megabytes of permissions, which this process writes while all others wait; and each eight
 * limits, which Redis decides and writes.
 */
const moreWorkOf = ({ keyLimits, identityLimits }: ShownText, bytes: number): number =>
  Math.floor(bytes / 16_384) + Math.floor((keyLimits.length + identityLimits.length) / 8);

/** An `expires` that does not come, see lua/include/state.lua. */
const never = 2 ** 48 - 1;

const notAscii = /[\x80-\xff]/;

/** Takes one field after the other. */
class Reader {
  readonly #packed: Buffer;
  /** A byte a character: texts are pieces of it, as each text that is decoded alone costs as much as all of it. */
  readonly #bytes: string;
  #at = 0;

  constructor(packed: Buffer) {
    this.#packed = packed;
    this.#bytes = packed.toString('latin1');
  }

  get isAtEnd(): boolean {
    return this.#at === this.#packed.length;
  }

  number(bytes: 1 | 2 | 4 | 6 | 7): number {
    const at = this.#at;
    this.#at += bytes;
    if (bytes < 7) return this.#packed.readUIntBE(at, bytes);
    return this.#packed.readUInt8(at) * 2 ** 48 + this.#packed.readUIntBE(at + 1, 6);
  }

  latin1(bytes: number): string {
    const at = this.#at;
    this.#at += bytes;
    return this.#bytes.slice(at, this.#at);
  }

  text(bytes: number): string {
    const at = this.#at;
    const text = this.latin1(bytes);
    return notAscii.test(text) ? this.#packed.toString('utf8', at, this.#at) : text;
  }

  /** A text that may be missing: its length + 1, or 0, stands before it. */
  optionalText(lengthBytes: 2 | 4): string | undefined {
    const length = this.number(lengthBytes);
    return length === 0 ? undefined : this.text(length - 1);
  }

  /** There may be a hundred thousand, of a hundred roles. */
  slugs(): string[] {
    const bytes = this.number(4);
    return bytes === 0 ? [] : this.latin1(bytes).split('\n');
  }

  texts(): string[] {
    const texts: string[] = [];
    for (let count = this.number(2); count > 0; count--) texts.push(this.text(this.number(2)));
    return texts;
  }

  ratelimits(): Ratelimit[] {
    const ratelimits: Ratelimit[] = [];
    for (let count = this.number(1); count > 0; count--) {
      const limit = this.number(7);
      const duration = this.number(7);
      const autoApply = this.number(1) === 1;
      const nameBytes = this.number(2);
      ratelimits.push({ id: `rl_${this.latin1(16)}`, name: this.text(nameBytes), limit, duration, autoApply });
    }
    return ratelimits;
  }
}

/** In the order of shown_of in lua/decide.lua, after the version. */
function readShown(reader: Reader): Shown {
  const id16 = reader.latin1(16);
  const apiId = reader.latin1(20);
  const enabled = reader.number(1) === 1;
  const expires = reader.number(6);
  const name = reader.optionalText(2);
  const meta = reader.optionalText(4);
  const permissions = reader.slugs();
  const roles = reader.texts();
  const ratelimits = reader.ratelimits();
  return {
    keyId: `key_${id16}${apiId.slice(-8)}`,
    apiId,
    enabled,
    expires: expires === never ? undefined : expires,
    name,
    meta: meta === undefined ? undefined : new JsonText(meta),
    permissions,
    roles,
    ratelimits,
    identity: reader.isAtEnd ? undefined : readIdentity(reader),
  };
}

function readIdentity(reader: Reader): NonNullable<Shown['identity']> {
  return {
    id: `id_${reader.latin1(16)}`,
    externalId: reader.text(reader.number(2)),
    meta: new JsonText(reader.optionalText(4) ?? '{}'),
    ratelimits: reader.ratelimits(),
  };
}
