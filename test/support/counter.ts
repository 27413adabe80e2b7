// The model of lua/include/windowLog.lua: a sliding-window log with sub-windows, as simple as possible. No entries are
// merged or packed, and all are added up each time.

import { periodAt, quotaOf } from '../../src/domain/quota.ts';

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

/** The model of lua/include/quotaLog.lua: `duration` is the code of the quota, and an entry ends with its period. */
export class QuotaCounter extends Counter {
  #end(now: number): number {
    return periodAt(quotaOf(this.duration)!, now).end;
  }

  /** Entries of later periods than the next count in the present one from the first call on. */
  override counted(now: number): Admitted[] {
    const end = this.#end(now);
    const next = this.#end(end);
    const moved = this.live.filter((admitted) => admitted.end > next);
    for (const admitted of moved) admitted.end = end;
    if (moved.length > 0) this.#keep(now);
    return this.live.filter((admitted) => admitted.end === end);
  }

  /** Of the periods before the present one, the last is known only. */
  #keep(now: number) {
    const end = this.#end(now);
    const before = Math.max(0, ...this.live.map((admitted) => admitted.end).filter((one) => one < end));
    this.live = this.live.filter((admitted) => admitted.end >= before);
  }

  override charge(now: number, _limit: number, units: number): Admitted | undefined {
    if (units === 0) return undefined;
    this.counted(now);
    const admitted = { units, end: this.#end(now) };
    this.live.push(admitted);
    this.#keep(now);
    return admitted;
  }

  override admittedReset(now: number): number {
    return this.#end(now);
  }

  override deniedReset(now: number): number {
    return this.#end(now);
  }
}
