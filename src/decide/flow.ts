// How much work of a workspace may be sent to Redis before it is answered.
//
// What matters to other workspaces is what waits at Redis, because Redis decides it before their requests. Of what was
// sent, a part is on the way to Redis or back, and the further away Redis is, the larger it is. So the limit is a fixed
// one for the work at Redis, and in addition what was answered in the last round trip, less the part of the trip in
// which it waited at Redis. While nothing waits there, the limit grows with each trip. When Redis decides less in the
// time, or requests wait there longer, it falls. (As the congestion window of TCP Vegas.)
//
// What was sent must also not arrive at once. So beyond the work that may always be sent, requests are sent at the pace
// at which they would be answered.
//
// What a request costs is known by its reply, and a caller may send cheap requests and then expensive ones. So a batch
// beyond that work has a budget: twice what the last ones cost. Redis leaves requests beyond it undecided, and they are
// sent again when their cost is known. So what is on the way never costs Redis much more than was estimated.

/** The work that Redis does for a call at most, in units of about a microsecond; a request that is begun is decided. */
export const budgetMax = 2500;

/** How much of a new value is taken over with each reply. */
const smoothing = 1 / 4;
/** The shortest trip, in milliseconds: clocks may have the same time twice. */
const tripMin = 0.1;
/** Within this time the work that may wait at Redis is more than a server sends. */
const nearMs = 3;

/** Redis is quiet while calls take a smaller part of the time than this. What else it does is not known. */
const quietShare = 0.25;
/** While Redis is quiet, the limit grows faster. */
const quietGain = 1.5;

/** Whether the calls between two values of `allWork` are few for this time. */
const isQuiet = (from: number, to: number, ms: number): boolean => (to - from) >>> 0 < 1000 * quietShare * ms;

/** What a call reports. */
export interface Called {
  /** What it cost Redis, in units of about a microsecond. */
  work: number;
  /** What all calls of all servers have cost, modulo 2 ** 32. */
  allWork: number;
  /** When it began, by Redis's clock, in milliseconds. */
  beganAt: number;
  /** When its reply was read, by performance.now(). */
  at: number;
}

const windowMs = 5000;
/** A window with fewer calls goes on, because few may all have waited. */
const callsMin = 100;

/** The shortest time of a window and of the one before. */
class Shortest {
  #ms = Number.POSITIVE_INFINITY;
  #inWindow = Number.POSITIVE_INFINITY;

  /** How much longer this time is than the shortest one. */
  beyond(ms: number): number {
    if (ms < this.#inWindow) this.#inWindow = ms;
    if (ms < this.#ms) this.#ms = ms;
    return ms - this.#ms;
  }

  endWindow(mayRise: boolean) {
    if (mayRise) this.#ms = this.#inWindow;
    this.#inWindow = Number.POSITIVE_INFINITY;
  }
}

/** How long calls wait at a Redis server: how much longer they take than the fastest ones, which have not waited. */
export class RedisWait {
  /** As the last reply reported. */
  allWork = 0;
  /**
   * From sending a call to its beginning. That is by two clocks, so only differences have a meaning. It does not
   * contain the time in which a reply waits for this process.
   */
  readonly #there = new Shortest();
  /** The whole round trip: it may contain such a time, but needs one clock, and clocks can be set. */
  readonly #trip = new Shortest();
  #calls = 0;
  #windowAt = 0;
  #workBefore = 0;

  /** How long this call waited, in milliseconds. Call it for each. */
  of(sentAt: number, { beganAt, at, work, allWork }: Called): number {
    this.allWork = allWork;
    const ms = Math.min(this.#there.beyond(beganAt - sentAt), this.#trip.beyond(at - sentAt - work / 1000));
    this.#calls++;
    if (at >= this.#windowAt + windowMs && this.#calls >= callsMin) this.#endWindow(at);
    return ms;
  }

  #endWindow(at: number) {
    // The way is longer, or a clock was set. But if Redis was busy, all calls may have waited: if that did not count,
    // they would wait longer and longer.
    const isQuietWindow = isQuiet(this.#workBefore, this.allWork, at - this.#windowAt);
    this.#there.endWindow(isQuietWindow);
    this.#trip.endWindow(isQuietWindow);
    this.#calls = 0;
    this.#windowAt = at;
    this.#workBefore = this.allWork;
  }
}

/** What is known of a batch until its reply. */
interface Flight {
  weight: number;
  sentAt: number;
  /** What was answered before it was sent. */
  answered: number;
  /** As in RedisWait. */
  allWork: number;
  budget: number;
}

/** The batches of a workspace that were sent and have no reply yet. All work but budgets is in weights. */
export class Flow {
  readonly #workMax: number;
  readonly #shareMax: number;
  readonly #wait: RedisWait;
  /** What was sent and has no reply. */
  #work = 0;
  /** How much of it may be on the way. */
  #onTheWay = 0;
  /** The last round trip without the time at Redis, in milliseconds. */
  #tripMs = Number.POSITIVE_INFINITY;
  /** An estimate of what waits at Redis, or will when it arrives, at this time. */
  #atRedis = 0;
  #estimatedAt = 0;
  #answered = 0;
  /** What a weight of 1 costs Redis, in units of about a microsecond; 0 until the first reply. */
  #cost = 0;

  /** `shareMax`: how much of Redis's time may be on the way. */
  constructor(workMax: number, shareMax: number, wait: RedisWait) {
    this.#workMax = workMax;
    this.#shareMax = shareMax;
    this.#wait = wait;
  }

  /** With half of the work at Redis, as the estimate of what is on the way may be too large. */
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

  sent(weight: number, nowMs: number): Flight {
    const isBeyond = this.#work >= this.#workMax;
    const budget = isBeyond ? Math.min(budgetMax, Math.ceil(2 * this.#cost * weight)) : budgetMax;
    this.#estimate(nowMs);
    this.#atRedis += weight;
    this.#work += weight;
    return { weight, sentAt: nowMs, answered: this.#answered, allWork: this.#wait.allWork, budget };
  }

  /** `left` is the weight of the requests that the call left undecided. */
  replied(flight: Flight, left: number, called: Called) {
    const { weight, sentAt } = flight;
    const { work, allWork, at } = called;
    const done = weight - left;
    this.#work -= weight;
    this.#answered += done;
    const cost = work / done;
    this.#cost = this.#cost === 0 ? cost : this.#cost + smoothing * (cost - this.#cost);
    const flightMs = Math.max(tripMin, at - sentAt);
    const tripMs = Math.max(tripMin, flightMs - this.#wait.of(sentAt, called) - work / 1000);
    this.#tripMs = tripMs;
    const gain = isQuiet(flight.allWork, allWork, flightMs) ? quietGain : 1;
    const answered = (this.#answered - flight.answered) * (tripMs / flightMs);
    const most = (1000 * this.#shareMax * Math.max(0, tripMs - nearMs)) / this.#cost;
    this.#onTheWay += smoothing * (Math.min(gain * answered, most) - this.#onTheWay);
  }

  failed({ weight }: Flight) {
    this.#work -= weight;
    this.#onTheWay = 0;
  }

  /** What the limit allows is decided within a trip. Nothing is left to decide but what has no reply. */
  #estimate(nowMs: number) {
    const decided = (this.#limit / this.#tripMs) * (nowMs - this.#estimatedAt);
    this.#atRedis = Math.max(0, Math.min(this.#atRedis - decided, this.#work));
    this.#estimatedAt = nowMs;
  }
}
