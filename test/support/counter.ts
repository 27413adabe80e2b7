// A sliding-window log with sub-windows in its plainest form: nothing is ever merged or packed, and all of it is added up
// each time. What lua/include/window.lua must agree with.

export interface Admitted {
  units: number;
  /** The end of the sub-window that they fall into; they count for one duration from there. */
  end: number;
}

export const unitsOf = (admitted: readonly { units: number }[]): number =>
  admitted.reduce((total, { units }) => total + units, 0);

export class Counter {
  live: Admitted[] = [];
  readonly duration: number;

  constructor(duration: number) {
    this.duration = duration;
  }

  /** What counts now. What a clock that was ahead has charged counts for a duration and a sub-window from the first look after it stepped back. */
  counted(now: number): Admitted[] {
    const latest = now + Math.floor(this.duration / 64);
    for (const admitted of this.live) admitted.end = Math.min(admitted.end, latest);
    return this.live.filter(({ end }) => end + this.duration > now);
  }

  used(now: number): number {
    return unitsOf(this.counted(now));
  }

  /** Returns what was added; nothing at cost 0. */
  charge(now: number, limit: number, units: number): Admitted | undefined {
    if (units === 0) return undefined;
    const subWindow = limit <= 64 ? 1 : Math.floor(this.duration / 64);
    // What no longer counts does not come back when the clock steps back.
    this.live = this.counted(now);
    const end = Math.max(Math.floor(now / subWindow) * subWindow + subWindow, this.live.at(-1)?.end ?? 0);
    const admitted = { units, end };
    this.live.push(admitted);
    return admitted;
  }

  /** When the oldest counted unit no longer counts. */
  oldestLeaves(now: number): number {
    return Math.min(...this.counted(now).map(({ end }) => end + this.duration), Number.POSITIVE_INFINITY);
  }

  admittedReset(now: number): number {
    const leaves = this.oldestLeaves(now);
    return leaves === Number.POSITIVE_INFINITY ? now : leaves;
  }

  deniedReset(now: number, limit: number, cost: number): number {
    if (limit === 0 || cost > limit) return now + this.duration;
    const counted = this.counted(now);
    const usedAt = (moment: number) => unitsOf(counted.filter(({ end }) => end + this.duration > moment));
    const moments = [now, ...counted.map(({ end }) => end + this.duration)].sort((a, b) => a - b);
    return moments.find((moment) => usedAt(moment) + cost <= limit)!;
  }
}
