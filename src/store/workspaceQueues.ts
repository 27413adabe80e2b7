// What waits for Redis, by workspace. What arrives in one turn of the event loop gathers in a batch. A workspace has some
// work at Redis at most; what comes meanwhile gathers here. So Redis's queue stays short, and whoever sends the most
// expensive requests there are waits for them himself, and everybody else for a few of them.
//
// Requests whose root key was not accepted recently (accepted.ts) are newcomers. Workspaces that do not exist are as many as
// a caller likes, each a batch and a call, so a bound for each workspace is none. All newcomers together have a bound: a
// number of batches at Redis. The others never wait behind more than these, nor for room.

import { mayTake } from '../domain/share.ts';
import { ApiError } from '../errors.ts';
import { storeError } from './redis.ts';

/** Requests that go to Redis as one call. */
export interface Gathering {
  /** How much work it is; a plain request is 1. */
  readonly weight: number;
  /** How many requests it holds. */
  readonly count: number;
  /** Fails all of them. */
  fail(error: unknown): void;
}

export interface QueueOptions<Batch extends Gathering> {
  newBatch: () => Batch;
  /** Has a batch answered, each of its requests on its own; rejects when none of them could be. */
  send: (workspaceId: string, batch: Batch) => Promise<void>;
  /** A batch of this weight takes no more requests. */
  weightMax: number;
  /** While it has this much work at Redis, a workspace's next batches wait. */
  workMax: number;
  /** Requests that may wait in all, and as many of newcomers; beyond, they are refused at once rather than answered late. */
  inFlightMax: number;
  /** Batches of newcomers that may be at Redis at once. */
  newcomersAtOnce: number;
  /** What has waited here for so long is refused instead of sent: it could not be answered in time. */
  waitMs: number;
  overloaded: () => void;
}

/** Lanes that share one bound. */
class Room<Batch> {
  /** Only those with requests under way: anybody may name a workspace. */
  readonly queues = new Map<string, Queue<Batch>>();
  inFlight = 0;
}

class Queue<Batch> {
  readonly workspaceId: string;
  readonly room: Room<Batch>;
  /** Requests under way, here or at Redis. */
  inFlight = 0;
  /** The weight of the batches at Redis. */
  work = 0;
  /** It goes on when this turn of the event loop ends. Otherwise what waits goes on with the next answer. */
  scheduled = false;
  /** Batches that wait, each with when it was begun. The last one gathers. */
  readonly waiting: { batch: Batch; since: number }[] = [];

  constructor(workspaceId: string, room: Room<Batch>) {
    this.workspaceId = workspaceId;
    this.room = room;
  }
}

export class WorkspaceQueues<Batch extends Gathering> {
  readonly #options: QueueOptions<Batch>;
  readonly #known = new Room<Batch>();
  readonly #newcomers = new Room<Batch>();
  /** Batches of newcomers at Redis, and queues of newcomers with batches that wait for one of these to be answered. */
  #newcomersAtRedis = 0;
  readonly #queue = new Set<Queue<Batch>>();
  /** Those that are scheduled. */
  #turn: Queue<Batch>[] = [];

  constructor(options: QueueOptions<Batch>) {
    this.#options = options;
  }

  get inFlight(): number {
    return this.#known.inFlight + this.#newcomers.inFlight;
  }

  /** The batch that the next request of a workspace joins. Throws when there is no room for it. */
  join(workspaceId: string, isKnown: boolean): Batch {
    const { inFlightMax, weightMax, newBatch, overloaded } = this.#options;
    const room = isKnown ? this.#known : this.#newcomers;
    let queue = room.queues.get(workspaceId);
    if (!mayTake(queue ? queue.inFlight : 0, room.inFlight, inFlightMax)) {
      overloaded();
      throw new ApiError('store_unavailable', 'The server is overloaded; retry later.');
    }
    if (!queue) {
      queue = new Queue(workspaceId, room);
      room.queues.set(workspaceId, queue);
    }
    room.inFlight++;
    queue.inFlight++;
    const last = queue.waiting.at(-1);
    if (last && last.batch.weight < weightMax) return last.batch;
    if (last) this.#go(queue);
    if (!queue.scheduled) {
      queue.scheduled = true;
      if (this.#turn.push(queue) === 1) setImmediate(() => this.#endTurn());
    }
    const batch = newBatch();
    queue.waiting.push({ batch, since: performance.now() });
    return batch;
  }

  #endTurn() {
    const turn = this.#turn;
    this.#turn = [];
    for (const queue of turn) {
      queue.scheduled = false;
      this.#go(queue);
    }
  }

  #go(queue: Queue<Batch>) {
    const { workMax, waitMs, newcomersAtOnce } = this.#options;
    while (queue.work < workMax && queue.waiting.length > 0) {
      if (queue.room === this.#newcomers && this.#newcomersAtRedis >= newcomersAtOnce) {
        this.#queue.add(queue);
        return;
      }
      const { batch, since } = queue.waiting.shift()!;
      if (performance.now() - since < waitMs) void this.#send(queue, batch);
      else this.#fail(queue, batch, storeError(new Error('Waited too long for those before it')));
    }
  }

  async #send(queue: Queue<Batch>, batch: Batch) {
    const isNewcomer = queue.room === this.#newcomers;
    queue.work += batch.weight;
    if (isNewcomer) this.#newcomersAtRedis++;
    try {
      await this.#options.send(queue.workspaceId, batch);
    } catch (error) {
      batch.fail(error);
      // Where Redis cannot serve, those that wait would learn so one after the other.
      const cannotServe = error instanceof ApiError && error.code === 'store_unavailable';
      if (cannotServe) for (const waits of isNewcomer ? [queue, ...this.#queue] : [queue]) this.#failAll(waits, error);
    } finally {
      this.#past(queue, batch);
      queue.work -= batch.weight;
      if (!queue.scheduled) this.#go(queue);
      if (isNewcomer) this.#nextNewcomer();
    }
  }

  /** Hands a place of newcomers at Redis on, to the queue that has waited the longest for it. */
  #nextNewcomer() {
    this.#newcomersAtRedis--;
    for (const queue of this.#queue) {
      if (this.#newcomersAtRedis >= this.#options.newcomersAtOnce) return;
      this.#queue.delete(queue);
      this.#go(queue);
    }
  }

  #failAll(queue: Queue<Batch>, error: unknown) {
    for (const { batch } of queue.waiting.splice(0)) this.#fail(queue, batch, error);
  }

  #fail(queue: Queue<Batch>, batch: Batch, error: unknown) {
    batch.fail(error);
    this.#past(queue, batch);
  }

  #past(queue: Queue<Batch>, { count }: Batch) {
    queue.room.inFlight -= count;
    queue.inFlight -= count;
    if (queue.inFlight === 0) queue.room.queues.delete(queue.workspaceId);
  }
}
