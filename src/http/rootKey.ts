// A root key as it comes in a header.

import type { PresentedRootKey } from '../domain/caller.ts';
import { digestOf, workspaceOfRootKey } from '../domain/keyString.ts';

/** What follows `Bearer`; undefined when the header is anything else. */
export const bearerToken = (authorization: string): string | undefined => /^Bearer +(\S+) *$/i.exec(authorization)?.[1];

/** Hashing a root key costs more than remembering it: the last few hundred are remembered, in memory only. */
export class RootKeyReader {
  readonly #byToken = new Map<string, PresentedRootKey>();
  readonly #byHeader = new Map<string, PresentedRootKey>();

  /** That of an Authorization header; undefined when it brings none. */
  readHeader(authorization: string): PresentedRootKey | undefined {
    const known = this.#byHeader.get(authorization);
    if (known) return known;
    const token = bearerToken(authorization);
    return token === undefined ? undefined : remember(this.#byHeader, authorization, this.read(token));
  }

  read(token: string): PresentedRootKey {
    const known = this.#byToken.get(token);
    if (known) return known;
    // A string that names no workspace is asked about in one that does not exist: refused like any unknown root key, in
    // the same order and time.
    const rootKey = { workspaceId: workspaceOfRootKey(token) ?? 'ws_none', digest: digestOf(token) };
    return remember(this.#byToken, token, rootKey);
  }
}

function remember(known: Map<string, PresentedRootKey>, text: string, rootKey: PresentedRootKey): PresentedRootKey {
  if (known.size >= 500) known.clear();
  known.set(text, rootKey);
  return rootKey;
}
