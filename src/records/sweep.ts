// Typed functions for the scripts of lua/sweep/. Each call is a short step; several servers may run steps at the same
// time.

import type { StoreContext } from '../scripts/context.ts';
import { openRollUp } from '../usage/rollup.ts';

/** Limit of the keys in a step: a few milliseconds of Redis's time. */
const stepMax = 200;

export function openSweep(context: StoreContext) {
  const { run, usageRetentionMs, observe } = context;
  /** Returns whether there may be more to do. */
  const step =
    (queue: 'refill' | 'purge') =>
    async (workspaceId: string): Promise<boolean> => {
      const [count, lateMs] = await run(`sweep/${queue}`, workspaceId, { count: stepMax });
      observe?.due(queue, lateMs);
      return count >= stepMax;
    };
  /** Returns the number of records of a workspace. */
  async function count(workspaceId: string): Promise<number> {
    const records = await run('sweep/count', workspaceId, {});
    observe?.records(records);
    return records;
  }
  /** As the other steps, of expired holds. */
  async function holds(workspaceId: string): Promise<boolean> {
    const [count] = await run('sweep/holds', workspaceId, { count: stepMax, usageRetentionMs });
    return count >= stepMax;
  }
  return {
    count,
    holds,
    refill: step('refill'),
    purge: step('purge'),
    rollUp: openRollUp(context),
  };
}
