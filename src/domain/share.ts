// Shares a number of places among callers.

/**
 * Whether a caller that has `held` of `max` places may take one more while `taken` are in use. A caller may have at
 * most eight times as many places as it leaves free: alone it gets eight ninths, and another caller eight ninths of the
 * rest. The last place goes to any caller with fewer than eight. With another `shareOfFree` it is that many times.
 */
export function mayTake(held: number, taken: number, max: number, shareOfFree = 8): boolean {
  const free = max - taken;
  return held < shareOfFree * free;
}
