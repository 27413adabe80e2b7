// Random choices that a seed repeats: SEED=<n> npx vitest run <file> replays a failure.

export const seed = Number(process.env.SEED ?? Date.now() % 1e6);

/** A function that returns a random integer from min to max, both included (mulberry32). */
export function random(seed: number): (min: number, max: number) => number {
  let state = seed;
  return (min, max) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return min + (((mixed ^ (mixed >>> 14)) >>> 0) % (max - min + 1));
  };
}
