// A unit of time for limits in tests: a millisecond of an idle machine, by a fixed work whose time this run measures.
// A busy or slow machine needs longer for that work, too. (test/faults/unit.ts has one of processor time.)

/** About ten milliseconds on an idle machine of two cores. */
function work(): number {
  let sum = 0;
  for (let number = 0; number < 1_800_000; number++) sum = (sum + number * 7) % 1_000_003;
  return sum;
}

/** Milliseconds that a unit takes now, at least 1: of three measurements the longest, as load comes in bursts. */
export function unitMs(): number {
  let longest = 10;
  for (let run = 0; run < 3; run++) {
    const startedAt = performance.now();
    work();
    longest = Math.max(longest, performance.now() - startedAt);
  }
  return longest / 10;
}

/** A limit of time for what takes `ms` at most on an idle machine, in milliseconds of this one. */
export const withinMs = (ms: number): number => ms * unitMs();

/** The units that a task takes, by the longer of the units measured before and after it. */
export async function unitsOf(task: () => Promise<unknown>): Promise<number> {
  const before = unitMs();
  const startedAt = performance.now();
  await task();
  const ms = performance.now() - startedAt;
  return ms / Math.max(before, unitMs());
}
