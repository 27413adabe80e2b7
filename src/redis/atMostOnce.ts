/** Calls `read` at most once in `ms`. Calls until then share its result, even an error. */
export function atMostOnceIn<Result>(ms: number, read: () => Promise<Result>): () => Promise<Result> {
  let current: Promise<Result> | undefined;
  return () => {
    current ??= read().finally(() => setTimeout(() => (current = undefined), ms).unref());
    return current;
  };
}
