// Events of the store that metrics.ts counts.

import type { Outcome } from '../domain/verification.ts';

/** Called on the hot path, so each function must be very cheap. */
export interface StoreObserver {
  /** Connected to Redis, or reconnected. */
  connected(): void;
  /** Redis replied to a script, or (`isOk` false) it failed. */
  ran(script: string, ms: number, isOk: boolean): void;
  /** A batch of this many verifications and limit checks is sent. */
  sent(size: number): void;
  verified(outcome: Outcome): void;
  limited(passed: boolean): void;
  /** Counts by identifier and by tag were left out, because of the limits per day. */
  uncounted(identifiers: number, tags: number): void;
  /** This many writes after the charge of decisions failed: of counts, notes, queues, leases. */
  unwritten(failures: number): void;
  /** A request was refused because too many wait already. */
  overloaded(): void;
  /** A call was refused because the workspace has its maximum of records. */
  recordsRefused(): void;
  /** A verification or limit checks were decided by a lease. */
  decided(): void;
  /** A lease was granted with this many units; 0 for one without. */
  granted(units: number): void;
  /** A lease of units ended or was recalled, and this many were not used. */
  returned(units: number): void;
  /** A change waited this long for leases. */
  waited(ms: number): void;
  /** The records of a workspace were counted. */
  records(count: number): void;
  /** The sweeper runs a step of a queue whose first entry has been due for `lateMs`; 0 when none is due. */
  due(queue: 'holds' | 'refill' | 'purge' | 'usage', lateMs: number): void;
}
