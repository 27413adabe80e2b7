export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;

/** The end of 2099: the maximum of every time in a request, in Unix milliseconds. */
export const timeMax = 4_102_444_800_000;

/** The times of some requests. */
export interface Times {
  /** The time in which they ended. */
  periodMs: number;
  count: number;
  /** What half of them, and 99 in 100, did not exceed, as far as the buckets tell. Absent without a request. */
  p50Ms?: number;
  p99Ms?: number;
}
