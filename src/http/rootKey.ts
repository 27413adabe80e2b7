// A root key as it comes in a header.

import type { PresentedRootKey } from '../domain/caller.ts';
import { digestOf, workspaceOfRootKey } from '../domain/keyString.ts';

/** What follows `Bearer`; undefined when the header is anything else. */
export const bearerToken = (authorization: string): string | undefined => /^Bearer +(\S+) *$/i.exec(authorization)?.[1];

/** Hashing a root key costs more than remembering it: the last few hundred are remembered, in memory only. */
export class RootKeyReader {
  readonly #known = new Map<string, PresentedRootKey>();

  read(token: string): PresentedRootKey {
    const known = this.#known.get(token);
    if (known) return known;
    // A string that names no workspace is asked about in one that does not exist: refused like any unknown root key, in
    // the same order and time.
    const rootKey = { workspaceId: workspaceOfRootKey(token) ?? 'ws_none', digest: digestOf(token) };
    if (this.#known.size >= 500) this.#known.clear();
    this.#known.set(token, rootKey);
    return rootKey;
  }
}
