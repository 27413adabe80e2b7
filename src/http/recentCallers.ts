// Whose root keys were accepted recently, known without asking Redis: a request under one of them was answered 200.
// A root key that was deleted since may still be listed, so nothing but a share of memory may depend on this.

import { workspaceOfRootKey } from '../domain/keyString.ts';
import { bearerToken } from './rootKey.ts';

/** Of each of the two sets below. */
const callersMax = 1_000;
/** A longer Authorization header is not a root key and the few blanks that may surround it. */
const authorizationCharactersMax = 256;

export class RecentCallers {
  /** Authorization headers. When it is full it becomes the older set, and the older one is dropped. */
  #recent = new Set<string>();
  #older = new Set<string>();

  add(authorization: string) {
    if (this.#recent.has(authorization) || authorization.length > authorizationCharactersMax) return;
    if (this.#recent.size >= callersMax) {
      this.#older = this.#recent;
      this.#recent = new Set();
    }
    this.#recent.add(authorization);
  }

  /** The workspace of a recent caller; undefined for all others. */
  workspaceOf(authorization: string): string | undefined {
    if (!this.#recent.has(authorization) && !this.#older.has(authorization)) return undefined;
    return workspaceOfRootKey(bearerToken(authorization) ?? '');
  }
}
