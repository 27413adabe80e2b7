// The items of a batch, packed as lua/decide.lua reads them (layout.ts).

import type { SnapshotText } from '../domain/verification.ts';
import { batchTail, itemHead, itemKinds, leaseItem, settleItem, tally } from '../scripts/layout.ts';
import type { Written } from '../scripts/struct.ts';
import type { Tally } from './leases/leases.ts';
import type { QueuedBatch } from './queues.ts';
import type { Answer } from './reply.ts';

/**
 * Snapshots in the reply to a batch, by the digest of the key: further verifications of the key in the batch use them.
 */
export type SnapshotsOfBatch = Map<string, SnapshotText | Promise<SnapshotText>>;

/** A request in a batch. */
export interface Waiting {
  /** Receives its answer; throws when the answer cannot be read. */
  resolve(answer: Answer, snapshots: SnapshotsOfBatch): void;
  reject(error: unknown): void;
}

type ItemKind = (typeof itemKinds)[number];
type DecisionKind = Exclude<ItemKind, 'lease' | 'settle'>;
const kindOf = (kind: ItemKind): number => itemKinds.indexOf(kind) + 1;
const leaseKind = kindOf('lease');
const settleKind = kindOf('settle');
const rootDigestBytes = 32;
/** The digest in items that no root key authorises. */
const noRoot = Buffer.alloc(rootDigestBytes);

/** The request for a lease, as in LEASE_ITEM. */
export type LeasePart = Omit<Written<typeof leaseItem.fields>, 'kind'>;

/** Requests of one workspace that are sent to Redis in one call. */
export class Batch implements QueuedBatch {
  /** The distinct digests of the items' root keys. */
  readonly roots: Buffer[] = [];
  readonly waiting: Waiting[] = [];
  readonly since = performance.now();
  /** Milliseconds from `since` to the last reply. */
  latencyMs = 0;
  /** The work of the items that are not decided. */
  weight = 0;
  /** The number of decided items: the first ones. */
  decided = 0;
  /** It has items of leases. */
  hasLeases = false;
  /** As in LEASE_SESSION. */
  leaves = 0;
  /**
   * Small at first, because Node has a pool for buffers below 4 KB. A buffer outside of it would cost more than its
   * bytes.
   */
  #items = Buffer.allocUnsafe(1024);
  #bytes = 0;

  get count(): number {
    return this.waiting.length;
  }

  get isBegun(): boolean {
    return this.decided > 0;
  }

  get isDone(): boolean {
    return this.decided === this.waiting.length;
  }

  /** The next `count` items are decided. */
  noteDecided(count: number) {
    this.weight -= (this.weight * count) / (this.waiting.length - this.decided);
    this.decided += count;
  }

  fail(error: unknown) {
    for (const entry of this.waiting.slice(this.decided)) entry.reject(error);
  }

  /** The packed items that are not decided, with the session of a batch that has items of leases, and the root keys. */
  packed(session: Buffer | undefined, budget: number): Buffer {
    let at = 0;
    for (let number = 0; number < this.decided; number++) at += itemHead.at.kind + this.#items.readUInt32BE(at);
    let end = this.#bytes;
    const { roots } = this;
    this.#reserve(end + (session ? session.length : 0) + rootDigestBytes * roots.length + batchTail.bytes);
    const items = this.#items;
    if (session) {
      items.set(session, end);
      end += session.length;
    }
    for (const root of roots) {
      items.set(root, end);
      end += rootDigestBytes;
    }
    return items.subarray(at, batchTail.write(items, end, { budget, roots: roots.length, session: session ? 1 : 0 }));
  }

  addSettlement(settlement: number, tallies: readonly Tally[], waiting: Waiting) {
    this.hasLeases = true;
    const bytes = tallies.reduce((sum, values) => sum + tally.size(values), settleItem.bytes);
    let at = this.#begin(settleKind, this.roots[0] ?? noRoot, bytes, 1 + tallies.length / 4, waiting);
    at = settleItem.write(this.#items, at, { settlement, tallies: tallies.length });
    for (const values of tallies) at = tally.write(this.#items, at, values);
  }

  /** The packed items, with room for the last one. */
  get items(): Buffer {
    return this.#items;
  }

  /**
   * Adds the item of a decision with `fieldBytes` of fields, within a lease item if it has a part of it. Returns the
   * offset in `items` at which its fields have to be written.
   */
  beginDecision(
    kind: DecisionKind,
    root: Buffer,
    fieldBytes: number,
    weight: number,
    waiting: Waiting,
    lease: LeasePart | undefined,
  ): number {
    const number = kindOf(kind);
    if (!lease) return this.#begin(number, root, fieldBytes, weight, waiting);
    this.hasLeases = true;
    const values = { kind: number, ...lease };
    const at = this.#begin(leaseKind, root, leaseItem.size(values) + fieldBytes, weight, waiting);
    return leaseItem.write(this.#items, at, values);
  }

  /** Makes room for an item with `fieldBytes` of fields, and writes its head. Returns the offset of its fields. */
  #begin(kind: number, root: Buffer, fieldBytes: number, weight: number, waiting: Waiting): number {
    const at = this.#bytes;
    const end = at + itemHead.bytes + fieldBytes;
    this.#reserve(end);
    // A linear search, because a batch nearly always has one root key.
    const { roots } = this;
    let rootIndex = roots[0] === root ? 0 : roots.findIndex((other) => other === root || other.equals(root));
    if (rootIndex < 0) rootIndex = roots.push(root) - 1;
    const bytes = end - at - itemHead.at.kind;
    this.#bytes = end;
    this.weight += weight;
    this.waiting.push(waiting);
    return itemHead.write(this.#items, at, { bytes, kind, root: rootIndex + 1 });
  }

  /** Makes room for this many bytes. */
  #reserve(bytes: number) {
    if (bytes <= this.#items.length) return;
    const larger = Buffer.allocUnsafe(2 * bytes);
    this.#items.copy(larger, 0, 0, this.#bytes);
    this.#items = larger;
  }
}
