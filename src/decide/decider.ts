// Decides requests: by a lease, or in a batch at Redis (lua/decide.lua). Requests that arrive in one turn of the event
// loop are a batch of their workspace, and batches share a call to Redis, so that a busy server sends one command
// instead of up to 24. A lone request is sent immediately.

import type { PresentedRootKey } from '../domain/caller.ts';
import { ApiError, rootKeyRefusals } from '../errors.ts';
import { storeError, tooManyRecords } from '../redis/connection.ts';
import type { StoreObserver } from '../redis/observer.ts';
import type { DataVersion } from '../scripts/dataVersion.ts';
import type { Argument, Scripts } from '../scripts/scripts.ts';
import type { AcceptedRootKeys } from './accepted.ts';
import { Batch, type LeasePart, type SnapshotsOfBatch } from './batch.ts';
import type { Called } from './flow.ts';
import type { CallerRequest, Kind } from './kind.ts';
import { type Ask, type LeasedRequest, type LeaseOptions, noText } from './leases/leases.ts';
import type { Leasing } from './leases/leasing.ts';
import { type Part, WorkspaceQueues } from './queues.ts';
import { type Answer, type ItemError, readDone, readGranted, readReply, unreadable } from './reply.ts';
import type { Tail } from './tail/tail.ts';

export interface DeciderOptions {
  scripts: Scripts;
  accepted: AcceptedRootKeys;
  usageRetentionMs: number;
  tagsMax: number;
  tagBytesMax: number;
  identifiersMax: number;
  recordsMax: number;
  refusalHours: number;
  refusalBytesMax: number;
  inFlightMax: number;
  commandTimeoutMs: number;
  dataVersion: Pick<DataVersion, 'current'>;
  /** The time of a test; '' is Redis's clock. */
  now: () => number | '';
  tail: Tail;
  openLeasing: (settle: LeaseOptions['settle']) => Leasing;
  observe?: StoreObserver | undefined;
  onEvent?: ((message: string) => void) | undefined;
}

/**
 * A batch is full with the work of this many plain items, and so is a call. Larger ones cost Redis a little less per
 * item, but server and Redis wait for each other. At 64 connections, calls of 24 serve a fifth more requests than calls
 * of 64. Calls of 16 serve as many as 24, but cost Redis more.
 */
const batchWeightMax = 24;

/**
 * While a workspace has this much work at Redis, its next batches wait. 64 connections with plain requests have less
 * than this. Work on the way does not count (flow.ts).
 */
const workMax = 8 * batchWeightMax;

/**
 * How much of Redis's time the requests of a workspace that are on the way may take. They arrive even if Redis is then
 * busy with other workspaces.
 */
const shareMax = 0.5;

/** Limit of the calls of unknown callers at Redis: other requests wait for at most this many short scripts. */
const unknownAtOnce = 64;

/**
 * Limit of the attempts to decide a request whose refusal depends on leases. Each recalls them, and no others are
 * granted meanwhile, so that the second one decides. Further ones are needed by `multiLimit`, once for each limit
 * that would refuse it, and when a recall took longer than the pause (lua/decide/notedLeases.lua).
 */
const attemptsMax = 10;

/** How often failed writes after charges are logged. */
const reportEveryMs = 60_000;

/** The refusal of a call with several workspaces by a Cluster behind a URL without `+cluster`. It has not run. */
const crossesSlots = /^-?CROSSSLOT\b/;

/** The reply of lua/decide.lua to a batch. */
type BatchReply = Buffer | [Buffer, number, number, number, Buffer, ...Buffer[]] | Error;

/** Leases that a request has recalled and waited for, `session.number` each, and how often it did so. */
interface Recalled {
  leases: string;
  attempt: number;
}

export class Decider {
  readonly #options: DeciderOptions;
  /** The argument `settings` of lua/decide.lua, without the version of the data and the time of a test. */
  readonly #settings: string;
  readonly #queues: WorkspaceQueues<Batch>;
  /** A call may have several workspaces: in a Cluster each has a slot of its own. */
  #sharesCalls: boolean;
  readonly #tail: Tail;
  readonly leasing: Leasing;
  /**
   * Recalls that are under way, by workspace and `about` of the request. Each resolves with the names of its leases,
   * when these were returned or have ended.
   */
  readonly #recalls = new Map<string, Promise<string>>();
  /** Until then, failed writes are only counted. */
  #reportsFrom = 0;

  constructor(options: DeciderOptions) {
    const { usageRetentionMs, tagsMax, tagBytesMax, identifiersMax, recordsMax } = options;
    const { refusalHours, refusalBytesMax, inFlightMax, commandTimeoutMs, observe } = options;
    this.#options = options;
    this.#sharesCalls = !options.scripts.isCluster;
    this.#tail = options.tail;
    const limits = [tagsMax, tagBytesMax, identifiersMax, recordsMax];
    this.#settings = `${[usageRetentionMs, ...limits, refusalHours, refusalBytesMax].join(' ')} `;
    this.#queues = new WorkspaceQueues({
      newBatch: () => new Batch(),
      send: (parts) => this.#send(parts),
      nodeOf: (workspaceId) => options.scripts.nodeOf(workspaceId),
      sharesCalls: () => this.#sharesCalls,
      weightMax: batchWeightMax,
      workMax,
      shareMax,
      inFlightMax,
      unknownAtOnce,
      waitMs: commandTimeoutMs,
      overloaded: () => observe?.overloaded(),
    });
    this.leasing = options.openLeasing((...settlement) => this.#settle(...settlement));
  }

  /** Requests that wait for Redis. */
  get waiting(): number {
    return this.#queues.inFlight;
  }

  /** Decides a request by a lease, or else at Redis, with a promise. */
  decide<Request extends CallerRequest, Decision extends object, Sent>(
    kind: Kind<Request, Decision, Sent>,
    request: Request,
  ): Decision | Promise<Decision> {
    const decision = this.leasing.leases.decide<Decision>(request);
    if (!decision) return this.decideAtRedis(kind, request);
    this.#options.observe?.decided();
    kind.count(decision);
    if (this.#tail.isOpen) kind.offer(decision, request, 'lease', 0);
    return decision;
  }

  /** Whether Redis accepted this root key recently. */
  isAccepted(rootKey: PresentedRootKey): boolean {
    return this.#options.accepted.has(rootKey);
  }

  noteAccepted(rootKey: PresentedRootKey) {
    this.#options.accepted.note(rootKey, true);
  }

  /** Decides a request at Redis. */
  decideAtRedis<Request extends CallerRequest, Decision extends object, Sent>(
    kind: Kind<Request, Decision, Sent>,
    request: Request,
    recalled?: Recalled,
  ): Promise<Decision> {
    const { rootKey } = request;
    const { leases } = this.leasing;
    const isAccepted = this.isAccepted(rootKey);
    const { ask, lease } = this.#leaseOf(request, isAccepted && kind.isLeased, recalled);
    return new Promise((resolve, reject) => {
      let batch: Batch;
      let sent: Sent;
      const answered = (answer: Answer, snapshots: SnapshotsOfBatch) => {
        const grant = lease && readGranted(answer);
        const decided = grant ? grant.decision : answer;
        const read = kind.read(decided);
        if ('reason' in read) {
          // If GRANTED cannot be read, it is not known whether a lease was granted.
          if (ask) grant ? leases.finished(ask) : leases.lost(ask, kind.unanswered(request));
          if (read.reason !== 'leased') return reject(kind.errorOf(read, request) ?? this.#errorOf(read, rootKey));
          const recalling = this.#recall(request, read.detail, recalled);
          return resolve(recalling.then((next) => this.decideAtRedis(kind, request, next)));
        }
        kind.count(read);
        if (!isAccepted) this.noteAccepted(rootKey);
        const finish = (decision: Decision) => {
          const amounts = leases.amountsOf(request.workspaceId);
          if (amounts) kind.correct(decision, request, amounts);
          if (this.#tail.isOpen) kind.offer(decision, request, 'redis', batch.latencyMs);
          // Done last, because the lease of an answer that fails is returned.
          if (ask && grant) {
            leases.granted(ask, grant, (known) => kind.repeatable(decision, request, grant.units > 0, known));
          }
          resolve(decision);
        };
        const finished = kind.finish(read, request, sent, decided, snapshots);
        if (finished instanceof Promise) finished.then(finish).catch(fail);
        else finish(finished);
      };
      const fail = (error: unknown) => {
        if (ask) leases.lost(ask, kind.unanswered(request));
        reject(error);
      };
      try {
        leases.settleBefore(request);
        batch = this.#queues.join(rootKey.workspaceId, isAccepted);
        sent = kind.pack(batch, request, { resolve: answered, reject: fail }, lease);
      } catch (error) {
        // Too many requests wait.
        if (ask) leases.finished(ask);
        throw error;
      }
    });
  }

  /**
   * The lease that a request asks for, or the leases that it has recalled. After a recall it asks for none, because the
   * next refusal would recall that one.
   */
  #leaseOf(
    leased: LeasedRequest,
    mayAsk: boolean,
    recalled: Recalled | undefined,
  ): { ask: Ask | undefined; lease: LeasePart | undefined } {
    const none = { wanted: 0, hot: 0, number: 0 };
    if (recalled) return { ask: undefined, lease: { ...none, recalled: Buffer.from(recalled.leases) } };
    const ask = mayAsk ? this.leasing.leases.ask(leased) : undefined;
    if (!ask) return { ask, lease: undefined };
    const { wanted, number, isHot } = ask;
    return { ask, lease: { wanted, hot: isHot ? 1 : 0, number, recalled: noText } };
  }

  /**
   * Recalls the leases that a `leased` refusal names. Resolves when they were returned, or have ended. `detail` is that
   * of ITEM_ERROR.
   */
  async #recall({ workspaceId, about }: LeasedRequest, detail: string, last?: Recalled): Promise<Recalled> {
    const attempt = (last?.attempt ?? 0) + 1;
    if (attempt === attemptsMax)
      throw storeError(new Error('The leases of a limit or balance changed again and again'));
    const id = workspaceId + about;
    // One recall for a request at a time: equal requests wait for it.
    let recall = this.#recalls.get(id);
    if (!recall) {
      const [term, ...names] = detail.split(',');
      recall = this.leasing.recall(workspaceId, names, Number(term)).then(() => names.join(','));
      recall = recall.finally(() => this.#recalls.delete(id));
      this.#recalls.set(id, recall);
    }
    return { attempt, leases: await recall };
  }

  #settle(...[workspaceId, settlement, tallies, leaves, counted]: Parameters<LeaseOptions['settle']>): Promise<void> {
    return new Promise((resolve, reject) => {
      const answered = (answer: Answer) => {
        const error = readDone(answer);
        if (error) return reject(new Error(this.#options.scripts.locate(error.detail)));
        counted();
        resolve();
      };
      const batch = this.#queues.join(workspaceId, true);
      batch.leaves ||= leaves;
      batch.addSettlement(settlement, tallies, { resolve: answered, reject });
    });
  }

  /** Sends the undecided items of batches, and resolves those that the call decides. */
  async #send(parts: readonly Part<Batch>[]): Promise<Called> {
    const { scripts, dataVersion, now, observe } = this.#options;
    const args: Argument[] = [`${this.#settings}${dataVersion.current} ${now()}`];
    for (const { batch, budget } of parts)
      args.push(batch.packed(batch.hasLeases ? this.leasing.sessionOf(batch) : undefined, budget));
    const [first, ...others] = parts.map(({ workspaceId }) => workspaceId);
    const sentAt = performance.now();
    let reply: unknown;
    try {
      reply = await scripts.runPacked('decide', first!, args, others);
    } catch (error) {
      if (!crossesSlots.test((error as Error).message)) throw error;
      // Each batch is sent again as a call of its own.
      this.#sharesCalls = false;
      return { works: parts.map(() => 0), work: 0, allWork: 0, at: performance.now() };
    }
    const replies = (parts.length === 1 ? [reply] : reply) as BatchReply[];
    if (replies.length !== parts.length) throw unreadable();
    const called: Called = { works: [], work: 0, allWork: 0, at: performance.now() };
    const before = parts.reduce((sum, { batch }) => sum + batch.decided, 0);
    for (const [index, part] of parts.entries()) {
      try {
        called.works.push(this.#answer(part, replies[index]!, called, sentAt));
      } catch (error) {
        called.works.push(error as Error);
      }
    }
    observe?.sent(parts.reduce((sum, { batch }) => sum + batch.decided, -before));
    return called;
  }

  /** Resolves the items of a batch that a call decided. Returns its work, 0 if it was not begun. */
  #answer({ workspaceId, batch }: Part<Batch>, reply: BatchReply, called: Called, sentAt: number): number {
    const { scripts, observe } = this.#options;
    if (reply instanceof Error) throw storeError(reply, (message) => scripts.locate(message));
    if (reply.length === 0) return 0;
    const [packed, identifiers, tags, failures, failure, ...snapshots] = Buffer.isBuffer(reply)
      ? [reply, 0, 0, 0, undefined]
      : reply;
    const { waiting, decided: first } = batch;
    const { answers, work, allWork } = readReply(packed, snapshots, waiting.length - first);
    called.work += work;
    called.allWork = allWork;
    const { at } = called;
    batch.latencyMs = at - batch.since;
    batch.noteDecided(answers.length);
    if (batch.hasLeases) this.leasing.measured(at - sentAt);
    if (identifiers + tags > 0) observe?.uncounted(identifiers, tags);
    if (failures > 0) this.#noteUnwritten(workspaceId, failures, `${failure}`);
    const snapshotsOfBatch: SnapshotsOfBatch = new Map();
    for (let index = 0; index < answers.length; index++) {
      const entry = waiting[first + index]!;
      try {
        entry.resolve(answers[index]!, snapshotsOfBatch);
      } catch (cause) {
        // One answer has a bug. The other items were decided and charged, so their answers are returned.
        entry.reject(cause);
      }
    }
    return work;
  }

  /**
   * Reports writes that failed after a charge; the decisions were answered. The message contains no data of the
   * workspace.
   */
  #noteUnwritten(workspaceId: string, failures: number, failure: string) {
    const { scripts, observe, onEvent } = this.#options;
    observe?.unwritten(failures);
    if (performance.now() < this.#reportsFrom) return;
    this.#reportsFrom = performance.now() + reportEveryMs;
    const cause = scripts.locate(failure);
    onEvent?.(`Usage, or another note of decisions, could not be written in ${workspaceId}: ${cause}`);
  }

  /** The error to throw for an item error that every kind has. */
  #errorOf({ reason, detail }: ItemError, rootKey: PresentedRootKey): Error {
    const { scripts, accepted, observe } = this.#options;
    switch (reason) {
      case 'unauthorized':
      case 'root_key_disabled':
      case 'root_key_expired':
        accepted.note(rootKey, false);
        return rootKeyRefusals[reason];
      case 'insufficient_permissions':
        return new ApiError('insufficient_permissions', `The root key lacks ${detail}.`);
      case 'too_many_records':
        observe?.recordsRefused();
        return tooManyRecords(detail);
      // `failed`, or a reason that no kind has.
      default: {
        const cause = new Error(scripts.locate(detail));
        return storeError(Object.assign(cause, { name: 'ReplyError' }));
      }
    }
  }
}
