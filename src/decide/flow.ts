// How much work of a workspace may be sent to Redis before it is answered.
//
// What matters to other workspaces is what waits at Redis, because Redis decides it before their requests. Of what was
// sent, a part is on the way to Redis or back, and the further away Redis is, the larger it is. So the limit is that of
// the work at Redis, and as much again as was answered lately in the time of a round trip without a queue, the
// *distance*. As long as replies take no longer than that, the limit grows by itself in each round trip. When Redis
// decides less in the time, or its queue makes replies late, the limit falls. (TCP Vegas finds its window so, and BBR
// its round trip.)
//
// What was sent must also not arrive at once. So beyond the work that may always be sent, it is sent at the pace at
// which it would be answered.
//
// What a request costs is known by its reply, and a caller may send cheap requests and then expensive ones. So a batch
// beyond that work has a budget: twice what the last ones cost. Redis leaves requests beyond it undecided, and they are
// sent again when their cost is known. So what is on the way never costs Redis much more than was estimated.

/** The work that Redis does for a call at most, in units of about a microsecond; a request that is begun is decided. */
export const budgetMax = 2500;

/** How much of a new value is taken over with each reply. */
const smoothing = 1 / 4;

/** A clock that is read at the same time again must not mean an infinite rate. In milliseconds. */
const distanceMin = 0.1;

const windowMs = 5000;
/** A window with fewer replies goes on, because few may all have been late. */
const repliesMin = 100;
/** Redis is quiet while its calls take a smaller part of the time than this. What else it does is not known. */
const quietShare = 0.25;
/** While Redis is quiet, the limit grows faster. */
const quietGain = 1.5;

/** Whether calls that cost Redis `from` to `to`, as in `allWork`, are few for this time. */
const isQuiet = (from: number, to: number, ms: number): boolean => (to - from) >>> 0 < 1000 * quietShare * ms;

/** The distance of a Redis server: the shortest round trip of the last time. */
export class Distance {
  ms = Number.POSITIVE_INFINITY;
  /** As the last reply reported. */
  allWork = 0;
  /** The shortest one of this window, and the number of replies. */
  #shortest = Number.POSITIVE_INFINITY;
  #replies = 0;
  #beganAt = 0;
  #workAtBegin = 0;

  /** Call it for each reply. */
  note(roundTripMs: number, nowMs: number, allWork: number) {
    const ms = Math.max(distanceMin, roundTripMs);
    if (ms < this.#shortest) this.#shortest = ms;
    if (ms < this.ms) this.ms = ms;
    this.#replies++;
    this.allWork = allWork;
    if (nowMs < this.#beganAt + windowMs || this.#replies < repliesMin) return;
    // A longer distance is taken over only if Redis was not busy: a queue that never ends would count as distance, and
    // with it the queue would grow.
    if (isQuiet(this.#workAtBegin, allWork, nowMs - this.#beganAt)) this.ms = this.#shortest;
    this.#shortest = Number.POSITIVE_INFINITY;
    this.#replies = 0;
    this.#beganAt = nowMs;
    this.#workAtBegin = allWork;
  }
}

/** What a call reports. */
export interface Called {
  /** What it cost Redis, in units of about a microsecond. */
  work: number;
  /** What all calls of all servers have cost, modulo 2 ** 32. */
  allWork: number;
  /** When its reply was read, by performance.now(). */
  at: number;
}

/** What is known of a batch until its reply. */
export interface Flight {
  weight: number;
  sentAt: number;
  /** What was answered before it was sent. */
  answered: number;
  /** As in `Distance`. */
  allWork: number;
  budget: number;
}

/** The batches of a workspace that were sent and have no reply yet. All work but budgets is in weights. */
export class Flow {
  readonly #workMax: number;
  readonly #shareMax: number;
  readonly #distance: Distance;
  /** What was sent and has no reply. */
  #work = 0;
  /** How much of it may be on the way, in addition to `workMax`. */
  #onTheWay = 0;
  /** An estimate of what waits at Redis, or will when it arrives, at this time. */
  #atRedis = 0;
  #estimatedAt = 0;
  #answered = 0;
  /** What a weight of 1 costs Redis, in units of about a microsecond; 0 until the first reply. */
  #cost = 0;

  /** `shareMax`: how much of Redis's time may be on the way. */
  constructor(workMax: number, shareMax: number, distance: Distance) {
    this.#workMax = workMax;
    this.#shareMax = shareMax;
    this.#distance = distance;
  }

  /** Whether the limit allows another batch, now or after a pause. */
  get isBelowLimit(): boolean {
    return this.#work < this.#limit;
  }

  get #limit(): number {
    return Math.max(this.#workMax, this.#workMax / 2 + this.#onTheWay);
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
    const budget = isBeyond ? Math.max(1, Math.min(budgetMax, Math.ceil(2 * this.#cost * weight))) : budgetMax;
    this.#estimate(nowMs);
    this.#atRedis += weight;
    this.#work += weight;
    return { weight, sentAt: nowMs, answered: this.#answered, allWork: this.#distance.allWork, budget };
  }

  /** `left` is the weight of the requests that the call left undecided. */
  replied({ weight, sentAt, answered, allWork: before }: Flight, left: number, { work, allWork, at }: Called) {
    const done = weight - left;
    const flightMs = at - sentAt;
    this.#distance.note(flightMs - work / 1000, at, allWork);
    this.#work -= weight;
    this.#answered += done;
    const cost = work / done;
    this.#cost = this.#cost === 0 ? cost : this.#cost + smoothing * (cost - this.#cost);
    const { ms } = this.#distance;
    const gain = isQuiet(before, allWork, flightMs) ? quietGain : 1;
    const inDistance = ((this.#answered - answered) * ms) / Math.max(ms, flightMs);
    const most = (1000 * this.#shareMax * ms) / this.#cost;
    this.#onTheWay += smoothing * (Math.min(gain * inDistance, most) - this.#onTheWay);
  }

  failed({ weight }: Flight) {
    this.#work -= weight;
    this.#onTheWay = 0;
  }

  /** Redis decides what the limit allows in the distance. It has nothing to do but what has no reply. */
  #estimate(nowMs: number) {
    const pace = this.#limit / this.#distance.ms;
    const left = this.#atRedis - pace * (nowMs - this.#estimatedAt);
    this.#atRedis = Math.max(0, Math.min(left, this.#work));
    this.#estimatedAt = nowMs;
  }
}
