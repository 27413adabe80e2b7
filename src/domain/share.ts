// How callers share a number of places.

const shareOfFree = 8;

/**
 * Whether a caller that holds `held` of `max` places may take one more while `taken` are taken in all. It may fill the
 * room that there is except for a part of what it leaves free: alone it takes eight ninths, and another caller eight ninths of
 * the rest. The last place goes to any caller with fewer than eight.
 */
export function mayTake(held: number, taken: number, max: number): boolean {
  const free = max - taken;
  return held < shareOfFree * free;
}
