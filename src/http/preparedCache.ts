// Caches prepared requests by the digests of their bodies, so that a repeated request is not parsed, checked and hashed
// again.
//
// Two requests are the same if they have the same root key and the same SHA-256 of their bodies; each operation has a
// cache of its own. Method, headers and query are checked for every request. No body is cached, and no prepared request
// refers to the secret in its body.
//
// A candidate is found by a hash of 30 bits that costs tens of nanoseconds, and a body is cached from its second use
// on, so that a body that comes once is hardly delayed. The hash begins with a random number, so that no caller can aim
// at the entries of another. A caller who varies bodies replaces entries, which are then added again: that costs time,
// and nothing else.

import { randomInt } from 'node:crypto';
import type { PresentedRootKey } from '../domain/caller.ts';
import { digestTextOf } from '../domain/keyString.ts';

/** Longer bodies are not cached: they are rare, and their prepared requests could be large. */
const bodyBytesMax = 512;
/**
 * Maximum entries in each of the two generations: about 1 KB each, as much again for the snapshot of a key, and a few
 * KB for a body with many limits or tags.
 */
const generationSize = 4096;

/**
 * Slots of the doorkeeper, by a hash of a body: 8 bits of the last one that came. The slots are few: if more bodies
 * come in turns than the cache can have, only a part of them is added.
 */
const slots = 16_384;

interface Entry<Prepared> {
  rootDigest: string;
  bodyDigest: string;
  prepared: Prepared;
}

export class PreparedCache<Prepared> {
  readonly #isAccepted: (rootKey: PresentedRootKey) => boolean;
  readonly #max: number;
  readonly #seed = randomInt(2 ** 32);
  readonly #doorkeeper = new Uint8Array(slots);
  /** When the newer generation is full, it replaces the older one. Using an entry moves it to the newer one. */
  #newer = new Map<number, Entry<Prepared>>();
  #older = new Map<number, Entry<Prepared>>();

  /** `isAccepted`: whether Redis accepted a root key recently. An unknown caller takes no memory. */
  constructor(isAccepted: (rootKey: PresentedRootKey) => boolean, max = generationSize) {
    this.#isAccepted = isAccepted;
    this.#max = max;
  }

  /** Returns the cached prepared request, or prepares it. */
  get(rootKey: PresentedRootKey, body: Buffer, prepare: () => Prepared): Prepared {
    const { digestText } = rootKey;
    if (body.length > bodyBytesMax) return prepare();
    const hash = this.#hashOf(digestText, body);
    const newer = this.#newer.get(hash);
    const entry = newer ?? this.#older.get(hash);
    if (entry && entry.rootDigest === digestText && entry.bodyDigest === digestTextOf(body)) {
      if (!newer) this.#set(hash, entry);
      return entry.prepared;
    }
    const prepared = prepare();
    if (this.#isSecondUse(hash) && this.#isAccepted(rootKey)) {
      this.#set(hash, { rootDigest: digestText, bodyDigest: digestTextOf(body), prepared });
    }
    return prepared;
  }

  /** Whether the last body in this slot was this one, or one with a similar hash. Records this use. */
  #isSecondUse(hash: number): boolean {
    const slot = hash & (slots - 1);
    const mark = 1 + ((hash >>> 14) % 255);
    const isSecond = this.#doorkeeper[slot] === mark;
    this.#doorkeeper[slot] = mark;
    return isSecond;
  }

  #set(hash: number, entry: Entry<Prepared>) {
    if (this.#newer.size >= this.#max) {
      this.#older = this.#newer;
      this.#newer = new Map();
    }
    this.#newer.set(hash, entry);
  }

  /** FNV-1a of the body, from a random number and the root key on. */
  #hashOf(rootDigest: string, body: Buffer): number {
    let hash =
      this.#seed ^ rootDigest.charCodeAt(0) ^ (rootDigest.charCodeAt(1) << 8) ^ (rootDigest.charCodeAt(2) << 16);
    for (let at = 0; at < body.length; at++) hash = Math.imul(hash ^ body[at]!, 0x01000193);
    // V8 stores a number of 30 bits without an object.
    return hash >>> 2;
  }
}
