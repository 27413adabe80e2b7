// Reads the reply of lua/decide.lua to a batch: answers, and snapshots of keys. Each answer is read within its own bounds, so
// that an answer that cannot be read affects no other, and no caller gets bytes of another caller's answer.

import { type Outcome, outcomes, type SnapshotText } from '../domain/verification.ts';
import {
  answerBytes,
  batchHead,
  granted,
  leaseDone,
  limitBlocked,
  limited,
  limitedCheck,
  limitOwners,
  limitPassed,
  placesOfOwner,
  refusals,
  refused,
  refusedFrom,
  snapshotBefore,
  verified,
  verifiedLimit,
  withSnapshot,
} from '../scripts/layout.ts';
import { readUint } from '../scripts/struct.ts';

export interface LimitState {
  exceeded: boolean;
  remaining: number;
  resetAtMs: number;
  /** Owner of the limit, and its place among the owner's limits, from 0. */
  of: (typeof limitOwners)[number];
  index: number;
}

export interface Verified {
  outcome: Outcome;
  /** Undefined for NOT_FOUND only. */
  snapshot: SnapshotText | undefined;
  /** The balance after charging; undefined for an unlimited key. */
  credits: number | undefined;
  ratelimits: LimitState[];
  /** Time of the decision by Redis's clock, in Unix milliseconds. */
  atMs: number;
}

interface LimitResult {
  passed: boolean;
  /** The effective limit: that of an override, or else of the request. */
  limit: number;
  remaining: number;
  resetAtMs: number;
  overrideId: string | undefined;
}

export interface Limited {
  passed: boolean;
  checks: LimitResult[];
  /** Time of the decision by Redis's clock, in Unix milliseconds. */
  atMs: number;
}

export interface Refusal {
  reason: (typeof refusals)[number];
  /** Details of the reason, such as the missing permission; may be empty. */
  detail: string;
}

/** An answer: the bytes of `packed` from `at` to `end`. */
export interface Answer {
  packed: Buffer;
  at: number;
  end: number;
  /** The snapshot of the key, if the reply has one for this answer. */
  snapshot: Buffer | undefined;
  /** Time of the decision by Redis's clock, in Unix milliseconds. */
  atMs: number;
}

const unreadable = () => new Error('decide: the reply of the script cannot be read.');

/**
 * Returns the answers to the first of `sent` items, at least one. Throws when the head does not match the bytes that follow it:
 * then no part of the reply can be trusted.
 */
export function readReply(packed: Buffer, snapshots: readonly Buffer[], sent: number): Answer[] {
  const count = packed[batchHead.at.count] ?? 0;
  const lengthsAt = batchHead.bytes;
  let at = lengthsAt + answerBytes.bytes * count;
  if (count === 0 || count > sent || packed.length < at) throw unreadable();
  const atMs = readUint(packed, batchHead.at.now, batchHead.fields.now.bytes);
  const answers: Answer[] = [];
  let snapshotAt = 0;
  for (let index = 0; index < count; index++) {
    const length = packed.readUInt16BE(lengthsAt + answerBytes.bytes * index);
    const hasSnapshot = length >= withSnapshot;
    const end = at + (hasSnapshot ? length - withSnapshot : length);
    if (end === at) throw unreadable();
    answers.push({ packed, at, end, snapshot: hasSnapshot ? snapshots[snapshotAt++] : undefined, atMs });
    at = end;
  }
  if (at !== packed.length || snapshotAt !== snapshots.length) throw unreadable();
  return answers;
}

/** Whether an earlier answer of the batch has the snapshot of the key. */
export const hasSnapshotBefore = ({ packed, at }: Answer): boolean => (packed[at]! & snapshotBefore) !== 0;

/** Returns the decision without the snapshot of the key, or the reason why the item was refused. */
export function readVerified(answer: Answer): Verified | Refusal {
  const { packed, at, end, atMs } = answer;
  const outcome = outcomes[(packed[at]! & ~snapshotBefore) - 1];
  if (outcome === undefined) return readRefusal(answer);
  if (outcome === 'NOT_FOUND') {
    if (end - at !== 1 || answer.snapshot) throw unreadable();
    return { outcome, snapshot: undefined, credits: undefined, ratelimits: [], atMs };
  }
  const count = end - at < verified.bytes ? 0 : packed[at + verified.at.limits]!;
  if (end - at !== verified.bytes + verifiedLimit.bytes * count) throw unreadable();
  const hasBalance = packed[at + verified.at.hasBalance] === 1;
  const credits = hasBalance ? readUint(packed, at + verified.at.balance, 7) : undefined;
  // Of its length from the beginning: `push` makes room for 17.
  const ratelimits = new Array<LimitState>(count);
  for (let number = 0; number < count; number++) {
    const limitAt = at + verified.bytes + verifiedLimit.bytes * number;
    const place = packed[limitAt + verifiedLimit.at.place]! - 1;
    ratelimits[number] = {
      of: limitOwners[Math.floor(place / placesOfOwner)]!,
      index: place % placesOfOwner,
      exceeded: packed[limitAt + verifiedLimit.at.exceeded] === 1,
      remaining: readUint(packed, limitAt + verifiedLimit.at.remaining, 7),
      resetAtMs: readUint(packed, limitAt + verifiedLimit.at.reset, 7),
    };
  }
  return { outcome, snapshot: undefined, credits, ratelimits, atMs };
}

/** The lease that the answer to a lease item begins with, and the answer to its decision. Undefined for a refusal without. */
export function readGranted(answer: Answer): { units: number; term: number; decision: Answer } | undefined {
  const { packed, at, end, snapshot, atMs } = answer;
  // A script that failed answers without. Units are at most 4096, so their first byte is no reason of a refusal.
  if (packed[at]! >= refusedFrom) return undefined;
  if (end - at <= granted.bytes) throw unreadable();
  return {
    units: readUint(packed, at + granted.at.units, 2),
    term: readUint(packed, at + granted.at.term, 2),
    // Written like the answers of readReply, so that V8 has one shape for both.
    decision: { packed, at: at + granted.bytes, end, snapshot, atMs },
  };
}

/** Whether an item that settles leases was done; otherwise why not. */
export const readDone = (answer: Answer): Refusal | undefined =>
  answer.packed[answer.at] === leaseDone && answer.end - answer.at === 1 ? undefined : readRefusal(answer);

/** Returns the results of a limit item, or the reason why it was refused. */
export function readLimited(answer: Answer): Limited | Refusal {
  const { packed, end, atMs } = answer;
  let { at } = answer;
  const outcome = packed[at];
  if (outcome !== limitPassed && outcome !== limitBlocked) return readRefusal(answer);
  const count = packed[at + limited.at.checks]!;
  const checks: LimitResult[] = [];
  at += limited.bytes;
  for (let index = 0; index < count && at + limitedCheck.bytes < end; index++) {
    const overrideAt = at + limitedCheck.at.override;
    const overrideBytes = packed[overrideAt]!;
    const override = packed.toString('latin1', overrideAt + 1, overrideAt + 1 + overrideBytes);
    checks.push({
      passed: packed[at + limitedCheck.at.passed] === 1,
      limit: readUint(packed, at + limitedCheck.at.limit, 7),
      remaining: readUint(packed, at + limitedCheck.at.remaining, 7),
      resetAtMs: readUint(packed, at + limitedCheck.at.reset, 7),
      overrideId: override === '' ? undefined : `rlor_${override}`,
    });
    at = overrideAt + 1 + overrideBytes;
  }
  if (checks.length !== count || at !== end || answer.snapshot) throw unreadable();
  return { passed: outcome === limitPassed, checks, atMs };
}

function readRefusal({ packed, at, end, snapshot }: Answer): Refusal {
  const reason = refusals[packed[at]! - refusedFrom];
  const detailAt = at + refused.at.detail;
  const fits = end - detailAt >= 2 && packed.readUInt16BE(detailAt) === end - detailAt - 2;
  if (reason === undefined || !fits || snapshot) throw unreadable();
  return { reason, detail: packed.toString('utf8', detailAt + 2, end) };
}
