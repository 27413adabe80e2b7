// Reads root keys from headers.

import type { PresentedRootKey } from '../domain/caller.ts';
import { presented } from '../domain/keyString.ts';

/** Returns the token after `Bearer`; undefined for any other header. */
export const bearerToken = (authorization: string): string | undefined => /^Bearer +(\S+) *$/i.exec(authorization)?.[1];

/** Caches the last few hundred root keys in memory, because hashing one costs more. */
export class RootKeyReader {
  /** By token or by whole Authorization header, which is never a token. */
  readonly #cached = new Map<string, PresentedRootKey>();

  /** Reads an Authorization header; undefined if it has no root key. */
  readHeader(authorization: string): PresentedRootKey | undefined {
    const cached = this.#cached.get(authorization);
    if (cached) return cached;
    const token = bearerToken(authorization);
    return token === undefined ? undefined : this.#add(authorization, presented(token));
  }

  read(token: string): PresentedRootKey {
    return this.#cached.get(token) ?? this.#add(token, presented(token));
  }

  #add(text: string, rootKey: PresentedRootKey): PresentedRootKey {
    if (this.#cached.size >= 500) this.#cached.clear();
    this.#cached.set(text, rootKey);
    return rootKey;
  }
}
