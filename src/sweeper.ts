// The background task that refills unused keys and purges deleted records. It works in bounded steps, so that requests run
// between them. Any number of servers may run it at once.

import type { Logger } from 'pino';
import type { Store } from './store/store.ts';

/** How often records are counted for metrics. */
const countEveryMs = 60_000;

interface SweeperOptions {
  intervalMs: number;
  log: Logger;
  /** Called when all workspaces were swept without an error. */
  onSwept?: (() => void) | undefined;
}

export function startSweeper(store: Pick<Store, 'workspaces' | 'sweep'>, { intervalMs, log, onSwept }: SweeperOptions) {
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let countedAt = Number.NEGATIVE_INFINITY;

  async function sweep() {
    try {
      let isWhole = true;
      const isCounting = performance.now() - countedAt >= countEveryMs;
      if (isCounting) countedAt = performance.now();
      for (const workspaceId of await store.workspaces.ids()) {
        if (!(await sweepWorkspace(workspaceId, isCounting))) isWhole = false;
      }
      if (isWhole && !stopped) onSwept?.();
    } catch (error) {
      if (!stopped) log.error(error, 'A sweep failed. It will be repeated.');
    }
  }

  /** Returns whether every step succeeded. A failure does not affect other workspaces. */
  async function sweepWorkspace(workspaceId: string, isCounting: boolean): Promise<boolean> {
    let isOk = true;
    const steps = [store.sweep.refill, store.sweep.purge, ...(isCounting ? [store.sweep.count] : [])];
    for (const step of steps) {
      try {
        while (!stopped && (await step(workspaceId)) === true) await new Promise((resolve) => setImmediate(resolve));
      } catch (error) {
        isOk = false;
        if (!stopped) log.error(error, `The sweep of ${workspaceId} failed. It will be repeated.`);
      }
    }
    return isOk;
  }

  let running = Promise.resolve();
  const schedule = () => {
    if (stopped) return;
    timer = setTimeout(() => {
      running = sweep().finally(schedule);
    }, intervalMs);
    timer.unref();
  };
  schedule();

  return {
    /** Resolves when no step is running. */
    async stop(): Promise<void> {
      stopped = true;
      clearTimeout(timer);
      await running;
    },
  };
}
