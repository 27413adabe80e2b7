// A store with many keys, of which some were used in every hour of some months. The usage of earlier days is written to
// Redis in the form of the sweeper, not verified.
import { loadConfig } from '../../dist/config.js';
import { unpackId } from '../../dist/domain/keyString.js';
import { dayMs } from '../../dist/domain/time.js';
import { keysKey, rollupQueueKey, usedKeysKey, workspaceKey } from '../../dist/redis/names.js';
import { outcomesCounted, weekDays } from '../../dist/scripts/layout.js';
import { packDays } from '../../dist/usage/days.js';
import { progress } from './results.mjs';

export const keysPerCustomer = 10;
const { usageHourlyDays } = loadConfig({});
export const today = Math.floor(Date.now() / dayMs);
/**
 * A used key has this many verifications in each hour, each for a credit: keys differ, so that a ranking has an order.
 */
export const perHour = (index) => 1 + (index % 97);
export const customerOf = (index) => `customer_${Math.floor(index / keysPerCustomer)}`;

/**
 * Fills the store: `stored` keys, of which `used` were used on `days` days before today, and today once. Returns the
 * API and their ids.
 */
export async function fillStore(redis, seed, { stored, used, days }) {
  const every = Math.floor(stored / used);
  progress('creating keys');
  const apiId = await seed.createApi({
    count: stored,
    // Keys are used from the first one on, `every` keys apart.
    fieldsOf: (index) =>
      index % every === 0 && index / every < used ? { remaining: 1e12, externalId: customerOf(index / every) } : {},
  });
  progress('writing usage');
  const ids = await usedIds(redis, seed.workspaceId, apiId, { used, every });
  await writeUsage(redis, seed.workspaceId, apiId, ids, { used, days });
  const indices = Array.from({ length: used }, (_, index) => index * every);
  for (let from = 0; from < used; from += 500) await seed.verify(indices.slice(from, from + 500));
  return { apiId, ids };
}

/** The ids (24) of the used keys. Keys are listed in order of creation. */
async function usedIds({ client }, workspaceId, apiId, { used, every }) {
  const list = keysKey(workspaceKey(workspaceId), apiId);
  const ids = [];
  for (let rank = 0; ids.length < used; rank += every) {
    const [member] = await client.zrangeBuffer(list, rank, rank);
    ids.push(unpackId(member) + apiId.slice(-8));
  }
  return ids;
}

const counts = (valid, credits) => [valid, ...Array(outcomesCounted - 1).fill(0), credits];

async function writeUsage({ client }, workspaceId, apiId, ids, { used, days }) {
  const workspace = workspaceKey(workspaceId);
  const api8 = apiId.slice(-8);
  for (const [index, key24] of ids.entries()) {
    const each = perHour(index);
    const packed = Array.from({ length: days }, (_, at) => {
      const day = today - days + at;
      const hours = Array.from({ length: 24 }, (_, hour) => [hour, counts(each, each)]);
      const kept = day >= today - usageHourlyDays ? new Map(hours) : undefined;
      return { day, externalId: customerOf(index), sums: counts(24 * each, 24 * each), hours: kept };
    });
    client.set(`${workspace}:uh:${key24}`, packDays({ rewrites: 1, week: 0 }, packed)).catch(() => {});
    if (index % 500 === 499) await client.ping();
  }
  // The totals of the API, by hour: outcome 1 is VALID.
  const all = ids.reduce((sum, _, index) => sum + perHour(index), 0);
  const hours = Array.from({ length: 24 }, (_, hour) => `${hour}`.padStart(2, '0'));
  const totals = Object.fromEntries(hours.flatMap((hour) => [`${hour}1`, `s${hour}1`].map((field) => [field, all])));
  for (let day = today - days; day < today; day++) await client.hset(`${workspace}:ua:${api8}:${day}`, totals);
  const id16s = ids.map((id) => id.slice(0, 16));
  const lists = Array.from({ length: days }, (_, at) =>
    usedKeysKey(workspace, api8, 'week', weekOf(today - days + at)),
  );
  for (let day = today - usageHourlyDays; day < today; day++) {
    lists.push(usedKeysKey(workspace, api8, 'day', day));
    await client.zadd(rollupQueueKey(workspace), (day + usageHourlyDays + 1) * dayMs, `k${api8}:${day}`);
    await client.hset(`${workspace}:rolled`, `k${api8}:${day}`, used);
  }
  for (const list of new Set(lists)) {
    for (let from = 0; from < used; from += 1000) await client.rpush(list, ...id16s.slice(from, from + 1000));
  }
}

const weekOf = (day) => Math.floor(day / weekDays);
