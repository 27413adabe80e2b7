// How far away Redis is: the shortest of the recent round trips. A longer one waited for Redis, for the network or for
// this process, so it does not measure the distance.

import { addedTermMax } from '../../domain/leaseTerms.ts';

/** A round trip counts as the shortest for at most this many milliseconds, and for at least half of them. */
const keptMs = 20_000;
/** If there were fewer round trips, all of them may have waited, as the first ones of a process do. */
const measuresMin = 3;

export class RoundTrip {
  #count = 0;
  /** The shortest one since `#since`, and that of the time before. */
  #shortest = Number.POSITIVE_INFINITY;
  #before = Number.POSITIVE_INFINITY;
  #since = 0;

  /** Notes a round trip, at this time of a monotonic clock. */
  measured(ms: number, now: number) {
    if (now - this.#since >= keptMs / 2) {
      this.#before = now - this.#since < keptMs ? this.#shortest : Number.POSITIVE_INFINITY;
      this.#shortest = Number.POSITIVE_INFINITY;
      this.#since = now;
    }
    this.#count++;
    if (ms < this.#shortest) this.#shortest = ms;
  }

  /** The round trip in whole milliseconds, 0 while it is not known; at most what may be added to a term. */
  get ms(): number {
    if (this.#count < measuresMin) return 0;
    return Math.min(Math.floor(Math.min(this.#shortest, this.#before)), addedTermMax);
  }
}
