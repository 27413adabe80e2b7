// Holds: the kinds of decisions of keys.verifyKey with a hold, and of its settlement
// (lua/decide/verification/holdMaker.lua). Redis decides each of them: they are never leased.

import type { PresentedRootKey } from '../domain/caller.ts';
import { parseHoldId } from '../domain/holdId.ts';
import { ApiError } from '../errors.ts';
import {
  changedHold,
  hasBalances,
  holdActions,
  holdChanged,
  holdChangeItem,
  holdExpiries,
  holdItem,
  identityLeft,
  settledWindow,
  verifyItem,
} from '../scripts/layout.ts';
import { Reader } from '../scripts/struct.ts';
import type { Batch, LeasePart, Waiting } from './batch.ts';
import type { Decider } from './decider.ts';
import type { HeldKeys } from './heldKeys.ts';
import { holdError } from './holdErrors.ts';
import { packSuffix } from './holdSuffix.ts';
import type { CallerRequest, Kind, Prepared } from './kind.ts';
import type { Amounts } from './leases/amounts.ts';
import { noText, type Repeatable } from './leases/leases.ts';
import { type Answer, type ItemError, readItemError } from './reply.ts';
import type { SnapshotCache } from './snapshots.ts';
import {
  identityOwner,
  Verification,
  type VerificationOptions,
  Verifications,
  type Verified,
  type VerifyRequest,
} from './verification.ts';

interface HoldRequest {
  ttlMs: number;
  onExpiry: (typeof holdExpiries)[number];
  /** The id that the caller gave; '' for none. */
  id: string;
}

interface HoldChange {
  action: (typeof holdActions)[number];
  /** The new duration of an extension, in milliseconds. */
  ttlMs?: number | undefined;
  /** The actual amounts of a settlement; undefined to charge what was held. */
  credits?: number | undefined;
  ratelimits?: readonly { name: string; cost: number }[] | undefined;
}

export interface ChangedHold {
  keyId: string;
  /** The hold had been given back before it was settled. */
  late: boolean;
  /** The new expiry of an extension. */
  expires: number;
  /** Negative if more was spent than the key had; undefined for an unlimited key. */
  balance: number | undefined;
  /** The balance of the identity; undefined if the hold did not charge it. */
  identityBalance: number | undefined;
  ratelimits: { name: string; cost: number }[];
  /** The externalId of the identity whose amounts it changed; '' for none. */
  identity: string;
}

/**
 * The work of a hold, in units of a plain verification: a factor of that of its verification, and an addend for each of
 * its limits.
 */
const heldWeight = { times: 1.5, limit: 1 / 3 };

class HeldVerification extends Verification {
  readonly hold: HoldRequest;
  readonly #kind: HeldVerifications;

  constructor(kind: HeldVerifications, rootKey: PresentedRootKey, request: VerifyRequest, hold: HoldRequest) {
    super(kind, rootKey, request);
    this.hold = hold;
    this.#kind = kind;
  }

  override decide(): Promise<Verified> {
    return this.#kind.decider.decideAtRedis(this.#kind, this);
  }
}

/** Verifications with a hold: as verifications, with the hold in the item and in the answer. */
class HeldVerifications extends Verifications {
  override readonly isLeased = false;

  override pack(batch: Batch, verification: HeldVerification, waiting: Waiting, lease: LeasePart | undefined) {
    const { rootKey, hold, weight } = verification;
    const { cached, values } = this.itemOf(verification);
    const head = { ttl: hold.ttlMs, onExpiry: holdExpiries.indexOf(hold.onExpiry), id: Buffer.from(hold.id) };
    const bytes = holdItem.size(head) + verifyItem.size(values);
    const limits = verification.request.ratelimits?.length ?? 0;
    const work = heldWeight.times * weight + heldWeight.limit * limits + (cached?.extraWeight ?? 0);
    const at = batch.beginDecision('hold', rootKey.digest, bytes, work, waiting, lease);
    verifyItem.write(batch.items, holdItem.write(batch.items, at, head), values);
    return cached;
  }
}

class HoldChangeRequest implements Prepared<ChangedHold>, CallerRequest {
  readonly rootKey: PresentedRootKey;
  readonly workspaceId: string;
  readonly rootDigest: string;
  readonly id24: string;
  readonly suffix: string;
  readonly change: HoldChange;
  /** The digest of the key; '' until it is known. */
  about = '';
  readonly cost = 0;
  readonly text = noText;
  readonly leasedBytes = 0;
  readonly tags = '';
  slot = -1;
  name = '';
  readonly #kind: HoldChanges;

  constructor(kind: HoldChanges, rootKey: PresentedRootKey, holdId: string, change: HoldChange) {
    const { id24 = '', suffix = '' } = parseHoldId(holdId) ?? {};
    this.#kind = kind;
    this.rootKey = rootKey;
    this.workspaceId = rootKey.workspaceId;
    this.rootDigest = rootKey.digestText;
    this.id24 = id24;
    this.suffix = suffix;
    this.change = change;
  }

  decide(): Promise<ChangedHold> {
    return this.#kind.decide(this);
  }
}

const noDigest = '\0'.repeat(holdChangeItem.fields.digest.bytes);
const { id16, api8 } = holdChangeItem.fields;
const noId24 = '\0'.repeat(id16.bytes + api8.bytes);

/** Settlements, extensions and releases of holds. */
class HoldChanges implements Kind<HoldChangeRequest, ChangedHold> {
  readonly isLeased = false;
  readonly #decider: Decider;
  readonly #heldKeys: HeldKeys;

  constructor(decider: Decider, heldKeys: HeldKeys) {
    this.#decider = decider;
    this.#heldKeys = heldKeys;
  }

  async decide(request: HoldChangeRequest): Promise<ChangedHold> {
    const { rootKey } = request;
    if (!this.#decider.isAccepted(rootKey)) {
      // Without the digest of the key, Redis decides only whether the root key may ask. Before that, nothing is looked
      // up, and no lease ends.
      request.about = '';
      await this.#decider.decideAtRedis(this, request).catch((error) => {
        if (!(error instanceof ApiError) || error.code !== 'hold_not_found') throw error;
      });
      this.#decider.noteAccepted(rootKey);
    }
    return this.#decideAccepted(request);
  }

  async #decideAccepted(request: HoldChangeRequest): Promise<ChangedHold> {
    const { workspaceId, id24 } = request;
    if (request.about === '' && id24 !== '') request.about = (await this.#heldKeys.find(workspaceId, id24)) ?? '';
    this.#decider.leasing.leases.endOf(workspaceId, request.about);
    return this.#decider.decideAtRedis(this, request);
  }

  pack(batch: Batch, request: HoldChangeRequest, waiting: Waiting, lease: LeasePart | undefined) {
    const { rootKey, about, suffix, change } = request;
    const id24 = request.id24 || noId24;
    const { ttlMs = 0, credits, ratelimits = [] } = change;
    const values = {
      action: holdActions.indexOf(change.action),
      ttl: ttlMs,
      hasCredits: credits === undefined ? 0 : 1,
      credits: credits ?? 0,
      digest: about || noDigest,
      id16: id24.slice(0, id16.bytes),
      api8: id24.slice(id16.bytes),
      suffix: packSuffix(suffix),
      limits: ratelimits.length,
    };
    const limits = ratelimits.map(({ name, cost }) => ({ cost, name: Buffer.from(name) }));
    // The windows follow the item; its `size` does not include them.
    const bytes = limits.reduce((sum, limit) => sum + settledWindow.size(limit), holdChangeItem.size(values));
    const work = 1 + ratelimits.length / 4;
    let at = batch.beginDecision('holdChange', rootKey.digest, bytes, work, waiting, lease);
    at = holdChangeItem.write(batch.items, at, values);
    for (const limit of limits) at = settledWindow.write(batch.items, at, limit);
    return undefined;
  }

  read(answer: Answer): ChangedHold | ItemError {
    const { packed, at, end } = answer;
    if (packed[at] !== holdChanged) return readItemError(answer);
    const reader = new Reader(packed.subarray(at, end));
    const { late, expires, hasBalance, balance, windows } = changedHold.read(reader);
    const ratelimits = Array.from({ length: windows }, () => {
      const { cost, name } = settledWindow.read(reader);
      return { name, cost };
    });
    const identityBalance = hasBalance < hasBalances.identity ? undefined : identityLeft.read(reader).shared;
    const identity = reader.rest();
    const left = hasBalance % hasBalances.identity === 1 ? balance : undefined;
    return { keyId: '', late: late === 1, expires, balance: left, identityBalance, ratelimits, identity };
  }

  finish(decision: ChangedHold, { workspaceId, id24 }: HoldChangeRequest): ChangedHold {
    decision.keyId = `key_${id24}`;
    const { identity } = decision;
    if (identity !== '') this.#decider.leasing.leases.endOf(workspaceId, identityOwner(identity));
    return decision;
  }

  correct(decision: ChangedHold, { about: owner }: HoldChangeRequest, amounts: Amounts) {
    const { balance: left } = decision;
    if (left !== undefined) decision.balance = amounts.corrected({ owner, name: '', duration: 0, limit: 0, left });
  }

  repeatable(): Repeatable<ChangedHold> {
    throw new Error('Settlements of holds are not leased.');
  }

  unanswered() {
    return { outcome: 0, subject: noText };
  }

  count() {}

  offer() {}

  errorOf(error: ItemError): Error | undefined {
    return holdError(error);
  }
}

export class Holds {
  readonly #held: HeldVerifications;
  readonly #changes: HoldChanges;

  constructor(decider: Decider, options: VerificationOptions, heldKeys: HeldKeys, snapshots: SnapshotCache) {
    this.#held = new HeldVerifications(decider, options, heldKeys, snapshots);
    this.#changes = new HoldChanges(decider, heldKeys);
  }

  /** Prepares a verification with a hold. */
  prepare(rootKey: PresentedRootKey, request: VerifyRequest, hold: HoldRequest): Prepared<Verified> {
    return new HeldVerification(this.#held, rootKey, request, hold);
  }

  prepareChange(rootKey: PresentedRootKey, holdId: string, change: HoldChange): Prepared<ChangedHold> {
    return new HoldChangeRequest(this.#changes, rootKey, holdId, change);
  }
}
