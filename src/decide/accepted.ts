// Root keys that Redis accepted recently. Callers with any other root key are "unknown callers" and share one limit: a
// root key names its workspace, so a caller can invent root keys of any number of workspaces, and a limit per workspace
// would not bound it. This determines which requests wait, never what a root key may do: Redis decides that each time.

import type { PresentedRootKey } from '../domain/caller.ts';

/** Maximum root keys in each of the two generations, about 100 bytes each. */
const generationSize = 10_000;

export class AcceptedRootKeys {
  readonly #max: number;
  /**
   * Digests. When the newer generation is full, it replaces the older one. Using a root key moves it to the newer one.
   */
  #newer = new Set<string>();
  #older = new Set<string>();

  constructor(max = generationSize) {
    this.#max = max;
  }

  has({ digestText }: PresentedRootKey): boolean {
    if (this.#newer.has(digestText)) return true;
    if (!this.#older.has(digestText)) return false;
    this.#add(digestText);
    return true;
  }

  /** Records the decision of Redis on a root key. */
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
