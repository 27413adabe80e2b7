// The items of a batch, packed as lua/decide.lua reads them (layout.ts).

import type { SnapshotText } from '../domain/verification.ts';
import type { Answer } from './decideReply.ts';
import { itemHead, itemKinds, leaseItem, settleItem, tally, verifyItem } from './layout.ts';
import type { Tally } from './leases/leases.ts';
import type { Written } from './struct.ts';
import type { QueuedBatch } from './workspaceQueues.ts';

/** Snapshots in the reply to a batch, by the digest of the key: further verifications of the key in the batch use them. */
export type SnapshotsOfBatch = Map<string, SnapshotText | Promise<SnapshotText>>;

/** A request in a batch. */
export interface Waiting {
  /** Reads its answer; throws when the answer cannot be read. */
  settle(answer: Answer, snapshots: SnapshotsOfBatch): void;
  reject(error: unknown): void;
}

const kindOf = (kind: (typeof itemKinds)[number]): number => itemKinds.indexOf(kind) + 1;
const verifyKind = kindOf('verify');
const limitKind = kindOf('limit');
const leaseKind = kindOf('lease');
const settleKind = kindOf('settle');
/** Of items that no root key authorises. */
const noRoot = Buffer.alloc(32);

/** What a request asks of leases, as in LEASE_ITEM. */
export type LeasePart = Omit<Written<typeof leaseItem.fields>, 'kind'>;

/** Requests of one workspace that are sent to Redis as one call. */
export class Batch implements QueuedBatch {
  /** The distinct digests of the items' root keys. */
  readonly roots: Buffer[] = [];
  readonly waiting: Waiting[] = [];
  weight = 0;
  /** It has items of leases. */
  hasLeases = false;
  /** After it, this session has no leases in the workspace and nothing to settle. */
  leaves = false;
  #items = Buffer.allocUnsafe(4096);
  #bytes = 0;

  get count(): number {
    return this.waiting.length;
  }

  fail(error: unknown) {
    for (const entry of this.waiting) entry.reject(error);
  }

  /** The packed items from index `first` on. */
  itemsFrom(first: number): Buffer {
    let at = 0;
    for (let number = 0; number < first; number++) at += itemHead.at.kind + this.#items.readUInt32BE(at);
    return this.#items.subarray(at, this.#bytes);
  }

  addVerify(
    root: Buffer,
    values: Written<typeof verifyItem.fields>,
    weight: number,
    waiting: Waiting,
    lease?: LeasePart | undefined,
  ) {
    const at = this.#beginDecision(verifyKind, root, verifyItem.size(values), weight, waiting, lease);
    verifyItem.write(this.#items, at, values);
  }

  /** `checks` are `count` LIMIT_CHECKs. */
  addLimit(root: Buffer, count: number, checks: Buffer, waiting: Waiting, lease?: LeasePart | undefined) {
    const at = this.#beginDecision(limitKind, root, 1 + checks.length, count, waiting, lease);
    this.#items[at] = count;
    checks.copy(this.#items, at + 1);
  }

  addSettlement(settlement: number, tallies: readonly Tally[], waiting: Waiting) {
    this.hasLeases = true;
    const bytes = tallies.reduce((sum, values) => sum + tally.size(values), settleItem.bytes);
    let at = this.#begin(settleKind, this.roots[0] ?? noRoot, bytes, 1 + tallies.length / 4, waiting);
    at = settleItem.write(this.#items, at, { settlement, tallies: tallies.length });
    for (const values of tallies) at = tally.write(this.#items, at, values);
  }

  /** As #begin, for a decision, which may be within a lease item. */
  #beginDecision(
    kind: number,
    root: Buffer,
    fieldBytes: number,
    weight: number,
    waiting: Waiting,
    lease: LeasePart | undefined,
  ): number {
    if (!lease) return this.#begin(kind, root, fieldBytes, weight, waiting);
    this.hasLeases = true;
    const values = { kind, ...lease };
    const at = this.#begin(leaseKind, root, leaseItem.size(values) + fieldBytes, weight, waiting);
    return leaseItem.write(this.#items, at, values);
  }

  /** Makes room for an item with `fieldBytes` of fields, and writes its head. Returns the offset of its fields. */
  #begin(kind: number, root: Buffer, fieldBytes: number, weight: number, waiting: Waiting): number {
    const at = this.#bytes;
    const end = at + itemHead.bytes + fieldBytes;
    if (end > this.#items.length) {
      const larger = Buffer.allocUnsafe(2 * end);
      this.#items.copy(larger, 0, 0, at);
      this.#items = larger;
    }
    // A linear search, because a batch nearly always has one root key.
    let rootIndex = this.roots.findIndex((other) => other === root || other.equals(root));
    if (rootIndex < 0) rootIndex = this.roots.push(root) - 1;
    const bytes = end - at - itemHead.at.kind;
    this.#bytes = end;
    this.weight += weight;
    this.waiting.push(waiting);
    return itemHead.write(this.#items, at, { bytes, kind, root: rootIndex + 1 });
  }
}
