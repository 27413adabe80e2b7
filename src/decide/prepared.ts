// Verifications and limit checks, prepared once and decided as often as the same request comes.

import type { PresentedRootKey } from '../domain/caller.ts';
import type { PostfixQuery } from '../domain/permissionQuery.ts';
import { checksOf, type LimitCheck, textOfChecks } from './leases/decisions.ts';
import type { LeasedRequest } from './leases/leases.ts';
import type { Limited, Verified } from './reply.ts';
import type { CachedSnapshot } from './snapshots.ts';

export interface VerifyRequest {
  /** SHA-256 of the key string, one character a byte. */
  digest: string;
  /** Credits. */
  cost: number;
  query?: PostfixQuery | undefined;
  ratelimits?: readonly { name: string; cost: number; limit?: number; duration?: number }[] | undefined;
  tags?: readonly string[] | undefined;
}

/** The text of a plain verification, which names only its key. */
export const noText = Buffer.alloc(0);

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

/** A request that is decided as often as it comes: without a promise if that needs no Redis. */
export interface Prepared<Decision> {
  decide(): Decision | Promise<Decision>;
}

/** The decider of prepared requests. */
interface Decides {
  verify(verification: PreparedVerification): Verified | Promise<Verified>;
  limit(limit: PreparedLimit): Limited | Promise<Limited>;
}

/**
 * A verification of one key. It is one object instead of closures, because those of a thousand keys do not fit in the cache of a
 * processor.
 */
export class PreparedVerification implements Prepared<Verified>, LeasedRequest {
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
  readonly #decider: Decides;

  constructor(decider: Decides, rootKey: PresentedRootKey, request: VerifyRequest) {
    this.#decider = decider;
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
    return this.#decider.verify(this);
  }
}

/** Limit checks of one request. */
export class PreparedLimit implements Prepared<Limited>, LeasedRequest {
  readonly rootKey: PresentedRootKey;
  readonly checks: readonly LimitCheck[];
  /** Each LIMIT_CHECK. */
  readonly packed: Buffer;
  readonly workspaceId: string;
  readonly rootDigest: string;
  readonly about: string;
  readonly cost = 0;
  readonly text = noText;
  slot = -1;
  name = '';
  readonly #decider: Decides;

  constructor(decider: Decides, rootKey: PresentedRootKey, checks: readonly LimitCheck[]) {
    this.#decider = decider;
    this.rootKey = rootKey;
    this.checks = checks;
    this.packed = checksOf(checks);
    this.workspaceId = rootKey.workspaceId;
    this.rootDigest = rootKey.digestText;
    this.about = textOfChecks(checks);
  }

  decide(): Limited | Promise<Limited> {
    return this.#decider.limit(this);
  }
}
