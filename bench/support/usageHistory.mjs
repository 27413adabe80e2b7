// The bytes of Redis for the usage of keys that are used in every hour, written by the real scripts under a clock of
// its own.
import { dayMs, hourMs } from '../../dist/domain/time.js';
import { openSeed } from './seed.mjs';

/** What is counted in each hour of a key. */
export const histories = [
  { what: 'all `VALID`', fieldsOf: () => ({}), requests: [{}] },
  {
    what: '`VALID`, with credits and an externalId',
    fieldsOf: (index) => ({ remaining: 1e12, externalId: `user_${index}` }),
    requests: [{ cost: 3 }, { cost: 3 }],
  },
  {
    what: 'several outcomes, credits and an externalId',
    fieldsOf: (index) => ({
      remaining: 1e12,
      externalId: `user_${index}`,
      ratelimits: [{ name: 'requests', limit: 2, duration: hourMs, autoApply: true }],
    }),
    // VALID, RATE_LIMITED, USAGE_EXCEEDED and INSUFFICIENT_PERMISSIONS.
    requests: [{ cost: 3 }, { cost: 3 }, { cost: 3 }, { cost: 1e13 }, { query: 'not.held' }],
  },
];

/** Bytes per key after `days` days, beyond those of a key that was used once, without recent refusals. */
export async function historyBytes(redis, { fieldsOf, requests }, { count, days, usedBytes }) {
  await redis.client.flushall('SYNC');
  let nowMs = Math.floor(Date.now() / dayMs) * dayMs - days * dayMs;
  const seed = await openSeed(redis, { nowMs: () => nowMs });
  await seed.createApi({ count, fieldsOf });
  const useAll = async () => {
    for (const extras of requests) {
      for (let from = 0; from < count; from += 500) {
        const indices = Array.from({ length: Math.min(500, count - from) }, (_, offset) => from + offset);
        await seed.use(indices, extras);
      }
    }
  };
  await useAll();
  const before = await usedBytes(redis);
  for (let hour = 1; hour < 24 * days; hour++) {
    nowMs += hourMs;
    await useAll();
    // The sweeper begins an hour and ten minutes after the end of a day.
    if (hour % 24 === 3) await seed.rollUp();
  }
  // Recent refusals are no usage, and Redis's own clock, by which their rows of earlier hours expire, has not moved.
  for (const rows of await redis.client.keys('tg:*:rh:*')) await redis.client.unlink(rows);
  const bytes = ((await usedBytes(redis)) - before) / count;
  await seed.close();
  return bytes;
}
