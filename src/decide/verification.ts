// Verifications: the kind of decision of keys.verifyKey and of the gateway check (lua/decide/verification/verify.lua).

import type { PresentedRootKey } from '../domain/caller.ts';
import { holdIdOf } from '../domain/holdId.ts';
import { chargedUnits } from '../domain/limit.ts';
import type { PostfixQuery } from '../domain/permissionQuery.ts';
import { type Periodic, storedDuration } from '../domain/quota.ts';
import { keyIdOf, keyNameOf, type Outcome, outcomes, type SnapshotText } from '../domain/verification.ts';
import { ApiError } from '../errors.ts';
import type { StoreObserver } from '../redis/observer.ts';
import {
  hasBalances,
  held,
  identityLeft,
  limitOwners,
  placesOfOwner,
  snapshotBefore,
  talliedKey,
  verified,
  verifiedLimit,
  verifyItem,
  withHold,
} from '../scripts/layout.ts';
import { readInt, readUint } from '../scripts/struct.ts';
import type { Batch, LeasePart, SnapshotsOfBatch, Waiting } from './batch.ts';
import type { Decider } from './decider.ts';
import type { HeldKeys } from './heldKeys.ts';
import { holdError } from './holdErrors.ts';
import { readSuffix } from './holdSuffix.ts';
import type { CallerRequest, Kind, Prepared } from './kind.ts';
import { type Amounts, type Charge, type DecidedAmount, leftOf, resetAfter } from './leases/amounts.ts';
import { type LeasedRequest, noText, type Repeatable } from './leases/leases.ts';
import { type Answer, type ItemError, readItemError, unreadable } from './reply.ts';
import { type CachedSnapshot, noVersion, readSnapshot, type SnapshotCache } from './snapshots.ts';
import type { TailFilter } from './tail/stream.ts';
import type { DecisionSource, Tail } from './tail/tail.ts';

export interface LimitState {
  exceeded: boolean;
  remaining: number;
  /** As in VERIFIED_LIMIT. */
  left: number;
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
  /** The balance of its identity; undefined if it has none. */
  identityCredits: number | undefined;
  ratelimits: LimitState[];
  /** Time of the decision by Redis's clock, in Unix milliseconds. */
  atMs: number;
  /** The hold that it made, if it made one. */
  hold?: { id: string; expires: number };
}

export interface VerifyRequest {
  /** SHA-256 of the key string, one character a byte. */
  digest: string;
  /** Credits. */
  cost: number;
  query?: PostfixQuery | undefined;
  ratelimits?: readonly ({ name: string; cost: number; limit?: number } & Periodic)[] | undefined;
  tags?: readonly string[] | undefined;
  /** The apiIds of which the key must have one; undefined for any. */
  keyspaces?: readonly string[] | undefined;
  /** The address of the end user, packed (domain/ipRange.ts); undefined if the caller sent none. */
  ip?: string | undefined;
}

export interface VerificationOptions {
  /** Reads the slugs of lists of permission numbers. */
  slugsOf: (workspaceId: string, lists: readonly string[]) => Promise<string[]>;
  tail: Tail;
  observe?: StoreObserver | undefined;
}

/** A prepared verification caches the snapshot of its key up to this size in bytes. Thousands of them are cached. */
const snapshotBytesMax = 1024;

/** Limit of the counters that a key has for ad hoc limits, as in lua/include/counters.lua. */
const countersMax = 1000;

/**
 * A verification of one key. It is one object instead of closures, because those of a thousand keys do not fit in the
 * cache of a processor.
 */
export class Verification implements Prepared<Verified>, CallerRequest {
  readonly rootKey: PresentedRootKey;
  readonly request: VerifyRequest;
  readonly workspaceId: string;
  // For the fields up to `name` see LeasedRequest.
  readonly rootDigest: string;
  readonly about: string;
  readonly cost: number;
  readonly text: Buffer;
  readonly leasedBytes: number;
  readonly tags: string;
  /**
   * `text` with the address of the end user. A lease is for a request with any address: a key whose outcome depends on
   * the address is not leased (lua/decide/verification/lease.lua).
   */
  readonly ofItem: Buffer;
  readonly weight: number;
  slot = -1;
  name = '';
  /** The snapshot of its key at its last decision, if that is small. */
  cached: CachedSnapshot | undefined = undefined;
  readonly #kind: Verifications;

  constructor(kind: Verifications, rootKey: PresentedRootKey, request: VerifyRequest) {
    this.#kind = kind;
    this.rootKey = rootKey;
    this.request = request;
    this.workspaceId = rootKey.workspaceId;
    this.rootDigest = rootKey.digestText;
    this.about = request.digest;
    this.cost = request.cost;
    this.text = requestText(request);
    this.tags = request.tags ? JSON.stringify(request.tags) : '';
    this.leasedBytes = bytesBeforeTags(this.text, this.tags);
    this.ofItem = withAddress(request, this.text);
    this.weight = weightOf(request);
  }

  decide(): Verified | Promise<Verified> {
    return this.#kind.decider.decide(this.#kind, this);
  }
}

export class Verifications implements Kind<Verification, Verified, CachedSnapshot | undefined> {
  readonly isLeased: boolean = true;
  readonly decider: Decider;
  readonly #options: VerificationOptions;
  readonly #heldKeys: HeldKeys;
  readonly #snapshots: SnapshotCache;

  constructor(decider: Decider, options: VerificationOptions, heldKeys: HeldKeys, snapshots: SnapshotCache) {
    this.decider = decider;
    this.#options = options;
    this.#heldKeys = heldKeys;
    this.#snapshots = snapshots;
  }

  /** Prepares a verification. */
  prepare(rootKey: PresentedRootKey, request: VerifyRequest): Prepared<Verified> {
    return new Verification(this, rootKey, request);
  }

  pack(batch: Batch, verification: Verification, waiting: Waiting, lease: LeasePart | undefined) {
    const { rootKey, weight } = verification;
    const { cached, values } = this.itemOf(verification);
    const work = weight + (cached?.extraWeight ?? 0);
    const at = batch.beginDecision('verify', rootKey.digest, verifyItem.size(values), work, waiting, lease);
    verifyItem.write(batch.items, at, values);
    return cached;
  }

  /** The fields of the item of a verification, and the cached snapshot of its key. */
  itemOf(verification: Verification) {
    const { about: digest, cost, ofItem } = verification;
    const cached = this.#cachedOf(verification);
    return { cached, values: { digest, cost, cached: cached?.version ?? noVersion, request: ofItem } };
  }

  read(answer: Answer): Verified | ItemError {
    return readVerified(answer);
  }

  /** Adds the snapshot of the key, and completes the id of the hold if there is one. */
  finish(
    decision: Verified,
    verification: Verification,
    cached: CachedSnapshot | undefined,
    answer: Answer,
    snapshots: SnapshotsOfBatch,
  ): Verified | Promise<Verified> {
    const finished = this.#withSnapshot(decision, verification, cached, answer, snapshots);
    if (decision.hold === undefined) return finished;
    return finished instanceof Promise
      ? finished.then((known) => this.#withHoldId(known, verification))
      : this.#withHoldId(finished, verification);
  }

  #withHoldId(decision: Verified, { workspaceId, about: digest }: Verification): Verified {
    const { hold, snapshot } = decision;
    if (!hold || !snapshot) return decision;
    const id24 = keyIdOf(snapshot).slice('key_'.length);
    hold.id = holdIdOf(id24, hold.id);
    this.#heldKeys.note(workspaceId, id24, digest);
    return decision;
  }

  /** Adds the snapshot: from the answer, from an earlier answer of the batch, or from the cache. */
  #withSnapshot(
    decision: Verified,
    { workspaceId, about: digest }: Verification,
    cached: CachedSnapshot | undefined,
    answer: Answer,
    snapshots: SnapshotsOfBatch,
  ): Verified | Promise<Verified> {
    let snapshot: SnapshotText | undefined | Promise<SnapshotText>;
    if (answer.snapshot) {
      snapshot = this.#cache(workspaceId, digest, answer.snapshot, cached, decision.atMs);
      snapshots.set(digest, snapshot);
    } else if (hasSnapshotBefore(answer)) {
      snapshot = snapshots.get(digest);
      if (!snapshot) throw new Error('The snapshot of the key is in an answer that cannot be read.');
    } else if (cached && decision.outcome !== 'NOT_FOUND') {
      // This round trip confirmed the cached version.
      snapshot = this.#snapshots.keep(digest, cached, decision.atMs);
    }
    if (snapshot instanceof Promise) return snapshot.then((read) => Object.assign(decision, { snapshot: read }));
    decision.snapshot = snapshot;
    return decision;
  }

  correct(decision: Verified, verification: Verification, amounts: Amounts) {
    const externalId = decision.snapshot?.externalId;
    const isKnown =
      amounts.concerns(verification.about) || (externalId !== undefined && amounts.concerns(identityOwner(externalId)));
    if (!isKnown) return;
    const decided = amountsOf(decision, verification);
    if (decision.credits !== undefined) decision.credits = amounts.corrected(decided.pop()!);
    for (const [index, state] of decision.ratelimits.entries()) state.remaining = amounts.corrected(decided[index]!);
  }

  repeatable(
    decision: Verified,
    verification: Verification,
    hasUnits: boolean,
    amounts: Amounts,
  ): Repeatable<Verified> {
    return new RepeatedVerification(decision, verification, hasUnits, amounts);
  }

  /** Units are granted with VALID only. */
  unanswered(verification: Verification) {
    return { outcome: numberOf('VALID'), subject: subjectOf(verification, verification.cost) };
  }

  count({ outcome }: Verified) {
    this.#options.observe?.verified(outcome);
  }

  offer(decision: Verified, { workspaceId, request }: Verification, source: DecisionSource, latencyMs: number) {
    const passes = (filter: TailFilter) => takes(filter, decision);
    this.#options.tail.offer(workspaceId, 'verification', passes, () => eventOf(request, decision), source, latencyMs);
  }

  errorOf({ reason, detail }: ItemError, { request: { ratelimits } }: Verification): Error | undefined {
    if (reason === 'limit_not_found') {
      const name = JSON.stringify(detail);
      return new ApiError('precondition_failed', `Neither the key nor its identity has a limit named ${name}.`);
    }
    if (reason !== 'too_many_counters') return holdError({ reason, detail });
    const location = `body.ratelimits[${ratelimits?.findIndex(({ name }) => name === detail)}].name`;
    const message = `needs a counter, and the key has its maximum of ${countersMax} counters of ad hoc limits`;
    const fix = 'Use fewer names and durations of ad hoc limits, or wait until their durations have passed.';
    return new ApiError('invalid_input', `${location} ${message}.`, { fields: [{ location, message, fix }] });
  }

  /** The cached snapshot of a verification's key. */
  #cachedOf(verification: Verification): CachedSnapshot | undefined {
    const { cached, workspaceId, about } = verification;
    if (cached && this.#snapshots.isRecent(cached)) return cached;
    const found = this.#snapshots.find(workspaceId, about);
    verification.cached = found && found.bytes <= snapshotBytesMax ? found : undefined;
    return found;
  }

  /** Reads a snapshot, and caches it. */
  #cache(workspaceId: string, digest: string, packed: Buffer, cached: CachedSnapshot | undefined, atMs: number) {
    const { version, snapshot, permissionLists } = readSnapshot(packed, atMs);
    const add = () => this.#snapshots.add(workspaceId, digest, { version, snapshot }, cached, atMs);
    if (permissionLists.length === 0) return add();
    return this.#options.slugsOf(workspaceId, permissionLists).then((slugs) => {
      snapshot.permissions = slugs;
      return add();
    });
  }
}

const limitItem = ({ name, cost, limit, ...rest }: NonNullable<VerifyRequest['ratelimits']>[number]) =>
  limit === undefined ? [name, cost] : [name, cost, limit, storedDuration(rest)];

/** The request of a verification without its key, as JSON in the format of layout.ts. */
export function requestText({ query, ratelimits, keyspaces, tags }: Omit<VerifyRequest, 'digest'>): Buffer {
  if (!query && !ratelimits && !keyspaces && !tags) return noText;
  const listed = keyspaces && Object.fromEntries(keyspaces.map((apiId) => [apiId, 1]));
  // Leases are for requests that are equal up to the tags, so these are last.
  return Buffer.from(JSON.stringify({ query, limits: ratelimits?.map(limitItem), keyspaces: listed, tags }));
}

/** The bytes of a text before `,"tags":[…]}`, or before the `}` of one without tags; 0 for one with nothing else. */
const bytesBeforeTags = ({ length }: Buffer, tags: string): number =>
  Math.max(0, tags === '' ? length - 1 : length - Buffer.byteLength(`,"tags":${tags}}`));

/** The end of a VERIFY_ITEM: the text of a request, after its address if it has one. */
export const withAddress = ({ ip }: Pick<VerifyRequest, 'ip'>, text: Buffer): Buffer =>
  ip === undefined ? text : Buffer.concat([Buffer.of(ip.length), Buffer.from(ip), text]);

/** The names of the lists in a request. */
type ListName = {
  [Name in keyof VerifyRequest]-?: NonNullable<VerifyRequest[Name]> extends readonly unknown[] ? Name : never;
}[keyof VerifyRequest];
/** A list without a weight does not compile. */
type AllWeighted<Names> = Record<Exclude<ListName, Names>, never>;

/** The weight of a plain verification is 1; each limit, part of a query and tag adds a quarter, keyspaces nothing. */
const weightOf = ({
  query,
  ratelimits,
  tags,
}: VerifyRequest & AllWeighted<'query' | 'ratelimits' | 'keyspaces' | 'tags'>): number =>
  1 + ((ratelimits?.length ?? 0) + (query?.length ?? 0) + (tags?.length ?? 0)) / 4;

/** Whether an earlier answer of the batch has the snapshot of the key. */
const hasSnapshotBefore = ({ packed, at }: Answer): boolean => (packed[at]! & snapshotBefore) !== 0;

/** Returns the decision without the snapshot of the key, or the error of its item. */
export function readVerified(answer: Answer): Verified | ItemError {
  const { packed, at } = answer;
  const outcome = outcomes[(packed[at]! & ~snapshotBefore) - 1];
  if (outcome !== undefined) return readDecision(answer, outcome);
  return (packed[at]! & ~snapshotBefore) === withHold + numberOf('VALID') ? readHeld(answer) : readItemError(answer);
}

/** Reads the decision of a verification that made a hold. The id of the hold is completed when the key is known. */
function readHeld(answer: Answer): Verified {
  const { packed, at, end } = answer;
  const heldAt = end - held.bytes;
  const suffixAt = heldAt - packed[end - 1]!;
  if (suffixAt <= at) throw unreadable();
  const decision = readDecision({ ...answer, end: suffixAt }, 'VALID');
  const expires = readUint(packed, heldAt, held.fields.expires.bytes);
  decision.hold = { id: readSuffix(packed, suffixAt, heldAt), expires };
  return decision;
}

const notFound = (atMs: number): Verified => ({
  outcome: 'NOT_FOUND',
  snapshot: undefined,
  credits: undefined,
  identityCredits: undefined,
  ratelimits: [],
  atMs,
});

function readDecision({ packed, at, end, snapshot, atMs }: Answer, outcome: Outcome): Verified {
  if (outcome === 'NOT_FOUND') {
    if (end - at !== 1 || snapshot) throw unreadable();
    return notFound(atMs);
  }
  const count = end - at < verified.bytes ? 0 : packed[at + verified.at.limits]!;
  const hasBalance = packed[at + verified.at.hasBalance]!;
  const leftBytes = hasBalance < hasBalances.identity ? 0 : identityLeft.bytes;
  if (end - at !== verified.bytes + verifiedLimit.bytes * count + leftBytes) throw unreadable();
  const credits = hasBalance % hasBalances.identity === 1 ? readInt(packed, at + verified.at.balance) : undefined;
  const identityCredits = leftBytes > 0 ? readInt(packed, end - leftBytes) : undefined;
  // Allocated with this length, because `push` makes room for 17.
  const ratelimits = new Array<LimitState>(count);
  for (let number = 0; number < count; number++) {
    const limitAt = at + verified.bytes + verifiedLimit.bytes * number;
    const place = packed[limitAt + verifiedLimit.at.place]! - 1;
    const left = readInt(packed, limitAt + verifiedLimit.at.left);
    ratelimits[number] = {
      of: limitOwners[Math.floor(place / placesOfOwner)]!,
      index: place % placesOfOwner,
      exceeded: packed[limitAt + verifiedLimit.at.exceeded] === 1,
      remaining: Math.max(0, left),
      left,
      resetAtMs: readUint(packed, limitAt + verifiedLimit.at.reset, 7),
    };
  }
  return { outcome, snapshot: undefined, credits, identityCredits, ratelimits, atMs };
}

/** An outcome as in TALLY. */
const numberOf = (outcome: Outcome): number => outcomes.indexOf(outcome) + 1;

const noId24 = '\0'.repeat(talliedKey.fields.id24.bytes);

/** A TALLIED_KEY. Decisions are counted for the key, and for the identity that it had when they were made. */
function subjectOf({ about: digest, text }: LeasedRequest, cost: number, snapshot?: SnapshotText): Buffer {
  const id24 = snapshot ? keyIdOf(snapshot).slice('key_'.length) : noId24;
  const values = { digest, cost, id24, externalId: Buffer.from(snapshot?.externalId ?? ''), request: text };
  const subject = Buffer.allocUnsafe(talliedKey.size(values));
  talliedKey.write(subject, 0, values);
  return subject;
}

/** An identity as an owner of amounts. The other owners are digests of keys. */
export const identityOwner = (externalId: string): string => `identity ${externalId}`;

/** The amounts of a decision: of each of its limits, then the balance if the key has one. */
function amountsOf({ snapshot, credits, ratelimits }: Verified, { about, cost, request }: Verification) {
  const amounts = ratelimits.map(({ of, index, left }): DecidedAmount => {
    if (of === 'request') {
      const { name, cost: units, limit, ...rest } = request.ratelimits![index]!;
      return { owner: about, name, duration: storedDuration(rest), limit: limit!, left, units };
    }
    const isKey = of === 'key';
    const printed = (isKey ? snapshot!.keyLimits : snapshot!.identityLimits)[index]!;
    const { name, duration, limit } = printed;
    const owner = isKey ? about : identityOwner(snapshot!.externalId!);
    return { owner, name, duration, limit, left, units: chargedUnits(printed, request.ratelimits) };
  });
  if (credits !== undefined)
    amounts.push({ owner: about, name: '', duration: 0, limit: 0, left: credits, units: cost });
  return amounts;
}

class RepeatedVerification implements Repeatable<Verified> {
  readonly outcome: number;
  /** The charges to each limit of the answer, then to the balance if the key has one. Empty if nothing was checked. */
  readonly charges: readonly Charge[];
  readonly #first: Verified;
  readonly #hasUnits: boolean;

  constructor(first: Verified, verification: Verification, hasUnits: boolean, amounts: Amounts) {
    this.#first = first;
    this.#hasUnits = hasUnits;
    // NOT_FOUND has no key to count for.
    this.outcome = first.outcome === 'NOT_FOUND' ? 0 : numberOf(first.outcome);
    this.charges = amountsOf(first, verification).map((amount) => amounts.charge(amount));
  }

  get atMs(): number {
    return this.#first.atMs;
  }

  subjectOf(request: LeasedRequest): Buffer {
    const { credits, snapshot } = this.#first;
    return subjectOf(request, credits === undefined ? 0 : request.cost, snapshot);
  }

  decisionAfter(elapsedMs: number): Verified {
    const first = this.#first;
    const { charges } = this;
    const atMs = first.atMs + elapsedMs;
    if (charges.length === 0) return { ...first, atMs };
    const credits = first.credits !== undefined && this.#hasUnits ? leftOf(charges.at(-1)!) : first.credits;
    const ratelimits = first.ratelimits.map((state, index) => {
      const charge = charges[index]!;
      const resetAtMs = resetAfter(charge, state.exceeded, state.resetAtMs, elapsedMs, atMs);
      return { ...state, remaining: this.#hasUnits ? leftOf(charge) : state.remaining, resetAtMs };
    });
    return { ...first, atMs, credits, ratelimits };
  }
}

function takes({ verifications }: TailFilter, { outcome, snapshot }: Verified): boolean {
  if (!verifications) return false;
  const { apiIds, keyId, externalId } = verifications;
  if (verifications.outcome !== undefined && verifications.outcome !== outcome) return false;
  if (apiIds !== true && !(snapshot && apiIds.includes(snapshot.apiId))) return false;
  if (externalId !== undefined && snapshot?.externalId !== externalId) return false;
  return keyId === undefined || (snapshot !== undefined && keyIdOf(snapshot) === keyId);
}

/** The event of a verification in the tail. */
function eventOf({ tags, ratelimits }: VerifyRequest, { outcome, snapshot, ratelimits: states, atMs }: Verified) {
  const exceeded = exceededOf(states, snapshot);
  return {
    time: atMs,
    outcome,
    keyId: snapshot && keyIdOf(snapshot),
    name: snapshot && keyNameOf(snapshot),
    apiId: snapshot?.apiId,
    externalId: snapshot?.externalId,
    planId: snapshot?.planId,
    tags,
    ratelimit: exceeded && limitNameOf(exceeded, snapshot, ratelimits),
  };
}

/** The first exceeded limit: a window if there is one, else a concurrency limit. */
function exceededOf(states: readonly LimitState[], snapshot: SnapshotText | undefined): LimitState | undefined {
  const exceeded = states.filter((state) => state.exceeded);
  const hasSlots = ({ of, index }: LimitState) =>
    (of === 'key' ? snapshot?.keyLimits : of === 'identity' ? snapshot?.identityLimits : undefined)?.[index]?.type !==
    undefined;
  return exceeded.find((state) => !hasSlots(state)) ?? exceeded[0];
}

function limitNameOf(
  { of, index }: LimitState,
  snapshot: SnapshotText | undefined,
  requested: VerifyRequest['ratelimits'],
) {
  const limits = { key: snapshot?.keyLimits, identity: snapshot?.identityLimits, request: requested }[of];
  return limits?.[index]?.name;
}
