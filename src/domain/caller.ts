import type { Grants } from './grants.ts';

/** Who calls, once the root key is known. */
export interface Caller {
  workspaceId: string;
  rootKeyId: string;
  grants: Grants;
}

/** What a change is recorded under. */
export interface Actor {
  rootKeyId: string;
  operation: string;
  requestId: string;
}

/** A root key as presented: whose it claims to be, and its digest. */
export interface PresentedRootKey {
  workspaceId: string;
  digest: Buffer;
  /** The same, a byte a character. */
  digestText: string;
}
