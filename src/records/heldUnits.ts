// The units and credits that open holds of a key hold (lua/include/heldUnits.lua), read in steps.

import type { Ratelimit, UsedSlices } from '../domain/limit.ts';
import { quotaCodes, storedDuration } from '../domain/quota.ts';
import type { HeldUnits, Run } from '../scripts/calls.ts';
import { creditsOf, type KeyRecord } from './records.ts';

export interface Held {
  credits: number;
  /** The part that the balance of the key gets back when the holds expire. */
  returned: number;
  /** `sliceEnd`: of the slice of the key's window that gets the units back then; 0 for none. */
  units: { name: string; duration: number; sliceEnd: number; cost: number }[];
}

/** Reads the steps that follow the first one. */
export async function allHeld(run: Run, workspaceId: string, digest: Buffer, first: HeldUnits): Promise<Held> {
  const held: Held = { credits: 0, returned: 0, units: [] };
  for (let step: HeldUnits | null = first; step; ) {
    const [credits, returned, units, bucket]: HeldUnits = step;
    held.credits += Number(credits);
    held.returned += Number(returned);
    for (const [name, duration, sliceEnd, cost] of units)
      held.units.push({ name, duration: Number(duration), sliceEnd: Number(sliceEnd), cost: Number(cost) });
    step = bucket === '' ? null : await run('holds/units', workspaceId, { digest, bucket });
  }
  return held;
}

/** The units by the name of a limit, in order of the names. */
export function heldByName({ units }: Held): { name: string; cost: number }[] {
  const sums = new Map<string, number>();
  for (const { name, cost } of units) sums.set(name, (sums.get(name) ?? 0) + cost);
  return [...sums].map(([name, cost]) => ({ name, cost })).sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** A key without its holds: its balance and its windows have got back what they get back when the holds expire. */
export function withoutHolds<Key extends Pick<KeyRecord, 'credits' | 'ratelimits'> & { used: UsedByLimit }>(
  key: Key,
  held: Held,
): Key {
  const { credits } = key;
  const balance = Math.min((credits?.remaining ?? 0) - (credits?.debt ?? 0) + held.returned, Number.MAX_SAFE_INTEGER);
  return {
    ...key,
    ...(credits && { credits: { ...credits, debt: undefined, ...creditsOf(balance) } }),
    used: withoutHeld(held, key.ratelimits ?? [], key.used),
  };
}

type UsedByLimit = ReadonlyMap<number, UsedSlices>;

/** After a step back of the clock, a later slice may have the units (window_returns.without). */
function withoutHeld({ units }: Held, limits: readonly Ratelimit[], used: UsedByLimit): UsedByLimit {
  const left = new Map([...used].map(([index, slices]) => [index, slices.map(([end, count]) => ({ end, count }))]));
  for (const { name, duration, sliceEnd, cost } of units) {
    const index = limits.findIndex((limit) => limit.name === name && storedDuration(limit) === duration);
    const length = duration < quotaCodes ? Math.floor(duration / 64) : 1;
    let returned = sliceEnd > 0 ? cost : 0;
    for (const slice of left.get(index) ?? []) {
      if (slice.end < sliceEnd || slice.end >= sliceEnd + length) continue;
      const taken = Math.min(returned, slice.count);
      slice.count -= taken;
      returned -= taken;
    }
  }
  const kept = [...left].map(([index, slices]): [number, UsedSlices] => [
    index,
    slices.flatMap(({ end, count }) => (count > 0 ? [[end, count]] : [])),
  ]);
  return new Map(kept.filter(([, slices]) => slices.length > 0));
}
