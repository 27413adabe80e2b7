// Does in the background what nobody waits for: refills of keys that are not used, and records nobody sees any longer.
// It works in bounded steps, so that requests get between them, and any number of servers may do it at once.

import type { Logger } from 'pino';
import type { Store } from './store/store.ts';

/** Records are counted for metrics, and this is soon enough. */
const countEveryMs = 60_000;

export interface SweeperOptions {
  intervalMs: number;
  log: Logger;
  /** All workspaces have been swept, and nothing failed. */
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
      if (!stopped) log.error(error, 'The sweeper will try again.');
    }
  }

  /** What fails in one workspace keeps no other waiting. Answers whether nothing did. */
  async function sweepWorkspace(workspaceId: string, isCounting: boolean): Promise<boolean> {
    let isOk = true;
    const steps = [store.sweep.refill, store.sweep.purge, ...(isCounting ? [store.sweep.count] : [])];
    for (const step of steps) {
      try {
        while (!stopped && (await step(workspaceId)) === true) await new Promise((resolve) => setImmediate(resolve));
      } catch (error) {
        isOk = false;
        if (!stopped) log.error(error, `The sweeper will try ${workspaceId} again.`);
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
    /** Resolves when no step is under way. */
    async stop(): Promise<void> {
      stopped = true;
      clearTimeout(timer);
      await running;
    },
  };
}
