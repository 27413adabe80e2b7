// A root key as it comes in a header.

import type { PresentedRootKey } from '../domain/caller.ts';
import { digestOf, workspaceOfRootKey } from '../domain/keyString.ts';

/** What follows `Bearer`; undefined when the header is anything else. */
export const bearerToken = (authorization: string): string | undefined => /^Bearer +(\S+) *$/i.exec(authorization)?.[1];

/** Hashing a root key costs more than remembering it: the last few hundred are remembered, in memory only. */
export class RootKeyReader {
  /** By the text they came in: a token, or a whole header, which no token is like. */
  readonly #known = new Map<string, PresentedRootKey>();

  /** That of an Authorization header; undefined when it brings none. */
  readHeader(authorization: string): PresentedRootKey | undefined {
    const known = this.#known.get(authorization);
    if (known) return known;
    const token = bearerToken(authorization);
    return token === undefined ? undefined : this.#remember(authorization, presented(token));
  }

  read(token: string): PresentedRootKey {
    return this.#known.get(token) ?? this.#remember(token, presented(token));
  }

  #remember(text: string, rootKey: PresentedRootKey): PresentedRootKey {
    if (this.#known.size >= 500) this.#known.clear();
    this.#known.set(text, rootKey);
    return rootKey;
  }
}

// A string that names no workspace is asked about in one that does not exist: refused like any unknown root key, in the same
// order and time.
export function presented(token: string): PresentedRootKey {
  const digest = digestOf(token);
  return { workspaceId: workspaceOfRootKey(token) ?? 'ws_none', digest, digestText: digest.toString('latin1') };
}
