// Reads the reply of lua/decide.lua to a batch: its answers, and the snapshots of keys. Each answer is read between its own
// bounds, so one that cannot be read spoils no other one, and no caller gets bytes of another one's.

import { type Outcome, outcomes, type SnapshotText } from '../domain/verification.ts';
import {
  answerBytes,
  batchHead,
  limitBlocked,
  limited,
  limitedCheck,
  limitOwners,
  limitPassed,
  refusals,
  refused,
  refusedFrom,
  snapshotBefore,
  verified,
  verifiedLimit,
  withSnapshot,
} from './layout.ts';
import { readUint } from './struct.ts';

export interface LimitState {
  exceeded: boolean;
  remaining: number;
  resetAtMs: number;
  /** Where the limit comes from, and its place there, from 0. */
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
  /** When it was decided, on the clock that decides: Redis's. */
  atMs: number;
}

export interface LimitResult {
  passed: boolean;
  /** The one that counted: an override replaces the request's. */
  limit: number;
  remaining: number;
  resetAtMs: number;
  overrideId: string | undefined;
}

export interface Limited {
  passed: boolean;
  checks: LimitResult[];
  /** When it was decided, on the clock that decides: Redis's. */
  atMs: number;
}

export interface Refusal {
  reason: (typeof refusals)[number];
  about: string;
}

/** One answer, from `at` to `end`. */
export interface Answer {
  packed: Buffer;
  at: number;
  end: number;
  /** The snapshot of the key that came with it. */
  snapshot: Buffer | undefined;
  /** When the batch was decided, on Redis's clock. */
  atMs: number;
}

export const unreadable = () => new Error('decide: an answer of the script cannot be read.');

/**
 * The answers to the first of `asked` items, at least one. Throws when the head does not fit what follows it: then nothing of
 * the reply can be trusted.
 */
export function readReply(packed: Buffer, snapshots: readonly Buffer[], asked: number): Answer[] {
  const count = packed[batchHead.at.count] ?? 0;
  const lengthsAt = batchHead.bytes;
  let at = lengthsAt + answerBytes.bytes * count;
  if (count === 0 || count > asked || packed.length < at) throw unreadable();
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

/** Whether an earlier answer of the batch came with the snapshot of the key. */
export const hasSnapshotBefore = ({ packed, at }: Answer): boolean => (packed[at]! & snapshotBefore) !== 0;

/** A decision without the snapshot of the key, or why the item was refused. */
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
  const ratelimits: LimitState[] = [];
  for (let limitAt = at + verified.bytes; limitAt < end; limitAt += verifiedLimit.bytes) {
    ratelimits.push({
      of: limitOwners[packed[limitAt + verifiedLimit.at.owner]! - 1]!,
      index: packed[limitAt + verifiedLimit.at.number]! - 1,
      exceeded: packed[limitAt + verifiedLimit.at.exceeded] === 1,
      remaining: readUint(packed, limitAt + verifiedLimit.at.remaining, 7),
      resetAtMs: readUint(packed, limitAt + verifiedLimit.at.reset, 7),
    });
  }
  return { outcome, snapshot: undefined, credits, ratelimits, atMs };
}

/** The results of a limit item, or why it was refused. */
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
  const aboutAt = at + refused.at.about;
  const fits = end - aboutAt >= 2 && packed.readUInt16BE(aboutAt) === end - aboutAt - 2;
  if (reason === undefined || !fits || snapshot) throw unreadable();
  return { reason, about: packed.toString('utf8', aboutAt + 2, end) };
}
