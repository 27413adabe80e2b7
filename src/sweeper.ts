// The background task that refills unused keys, purges deleted records, removes what is stored of overrides and
// temporary limits that have ended, and rolls up usage. It works in bounded steps, so that requests run between them.
// Any number of servers may run it at once.

import type { Logger } from 'pino';
import { repeat } from './domain/repeat.ts';
import type { Store } from './store.ts';

/**
 * How long a sweep rolls up usage of one workspace. The rest waits for the next sweep, as refills of others are due
 * sooner.
 */
const rollUpMs = 1000;
/** How often records are counted for metrics. */
const countEveryMs = 60_000;

interface SweeperOptions {
  intervalMs: number;
  log: Logger;
  /** Called when all workspaces were swept without an error. */
  onSwept?: (() => void | Promise<void>) | undefined;
}

interface Failure {
  workspaceId: string;
  error: unknown;
}

export function startSweeper(store: Pick<Store, 'workspaces' | 'sweep'>, { intervalMs, log, onSwept }: SweeperOptions) {
  let countedAt = Number.NEGATIVE_INFINITY;

  async function sweep() {
    try {
      const failures: Failure[] = [];
      const isCounting = performance.now() - countedAt >= countEveryMs;
      if (isCounting) countedAt = performance.now();
      for (const workspaceId of await store.workspaces.ids()) {
        const failure = await sweepWorkspace(workspaceId, isCounting);
        if (failure) failures.push(failure);
      }
      if (sweeps.isStopped) return;
      if (failures[0]) logFailure(failures[0], failures.length);
      else await onSwept?.();
    } catch (error) {
      if (!sweeps.isStopped) log.error(error, 'A sweep failed. It will be repeated.');
    }
  }

  /** One line for all workspaces, as an outage of Redis fails all of them. */
  function logFailure({ workspaceId, error }: Failure, workspaces: number) {
    log.error({ err: error, workspaces }, `The sweep of ${workspaceId} failed. It will be repeated.`);
  }

  /** Returns the first failure. It affects neither the other steps nor other workspaces. */
  async function sweepWorkspace(workspaceId: string, isCounting: boolean): Promise<Failure | undefined> {
    let failure: Failure | undefined;
    const { holds, refill, purge, ended, rollUp, count } = store.sweep;
    for (const step of [holds, refill, purge, ended, rollUp, ...(isCounting ? [count] : [])]) {
      const until = step === rollUp ? performance.now() + rollUpMs : Number.POSITIVE_INFINITY;
      try {
        while (!sweeps.isStopped && (await step(workspaceId)) === true && performance.now() < until) {
          await new Promise((resolve) => setImmediate(resolve));
        }
      } catch (error) {
        failure ??= { workspaceId, error };
      }
    }
    return failure;
  }

  const sweeps = repeat(intervalMs, sweep);
  return sweeps;
}
