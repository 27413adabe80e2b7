import type { Grants } from './grants.ts';

/** An authenticated caller. */
export interface Caller {
  workspaceId: string;
  rootKeyId: string;
  grants: Grants;
  /** Milliseconds until its root key expires, by Redis's clock; Infinity if it does not. */
  lastsMs: number;
}

/** The author of a change, for the audit log. */
export interface Actor {
  rootKeyId: string;
  operation: string;
  requestId: string;
  /** The network address of the caller; '' if it is unknown. */
  address?: string;
  /** No event is written, as those of the exported workspace are imported. One for all records follows. */
  isQuiet?: true;
}

/** A root key that a caller sent. It may not exist in that workspace. */
export interface PresentedRootKey {
  workspaceId: string;
  digest: Buffer;
  /** The digest with one character per byte. */
  digestText: string;
}
