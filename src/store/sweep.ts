// The typed faces of lua/sweep/. Each call is one bounded step; any number of servers may take steps at once.

import type { StoreContext } from './store.ts';

/** Keys a step touches at most: a few milliseconds of Redis's time. */
const stepMax = 200;

export function openSweep({ scripts, now }: StoreContext) {
  /** Answers whether there may be more to do. */
  const step =
    (name: string) =>
    async (workspaceId: string): Promise<boolean> =>
      ((await scripts.run(name, workspaceId, [stepMax, now()])) as number) >= stepMax;
  return { refill: step('sweep/refill'), purge: step('sweep/purge') };
}
