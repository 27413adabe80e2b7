// Typed functions for the scripts of lua/sweep/. Each call is a short step; several servers may run steps at the same
// time.

import type { StoreContext } from '../scripts/context.ts';
import { openRollUp } from '../usage/rollup.ts';

/** Limit of the keys in a step: a few milliseconds of Redis's time. */
const stepMax = 200;

export function openSweep(context: StoreContext) {
  const { run, usageRetentionMs, dataVersion, observe } = context;
  /** Returns whether there may be more to do. */
  function noted(queue: 'holds' | 'refill' | 'purge', [count, lateMs]: [count: number, lateMs: number]): boolean {
    observe?.due(queue, lateMs);
    return count >= stepMax;
  }
  const given = { count: stepMax };
  /** Returns the number of records of a workspace. */
  async function count(workspaceId: string): Promise<number> {
    const records = await run('sweep/count', workspaceId, {});
    observe?.records(records);
    return records;
  }
  return {
    count,
    holds: async (workspaceId: string) =>
      noted(
        'holds',
        await run('sweep/holds', workspaceId, { ...given, usageRetentionMs, dataVersion: dataVersion.current }),
      ),
    refill: async (workspaceId: string) => noted('refill', await run('sweep/refill', workspaceId, given)),
    purge: async (workspaceId: string) =>
      noted('purge', await run('sweep/purge', workspaceId, { ...given, usageRetentionMs })),
    /** Removes overrides that have ended, and limits that have ended from the index of ends. */
    ended: async (workspaceId: string) => (await run('sweep/ended', workspaceId, given)) >= stepMax,
    rollUp: openRollUp(context),
  };
}
