// The model of lua/include/windowLog.lua: a sliding-window log with sub-windows, as simple as possible. No entries are
// merged or packed, and all are added up each time.

export interface Admitted {
  units: number;
  /** The end of their sub-window. The units count until one duration after it. */
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

  /**
   * The entries that count now. Entries in the future, from before the clock stepped back, count for a duration and a
   * sub-window from the first call after the step.
   */
  counted(now: number): Admitted[] {
    const latest = now + Math.floor(this.duration / 64);
    for (const admitted of this.live) admitted.end = Math.min(admitted.end, latest);
    return this.live.filter(({ end }) => end + this.duration > now);
  }

  used(now: number): number {
    return unitsOf(this.counted(now));
  }

  /** Returns the new entry; undefined at cost 0. */
  charge(now: number, limit: number, units: number): Admitted | undefined {
    if (units === 0) return undefined;
    const subWindow = limit <= 64 ? 1 : Math.floor(this.duration / 64);
    // Entries that no longer count are removed, so that they do not count again when the clock steps back.
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
