// Which root keys end soon while they are in use: one rule for the log, metrics, `tollgate doctor` and lists.

import { dayMs } from './time.ts';

/** An end within this time is reported. */
export const soonMs = 14 * dayMs;
/** Callers that serve traffic use their root key within this time, tasks that run daily or weekly within the other. */
const callersMs = 10 * 60_000;
const jobsMs = 7 * dayMs;

/** Kinds of use of a root key. `gateway`: the setting GATEWAY_ROOT_KEY. */
export type UsedBy = 'gateway' | 'callers' | 'jobs';

export interface RootKeyUse {
  enabled: boolean;
  expires?: number;
  lastUsedAt?: number;
}

/**
 * The callers that are refused when a root key ends; undefined if it does not end soon, or is not in use. One that has
 * ended was in use if it was used until its end: callers that were given another one in time are not refused.
 */
export function usedBy({ enabled, expires, lastUsedAt = 0 }: RootKeyUse, nowMs: number): UsedBy | undefined {
  if (!enabled || expires === undefined || expires - nowMs > soonMs || nowMs - expires > dayMs) return undefined;
  const unusedMs = Math.min(nowMs, expires) - lastUsedAt;
  if (unusedMs <= callersMs) return 'callers';
  return expires > nowMs && unusedMs <= jobsMs ? 'jobs' : undefined;
}
