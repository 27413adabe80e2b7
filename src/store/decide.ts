// Verifications and limit checks (lua/decide.lua). What arrives in one turn of the event loop goes to Redis as one call per
// workspace, so a busy server pays for one command where it had sixty; a lone request waits only for the end of its turn.

import type { PresentedRootKey } from '../domain/caller.ts';
import type { PostfixQuery } from '../domain/permissionQuery.ts';
import type { SnapshotText } from '../domain/verification.ts';
import { ApiError, rootKeyRefusals } from '../errors.ts';
import type { AcceptedRootKeys } from './accepted.ts';
import { Batch, type SnapshotsOfBatch } from './batch.ts';
import {
  type Answer,
  hasSnapshotBefore,
  type Limited,
  type Refusal,
  readLimited,
  readReply,
  readVerified,
  type Verified,
} from './decideReply.ts';
import type { StoreObserver } from './observer.ts';
import { storeError, tooManyRecords } from './redis.ts';
import type { Scripts } from './scripts.ts';
import { type CachedSnapshot, noVersion, readSnapshot, SnapshotCache } from './snapshots.ts';
import { WorkspaceQueues } from './workspaceQueues.ts';

export interface VerifyRequest {
  /** SHA-256 of the key string, a byte a character. */
  digest: string;
  /** Credits. */
  cost: number;
  query?: PostfixQuery | undefined;
  ratelimits?: readonly { name: string; cost: number; limit?: number; duration?: number }[] | undefined;
  tags?: readonly string[] | undefined;
}

export interface LimitCheck {
  namespace: string;
  identifier: string;
  limit: number;
  durationMs: number;
  cost: number;
}

export interface DecideOptions {
  scripts: Scripts;
  accepted: AcceptedRootKeys;
  /** The slugs of these lists of permission numbers. */
  slugsOf: (workspaceId: string, lists: readonly string[]) => Promise<string[]>;
  usageRetentionMs: number;
  tagsMax: number;
  tagBytesMax: number;
  identifiersMax: number;
  recordsMax: number;
  inFlightMax: number;
  commandTimeoutMs: number;
  /** For tests that hold the clock; '' is Redis's own. */
  now: () => number | '';
  observe?: StoreObserver | undefined;
}

/**
 * A batch goes out when it holds this many items, or as much work as this many plain ones. Larger ones would cost Redis a
 * little less each, but server and Redis would wait for one another: 24 served a fifth more at 64 connections than 64 did,
 * and as many as 16 did for less of Redis.
 */
const batchWeightMax = 24;

/**
 * While so much of a workspace is at Redis, its next batches wait: more than 64 connections of plain requests amount to. Less
 * would serve as many here, but fewer where Redis is milliseconds away, as this is what can be under way in a round trip.
 */
const workMax = 8 * batchWeightMax;

/** Counters that a key may have for limits of requests, as in lua/include/counters.lua. */
const countersMax = 1000;

/** Calls of newcomers that may be at Redis at once: a request of a known caller waits for some 64 short scripts at most. */
const newcomersAtOnce = 64;

/** Nothing but the key. */
const noRequest = Buffer.alloc(0);

const limitItem = ({ name, cost, limit, duration }: NonNullable<VerifyRequest['ratelimits']>[number]) =>
  limit === undefined ? [name, cost] : [name, cost, limit, duration];

/** What a verification names besides its key: JSON as layout.ts describes it. */
const requestText = ({ query, ratelimits, tags }: VerifyRequest): Buffer =>
  query || ratelimits || tags
    ? Buffer.from(JSON.stringify({ query, limits: ratelimits?.map(limitItem), tags }))
    : noRequest;

/** What a verification names besides its key costs a fraction of a plain one. */
const weightOf = ({ query, ratelimits, tags }: VerifyRequest): number =>
  1 + ((ratelimits?.length ?? 0) + (query?.length ?? 0) + (tags?.length ?? 0)) / 4;

export class Decider {
  readonly #options: DecideOptions;
  readonly #bounds: string;
  readonly #snapshots = new SnapshotCache();
  readonly #queues: WorkspaceQueues<Batch>;

  constructor(options: DecideOptions) {
    const { tagsMax, tagBytesMax, identifiersMax, recordsMax, inFlightMax, commandTimeoutMs, observe } = options;
    this.#options = options;
    this.#bounds = `${tagsMax} ${tagBytesMax} ${identifiersMax} ${recordsMax}`;
    this.#queues = new WorkspaceQueues({
      newBatch: () => new Batch(),
      send: (workspaceId, batch) => this.#send(workspaceId, batch),
      weightMax: batchWeightMax,
      workMax,
      inFlightMax,
      newcomersAtOnce,
      waitMs: commandTimeoutMs,
      overloaded: () => observe?.overloaded(),
    });
  }

  /** Verifications and limit checks that wait for Redis. */
  get waiting(): number {
    return this.#queues.inFlight;
  }

  verify(rootKey: PresentedRootKey, request: VerifyRequest): Promise<Verified> {
    const { workspaceId } = rootKey;
    const { digest, cost } = request;
    const cached = this.#snapshots.find(workspaceId, digest);
    const isAccepted = this.#options.accepted.has(rootKey);
    return new Promise((resolve, reject) => {
      const settle = (answer: Answer, snapshots: SnapshotsOfBatch) => {
        const verified = readVerified(answer);
        if ('reason' in verified) return reject(this.#errorOf(verified, rootKey, request));
        this.#options.observe?.verified(verified.outcome);
        if (!isAccepted) this.#options.accepted.note(rootKey, true);
        const snapshot = this.#snapshotOf(rootKey, digest, answer, verified, cached, snapshots);
        if (snapshot instanceof Promise) {
          snapshot.then((ready) => resolve({ ...verified, snapshot: ready }), reject);
        } else {
          verified.snapshot = snapshot;
          resolve(verified);
        }
      };
      const values = { digest, cost, known: cached?.version ?? noVersion, request: requestText(request) };
      const weight = weightOf(request) + (cached?.moreWork ?? 0);
      this.#queues.join(workspaceId, isAccepted).addVerify(rootKey.digest, values, weight, { settle, reject });
    });
  }

  /** One check, or several of which all pass or none is charged. */
  limit(rootKey: PresentedRootKey, checks: readonly LimitCheck[]): Promise<Limited> {
    const isAccepted = this.#options.accepted.has(rootKey);
    const values = checks.map(({ cost, limit, durationMs, namespace, identifier }) => ({
      cost,
      limit,
      duration: durationMs,
      namespaceName: Buffer.from(namespace),
      identifier: Buffer.from(identifier),
    }));
    return new Promise((resolve, reject) => {
      const settle = (answer: Answer) => {
        const limited = readLimited(answer);
        if ('reason' in limited) return reject(this.#errorOf(limited, rootKey));
        this.#options.observe?.limited(limited.passed);
        if (!isAccepted) this.#options.accepted.note(rootKey, true);
        resolve(limited);
      };
      this.#queues.join(rootKey.workspaceId, isAccepted).addLimit(rootKey.digest, values, { settle, reject });
    });
  }

  async #send(workspaceId: string, batch: Batch) {
    this.#options.observe?.sent(batch.count);
    // A call that takes long leaves items for another one, so that other workspaces come between.
    for (let first = 0; first < batch.count; ) first += await this.#sendFrom(first, workspaceId, batch);
  }

  /** Sends the items from number `first` on. Returns how many of them were decided: at least one. */
  async #sendFrom(first: number, workspaceId: string, batch: Batch): Promise<number> {
    const { scripts, usageRetentionMs, now, observe } = this.#options;
    const { roots, waiting } = batch;
    const digests = roots.length === 1 ? roots[0]! : Buffer.concat(roots);
    const args = [usageRetentionMs, this.#bounds, digests, batch.itemsFrom(first), now()];
    const reply = (await scripts.runPacked('decide', workspaceId, args)) as [Buffer, number, number, ...Buffer[]];
    const [packed, identifiers, tags, ...snapshots] = reply;
    const answers = readReply(packed, snapshots, waiting.length - first);
    if (identifiers + tags > 0) observe?.uncounted(identifiers, tags);
    const snapshotsOfBatch: SnapshotsOfBatch = new Map();
    for (const [index, answer] of answers.entries()) {
      const entry = waiting[first + index]!;
      try {
        entry.settle(answer, snapshotsOfBatch);
      } catch (cause) {
        // A bug of ours, in one answer: the others were decided and charged, and are returned.
        entry.reject(cause);
      }
    }
    return answers.length;
  }

  /** The snapshot of the key that an answer is about: what came with it, or with an earlier answer, or what is cached. */
  #snapshotOf(
    { workspaceId }: PresentedRootKey,
    digest: string,
    answer: Answer,
    { outcome }: Verified,
    cached: CachedSnapshot | undefined,
    snapshots: SnapshotsOfBatch,
  ): SnapshotText | undefined | Promise<SnapshotText> {
    if (answer.snapshot) {
      const snapshot = this.#cache(workspaceId, digest, answer.snapshot, cached);
      snapshots.set(digest, snapshot);
      return snapshot;
    }
    if (hasSnapshotBefore(answer)) {
      const snapshot = snapshots.get(digest);
      if (!snapshot) throw new Error("The key's snapshot came with an answer that could not be read.");
      return snapshot;
    }
    // Confirmed in this very round trip: what is cached is current.
    return cached && outcome !== 'NOT_FOUND' ? this.#snapshots.keep(digest, cached) : undefined;
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

  #errorOf({ reason, about }: Refusal, rootKey: PresentedRootKey, request?: VerifyRequest): Error {
    const { scripts, accepted, observe } = this.#options;
    switch (reason) {
      case 'unauthorized':
      case 'root_key_disabled':
      case 'root_key_expired':
        accepted.note(rootKey, false);
        return rootKeyRefusals[reason];
      case 'insufficient_permissions':
        return new ApiError('insufficient_permissions', `The root key lacks ${about}.`);
      case 'create_namespace':
        return new ApiError('insufficient_permissions', 'The root key lacks ratelimit.*.create_namespace.');
      case 'too_many_records':
        observe?.recordsRefused();
        return tooManyRecords(about);
      case 'namespace_not_found':
        return new ApiError('namespace_not_found', `There is no namespace ${JSON.stringify(about)}.`);
      case 'limit_not_found': {
        const name = JSON.stringify(about);
        return new ApiError('precondition_failed', `Neither the key nor its identity has a limit named ${name}.`);
      }
      case 'too_many_counters': {
        const location = `body.ratelimits[${request?.ratelimits?.findIndex(({ name }) => name === about)}].name`;
        const message = `needs a counter, and the key has ${countersMax} of limits that requests brought`;
        const fix = 'Bring limits of fewer names and durations, or wait until a duration has passed.';
        return new ApiError('invalid_input', `${location} ${message}.`, { fields: [{ location, message, fix }] });
      }
      case 'failed': {
        const cause = new Error(scripts.locate('decide', about));
        return storeError(Object.assign(cause, { name: 'ReplyError' }));
      }
    }
  }
}
