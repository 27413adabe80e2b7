// Typed functions for the scripts of lua/sweep/. Each call is a short step; several servers may run steps at the same time.

import type { StoreContext } from '../scripts/context.ts';
import { openRollUp } from '../usage/rollup.ts';

/** Limit of the keys in a step: a few milliseconds of Redis's time. */
const stepMax = 200;

export function openSweep(context: StoreContext) {
  const { scripts, now, observe } = context;
  /** Returns whether there may be more to do. */
  const step =
    (name: string, queue: 'refill' | 'purge') =>
    async (workspaceId: string): Promise<boolean> => {
      const [count, lateMs] = (await scripts.run(name, workspaceId, [stepMax, now()])) as [number, number];
      observe?.due(queue, lateMs);
      return count >= stepMax;
    };
  /** Returns the number of records of a workspace. */
  async function count(workspaceId: string): Promise<number> {
    const records = (await scripts.run('sweep/count', workspaceId, [])) as number;
    observe?.records(records);
    return records;
  }
  return {
    count,
    refill: step('sweep/refill', 'refill'),
    purge: step('sweep/purge', 'purge'),
    rollUp: openRollUp(context),
  };
}
