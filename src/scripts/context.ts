// The objects that the parts of the store share.

import type { RedisClient } from '../redis/connection.ts';
import type { StoreObserver } from '../redis/observer.ts';
import type { Probed } from '../redis/writeProbe.ts';
import type { Run } from './calls.ts';
import type { DataVersion } from './dataVersion.ts';

/** Limits of what a query of usage has in memory at a time; of more it makes several passes. */
export interface UsageBounds {
  /** Keys that were used: about 100 bytes each. */
  keys: number;
  /** Customers with their sums: about 150 bytes each. */
  customers: number;
}

/** Settings of the store that its parts read. */
export interface ContextSettings {
  auditEventsMax: number;
  /** How long the record of a deleted key is kept. */
  keyRetentionMs: number;
  usageRetentionMs: number;
  /** Days before today of which usage is kept by hour; earlier days have sums only. */
  usageHourlyDays: number;
  /** Hours for which refusals are kept. */
  refusalHours: number;
  observe?: StoreObserver | undefined;
}

export interface StoreContext extends ContextSettings {
  redis: RedisClient;
  /** The version of the data in Redis. It increases while the server runs, when the data is migrated. */
  dataVersion: DataVersion;
  run: Run;
  /** Runs a change that is not a script; see durable.ts. */
  change<Reply>(command: (redis: RedisClient) => Promise<Reply>): Promise<Reply>;
  /** Whether Redis accepts writes, at most a second ago. */
  probe(): Promise<Probed[]>;
  /** Unix milliseconds by Redis's clock, or the time of a test. */
  currentMs(): Promise<number>;
  /** The most that a query of usage has in memory at a time. */
  usageBounds: UsageBounds;
}
