// A unit of time for limits of processor time: that of a fixed work, a millisecond on an idle machine. What else the
// machine does makes that work slower, too, even in processor time, as processors share caches and their cores.

import type { Rig } from './rig.ts';

/** Packs and unpacks 26,000 structures: ten units. */
const script = `
for round = 1, 1300 do
  local packed = {}
  for index = 1, 20 do packed[index] = struct.pack('>I6I7', round * index, index) end
  local text, sum = table.concat(packed), 0
  for position = 1, #text, 13 do
    local product, factor = struct.unpack('>I6I7', text, position)
    sum = sum + product + factor
  end
end`;

/** A unit in Redis, in milliseconds of its processor time. */
export async function redisUnitMs({ redis, admin }: Pick<Rig, 'redis' | 'admin'>): Promise<number> {
  let leastUs = Number.POSITIVE_INFINITY;
  for (let run = 0; run < 3; run++) {
    const before = redis.cpuUs();
    await admin.eval(script, 0);
    leastUs = Math.min(leastUs, redis.cpuUs() - before);
  }
  return leastUs / 10 / 1000;
}

/** A time in units. It is measured only for a time that would be too long on an idle machine. */
export async function inUnits(ms: number, most: number, unitMs: () => Promise<number>): Promise<number> {
  return ms <= most ? ms : ms / (await unitMs());
}
