// Rankings of keys and identities. A pass reads the usage of all keys that were used in a period, or for identities the
// sums by customer (customers.ts); of any number, within a bound of memory. It keeps bounds: the largest sums, and one
// that no other sum exceeds. The next ranking of such a period reads the totals of the APIs, which are few: they state
// how many verifications were counted since, and no sum has grown by more. So it reads only the keys, or the keys of
// the identities, whose bound reaches the ranking. When these are too many, or the bounds are of another period, it is
// a pass again.
//
// So every sum that is returned was read by the query itself. The bounds only decide what is not read.
// They hold because a script that counts a verification of a key counts it for the API too. Deleting keys, or moving
// usage to the days of a key, changes no sum. A Redis that lost writes may have lower totals than before: the bounds
// are dropped with its connection, and after an hour.

import { digestOf } from '../domain/keyString.ts';
import { hourMs } from '../domain/time.ts';
import { outcomes } from '../domain/verification.ts';
import type { RedisClient } from '../redis/connection.ts';
import type { StoreContext } from '../scripts/context.ts';
import { countedOutcomes, spentPlace } from '../scripts/layout.ts';
import { windowOf } from './customers.ts';
import { type Counts, noCounts } from './days.ts';
import { byOutcome, countKeys, keysOfIdentities, type Sum } from './histories.ts';
import { daysIn, type Period, type UsageScope } from './query.ts';
import { addUsage, Largest, order, type Place, type RankedBy, Ranking, type TopRow } from './ranking.ts';
import { Steps } from './steps.ts';
import { summedDays } from './summed.ts';
import { countByApi } from './totals.ts';
import { usedKeys } from './used.ts';
import { CustomerWindow } from './window.ts';

type RankedOf = 'keys' | 'identities';
const kinds: readonly RankedOf[] = ['keys', 'identities'];
const numbers: readonly RankedBy[] = ['count', 'refused', 'spentCredits'];

export interface RankQuery extends UsageScope {
  of: RankedOf;
  by: RankedBy;
  limit: number;
  /** The length of the period that was asked for, in hours. */
  hours: number;
}

/** The largest sums of which the names are kept. */
const namedMax = 1000;
/** The names that the first step of a ranking reads. Each further step reads twice as many. */
const firstStep = 50;
/** Limit of the keys that a step reads. With more, a pass is not much longer. */
const stepKeysMax = 5000;
/** Limit of the totals of a day of an API: with more, reading them takes as long as the keys. */
const totalsMax = 1000;
const keptMaxMs = hourMs;
/** Limit of the memory of all bounds, in bytes. */
const keptMax = 16 * 2 ** 20;
/** Bytes of an entry, besides its name. */
const entryBytes = 200;

/** The largest keys or identities by each number. */
class Leaders {
  readonly by: Record<RankedBy, Largest<TopRow>> = {
    count: new Largest(namedMax),
    refused: new Largest(namedMax),
    spentCredits: new Largest(namedMax),
  };

  add(name: string, fields: Pick<TopRow, 'apiId' | 'keyId' | 'externalId'>, counts: Counts) {
    let [count, refused] = [0, 0];
    for (const number of countedOutcomes) {
      count += counts[number - 1]!;
      if (outcomes[number - 1] !== 'VALID') refused += counts[number - 1]!;
    }
    const row = { ...fields, count, refused, spentCredits: counts[spentPlace]! };
    for (const by of numbers) this.by[by].add(name, row[by], row);
  }

  /** Ends the ranking: nothing is added any more. */
  end(): this {
    for (const by of numbers) this.by[by].cut();
    return this;
  }
}

type Sums = Record<RankedBy, number>;
/** Totals of all keys, by day. */
type Totals = ReadonlyMap<number, Sums>;

/** The bounds that a pass found. */
interface Standings {
  period: Period;
  /** The totals of the APIs in this period, read before the keys. */
  totals: Totals;
  /** Missing if there were too many names. */
  leaders: Partial<Record<RankedOf, Leaders>>;
  atMs: number;
  bytes: number;
}

/** Returns a function that ranks keys or identities by their verifications. */
export function openRankings({ redis }: StoreContext) {
  const kept = new Kept(redis);
  const passes = new Map<string, Promise<TopRow[]>>();

  return async function rank(query: RankQuery): Promise<TopRow[]> {
    const { workspaceId, apiIds, of, period } = query;
    const id = `${workspaceId} ${lengthOf(query)} ${digestOf(apiIds.join()).toString('base64url')}`;
    // Several rankings of a period are often asked for together, and one pass serves all of them.
    for (let times = 0; times < 2; times++) {
      const running = passes.get(id);
      if (running) await running.catch(() => {});
      const standings = kept.get(`${of} ${id}`, period);
      const top = standings && (await rankFrom(query, standings));
      if (top) return top;
      if (!passes.has(id)) break;
    }
    const { connection } = kept;
    const pass = rankAll(query, (found) => {
      if (connection !== kept.connection) return;
      for (const kind of kinds) if (found.leaders[kind]) kept.set(`${kind} ${id}`, found);
    });
    passes.set(id, pass);
    return pass.finally(() => passes.get(id) === pass && passes.delete(id));
  };
}

/**
 * Periods of a length that end now need the same bounds. Any other, such as a month, has bounds of its own: it may be
 * as long as the last 30 days, and each would replace those of the other.
 */
function lengthOf({ hours, period: { toHour }, nowMs }: RankQuery): string {
  const nowHour = Math.floor(nowMs / hourMs);
  const endsNow = toHour > nowHour && toHour <= nowHour + 24;
  return endsNow ? `${hours}` : `${hours}-${toHour}`;
}

/** The bounds of recent passes. */
class Kept {
  readonly #standings = new Map<string, Standings>();
  #bytes = 0;
  /** Counts the times that the connection was lost. */
  connection = 0;

  constructor(redis: RedisClient) {
    const clear = () => {
      this.connection++;
      this.#standings.clear();
      this.#bytes = 0;
    };
    // In a Cluster each node has a connection.
    for (const event of ['close', '+node', '-node']) redis.on(event, clear);
  }

  /** Bounds of a period that contains this one, except for its end. */
  get(id: string, { fromHour, toHour }: Period): Standings | undefined {
    const found = this.#standings.get(id);
    if (!found || performance.now() - found.atMs > keptMaxMs) return undefined;
    return found.period.fromHour <= fromHour && found.period.toHour <= toHour ? found : undefined;
  }

  set(id: string, standings: Standings) {
    this.#delete(id);
    this.#standings.set(id, standings);
    this.#bytes += standings.bytes;
    for (const oldest of this.#standings.keys()) {
      if (this.#bytes <= keptMax) break;
      this.#delete(oldest);
    }
  }

  #delete(id: string) {
    this.#bytes -= this.#standings.get(id)?.bytes ?? 0;
    this.#standings.delete(id);
  }
}

/** Ranks by reading everything. `keep` receives the bounds that were found. */
async function rankAll(query: RankQuery, keep: (found: Standings) => void): Promise<TopRow[]> {
  const { apiIds, of, by, limit, period } = query;
  const isKept = apiIds.length * daysIn(period).length <= totalsMax;
  // Before the keys: what is counted meanwhile counts as an increase.
  const totals = isKept ? await totalsOf(query) : undefined;
  const isSummed = await summedDays(query);
  let leaders: Standings['leaders'] = {};
  // Without sums, a pass of the keys also has the customers, unless they are too many.
  if (of === 'keys' || !isSummed) leaders = await rankKeys(query);
  if (!leaders[of]) leaders = { identities: await rankCustomers(query) };
  if (totals) keep(standingsOf(period, totals, leaders));
  return leaders[of]!.by[by].entries.slice(0, limit).map(({ row }) => row);
}

/** Ranks all keys, and all customers if these fit in memory. */
async function rankKeys(scope: UsageScope): Promise<Standings['leaders']> {
  const keys = new Leaders();
  const window = new CustomerWindow(undefined, scope.context.usageBounds.customers);
  const key = { apiId: '', keyId: '', counts: noCounts() };
  const endKey = () => {
    if (key.keyId !== '') keys.add(key.keyId, { apiId: key.apiId, keyId: key.keyId }, key.counts);
    key.counts.fill(0);
  };
  // A key that changed its identity is visited several times, one after the other.
  const visit = ({ apiId, keyId, externalId, counts }: Sum) => {
    if (keyId !== key.keyId) endKey();
    Object.assign(key, { apiId, keyId });
    for (const [place, count] of counts.entries()) key.counts[place]! += count;
    window.add(externalId, counts);
  };
  for await (const some of usedKeys(scope)) await countKeys(scope, some, visit, () => window.settle());
  endKey();
  if (window.upTo !== undefined) return { keys: keys.end() };
  const identities = new Leaders();
  await addCustomers(identities, window);
  return { keys: keys.end(), identities: identities.end() };
}

/** Ranks all customers, as many at a time as fit in memory. */
async function rankCustomers(scope: UsageScope): Promise<Leaders> {
  const leaders = new Leaders();
  let after: string | undefined;
  do {
    const window = await windowOf(scope, after);
    await addCustomers(leaders, window);
    after = window.upTo;
  } while (after !== undefined);
  return leaders.end();
}

async function addCustomers(leaders: Leaders, window: CustomerWindow) {
  const steps = new Steps();
  for (const { externalId, counts } of window.all()) {
    if (externalId !== '') leaders.add(externalId, { externalId }, counts);
    if (steps.isOver) await steps.next();
  }
}

function standingsOf(period: Period, totals: Totals, leaders: Standings['leaders']): Standings {
  let bytes = 0;
  for (const of of kinds) {
    for (const by of numbers) {
      for (const { name } of leaders[of]?.by[by].entries ?? []) bytes += name.length + entryBytes;
    }
  }
  return { period, totals, leaders, atMs: performance.now(), bytes };
}

/** Ranks by reading only what can be among the first. Undefined if that is too much. */
async function rankFrom(query: RankQuery, standings: Standings): Promise<TopRow[] | undefined> {
  const { of, by, limit, period } = query;
  const { totals, leaders } = standings;
  const { entries, bound } = leaders[of]?.by[by] ?? {};
  if (!entries || !bound) return undefined;
  // Includes counts in this period that are not in that of the bounds.
  const now = await totalsOf({ ...query, period: { ...period, fromHour: standings.period.fromHour } });
  const increase = increaseOf(now, totals, by);
  // A pass is likely anyway: before anything is read for nothing.
  if (increase > 0 && (entries[limit - 1]?.sum ?? 0) <= bound.sum + increase) return undefined;
  const ranking = new Ranking();
  for (let at = 0, step = firstStep; ; at += step, step *= 2) {
    const top = ranking.top(limit, by);
    if (isDecided(top, query, entries[at] ?? bound, increase)) return top;
    const names = entries.slice(at, at + step).map(({ name }) => name);
    if (names.length === 0 || !(await readNamed(query, names, ranking))) return undefined;
  }
}

/** Whether no place from `next` on, each with this increase, precedes the last one of a ranking. */
function isDecided(top: readonly TopRow[], { of, by, limit }: RankQuery, next: Place, increase: number): boolean {
  const bound = { name: next.name, sum: next.sum + increase };
  if (bound.sum === 0) return true;
  const last = top[limit - 1];
  if (!last) return false;
  const name = (of === 'keys' ? last.keyId : last.externalId)!;
  return order({ name, sum: last[by] ?? 0 }, bound) < 0;
}

/** Adds the sums of these keys or identities to a ranking. Returns false if that is too much. */
async function readNamed(query: RankQuery, names: readonly string[], ranking: Ranking): Promise<boolean> {
  const { of } = query;
  const named = new Set(names);
  const keys = of === 'keys' ? names.map((keyId) => keyId.slice('key_'.length)) : [];
  if (of === 'identities') {
    const found = await keysOfIdentities(query, names, stepKeysMax);
    if (!found) return false;
    keys.push(...found);
  }
  const visit = byOutcome((usage) => {
    if (of === 'keys' || named.has(usage.externalId!)) addUsage(ranking, of, usage);
  }, query.period);
  await countKeys(query, keys, visit);
  return true;
}

/** The totals of APIs by day. */
async function totalsOf(scope: UsageScope): Promise<Totals> {
  const totals = new Map<number, Sums>();
  await countByApi(scope, ({ hour, outcome, count, spentCredits }) => {
    const day = Math.floor(hour / 24);
    const sums = totals.get(day) ?? { count: 0, refused: 0, spentCredits: 0 };
    totals.set(day, sums);
    sums.count += count;
    if (outcome !== 'VALID') sums.refused += count;
    sums.spentCredits += spentCredits;
  });
  return totals;
}

/** By how much totals have increased. Totals of a day that is no longer kept count as unchanged. */
function increaseOf(now: Totals, before: Totals, by: RankedBy): number {
  let increase = 0;
  for (const [day, sums] of now) increase += Math.max(0, sums[by] - (before.get(day)?.[by] ?? 0));
  return increase;
}
