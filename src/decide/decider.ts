// Verifications and limit checks (lua/decide.lua). Requests that arrive in one turn of the event loop are sent to Redis as one
// call per workspace, so that a busy server sends one command instead of up to 24. A single request waits only for the end of
// its turn.

import type { PresentedRootKey } from '../domain/caller.ts';
import type { SnapshotText } from '../domain/verification.ts';
import { ApiError, rootKeyRefusals } from '../errors.ts';
import { storeError, tooManyRecords } from '../redis/connection.ts';
import type { StoreObserver } from '../redis/observer.ts';
import type { Scripts } from '../scripts/scripts.ts';
import type { AcceptedRootKeys } from './accepted.ts';
import { Batch, type LeasePart, type SnapshotsOfBatch, type Waiting } from './batch.ts';
import { type LimitCheck, passOf, RepeatedLimits, RepeatedVerification, validOf } from './leases/decisions.ts';
import type { Ask, LeasedRequest, LeaseOptions, Tally } from './leases/leases.ts';
import type { Leasing } from './leases/leasing.ts';
import { noText, type Prepared, PreparedLimit, PreparedVerification, type VerifyRequest } from './prepared.ts';
import { WorkspaceQueues } from './queues.ts';
import {
  type Answer,
  hasSnapshotBefore,
  type Limited,
  type Refusal,
  readDone,
  readGranted,
  readLimited,
  readReply,
  readVerified,
  type Verified,
} from './reply.ts';
import { type CachedSnapshot, noVersion, readSnapshot, SnapshotCache } from './snapshots.ts';
import type { Tail } from './tail/tail.ts';

export interface DecideOptions {
  scripts: Scripts;
  accepted: AcceptedRootKeys;
  /** Reads the slugs of lists of permission numbers. */
  slugsOf: (workspaceId: string, lists: readonly string[]) => Promise<string[]>;
  usageRetentionMs: number;
  tagsMax: number;
  tagBytesMax: number;
  identifiersMax: number;
  recordsMax: number;
  refusalHours: number;
  refusalBytesMax: number;
  inFlightMax: number;
  commandTimeoutMs: number;
  /** The time of a test; '' is Redis's clock. */
  now: () => number | '';
  tail: Tail;
  openLeasing: (settle: LeaseOptions['settle']) => Leasing;
  observe?: StoreObserver | undefined;
}

/**
 * A batch is full with the work of this many plain items. Larger batches cost Redis a little less per item, but server and Redis
 * wait for each other. At 64 connections, batches of 24 serve a fifth more requests than batches of 64. Batches of 16 serve as
 * many as 24, but cost Redis more.
 */
const batchWeightMax = 24;

/**
 * While a workspace has this much work at Redis, its next batches wait. 64 connections with plain requests have less than this. A
 * smaller value would serve as many requests with a local Redis, but fewer if Redis is milliseconds away, because it limits the
 * requests per round trip.
 */
const workMax = 8 * batchWeightMax;

/** Limit of the counters that a key has for ad hoc limits, as in lua/include/counters.lua. */
const countersMax = 1000;

/** Limit of the calls of unknown callers at Redis: other requests wait for at most this many short scripts. */
const unknownAtOnce = 64;

/**
 * Limit of the attempts to decide a request whose refusal depends on leases. Each recalls them, and no others are
 * granted meanwhile, so that the second one decides. Further ones are needed by `multiLimit`, once for each limit
 * that would refuse it, and when a recall took longer than the pause (lua/decide/leased.lua).
 */
const attemptsMax = 10;

/** A prepared verification caches the snapshot of its key up to this size in bytes. Thousands of them are cached. */
const snapshotBytesMax = 1024;

/** Leases that a request has recalled and waited for, `session.number` each, and how often it did so. */
interface Recalled {
  leases: string;
  attempt: number;
}

export class Decider {
  readonly #options: DecideOptions;
  /** The argument that is the same in all calls, without the time of a test. */
  readonly #settings: string;
  readonly #snapshots = new SnapshotCache();
  readonly #queues: WorkspaceQueues<Batch>;
  readonly #tail: Tail;
  readonly leasing: Leasing;
  /** Recalls for refusals that are under way, by workspace and what the request is about: the leases, when they were waited for. */
  readonly #recalls = new Map<string, Promise<string>>();

  constructor(options: DecideOptions) {
    const { usageRetentionMs, tagsMax, tagBytesMax, identifiersMax, recordsMax } = options;
    const { refusalHours, refusalBytesMax, inFlightMax, commandTimeoutMs, observe } = options;
    this.#options = options;
    this.#tail = options.tail;
    const limits = [tagsMax, tagBytesMax, identifiersMax, recordsMax];
    this.#settings = `${[usageRetentionMs, ...limits, refusalHours, refusalBytesMax].join(' ')} `;
    this.#queues = new WorkspaceQueues({
      newBatch: () => new Batch(),
      send: (workspaceId, batch) => this.#send(workspaceId, batch),
      weightMax: batchWeightMax,
      workMax,
      inFlightMax,
      unknownAtOnce,
      waitMs: commandTimeoutMs,
      overloaded: () => observe?.overloaded(),
    });
    this.leasing = options.openLeasing((...settlement) => this.#settle(...settlement));
  }

  /** Verifications and limit checks that wait for Redis. */
  get waiting(): number {
    return this.#queues.inFlight;
  }

  /** Prepares requests like this one. */
  prepareVerification(rootKey: PresentedRootKey, request: VerifyRequest): Prepared<Verified> {
    return new PreparedVerification(this, rootKey, request);
  }

  /** Verifies by a lease, or else at Redis, with a promise. */
  verify(verification: PreparedVerification): Verified | Promise<Verified> {
    const verified = this.leasing.leases.decide<Verified>(verification);
    if (!verified) return this.#verifyAtRedis(verification);
    const { workspaceId, request } = verification;
    this.#options.observe?.decided();
    this.#options.observe?.verified(verified.outcome);
    if (this.#tail.isOpen) this.#tail.verified(workspaceId, request, verified, 'lease', 0);
    return verified;
  }

  #verifyAtRedis(verification: PreparedVerification, recalled?: Recalled): Promise<Verified> {
    const { rootKey, workspaceId, about: digest, cost, weight, request } = verification;
    const { leases } = this.leasing;
    const cached = this.#cachedOf(verification);
    const isAccepted = this.#options.accepted.has(rootKey);
    const { ask, lease } = this.#leaseOf(verification, isAccepted, recalled);
    return new Promise((resolve, reject) => {
      let batch: Batch | undefined;
      const settle = (answer: Answer, snapshots: SnapshotsOfBatch) => {
        const grant = lease && readGranted(answer);
        const decision = grant ? grant.decision : answer;
        const verified = readVerified(decision);
        if ('reason' in verified) {
          // A script that failed may have granted one.
          if (ask) grant ? leases.finished(ask) : leases.lost(ask, validOf(verification));
          if (verified.reason !== 'leased') return reject(this.#errorOf(verified, rootKey, request));
          const again = this.#recall(verification, verified.detail, recalled);
          return resolve(again.then((recalled) => this.#verifyAtRedis(verification, recalled)));
        }
        this.#options.observe?.verified(verified.outcome);
        if (!isAccepted) this.#options.accepted.note(rootKey, true);
        const finish = (snapshot: SnapshotText | undefined) => {
          verified.snapshot = snapshot;
          if (ask && grant) {
            const { units, term } = grant;
            const repeated = new RepeatedVerification(verified, verification, request.ratelimits, units > 0);
            leases.granted(ask, units, term, repeated);
          }
          if (this.#tail.isOpen) this.#tail.verified(workspaceId, request, verified, 'redis', batch!.latencyMs);
          resolve(verified);
        };
        const snapshot = this.#snapshotOf(rootKey, digest, decision, verified, cached, snapshots);
        if (snapshot instanceof Promise) snapshot.then(finish, fail);
        else finish(snapshot);
      };
      const fail = (error: unknown) => {
        if (ask) leases.lost(ask, validOf(verification));
        reject(error);
      };
      const values = { digest, cost, cached: cached?.version ?? noVersion, request: verification.text };
      const waiting = { settle, reject: fail };
      try {
        batch = this.#queues.join(workspaceId, isAccepted);
        batch.addVerify(rootKey.digest, values, weight + (cached?.extraWeight ?? 0), waiting, lease);
      } catch (error) {
        // Too many requests wait.
        if (ask) leases.finished(ask);
        throw error;
      }
    });
  }

  /** The cached snapshot of a verification's key. */
  #cachedOf(verification: PreparedVerification): CachedSnapshot | undefined {
    const { cached, workspaceId, about } = verification;
    if (cached && this.#snapshots.isRecent(cached)) return cached;
    const found = this.#snapshots.find(workspaceId, about);
    verification.cached = found && found.bytes <= snapshotBytesMax ? found : undefined;
    return found;
  }

  /** What a request asks of leases. After a recall it asks for none, which would be recalled by the next request. */
  #leaseOf(
    leased: LeasedRequest,
    isAccepted: boolean,
    recalled: Recalled | undefined,
  ): { ask: Ask | undefined; lease: LeasePart | undefined } {
    if (recalled) return { ask: undefined, lease: { wanted: 0, number: 0, recalled: Buffer.from(recalled.leases) } };
    const ask = isAccepted ? this.leasing.leases.ask(leased) : undefined;
    return { ask, lease: ask && { wanted: ask.wanted, number: ask.number, recalled: noText } };
  }

  /**
   * Recalls the leases of a `leased` refusal, after their longest term; resolves when they were returned, or have
   * ended.
   */
  async #recall({ workspaceId, about }: LeasedRequest, detail: string, last?: Recalled): Promise<Recalled> {
    const attempt = (last?.attempt ?? 0) + 1;
    if (attempt === attemptsMax)
      throw storeError(new Error('The leases of a limit or balance changed again and again'));
    const id = workspaceId + about;
    // One recall for the same thing at a time: the others wait for it.
    let recall = this.#recalls.get(id);
    if (!recall) {
      const [term, ...names] = detail.split(',');
      recall = this.leasing.recall(workspaceId, names, Number(term)).then(() => names.join(','));
      recall = recall.finally(() => this.#recalls.delete(id));
      this.#recalls.set(id, recall);
    }
    return { attempt, leases: await recall };
  }

  #settle(workspaceId: string, settlement: number, tallies: readonly Tally[], leaves: boolean): Promise<void> {
    return this.#done(workspaceId, (batch, waiting) => {
      batch.leaves ||= leaves;
      batch.addSettlement(settlement, tallies, waiting);
    });
  }

  /** Sends an item of leases, and waits until it was done. */
  #done(workspaceId: string, add: (batch: Batch, waiting: Waiting) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      const settle = (answer: Answer) => {
        const refusal = readDone(answer);
        if (refusal) reject(new Error(this.#options.scripts.locate('decide', refusal.detail)));
        else resolve();
      };
      add(this.#queues.join(workspaceId, true), { settle, reject });
    });
  }

  /** Prepares requests like these checks: if all of them pass, all are charged, otherwise none is. */
  prepareLimit(rootKey: PresentedRootKey, checks: readonly LimitCheck[]): Prepared<Limited> {
    return new PreparedLimit(this, rootKey, checks);
  }

  /** Checks limits by a lease, or else at Redis, with a promise. */
  limit(limit: PreparedLimit): Limited | Promise<Limited> {
    const limited = this.leasing.leases.decide<Limited>(limit);
    if (!limited) return this.#limitAtRedis(limit);
    const { workspaceId, checks } = limit;
    this.#options.observe?.decided();
    this.#options.observe?.limited(limited.passed);
    if (this.#tail.isOpen) this.#tail.limited(workspaceId, checks, limited, 'lease', 0);
    return limited;
  }

  #limitAtRedis(limit: PreparedLimit, recalled?: Recalled): Promise<Limited> {
    const { rootKey, checks, packed } = limit;
    const { leases } = this.leasing;
    const isAccepted = this.#options.accepted.has(rootKey);
    const { ask, lease } = this.#leaseOf(limit, isAccepted, recalled);
    return new Promise((resolve, reject) => {
      let batch: Batch | undefined;
      const settle = (answer: Answer) => {
        const grant = lease && readGranted(answer);
        const limited = readLimited(grant ? grant.decision : answer);
        if ('reason' in limited) {
          if (ask) grant ? leases.finished(ask) : leases.lost(ask, passOf(packed));
          if (limited.reason !== 'leased') return reject(this.#errorOf(limited, rootKey));
          const again = this.#recall(limit, limited.detail, recalled);
          return resolve(again.then((recalled) => this.#limitAtRedis(limit, recalled)));
        }
        this.#options.observe?.limited(limited.passed);
        if (!isAccepted) this.#options.accepted.note(rootKey, true);
        if (ask && grant) leases.granted(ask, grant.units, grant.term, new RepeatedLimits(limited, checks, packed));
        if (this.#tail.isOpen) this.#tail.limited(rootKey.workspaceId, checks, limited, 'redis', batch!.latencyMs);
        resolve(limited);
      };
      const fail = (error: unknown) => {
        if (ask) leases.lost(ask, passOf(packed));
        reject(error);
      };
      try {
        batch = this.#queues.join(rootKey.workspaceId, isAccepted);
        batch.addLimit(rootKey.digest, checks.length, packed, { settle, reject: fail }, lease);
      } catch (error) {
        // Too many requests wait.
        if (ask) leases.finished(ask);
        throw error;
      }
    });
  }

  async #send(workspaceId: string, batch: Batch) {
    this.#options.observe?.sent(batch.count);
    // A call that takes long leaves items to the next call, so that calls of other workspaces run in between.
    for (let first = 0; first < batch.count; ) first += await this.#sendFrom(first, workspaceId, batch);
  }

  /** Sends the items from number `first` on. Returns the number of decided items, at least one. */
  async #sendFrom(first: number, workspaceId: string, batch: Batch): Promise<number> {
    const { scripts, now, observe } = this.#options;
    const { waiting } = batch;
    const items = batch.packedFrom(first, batch.hasLeases ? this.leasing.headerOf(batch) : undefined);
    const reply = (await scripts.runPacked('decide', workspaceId, [this.#settings + now(), items])) as
      | Buffer
      | [Buffer, number, number, ...Buffer[]];
    const [packed, identifiers, tags, ...snapshots] = Buffer.isBuffer(reply) ? [reply, 0, 0] : reply;
    const answers = readReply(packed, snapshots, waiting.length - first);
    batch.latencyMs = performance.now() - batch.since;
    if (identifiers + tags > 0) observe?.uncounted(identifiers, tags);
    const snapshotsOfBatch: SnapshotsOfBatch = new Map();
    for (let index = 0; index < answers.length; index++) {
      const entry = waiting[first + index]!;
      try {
        entry.settle(answers[index]!, snapshotsOfBatch);
      } catch (cause) {
        // A bug in one answer. The other items were decided and charged, so their answers are returned.
        entry.reject(cause);
      }
    }
    return answers.length;
  }

  /** The snapshot of a verified key: from its answer, from an earlier answer of the batch, or from the cache. */
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
      if (!snapshot) throw new Error('The snapshot of the key is in an answer that cannot be read.');
      return snapshot;
    }
    // This round trip confirmed the cached version.
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

  #errorOf({ reason, detail }: Refusal, rootKey: PresentedRootKey, request?: VerifyRequest): Error {
    const { scripts, accepted, observe } = this.#options;
    switch (reason) {
      case 'unauthorized':
      case 'root_key_disabled':
      case 'root_key_expired':
        accepted.note(rootKey, false);
        return rootKeyRefusals[reason];
      case 'insufficient_permissions':
        return new ApiError('insufficient_permissions', `The root key lacks ${detail}.`);
      case 'create_namespace':
        return new ApiError('insufficient_permissions', 'The root key lacks ratelimit.*.create_namespace.');
      case 'too_many_records':
        observe?.recordsRefused();
        return tooManyRecords(detail);
      case 'namespace_not_found':
        return new ApiError('namespace_not_found', `There is no namespace ${JSON.stringify(detail)}.`);
      case 'limit_not_found': {
        const name = JSON.stringify(detail);
        return new ApiError('precondition_failed', `Neither the key nor its identity has a limit named ${name}.`);
      }
      case 'too_many_counters': {
        const location = `body.ratelimits[${request?.ratelimits?.findIndex(({ name }) => name === detail)}].name`;
        const message = `needs a counter, and the key has its maximum of ${countersMax} counters of ad hoc limits`;
        const fix = 'Use fewer names and durations of ad hoc limits, or wait until their durations have passed.';
        return new ApiError('invalid_input', `${location} ${message}.`, { fields: [{ location, message, fix }] });
      }
      // Decided again before.
      case 'leased':
      case 'failed': {
        const cause = new Error(scripts.locate('decide', detail));
        return storeError(Object.assign(cause, { name: 'ReplyError' }));
      }
    }
  }
}
