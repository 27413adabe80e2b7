// How much work of a workspace may be sent to Redis before it is answered.
//
// Redis decides what waits there before the requests of other workspaces. So the work that waits at Redis has a fixed
// limit. Another part of the work is on the way to Redis or back: the further away Redis is, the more. So that much may
// be sent in addition: what was answered in the last round trip, less the part of the trip in which it waited at Redis.
// While nothing waits there, the limit grows with each trip. When Redis decides less in the time, or requests wait
// there longer, it falls. (As the congestion window of TCP Vegas.)
//
// The work on the way must not arrive all together. So beyond the work that may always be sent, requests are sent at
// the pace at which Redis decides them.
//
// The cost of a request is known by its reply, and a caller may send cheap requests and then expensive ones. So a batch
// beyond that work has a budget: twice what the last ones cost. Redis leaves requests beyond it undecided, and they are
// sent again when their cost is known. A call decides at least one of a batch, so these are few, too (queues.ts).

import { budgetMax } from '../scripts/layout.ts';

/** A plain request costs less than this, also in a batch of its own, in units of about a microsecond. */
const plainCost = 50;

/** The weight of a new value in a moving average over replies. */
const smoothing = 1 / 4;
/** The shortest trip, in milliseconds: clocks may have the same time twice. */
const tripMin = 0.1;
/** Redis is near if a trip takes at most this long: then a server sends less than the work that may wait there. */
const nearMs = 3;

/** Redis is quiet while calls take a smaller part of the time than this. Its other work is not known. */
const quietShare = 0.25;
/** While Redis is quiet, the limit grows faster. */
const quietGain = 1.5;

/** Whether Redis was quiet in this time, in which `allWork` grew from one value to another. */
const isQuiet = (from: number, to: number, ms: number): boolean => (to - from) >>> 0 < 1000 * quietShare * ms;

/** The report of a call. All costs are in units of about a microsecond. */
export interface Called {
  /** The cost of each batch for Redis, 0 if it was not begun, or why it failed. */
  works: (number | Error)[];
  /** The cost of all of them. */
  work: number;
  /** The cost of all calls of all servers, modulo 2 ** 32. */
  allWork: number;
  /** When its reply was read, by performance.now(). */
  at: number;
}

const flightMs = (sentAt: number, { at }: Called): number => Math.max(tripMin, at - sentAt);

const windowMs = 5000;
/** A window has at least this many calls, because a few calls may all have waited. */
const callsMin = 100;
/** The wait is the least one of this many calls. With more calls, a growing queue would be noticed late. */
const recentCalls = 8;

/**
 * How long calls wait at a Redis server: how much longer they take than the fastest ones, which have not waited. By the
 * clock of this process only, because clocks drift apart, and can be set.
 */
export class RedisWait {
  /** `allWork` of the last reply. */
  allWork = 0;
  /** The weight of what this process has sent, and that has no reply yet. */
  sent = 0;
  /** The last call, and the time that it was on the way. */
  #called: Called | undefined;
  #tripMs = tripMin;
  #shortest = Number.POSITIVE_INFINITY;
  #inWindow = Number.POSITIVE_INFINITY;
  #calls = 0;
  #windowAt = 0;
  #workBefore = 0;
  /** The least wait of the last calls, and of the calls before them; the number of the last calls. */
  #least = Number.POSITIVE_INFINITY;
  #leastBefore = Number.POSITIVE_INFINITY;
  #recent = 0;

  /** Returns how long a call was on the way, without its time at Redis, in milliseconds. Its batches share `called`. */
  tripMs({ sentAt, isAlone }: Flight, called: Called): number {
    if (called !== this.#called) {
      this.#called = called;
      const wayMs = flightMs(sentAt, called) - called.work / 1000;
      this.#tripMs = Math.max(tripMin, wayMs - this.#after(wayMs, isAlone, called));
    }
    return this.#tripMs;
  }

  /**
   * Returns how long calls wait, in milliseconds, after one that took `ms`. `isAlone`: nearly nothing else was sent.
   */
  #after(ms: number, isAlone: boolean, { allWork, at }: Called): number {
    this.allWork = allWork;
    if (ms < this.#shortest) this.#shortest = ms;
    if (isAlone) {
      this.#calls++;
      if (ms < this.#inWindow) this.#inWindow = ms;
      if (at >= this.#windowAt + windowMs && this.#calls >= callsMin) this.#endWindow(at);
    }
    // A reply may wait for this process. The last one that it reads in a turn has not.
    if (this.#recent === recentCalls) {
      this.#leastBefore = this.#least;
      this.#recent = 0;
    }
    const waited = ms - this.#shortest;
    this.#least = this.#recent++ === 0 ? waited : Math.min(this.#least, waited);
    return Math.min(this.#least, this.#leastBefore);
  }

  #endWindow(at: number) {
    // If all calls took longer while Redis was quiet, the way has become longer. If Redis was busy, all of them may
    // have waited. Calls that are not alone never count: they wait for others of this process, and if these waits
    // counted as distance, they would grow.
    if (isQuiet(this.#workBefore, this.allWork, at - this.#windowAt)) this.#shortest = this.#inWindow;
    this.#inWindow = Number.POSITIVE_INFINITY;
    this.#calls = 0;
    this.#windowAt = at;
    this.#workBefore = this.allWork;
  }
}

/** A batch that has no reply yet. */
export interface Flight {
  weight: number;
  sentAt: number;
  /** The weight that was answered before it was sent. */
  answered: number;
  /** The wait at the server that it was sent to. */
  wait: RedisWait;
  /** As in RedisWait. */
  allWork: number;
  isAlone: boolean;
  budget: number;
}

/** The batches of a workspace that were sent and have no reply yet. All work but budgets is in weights. */
export class Flow {
  readonly #workMax: number;
  readonly #shareMax: number;
  /** The weight that was sent and has no reply. */
  #work = 0;
  /** How much of it may be on the way. */
  #onTheWay = 0;
  /** The last round trip without the time at Redis, in milliseconds. */
  #tripMs = Number.POSITIVE_INFINITY;
  /** An estimate of what waits at Redis, or will when it arrives, and the time of it. */
  #atRedis = 0;
  #estimatedAt = 0;
  #answered = 0;
  /** The cost of a weight of 1, in units of about a microsecond; 0 until the first reply. */
  #cost = 0;

  /** `shareMax`: how much of Redis's time may be on the way. */
  constructor(workMax: number, shareMax: number) {
    this.#workMax = workMax;
    this.#shareMax = shareMax;
  }

  /**
   * In addition to the work on the way, half of the work may wait at Redis, because the estimate of the former may be
   * too large.
   */
  get #limit(): number {
    return Math.max(this.#workMax, this.#workMax / 2 + this.#onTheWay);
  }

  /** Whether the limit allows another batch, now or after a pause. */
  get isBelowLimit(): boolean {
    return this.#work < this.#limit;
  }

  /** Whether another batch may be sent now. */
  mayPass(nowMs: number): boolean {
    if (this.#work < this.#workMax) return true;
    if (!this.isBelowLimit) return false;
    this.#estimate(nowMs);
    return this.#atRedis < this.#workMax / 2;
  }

  /** Work that is sent now is beyond the work that may always be sent. */
  get isBeyond(): boolean {
    return this.#work >= this.#workMax;
  }

  /** `wait` is that of the server that it is sent to. */
  sent(weight: number, nowMs: number, wait: RedisWait): Flight {
    const budget = this.isBeyond ? Math.min(budgetMax, Math.ceil(2 * this.#cost * weight)) : budgetMax;
    this.#estimate(nowMs);
    this.#atRedis += weight;
    this.#work += weight;
    const isAlone = wait.sent < this.#workMax / 4;
    wait.sent += weight;
    return { weight, sentAt: nowMs, answered: this.#answered, wait, allWork: wait.allWork, isAlone, budget };
  }

  /** What a batch takes of a call: its weight, or more if the last ones cost more than plain requests. */
  partOfCall(weight: number): number {
    return weight * Math.max(1, this.#cost / plainCost);
  }

  /** `work` is the cost of the batch, `left` the weight of its requests that the call left undecided. */
  replied(flight: Flight, left: number, work: number, called: Called) {
    const { weight, wait } = flight;
    const done = weight - left;
    this.#work -= weight;
    wait.sent -= weight;
    if (work === 0) return;
    this.#answered += done;
    const cost = work / done;
    this.#cost = this.#cost === 0 ? cost : this.#cost + smoothing * (cost - this.#cost);
    const tookMs = flightMs(flight.sentAt, called);
    const tripMs = wait.tripMs(flight, called);
    this.#tripMs = tripMs;
    const gain = isQuiet(flight.allWork, called.allWork, tookMs) ? quietGain : 1;
    const answered = (this.#answered - flight.answered) * (tripMs / tookMs);
    const most = (1000 * this.#shareMax * Math.max(0, tripMs - nearMs)) / this.#cost;
    this.#onTheWay += smoothing * (Math.min(gain * answered, most) - this.#onTheWay);
  }

  failed({ weight, wait }: Flight) {
    this.#work -= weight;
    wait.sent -= weight;
    this.#onTheWay = 0;
  }

  /**
   * Updates the estimate: Redis decides the work of the limit within a trip, and no more is left than what has no
   * reply.
   */
  #estimate(nowMs: number) {
    const decided = (this.#limit / this.#tripMs) * (nowMs - this.#estimatedAt);
    this.#atRedis = Math.max(0, Math.min(this.#atRedis - decided, this.#work));
    this.#estimatedAt = nowMs;
  }
}
