// The hot path, put together: a decider, and the kinds of decisions that it makes.

import { Decider, type DeciderOptions } from './decider.ts';
import { HeldKeys } from './heldKeys.ts';
import { Holds } from './holds.ts';
import { LimitChecks } from './limitChecks.ts';
import { SnapshotCache } from './snapshots.ts';
import { type VerificationOptions, Verifications } from './verification.ts';

export type DecideOptions = DeciderOptions &
  VerificationOptions & {
    /** The digest of a key by its id without `key_`. */
    digestOf: (workspaceId: string, id24: string) => Promise<string | undefined>;
  };

export function openDecide(options: DecideOptions) {
  const decider = new Decider(options);
  const heldKeys = new HeldKeys(options.digestOf);
  const snapshots = new SnapshotCache();
  return {
    verifications: new Verifications(decider, options, heldKeys, snapshots),
    holds: new Holds(decider, options, heldKeys, snapshots),
    limitChecks: new LimitChecks(decider, options),
    leasing: decider.leasing,

    /** Requests that wait for Redis. */
    get waiting(): number {
      return decider.waiting;
    },
  };
}

export type Decide = ReturnType<typeof openDecide>;
