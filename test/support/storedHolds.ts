// The holds of a key as they are stored (lua/include/holdList.lua), read without the scripts.

import type { RedisClient } from '../../src/redis/connection.ts';

const endBytes = 18;
const released = 2;

/** Bytes of field `holds`, of each bucket, and of the holds; `stated` are those that field `holds` has the sums of. */
export async function storedHolds(redis: RedisClient, record: string | Buffer) {
  const stored = (await redis.hgetBuffer(record, 'holds'))!;
  const end = stored.subarray(stored.length - endBytes);
  const number = end.readUInt16BE(10);
  const isSummed = number >= 2 ** 15;
  const noted = end.readUInt16BE(12);
  const inHead = stored.subarray(noted, stored.length - endBytes);
  const buckets: Buffer[] = isSummed ? [] : [inHead];
  for (let bucket = buckets.length; bucket < number % 2 ** 15; bucket++)
    buckets.push((await redis.hgetBuffer(record, `holds${bucket}`)) ?? Buffer.alloc(0));
  let [openBytes, bytes, count] = [0, 0, 0];
  for (const bucket of buckets) {
    for (let at = 0; at < bucket.length; ) {
      const length = bucket.readUInt16BE(at) + 2;
      bytes += length;
      count += 1;
      if (bucket[at + 2] !== released) openBytes += length;
      at += length;
    }
  }
  const stated = isSummed ? { openBytes: inHead.readUInt32BE(0), bytes: inHead.readUInt32BE(4) } : undefined;
  return {
    head: stored.length,
    buckets: buckets.map(({ length }) => length),
    openBytes,
    bytes,
    count,
    isSummed,
    stated,
  };
}
