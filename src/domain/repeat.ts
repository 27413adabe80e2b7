/**
 * Runs a task, which must not reject, after each interval, from the end of the run before; the first time after
 * `firstMs`.
 */
export function repeat(intervalMs: number, run: () => Promise<unknown>, firstMs = intervalMs) {
  let timer: NodeJS.Timeout | undefined;
  let running: Promise<unknown> = Promise.resolve();
  let isStopped = false;
  const schedule = (ms: number) => {
    if (isStopped) return;
    timer = setTimeout(() => {
      running = run().finally(() => schedule(intervalMs));
    }, ms).unref();
  };
  schedule(firstMs);
  return {
    get isStopped(): boolean {
      return isStopped;
    },
    /** Runs it no more. Resolves when a running task has ended. */
    async stop(): Promise<void> {
      isStopped = true;
      clearTimeout(timer);
      await running;
    },
  };
}
