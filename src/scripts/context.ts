// The objects that the parts of the store share.

import type { Actor } from '../domain/caller.ts';
import type { RedisClient } from '../redis/connection.ts';
import type { StoreObserver } from '../redis/observer.ts';
import type { Probed } from '../redis/writeProbe.ts';
import type { Scripts } from './scripts.ts';

export interface StoreContext {
  redis: RedisClient;
  scripts: Scripts;
  /** Runs a change that is not a script; see durable.ts. */
  change<Reply>(command: (redis: RedisClient) => Promise<Reply>): Promise<Reply>;
  /** Whether Redis accepts writes, at most a second ago. */
  probe(): Promise<Probed[]>;
  /** The time argument of scripts; '' is Redis's clock. */
  now: () => number | '';
  /** Unix milliseconds by Redis's clock, or the time of a test. */
  currentMs(): Promise<number>;
  /** An actor as JSON, for lua/include/audit.lua. */
  actorText(actor: Actor): string;
  keyRetentionMs: number;
  usageRetentionMs: number;
  /** Days before today of which the counts of keys, tags and identifiers are kept by hour. */
  usageHourlyDays: number;
  /** Hours for which refusals are kept. */
  refusalHours: number;
  observe?: StoreObserver | undefined;
}
