// The interface of a kind of decision. The decider, leases and the tail use verifications, holds and limit checks only
// by it.

import type { PresentedRootKey } from '../domain/caller.ts';
import type { Batch, LeasePart, SnapshotsOfBatch, Waiting } from './batch.ts';
import type { Amounts } from './leases/amounts.ts';
import type { LeasedRequest, Repeatable, Tally } from './leases/leases.ts';
import type { Answer, ItemError } from './reply.ts';
import type { DecisionSource } from './tail/tail.ts';

/**
 * A request that was parsed and checked, and is decided each time it comes: without a promise if a lease decides it.
 */
export interface Prepared<Decision> {
  decide(): Decision | Promise<Decision>;
}

/** A request of a caller, as the decider takes it. */
export interface CallerRequest extends LeasedRequest {
  readonly rootKey: PresentedRootKey;
}

/** `Sent` is the state of a request while it is at Redis. */
export interface Kind<Request extends CallerRequest, Decision extends object, Sent = undefined> {
  /** Whether leases may repeat its decisions. */
  readonly isLeased: boolean;
  /** Adds the item of a request to a batch. */
  pack(batch: Batch, request: Request, waiting: Waiting, lease: LeasePart | undefined): Sent;
  read(answer: Answer): Decision | ItemError;
  /** Completes a decision with parts that its answer lacks, such as a cached snapshot. */
  finish(
    decision: Decision,
    request: Request,
    sent: Sent,
    answer: Answer,
    snapshots: SnapshotsOfBatch,
  ): Decision | Promise<Decision>;
  /** Corrects the remaining units and credits in a decision of Redis by those that leases of this process hold. */
  correct(decision: Decision, request: Request, amounts: Amounts): void;
  /** The decision as a lease repeats it; `hasUnits` if each repetition charges. */
  repeatable(decision: Decision, request: Request, hasUnits: boolean, amounts: Amounts): Repeatable<Decision>;
  /** A lost answer may have granted units: the outcome and subject with which they are returned. */
  unanswered(request: Request): Pick<Tally, 'outcome' | 'subject'>;
  /** Counts a decision in the metrics. */
  count(decision: Decision): void;
  /** Offers a decision to the tail, while that is open. */
  offer(decision: Decision, request: Request, source: DecisionSource, latencyMs: number): void;
  /** The error to throw for an item error that only this kind has. */
  errorOf(error: ItemError, request: Request): Error | undefined;
}
