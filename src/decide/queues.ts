// Queues of requests for Redis, one per workspace. Requests that arrive in one turn of the event loop join a batch. The
// work that a workspace has at Redis is limited (flow.ts); further batches wait here. So Redis's own queue stays short:
// a caller that sends the most expensive requests waits for all of them, and other workspaces wait for a few of them.
//
// Batches that may be sent in the same turn share a call. Expensive requests fill one, as soon as their cost is known.
//
// Requests whose root key was not accepted recently (accepted.ts) are from unknown callers. A caller can invent any
// number of workspaces, each with a batch and a call of its own, so a limit per workspace does not limit unknown
// callers. All of them together have a limit of batches at Redis. Other requests wait for no more than these batches,
// and have a limit of their own for waiting requests.

import { mayTake } from '../domain/share.ts';
import { ApiError } from '../errors.ts';
import { storeError } from '../redis/connection.ts';
import { type Called, type Flight, Flow, RedisWait } from './flow.ts';

/** Requests that are sent to Redis in one call, or in several if a call leaves some undecided. */
export interface QueuedBatch {
  /** The work of the requests that are not decided; a plain request is 1. */
  readonly weight: number;
  /** Calls have decided some of its requests. */
  readonly isBegun: boolean;
  readonly isDone: boolean;
  /** Number of requests. */
  readonly count: number;
  /** When it was created, by performance.now(). */
  readonly since: number;
  /** Fails all requests that are not decided. */
  fail(error: unknown): void;
}

/** A batch in a call. */
export interface Part<Batch> {
  workspaceId: string;
  batch: Batch;
  /** The call decides at least one request of a batch that it begins, and no further one after this work. */
  budget: number;
}

interface SentPart<Batch> extends Part<Batch> {
  queue: Queue<Batch>;
  flight: Flight;
}

interface QueueOptions<Batch extends QueuedBatch> {
  newBatch: () => Batch;
  /**
   * Sends the undecided requests of batches as one call, and resolves those that it decides. It begins at least the
   * first batch. Rejects when it decided none.
   */
  send: (parts: readonly Part<Batch>[]) => Promise<Called>;
  /** Returns a function that names the Redis server that has the workspace now. */
  nodeOf: (workspaceId: string) => () => string;
  /** Whether a call may have several workspaces. */
  sharesCalls: () => boolean;
  /** A batch with this weight is full, and so is a call. */
  weightMax: number;
  /** While a workspace has this much work at Redis (flow.ts), its next batches wait. */
  workMax: number;
  /** How much of Redis's time the requests of a workspace that are on the way may take. */
  shareMax: number;
  /**
   * Limit of waiting requests, and the same again for those of unknown callers. Further requests are refused
   * immediately.
   */
  inFlightMax: number;
  /** Limit of the batches of unknown callers at Redis. */
  unknownAtOnce: number;
  /** A batch that waited this long is refused instead of sent: its callers no longer wait. */
  waitMs: number;
  /** Called for each request that is refused because too many wait. */
  overloaded: () => void;
}

/** The queues that share one limit of waiting requests. */
class QueueGroup<Batch> {
  /** Only queues with requests in flight, because a caller can name any workspace. */
  readonly queues = new Map<string, Queue<Batch>>();
  inFlight = 0;
}

class Queue<Batch> {
  readonly workspaceId: string;
  readonly group: QueueGroup<Batch>;
  /** The name of the Redis server that has the workspace now. */
  readonly nodeNow: () => string;
  /** Requests in flight, here or at Redis. */
  inFlight = 0;
  /** The batches at Redis, and on the way. */
  readonly flow: Flow;
  /**
   * Its batches are sent when this turn of the event loop ends. Otherwise they are sent with the next reply to this
   * workspace.
   */
  scheduled = false;
  /** Waiting batches. Requests join the last one. */
  readonly waiting: Batch[] = [];

  constructor(workspaceId: string, group: QueueGroup<Batch>, nodeNow: () => string, flow: Flow) {
    this.workspaceId = workspaceId;
    this.group = group;
    this.nodeNow = nodeNow;
    this.flow = flow;
  }
}

/**
 * While calls have fewer requests than this on average, a request that finds none in flight is sent immediately. If
 * they have more, as with four connections, this would make smaller calls, which cost the server and Redis a tenth
 * more for each request.
 */
const loneMean = 1.5;

export class WorkspaceQueues<Batch extends QueuedBatch> {
  readonly #options: QueueOptions<Batch>;
  readonly #accepted = new QueueGroup<Batch>();
  readonly #unknown = new QueueGroup<Batch>();
  /** Batches of unknown callers at Redis. */
  #unknownAtRedis = 0;
  /** Queues of unknown callers that wait until one of these batches is answered, in order of arrival. */
  readonly #waitingUnknown = new Set<Queue<Batch>>();
  /** Queues that are scheduled for the end of this turn. */
  #turn: Queue<Batch>[] = [];
  /** Queues that may send more after a pause, even without a reply. */
  readonly #paced = new Set<Queue<Batch>>();
  /** How long calls wait, by Redis server. */
  readonly #waits = new Map<string, RedisWait>();

  /** The call that is sent next, and what its batches take of it (flow.ts). */
  #call: SentPart<Batch>[] = [];
  #callWeight = 0;

  /** Requests of a call, on average of about the last 16. */
  #meanCount = 1;

  constructor(options: QueueOptions<Batch>) {
    this.#options = options;
  }

  get inFlight(): number {
    return this.#accepted.inFlight + this.#unknown.inFlight;
  }

  /** Returns the batch that the next request of a workspace joins. Throws when too many requests wait. */
  join(workspaceId: string, isAccepted: boolean): Batch {
    const { inFlightMax, weightMax, workMax, shareMax, nodeOf, newBatch, overloaded } = this.#options;
    const group = isAccepted ? this.#accepted : this.#unknown;
    let queue = group.queues.get(workspaceId);
    if (!mayTake(queue ? queue.inFlight : 0, group.inFlight, inFlightMax)) {
      overloaded();
      throw new ApiError('store_unavailable', 'The server is overloaded; retry later.');
    }
    if (!queue) {
      queue = new Queue(workspaceId, group, nodeOf(workspaceId), new Flow(workMax, isAccepted ? shareMax : 0));
      group.queues.set(workspaceId, queue);
    }
    group.inFlight++;
    queue.inFlight++;
    const last = queue.waiting.at(-1);
    if (last && last.weight < weightMax && !last.isBegun) return last;
    if (last) this.#sendWaiting(queue);
    if (!queue.scheduled) {
      queue.scheduled = true;
      // A lone request need not wait for the end of the turn, when none joins it there.
      const isLone = this.inFlight === 1 && this.#meanCount < loneMean;
      if (this.#turn.push(queue) === 1) (isLone ? queueMicrotask : setImmediate)(() => this.#endTurn());
    }
    const batch = newBatch();
    queue.waiting.push(batch);
    return batch;
  }

  #waitAt(node: string): RedisWait {
    let wait = this.#waits.get(node);
    if (!wait) {
      wait = new RedisWait();
      this.#waits.set(node, wait);
    }
    return wait;
  }

  #endTurn() {
    const turn = this.#turn;
    this.#turn = [];
    for (const queue of turn) {
      queue.scheduled = false;
      this.#sendWaiting(queue);
    }
    this.#sendCall();
  }

  #sendWaiting(queue: Queue<Batch>, isAfterPause = false) {
    const { waitMs, unknownAtOnce, weightMax } = this.#options;
    const { flow } = queue;
    const isUnknown = queue.group === this.#unknown;
    while (queue.waiting.length > 0) {
      const now = performance.now();
      if (!flow.mayPass(now)) return this.#pause(queue);
      // A call decides at least one request, whatever it costs. So beyond the work that may always be sent, there are
      // few calls: full batches, and one after each pause.
      const isFilling = queue.waiting.length === 1 && queue.waiting[0]!.weight < weightMax;
      if (isFilling && flow.isBeyond && !isAfterPause) return this.#pause(queue);
      if (isUnknown && this.#unknownAtRedis >= unknownAtOnce) {
        this.#waitingUnknown.add(queue);
        return;
      }
      const batch = queue.waiting.shift()!;
      if (now - batch.since < waitMs) this.#addToCall(queue, batch, now);
      else this.#fail(queue, batch, storeError(new Error('Waited too long in the queue')));
    }
  }

  #addToCall(queue: Queue<Batch>, batch: Batch, now: number) {
    const { weightMax, sharesCalls } = this.#options;
    const { workspaceId, flow } = queue;
    const weight = flow.partOfCall(batch.weight);
    if (this.#callWeight + weight > weightMax) this.#sendCall();
    const flight = flow.sent(batch.weight, now, this.#waitAt(queue.nodeNow()));
    if (queue.group === this.#unknown) this.#unknownAtRedis++;
    this.#call.push({ workspaceId, batch, budget: flight.budget, queue, flight });
    this.#callWeight += weight;
    if (this.#callWeight >= weightMax || !sharesCalls()) this.#sendCall();
  }

  #sendCall() {
    const call = this.#call;
    if (call.length === 0) return;
    this.#call = [];
    this.#callWeight = 0;
    void this.#send(call);
  }

  async #send(call: SentPart<Batch>[]) {
    const count = call.reduce((sum, { batch }) => sum + batch.count, 0);
    this.#meanCount += (count - this.#meanCount) / 16;
    try {
      const called = await this.#options.send(call);
      // What is left of the batches of a workspace stays in order.
      for (let index = call.length - 1; index >= 0; index--) this.#replied(call[index]!, called.works[index]!, called);
    } catch (error) {
      for (const part of call) this.#failed(part, error);
    }
    // What a call did not begin is at its end. It is first in the next call.
    for (const { queue } of call.reverse()) {
      if (!queue.scheduled) this.#sendWaiting(queue);
      if (queue.group === this.#unknown) this.#nextUnknown();
    }
    this.#sendCall();
  }

  #replied(part: SentPart<Batch>, work: number | Error, called: Called) {
    if (typeof work !== 'number') return this.#failed(part, work);
    const { queue, batch, flight } = part;
    queue.flow.replied(flight, batch.weight, work, called);
    if (batch.isDone) this.#leave(queue, batch);
    else queue.waiting.unshift(batch);
  }

  #failed({ queue, batch, flight }: SentPart<Batch>, error: unknown) {
    queue.flow.failed(flight);
    batch.fail(error);
    // If Redis is unavailable, waiting batches fail now instead of one after the other.
    const isUnavailable = error instanceof ApiError && error.status === 503;
    const isUnknown = queue.group === this.#unknown;
    if (isUnavailable)
      for (const other of isUnknown ? [queue, ...this.#waitingUnknown] : [queue]) this.#failAll(other, error);
    this.#leave(queue, batch);
  }

  /** After a pause, sends the waiting batches if the limit allows it then. Otherwise the next reply does. */
  #pause(queue: Queue<Batch>) {
    if (!queue.flow.isBelowLimit) return;
    if (this.#paced.size === 0) setTimeout(() => this.#endPause(), 1);
    this.#paced.add(queue);
  }

  #endPause() {
    const paced = [...this.#paced];
    this.#paced.clear();
    for (const queue of paced) this.#sendWaiting(queue, true);
    this.#sendCall();
  }

  /** Gives a place of unknown callers at Redis to the queue that has waited longest for one. */
  #nextUnknown() {
    this.#unknownAtRedis--;
    for (const queue of this.#waitingUnknown) {
      if (this.#unknownAtRedis >= this.#options.unknownAtOnce) return;
      this.#waitingUnknown.delete(queue);
      this.#sendWaiting(queue);
    }
  }

  #failAll(queue: Queue<Batch>, error: unknown) {
    for (const batch of queue.waiting.splice(0)) this.#fail(queue, batch, error);
  }

  #fail(queue: Queue<Batch>, batch: Batch, error: unknown) {
    batch.fail(error);
    this.#leave(queue, batch);
  }

  #leave(queue: Queue<Batch>, { count }: Batch) {
    queue.group.inFlight -= count;
    queue.inFlight -= count;
    if (queue.inFlight === 0) queue.group.queues.delete(queue.workspaceId);
  }
}
