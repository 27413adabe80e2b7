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

export interface LanesOptions<Batch extends Gathering> {
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
  readonly lanes = new Map<string, Lane<Batch>>();
  inFlight = 0;
}

class Lane<Batch> {
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

export class Lanes<Batch extends Gathering> {
  readonly #options: LanesOptions<Batch>;
  readonly #known = new Room<Batch>();
  readonly #newcomers = new Room<Batch>();
  /** Batches of newcomers at Redis, and lanes of newcomers with batches that wait for one of these to be answered. */
  #newcomersAtRedis = 0;
  readonly #queue = new Set<Lane<Batch>>();
  /** Those that are scheduled. */
  #turn: Lane<Batch>[] = [];

  constructor(options: LanesOptions<Batch>) {
    this.#options = options;
  }

  get inFlight(): number {
    return this.#known.inFlight + this.#newcomers.inFlight;
  }

  /** The batch that the next request of a workspace joins. Throws when there is no room for it. */
  join(workspaceId: string, isKnown: boolean): Batch {
    const { inFlightMax, weightMax, newBatch, overloaded } = this.#options;
    const room = isKnown ? this.#known : this.#newcomers;
    let lane = room.lanes.get(workspaceId);
    if (!mayTake(lane ? lane.inFlight : 0, room.inFlight, inFlightMax)) {
      overloaded();
      throw new ApiError('store_unavailable', 'The server is overloaded; retry later.');
    }
    if (!lane) {
      lane = new Lane(workspaceId, room);
      room.lanes.set(workspaceId, lane);
    }
    room.inFlight++;
    lane.inFlight++;
    const last = lane.waiting.at(-1);
    if (last && last.batch.weight < weightMax) return last.batch;
    if (last) this.#go(lane);
    if (!lane.scheduled) {
      lane.scheduled = true;
      if (this.#turn.push(lane) === 1) setImmediate(() => this.#endTurn());
    }
    const batch = newBatch();
    lane.waiting.push({ batch, since: performance.now() });
    return batch;
  }

  #endTurn() {
    const turn = this.#turn;
    this.#turn = [];
    for (const lane of turn) {
      lane.scheduled = false;
      this.#go(lane);
    }
  }

  #go(lane: Lane<Batch>) {
    const { workMax, waitMs, newcomersAtOnce } = this.#options;
    while (lane.work < workMax && lane.waiting.length > 0) {
      if (lane.room === this.#newcomers && this.#newcomersAtRedis >= newcomersAtOnce) {
        this.#queue.add(lane);
        return;
      }
      const { batch, since } = lane.waiting.shift()!;
      if (performance.now() - since < waitMs) void this.#send(lane, batch);
      else this.#fail(lane, batch, storeError(new Error('Waited too long for those before it')));
    }
  }

  async #send(lane: Lane<Batch>, batch: Batch) {
    const isNewcomer = lane.room === this.#newcomers;
    lane.work += batch.weight;
    if (isNewcomer) this.#newcomersAtRedis++;
    try {
      await this.#options.send(lane.workspaceId, batch);
    } catch (error) {
      batch.fail(error);
      // Where Redis cannot serve, those that wait would learn so one after the other.
      const cannotServe = error instanceof ApiError && error.code === 'store_unavailable';
      if (cannotServe) for (const waits of isNewcomer ? [lane, ...this.#queue] : [lane]) this.#failAll(waits, error);
    } finally {
      this.#past(lane, batch);
      lane.work -= batch.weight;
      if (!lane.scheduled) this.#go(lane);
      if (isNewcomer) this.#nextNewcomer();
    }
  }

  /** Hands a place of newcomers at Redis on, to the lane that has waited the longest for it. */
  #nextNewcomer() {
    this.#newcomersAtRedis--;
    for (const lane of this.#queue) {
      if (this.#newcomersAtRedis >= this.#options.newcomersAtOnce) return;
      this.#queue.delete(lane);
      this.#go(lane);
    }
  }

  #failAll(lane: Lane<Batch>, error: unknown) {
    for (const { batch } of lane.waiting.splice(0)) this.#fail(lane, batch, error);
  }

  #fail(lane: Lane<Batch>, batch: Batch, error: unknown) {
    batch.fail(error);
    this.#past(lane, batch);
  }

  #past(lane: Lane<Batch>, { count }: Batch) {
    lane.room.inFlight -= count;
    lane.inFlight -= count;
    if (lane.inFlight === 0) lane.room.lanes.delete(lane.workspaceId);
  }
}
