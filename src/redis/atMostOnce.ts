/**
 * Calls `read` at most once in `ms`, counted from its begin, and once at a time. Calls until then share its result,
 * even an error, which is never older.
 */
export function atMostOnceIn<Result>(ms: number, read: () => Promise<Result>): () => Promise<Result> {
  let current: Promise<Result>;
  let untilMs = 0;
  return () => {
    const nowMs = performance.now();
    if (nowMs >= untilMs) {
      untilMs = Number.POSITIVE_INFINITY;
      current = read().finally(() => {
        untilMs = nowMs + ms;
      });
    }
    return current;
  };
}
