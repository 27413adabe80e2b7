// What waits for Redis, by workspace. What arrives in one turn of the event loop gathers in a batch. A workspace has some
// work at Redis at most; what comes meanwhile gathers here. So Redis's queue stays short, and whoever sends the most
// expensive requests there are waits for them himself, and everybody else for a few of them.

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
  /** Requests that may wait in all; beyond, they are refused at once rather than answered late. */
  inFlightMax: number;
  /** What has waited here for so long is refused instead of sent: it could not be answered in time. */
  waitMs: number;
  overloaded: () => void;
}

/** A workspace may fill the room that is there but for a part of what is left free, so that others find some of it. */
const shareOfFree = 8;

class Lane<Batch> {
  readonly workspaceId: string;
  /** Requests under way, here or at Redis. */
  inFlight = 0;
  /** The weight of the batches at Redis. */
  work = 0;
  /** It goes on when this turn of the event loop ends. Otherwise what waits goes on with the next answer. */
  scheduled = false;
  /** Batches that wait, each with when it was begun. The last one gathers. */
  readonly waiting: { batch: Batch; since: number }[] = [];

  constructor(workspaceId: string) {
    this.workspaceId = workspaceId;
  }
}

export class Lanes<Batch extends Gathering> {
  readonly #options: LanesOptions<Batch>;
  /** Only those with requests under way: anybody may name a workspace. */
  readonly #lanes = new Map<string, Lane<Batch>>();
  #inFlight = 0;
  /** Those that are scheduled. */
  #turn: Lane<Batch>[] = [];

  constructor(options: LanesOptions<Batch>) {
    this.#options = options;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** The batch that the next request of a workspace joins. Throws when there is no room for it. */
  join(workspaceId: string): Batch {
    const { inFlightMax, weightMax, newBatch, overloaded } = this.#options;
    let lane = this.#lanes.get(workspaceId);
    const free = inFlightMax - this.#inFlight;
    if (free <= 0 || (lane && lane.inFlight >= shareOfFree * free)) {
      overloaded();
      throw new ApiError('store_unavailable', 'The server has more to do than it can.');
    }
    if (!lane) {
      lane = new Lane(workspaceId);
      this.#lanes.set(workspaceId, lane);
    }
    this.#inFlight++;
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
    const { workMax, waitMs } = this.#options;
    while (lane.work < workMax && lane.waiting.length > 0) {
      const { batch, since } = lane.waiting.shift()!;
      if (performance.now() - since < waitMs) void this.#send(lane, batch);
      else this.#fail(lane, batch, storeError(new Error('Waited too long for those before it')));
    }
  }

  async #send(lane: Lane<Batch>, batch: Batch) {
    lane.work += batch.weight;
    try {
      await this.#options.send(lane.workspaceId, batch);
    } catch (error) {
      batch.fail(error);
      // Where Redis cannot serve, those that wait would learn so one after the other.
      const cannotServe = error instanceof ApiError && error.code === 'store_unavailable';
      if (cannotServe) for (const { batch: next } of lane.waiting.splice(0)) this.#fail(lane, next, error);
    } finally {
      this.#past(lane, batch);
      lane.work -= batch.weight;
      if (!lane.scheduled) this.#go(lane);
    }
  }

  #fail(lane: Lane<Batch>, batch: Batch, error: unknown) {
    batch.fail(error);
    this.#past(lane, batch);
  }

  #past(lane: Lane<Batch>, { count }: Batch) {
    this.#inFlight -= count;
    lane.inFlight -= count;
    if (lane.inFlight === 0) this.#lanes.delete(lane.workspaceId);
  }
}
