// Root keys that Redis accepted recently. A root key names its workspace, so anybody can make up root keys of as many
// workspaces as they like, and a share for each workspace bounds nothing. What comes with any other root key has one share
// for all of it. This decides who waits, never what a root key may do: that is Redis's decision each time.

import type { PresentedRootKey } from '../domain/caller.ts';

/** Those are remembered at least, and twice as many at most. About 100 bytes each. */
const rememberedMin = 10_000;

export class AcceptedRootKeys {
  readonly #max: number;
  /** By digest. When the newer ones are too many, they replace the older ones, of which those that were used have moved. */
  #newer = new Set<string>();
  #older = new Set<string>();

  constructor(max = rememberedMin) {
    this.#max = max;
  }

  has({ digestText }: PresentedRootKey): boolean {
    if (this.#newer.has(digestText)) return true;
    if (!this.#older.has(digestText)) return false;
    this.#add(digestText);
    return true;
  }

  /** Notes what Redis said of a root key. */
  note({ digestText }: PresentedRootKey, isAccepted: boolean) {
    if (isAccepted) {
      if (!this.#newer.has(digestText)) this.#add(digestText);
      return;
    }
    this.#newer.delete(digestText);
    this.#older.delete(digestText);
  }

  #add(digestText: string) {
    if (this.#newer.size >= this.#max) {
      this.#older = this.#newer;
      this.#newer = new Set();
    }
    this.#newer.add(digestText);
  }
}
