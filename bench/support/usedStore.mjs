// A store with many keys, of which some were used in every hour of some months. The usage of earlier days is imported,
// not verified.
import { loadConfig } from '../../dist/config.js';
import { unpackId } from '../../dist/domain/keyString.js';
import { dayMs } from '../../dist/domain/time.js';
import { keysKey, workspaceKey } from '../../dist/redis/names.js';
import { countPlaces, spentPlace } from '../../dist/scripts/layout.js';
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
  await writeUsage(seed, redis, apiId, ids, { used, days });
  // The import lists the keys of yesterday as not rolled up.
  await seed.rollUp();
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

const counts = (valid, credits) =>
  Array.from({ length: countPlaces }, (_, place) => (place === 0 ? valid : place === spentPlace ? credits : 0));

async function writeUsage(seed, { client }, apiId, ids, { used, days }) {
  const workspace = workspaceKey(seed.workspaceId);
  const api8 = apiId.slice(-8);
  const usageOf = (index) =>
    Array.from({ length: days }, (_, at) => {
      const each = perHour(index);
      const day = today - days + at;
      const hours = Array.from({ length: 24 }, (_, hour) => [hour, counts(each, each)]);
      const kept = day >= today - usageHourlyDays ? new Map(hours) : undefined;
      return { day, externalId: customerOf(index), sums: counts(24 * each, 24 * each), hours: kept };
    });
  for (let from = 0; from < used; from += 500) {
    const some = ids.slice(from, from + 500);
    const keys = some.map((key24, at) => ({ keyId: `key_${key24}`, part: 1, days: usageOf(from + at) }));
    await seed.store.usageImport.keys(seed.workspaceId, api8, keys, false);
  }
  // The totals of the API, by hour: outcome 1 is VALID.
  const all = ids.reduce((sum, _, index) => sum + perHour(index), 0);
  const hours = Array.from({ length: 24 }, (_, hour) => `${hour}`.padStart(2, '0'));
  const totals = Object.fromEntries(hours.flatMap((hour) => [`${hour}1`, `s${hour}1`].map((field) => [field, all])));
  for (let day = today - days; day < today; day++) await client.hset(`${workspace}:ua:${api8}:${day}`, totals);
}
