/** Items in pieces of at most so many: what is done step by step, so that others come between. */
export function* pieces<Item>(items: readonly Item[], size: number): Generator<readonly Item[]> {
  for (let first = 0; first < items.length; first += size) yield items.slice(first, first + size);
}
