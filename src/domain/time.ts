export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;

/** The end of 2099: the maximum of every time in a request, in Unix milliseconds. */
export const timeMax = 4_102_444_800_000;

/** The durations of requests. */
export interface Times {
  /** The period in which the requests ended. */
  periodMs: number;
  count: number;
  /** Median and 99th percentile, estimated from a histogram. Absent without a request. */
  p50Ms?: number;
  p99Ms?: number;
}
