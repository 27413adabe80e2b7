// The typed faces of lua/sweep/. Each call is one bounded step; any number of servers may take steps at once.

import type { StoreContext } from './context.ts';

/** Keys a step touches at most: a few milliseconds of Redis's time. */
const stepMax = 200;

export function openSweep({ scripts, now, observe }: StoreContext) {
  /** Answers whether there may be more to do. */
  const step =
    (name: string, queue: 'refill' | 'purge') =>
    async (workspaceId: string): Promise<boolean> => {
      const [count, lateMs] = (await scripts.run(name, workspaceId, [stepMax, now()])) as [number, number];
      observe?.due(queue, lateMs);
      return count >= stepMax;
    };
  /** Answers how many records a workspace has. */
  async function count(workspaceId: string): Promise<number> {
    const records = (await scripts.run('sweep/count', workspaceId, [])) as number;
    observe?.records(records);
    return records;
  }
  return { count, refill: step('sweep/refill', 'refill'), purge: step('sweep/purge', 'purge') };
}
