// Reads the reply of lua/decide.lua to a batch: answers, and snapshots of keys. Each answer is read within its own
// bounds, so that an answer that cannot be read affects no other, and no caller gets bytes of another caller's answer.

import {
  answerBytes,
  batchHead,
  granted,
  itemError,
  itemErrorFrom,
  itemErrors,
  leaseDone,
  withSnapshot,
} from '../scripts/layout.ts';
import { readUint } from '../scripts/struct.ts';
import type { Grant } from './leases/leases.ts';

export interface ItemError {
  reason: (typeof itemErrors)[number];
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

export const unreadable = () => new Error('decide: the reply of the script cannot be read.');

interface Reply {
  answers: Answer[];
  /** As in BATCH_HEAD. */
  work: number;
  allWork: number;
}

/**
 * Returns the answers to the first of `sent` items, at least one. Throws when the head does not match the bytes that
 * follow it: then no part of the reply can be trusted.
 */
export function readReply(packed: Buffer, snapshots: readonly Buffer[], sent: number): Reply {
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
  const work = packed.readUInt16BE(batchHead.at.work);
  return { answers, work, allWork: packed.readUInt32BE(batchHead.at.allWork) };
}

/**
 * The lease that the answer to a lease item begins with, and the answer to its decision; undefined if the item was
 * refused without a lease.
 */
export function readGranted(answer: Answer): (Grant & { decision: Answer }) | undefined {
  const { packed, at, end, snapshot, atMs } = answer;
  // A failed item has no GRANTED. Units are at most 4096, so the first byte of GRANTED is below `itemErrorFrom`.
  if (packed[at]! >= itemErrorFrom) return undefined;
  if (end - at <= granted.bytes) throw unreadable();
  return {
    units: readUint(packed, at + granted.at.units, 2),
    term: readUint(packed, at + granted.at.term, 2),
    isCut: packed[at + granted.at.cut] === 1,
    isLong: packed[at + granted.at.long] === 1,
    // Written like the answers of readReply, so that V8 has one shape for both.
    decision: { packed, at: at + granted.bytes, end, snapshot, atMs },
  };
}

/** Whether an item that settles leases was done; otherwise why not. */
export const readDone = (answer: Answer): ItemError | undefined =>
  answer.packed[answer.at] === leaseDone && answer.end - answer.at === 1 ? undefined : readItemError(answer);

/** Reads an answer that is no decision but an error of its item. */
export function readItemError({ packed, at, end, snapshot }: Answer): ItemError {
  const reason = itemErrors[packed[at]! - itemErrorFrom];
  const detailAt = at + itemError.at.detail;
  const fits = end - detailAt >= 2 && packed.readUInt16BE(detailAt) === end - detailAt - 2;
  if (reason === undefined || !fits || snapshot) throw unreadable();
  return { reason, detail: packed.toString('utf8', detailAt + 2, end) };
}
