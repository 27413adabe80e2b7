// Verifications: the kind of decision of keys.verifyKey and of the gateway check (lua/decide/verification/verify.lua).

import type { PresentedRootKey } from '../domain/caller.ts';
import type { PostfixQuery } from '../domain/permissionQuery.ts';
import { keyIdOf, keyNameOf, type Outcome, outcomes, type SnapshotText } from '../domain/verification.ts';
import { ApiError } from '../errors.ts';
import type { StoreObserver } from '../redis/observer.ts';
import {
  limitOwners,
  placesOfOwner,
  snapshotBefore,
  talliedKey,
  verified,
  verifiedLimit,
  verifyItem,
} from '../scripts/layout.ts';
import { readUint } from '../scripts/struct.ts';
import type { Batch, LeasePart, SnapshotsOfBatch, Waiting } from './batch.ts';
import type { Decider } from './decider.ts';
import type { CallerRequest, Kind, Prepared } from './kind.ts';
import { type LeasedRequest, noText, type Repeatable } from './leases/leases.ts';
import { type Answer, type ItemError, readItemError, unreadable } from './reply.ts';
import { type CachedSnapshot, noVersion, readSnapshot, SnapshotCache } from './snapshots.ts';
import type { TailFilter } from './tail/stream.ts';
import type { DecisionSource, Tail } from './tail/tail.ts';

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

export interface VerifyRequest {
  /** SHA-256 of the key string, one character a byte. */
  digest: string;
  /** Credits. */
  cost: number;
  query?: PostfixQuery | undefined;
  ratelimits?: readonly { name: string; cost: number; limit?: number; duration?: number }[] | undefined;
  tags?: readonly string[] | undefined;
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
class Verification implements Prepared<Verified>, CallerRequest {
  readonly rootKey: PresentedRootKey;
  readonly request: VerifyRequest;
  readonly workspaceId: string;
  readonly rootDigest: string;
  readonly about: string;
  readonly cost: number;
  readonly text: Buffer;
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
    this.weight = weightOf(request);
  }

  decide(): Verified | Promise<Verified> {
    return this.#kind.decider.decide(this.#kind, this);
  }
}

export class Verifications implements Kind<Verification, Verified, CachedSnapshot | undefined> {
  readonly decider: Decider;
  readonly #options: VerificationOptions;
  readonly #snapshots = new SnapshotCache();

  constructor(decider: Decider, options: VerificationOptions) {
    this.decider = decider;
    this.#options = options;
  }

  /** Prepares requests like this one. */
  prepare(rootKey: PresentedRootKey, request: VerifyRequest): Prepared<Verified> {
    return new Verification(this, rootKey, request);
  }

  pack(batch: Batch, verification: Verification, waiting: Waiting, lease: LeasePart | undefined) {
    const { rootKey, about: digest, cost, text, weight } = verification;
    const cached = this.#cachedOf(verification);
    const values = { digest, cost, cached: cached?.version ?? noVersion, request: text };
    const work = weight + (cached?.extraWeight ?? 0);
    const at = batch.beginDecision('verify', rootKey.digest, verifyItem.size(values), work, waiting, lease);
    verifyItem.write(batch.items, at, values);
    return cached;
  }

  read(answer: Answer): Verified | ItemError {
    return readVerified(answer);
  }

  /** Adds the snapshot of the key: from its answer, from an earlier answer of the batch, or from the cache. */
  finish(
    decision: Verified,
    { workspaceId, about: digest }: Verification,
    cached: CachedSnapshot | undefined,
    answer: Answer,
    snapshots: SnapshotsOfBatch,
  ): Verified | Promise<Verified> {
    let snapshot: SnapshotText | undefined | Promise<SnapshotText>;
    if (answer.snapshot) {
      snapshot = this.#cache(workspaceId, digest, answer.snapshot, cached);
      snapshots.set(digest, snapshot);
    } else if (hasSnapshotBefore(answer)) {
      snapshot = snapshots.get(digest);
      if (!snapshot) throw new Error('The snapshot of the key is in an answer that cannot be read.');
    } else if (cached && decision.outcome !== 'NOT_FOUND') {
      // This round trip confirmed the cached version.
      snapshot = this.#snapshots.keep(digest, cached);
    }
    if (snapshot instanceof Promise) return snapshot.then((read) => Object.assign(decision, { snapshot: read }));
    decision.snapshot = snapshot;
    return decision;
  }

  repeatable(decision: Verified, verification: Verification, hasUnits: boolean): Repeatable<Verified> {
    return new RepeatedVerification(decision, verification, hasUnits);
  }

  /** Units are granted with VALID only. */
  unanswered(verification: Verification) {
    return { outcome: numberOf('VALID'), subject: subjectOf(verification) };
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
    if (reason !== 'too_many_counters') return undefined;
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
  #cache(workspaceId: string, digest: string, packed: Buffer, cached: CachedSnapshot | undefined) {
    const { version, snapshot, permissionLists } = readSnapshot(packed);
    const add = () => this.#snapshots.add(workspaceId, digest, { version, snapshot }, cached);
    if (permissionLists.length === 0) return add();
    return this.#options.slugsOf(workspaceId, permissionLists).then((slugs) => {
      snapshot.permissions = slugs;
      return add();
    });
  }
}

const limitItem = ({ name, cost, limit, duration }: NonNullable<VerifyRequest['ratelimits']>[number]) =>
  limit === undefined ? [name, cost] : [name, cost, limit, duration];

/** The request of a verification without its key, as JSON in the format of layout.ts. */
export const requestText = ({ query, ratelimits, tags }: Omit<VerifyRequest, 'digest'>): Buffer =>
  query || ratelimits || tags
    ? Buffer.from(JSON.stringify({ query, limits: ratelimits?.map(limitItem), tags }))
    : noText;

/** The names of the lists in a request. */
type ListName = {
  [Name in keyof VerifyRequest]-?: NonNullable<VerifyRequest[Name]> extends readonly unknown[] ? Name : never;
}[keyof VerifyRequest];
/** A list without a weight does not compile. */
type AllWeighted<Names> = Record<Exclude<ListName, Names>, never>;

/** The weight of a plain verification is 1; each limit, part of a query and tag adds a quarter. */
const weightOf = ({ query, ratelimits, tags }: VerifyRequest & AllWeighted<'query' | 'ratelimits' | 'tags'>): number =>
  1 + ((ratelimits?.length ?? 0) + (query?.length ?? 0) + (tags?.length ?? 0)) / 4;

/** Whether an earlier answer of the batch has the snapshot of the key. */
const hasSnapshotBefore = ({ packed, at }: Answer): boolean => (packed[at]! & snapshotBefore) !== 0;

/** Returns the decision without the snapshot of the key, or the error of its item. */
export function readVerified(answer: Answer): Verified | ItemError {
  const { packed, at, end, atMs } = answer;
  const outcome = outcomes[(packed[at]! & ~snapshotBefore) - 1];
  if (outcome === undefined) return readItemError(answer);
  if (outcome === 'NOT_FOUND') {
    if (end - at !== 1 || answer.snapshot) throw unreadable();
    return { outcome, snapshot: undefined, credits: undefined, ratelimits: [], atMs };
  }
  const count = end - at < verified.bytes ? 0 : packed[at + verified.at.limits]!;
  if (end - at !== verified.bytes + verifiedLimit.bytes * count) throw unreadable();
  const hasBalance = packed[at + verified.at.hasBalance] === 1;
  const credits = hasBalance ? readUint(packed, at + verified.at.balance, 7) : undefined;
  // An array of this length: `push` makes room for 17.
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

/** An outcome as in TALLY. */
const numberOf = (outcome: Outcome): number => outcomes.indexOf(outcome) + 1;

/** A TALLIED_KEY. Decisions are counted for the identity that the key had then. */
function subjectOf({ about: digest, cost, text }: LeasedRequest, externalId = ''): Buffer {
  const values = { digest, cost, externalId: Buffer.from(externalId), request: text };
  const subject = Buffer.allocUnsafe(talliedKey.size(values));
  talliedKey.write(subject, 0, values);
  return subject;
}

class RepeatedVerification implements Repeatable<Verified> {
  readonly outcome: number;
  readonly subject: Buffer;
  readonly #first: Verified;
  /**
   * What each repetition charges: credits, and units of each limit of the answer. Undefined for a lease without units.
   */
  readonly #charges: { credits: number; units: readonly number[] } | undefined;

  constructor(first: Verified, verification: Verification, hasUnits: boolean) {
    this.#first = first;
    // NOT_FOUND has no key to count for.
    this.outcome = first.outcome === 'NOT_FOUND' ? 0 : numberOf(first.outcome);
    this.subject = subjectOf(verification, first.snapshot?.externalId);
    if (hasUnits) this.#charges = { credits: verification.cost, units: costsOf(first, verification.request) };
  }

  again(times: number, elapsedMs: number): Verified {
    const first = this.#first;
    const atMs = first.atMs + elapsedMs;
    if (!this.#charges) return { ...first, atMs };
    const { credits: cost, units } = this.#charges;
    const credits = first.credits === undefined ? undefined : first.credits - times * cost;
    const ratelimits = first.ratelimits.map((state, index) => ({
      ...state,
      remaining: state.remaining - times * units[index]!,
    }));
    return { ...first, atMs, credits, ratelimits };
  }
}

/** What a verification charges to each limit of its answer. */
const costsOf = ({ ratelimits, snapshot }: Verified, { ratelimits: requested }: VerifyRequest): number[] =>
  ratelimits.map(({ of, index }) => {
    if (of === 'request') return requested![index]!.cost;
    const { name } = (of === 'key' ? snapshot!.keyLimits : snapshot!.identityLimits)[index]!;
    return requested?.find((limit) => limit.name === name && limit.limit === undefined)?.cost ?? 1;
  });

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
  const exceeded = states.find((state) => state.exceeded);
  return {
    time: atMs,
    outcome,
    keyId: snapshot && keyIdOf(snapshot),
    name: snapshot && keyNameOf(snapshot),
    apiId: snapshot?.apiId,
    externalId: snapshot?.externalId,
    tags,
    ratelimit: exceeded && limitNameOf(exceeded, snapshot, ratelimits),
  };
}

function limitNameOf(
  { of, index }: LimitState,
  snapshot: SnapshotText | undefined,
  requested: VerifyRequest['ratelimits'],
) {
  const limits = { key: snapshot?.keyLimits, identity: snapshot?.identityLimits, request: requested }[of];
  return limits?.[index]?.name;
}
