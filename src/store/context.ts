// What the parts of the store share.

import type { Actor } from '../domain/caller.ts';
import type { StoreObserver } from './observer.ts';
import type { RedisClient } from './redis.ts';
import type { Scripts } from './scripts.ts';

export interface StoreContext {
  redis: RedisClient;
  scripts: Scripts;
  /** A change that is not a script, see durable.ts. */
  change<Reply>(command: (redis: RedisClient) => Promise<Reply>): Promise<Reply>;
  /** The scripts' clock argument: '' is Redis's own. */
  now: () => number | '';
  /** Redis's time in milliseconds, or that of the test. */
  currentMs(): Promise<number>;
  /** An actor as lua/include/audit.lua reads it. */
  actorText(actor: Actor): string;
  keyRetentionMs: number;
  usageRetentionMs: number;
  observe?: StoreObserver | undefined;
}
