// The keys that were used in a period: the lists of used keys of each day that the sweeper has not dropped yet, and
// those of weeks for earlier days. So a query costs what the keys used cost, and not what the stored keys cost.

import { orStoreError } from '../redis/connection.ts';
import { rollupQueueKey, usedKeysKey, workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { weekDays } from '../scripts/layout.ts';
import { membersOf, readAll } from './commands.ts';
import { type Period, readsMax, tooManyKeys, tooMuch } from './query.ts';

/** Limit of the keys of a query: some seconds of the server's time. */
const keysMax = 250_000;
/** Limit of the entries of lists that a query reads. A key has one for each day or week. */
const entriesMax = 5_000_000;
/** Entries that one script reads: about a millisecond. */
const entriesStep = 4000;
const idBytes = 16;

interface List {
  api8: string;
  kind: 'day' | 'week';
  /** Since 1970. */
  number: number;
}

/**
 * The keys (without `key_`) of these APIs (last 8 of the id) that were used in a period, and maybe some that were not.
 */
export async function usedKeys(
  context: StoreContext,
  workspaceId: string,
  api8s: readonly string[],
  { fromHour, toHour }: Period,
  today: number,
): Promise<string[]> {
  const keys = new UsedKeys();
  const firstDay = Math.floor(fromHour / 24);
  const lastDay = Math.floor((toHour - 1) / 24);
  const read = reader(context, workspaceId, keys);
  // Days before weeks: a key that is moved meanwhile is in the list that is read later.
  const days = await dayLists(context, workspaceId, new Set(api8s), firstDay, lastDay);
  const complete = await read(days);
  const hasList = new Set(days.filter((_, index) => complete[index]).map(({ api8, number }) => `${api8}${number}`));
  const weeks: List[] = [];
  for (const api8 of api8s) {
    const numbers = new Set<number>();
    // The list of a day is dropped at the end of the next day at the earliest.
    for (let day = firstDay; day <= Math.min(lastDay, today - 2); day++) {
      if (!hasList.has(`${api8}${day}`)) numbers.add(Math.floor(day / weekDays));
    }
    for (const week of numbers) weeks.push({ api8, kind: 'week', number: week });
    if (weeks.length > readsMax) throw tooMuch();
  }
  await read(weeks);
  return keys.all();
}

/** Different keys by their API. A key is in the lists of many days. */
class UsedKeys {
  readonly #idsByApi = new Map<string, Set<string>>();
  #count = 0;

  /** Adds the keys of an API, the first 16 characters of their ids one after the other. */
  add(api8: string, id16s: string) {
    const ids = this.#idsByApi.get(api8) ?? new Set<string>();
    this.#idsByApi.set(api8, ids);
    const before = ids.size;
    for (let at = 0; at < id16s.length; at += idBytes) {
      const id16 = id16s.slice(at, at + idBytes);
      // A copy: the slice would keep the whole page in memory.
      if (!ids.has(id16)) ids.add(Buffer.from(id16, 'latin1').toString('latin1'));
    }
    this.#count += ids.size - before;
    if (this.#count > keysMax) throw tooManyKeys(keysMax);
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
  firstDay: number,
  lastDay: number,
): Promise<List[]> {
  const queue = rollupQueueKey(workspaceKey(workspaceId));
  if ((await orStoreError(redis.zcard(queue))) > readsMax) throw tooMuch();
  const lists = new Map<string, List>();
  for await (const member of membersOf(redis, queue)) {
    const text = member.toString('latin1');
    const api8 = text.slice(1, 9);
    const day = Number(text.slice(10));
    if (text[0] === 'k' && api8s.has(api8) && day >= firstDay && day <= lastDay) {
      lists.set(text, { api8, kind: 'day', number: day });
    }
  }
  return [...lists.values()];
}

/** Returns a function that adds the keys of lists, and returns for each whether it was read to its end. */
function reader({ redis, run }: StoreContext, workspaceId: string, keys: UsedKeys) {
  const workspace = workspaceKey(workspaceId);
  let entries = 0;
  return async (lists: readonly List[]): Promise<boolean[]> => {
    const lengths = await readAll<List, number>(redis, lists, (commands, { api8, kind, number }) =>
      commands.llen(usedKeysKey(workspace, api8, kind, number)),
    );
    const complete: boolean[] = [];
    for (const [index, { api8, kind, number }] of lists.entries()) {
      const length = lengths[index]!;
      entries += length;
      if (entries > entriesMax) throw tooMuch();
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
    return complete;
  };
}
