// The keys that were used in a period: the lists of used keys of each day that the sweeper has not dropped yet, and
// those of weeks for earlier days. So a query costs what the keys used cost, and not what the stored keys cost.

import { orStoreError } from '../redis/connection.ts';
import { rollupQueueKey, usedKeysKey, workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { weekDays } from '../scripts/layout.ts';
import { membersOf, readAll } from './commands.ts';
import { type KeptPeriod, readsMax, tooMuch } from './query.ts';
import { isSummed } from './summed.ts';

/** Entries that one script reads: about a millisecond. */
const entriesStep = 4000;
const idBytes = 16;

interface List {
  api8: string;
  kind: 'day' | 'week';
  /** Since 1970. */
  number: number;
}

interface Wanted {
  period: KeptPeriod;
  today: number;
  /** Refuse the query if the keys are more than those that are in memory at a time. */
  bounded?: boolean | undefined;
}

/**
 * The keys (without `key_`) of these APIs (last 8 of the id) that were used in a period, and maybe some that were not;
 * in parts, each key in one. `entries` is called with the number of entries of the lists.
 */
export async function* usedKeys(
  context: StoreContext,
  workspaceId: string,
  api8s: readonly string[],
  wanted: Wanted,
  entries?: (count: number) => void,
): AsyncGenerator<string[]> {
  // The keys are in as many parts as their numbers allow, which is known when they have been read.
  const parts: Part[] = [{ of: 1, number: 0 }];
  for (let part = parts.pop(); part; part = parts.pop()) {
    // More are found in several passes over the lists.
    const keys = new UsedKeys(part, context.usageBounds.keys, (rest) => {
      if (wanted.bounded) throw tooMuch();
      parts.push(rest);
    });
    const found = await readPart(context, workspaceId, api8s, wanted, keys);
    if (part.of === 1) entries?.(found);
    yield keys.all();
  }
}

/** Reads all lists. Resolves to the number of their entries. */
async function readPart(
  context: StoreContext,
  workspaceId: string,
  api8s: readonly string[],
  { period, today }: Wanted,
  keys: UsedKeys,
): Promise<number> {
  const firstDay = Math.floor(period.fromHour / 24);
  const lastDay = Math.floor((period.toHour - 1) / 24);
  const isWanted = (day: number) => day >= firstDay && day <= lastDay && !isSummed(period, day);
  const read = reader(context, workspaceId, keys);
  // Days before weeks: a key that is moved meanwhile is in the list that is read later.
  const days = await dayLists(context, workspaceId, new Set(api8s), isWanted);
  const ofDays = await read(days);
  // A list of an earlier day was dropped, and has only what was counted late since.
  const firstWhole = today - context.usageHourlyDays;
  const whole = days.filter(({ number }, index) => ofDays.complete[index] && number >= firstWhole);
  const hasList = new Set(whole.map(({ api8, number }) => `${api8}${number}`));
  const weeks: List[] = [];
  for (const api8 of api8s) {
    const numbers = new Set<number>();
    // The list of a day is dropped at the end of the next day at the earliest.
    for (let day = firstDay; day <= Math.min(lastDay, today - 2); day++) {
      if (isWanted(day) && !hasList.has(`${api8}${day}`)) numbers.add(Math.floor(day / weekDays));
    }
    for (const week of numbers) weeks.push({ api8, kind: 'week', number: week });
    if (weeks.length > readsMax) throw tooMuch();
  }
  return ofDays.entries + (await read(weeks)).entries;
}

/** The keys whose hash has this remainder: `number` of `of` parts. */
interface Part {
  of: number;
  number: number;
}

/** A hash of the last characters of an id (16), which differ most. */
function hashAt(id16s: string, at: number): number {
  let hash = 0;
  for (let index = at + 10; index < at + idBytes; index++) hash = (Math.imul(hash, 31) + id16s.charCodeAt(index)) >>> 0;
  return hash;
}

/** Different keys of a part by their API. A key is in the lists of many days. */
class UsedKeys {
  readonly #idsByApi = new Map<string, Set<string>>();
  #part: Part;
  #count = 0;
  readonly #max: number;
  readonly #leave: (rest: Part) => void;

  /** `leave` is called with a part that is left out, because there are too many keys. */
  constructor(part: Part, max: number, leave: (rest: Part) => void) {
    this.#part = part;
    this.#max = max;
    this.#leave = leave;
  }

  /** Adds the keys of an API, the first 16 characters of their ids one after the other. */
  add(api8: string, id16s: string) {
    const ids = this.#idsByApi.get(api8) ?? new Set<string>();
    this.#idsByApi.set(api8, ids);
    const before = ids.size;
    for (let at = 0; at < id16s.length; at += idBytes) {
      if (this.#part.of > 1 && !this.#has(id16s, at)) continue;
      const id16 = id16s.slice(at, at + idBytes);
      // A copy: the slice would keep the whole page in memory.
      if (!ids.has(id16)) ids.add(Buffer.from(id16, 'latin1').toString('latin1'));
    }
    this.#count += ids.size - before;
    while (this.#count > this.#max) this.#halve();
  }

  #has = (id16s: string, at: number): boolean => hashAt(id16s, at) % this.#part.of === this.#part.number;

  #halve() {
    const { of, number } = this.#part;
    this.#leave({ of: 2 * of, number: number + of });
    this.#part = { of: 2 * of, number };
    this.#count = 0;
    for (const ids of this.#idsByApi.values()) {
      for (const id16 of ids) if (!this.#has(id16, 0)) ids.delete(id16);
      this.#count += ids.size;
    }
  }

  all(): string[] {
    return [...this.#idsByApi].flatMap(([api8, ids]) => Array.from(ids, (id16) => id16 + api8));
  }
}

/** The lists of days that exist: each is in the queue of what is rolled up. */
async function dayLists(
  { redis }: StoreContext,
  workspaceId: string,
  api8s: ReadonlySet<string>,
  isWanted: (day: number) => boolean,
): Promise<List[]> {
  const queue = rollupQueueKey(workspaceKey(workspaceId));
  if ((await orStoreError(redis.zcard(queue))) > readsMax) throw tooMuch();
  const lists = new Map<string, List>();
  for await (const member of membersOf(redis, queue)) {
    const text = member.toString('latin1');
    const api8 = text.slice(1, 9);
    const day = Number(text.slice(10));
    if (text[0] === 'k' && api8s.has(api8) && isWanted(day)) {
      lists.set(text, { api8, kind: 'day', number: day });
    }
  }
  return [...lists.values()];
}

/**
 * Returns a function that adds the keys of lists, and returns the number of entries, and for each list whether it was
 * read to its end.
 */
function reader({ redis, run }: StoreContext, workspaceId: string, keys: UsedKeys) {
  const workspace = workspaceKey(workspaceId);
  return async (lists: readonly List[]): Promise<{ entries: number; complete: boolean[] }> => {
    let entries = 0;
    const lengths = await readAll<List, number>(redis, lists, (commands, { api8, kind, number }) =>
      commands.llen(usedKeysKey(workspace, api8, kind, number)),
    );
    const complete: boolean[] = [];
    for (const [index, { api8, kind, number }] of lists.entries()) {
      const length = lengths[index]!;
      entries += length;
      const readFrom = (found: number) =>
        run('analytics/used', workspaceId, { api8, kind, number, first: found, count: entriesStep });
      let found = 0;
      let reading = length > 0 ? readFrom(0) : undefined;
      while (reading) {
        const page: string = await reading;
        found += page.length / idBytes;
        // The next page is read while this one is added.
        reading = page !== '' && found < length ? readFrom(found) : undefined;
        reading?.catch(() => {});
        keys.add(api8, page);
      }
      complete.push(length > 0 && found >= length);
    }
    return { entries, complete };
  };
}
