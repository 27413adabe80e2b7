// What the store reports to whoever counts it (metrics.ts).

import type { Outcome } from '../domain/verification.ts';

/** Called on the hot path, so each of these must do next to nothing. */
export interface StoreObserver {
  /** A connection to Redis was made: the first, or another after a loss. */
  connected(): void;
  /** Redis replied to a script, or (`isOk` false) it failed. */
  ran(script: string, ms: number, isOk: boolean): void;
  /** A batch of this many verifications and limit checks is sent. */
  sent(size: number): void;
  verified(outcome: Outcome): void;
  limited(passed: boolean): void;
  /** Counts by identifier and by tag that a day had no room for. */
  uncounted(identifiers: number, tags: number): void;
  /** A request was refused because too many wait already. */
  overloaded(): void;
  /** A call was refused because the workspace has as many records as it may. */
  recordsRefused(): void;
  /** The records of a workspace were counted. */
  records(count: number): void;
  /** The sweeper takes a step in a queue whose first entry has been due for so long; 0 when none is due. */
  due(queue: 'refill' | 'purge', lateMs: number): void;
}
