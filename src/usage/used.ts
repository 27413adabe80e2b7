// The keys that were used in a period: the lists of used keys of each day that the sweeper has not dropped yet, and
// those of weeks for earlier days. So a query costs what the keys used cost, and not what the stored keys cost.

import { rollupQueueKey, usedKeysKey, workspaceKey } from '../redis/names.ts';
import { weekDays } from '../scripts/layout.ts';
import { membersOf, readAll } from './commands.ts';
import { Ordered } from './ordered.ts';
import { api8sOf, readsMax, todayOf, tooMuch, type UsageScope } from './query.ts';
import { Steps } from './steps.ts';
import { isSummed } from './summed.ts';

/** Entries that one script reads: about half a millisecond. */
const entriesStep = 2000;
const idBytes = 16;

interface List {
  api8: string;
  kind: 'day' | 'week';
  /** Since 1970. */
  number: number;
}

interface Options {
  /** Refuse the query if the keys are more than those that are in memory at a time. */
  bounded?: boolean | undefined;
  /** Reports how many list entries the period has. */
  entries?(count: number): void;
}

/**
 * The keys (without `key_`) that were used in a period, and maybe some that were not; some at a time, each key once,
 * and in order within its API, so that a script finds them next to each other (lua/analytics/keys.lua).
 */
export async function* usedKeys(scope: UsageScope, { bounded, entries }: Options = {}): AsyncGenerator<string[]> {
  // More keys than are in memory at a time are found in several passes over the lists.
  for (let after: string | undefined = ''; after !== undefined; ) {
    const keys: UsedKeys = new UsedKeys(after, scope.context.usageBounds.keys);
    const found = await readPart(scope, keys, bounded);
    if (after === '') entries?.(found);
    yield* keys.inOrder();
    after = keys.upTo;
  }
}

/** Reads all lists. Resolves to the number of their entries. */
async function readPart(scope: UsageScope, keys: UsedKeys, bounded?: boolean): Promise<number> {
  const { context, period } = scope;
  const api8s = api8sOf(scope);
  const today = todayOf(scope);
  const firstDay = Math.floor(period.fromHour / 24);
  const lastDay = Math.floor((period.toHour - 1) / 24);
  const isWanted = (day: number) => day >= firstDay && day <= lastDay && !isSummed(period, day);
  const read = reader(scope, keys, bounded);
  // Days before weeks: a key that is moved meanwhile is in the list that is read later.
  const days = await dayLists(scope, new Set(api8s), isWanted);
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

/** Keys that are read at a time. */
const keysStep = 5000;

/**
 * Different keys by the last 8 characters of their API's id, then by the first 16 of theirs: the first ones after such
 * a place. A key is in the lists of many days.
 */
class UsedKeys {
  /** The place up to which it has all keys; undefined for all. */
  upTo: string | undefined;
  readonly #after: string;
  readonly #max: number;
  readonly #places = new Ordered<true>();
  readonly #steps = new Steps();

  constructor(after: string, max: number) {
    this.#after = after;
    this.#max = max;
  }

  /** Whether it may have keys of an API. */
  takes(api8: string): boolean {
    return api8 >= this.#after.slice(0, api8.length) && (this.upTo === undefined || api8 <= this.upTo);
  }

  /** Adds the keys of an API, the first 16 characters of their ids one after the other. */
  async add(api8: string, id16s: Buffer) {
    const bytes = Buffer.from(api8.padEnd(api8.length + idBytes), 'latin1');
    for (let at = 0; at < id16s.length; at += idBytes) {
      id16s.copy(bytes, api8.length, at, at + idBytes);
      const place = bytes.toString('latin1');
      if (place <= this.#after || (this.upTo !== undefined && place > this.upTo)) continue;
      this.#places.getOrAdd(place, () => true);
      if (this.#steps.isOver) await this.#steps.next();
    }
    while (this.#places.size > this.#max) {
      this.#places.removeLast();
      this.upTo = this.#places.last();
    }
  }

  /** All keys (without `key_`) in order, some at a time. */
  async *inOrder(): AsyncGenerator<string[]> {
    let some: string[] = [];
    for (const places of this.#places.after(undefined)) {
      for (const place of places) some.push(place.slice(-idBytes) + place.slice(0, -idBytes));
      if (this.#steps.isOver) await this.#steps.next();
      if (some.length < keysStep) continue;
      yield some;
      some = [];
    }
    yield some;
  }
}

/** The lists of days that exist: each is in the queue of what is rolled up. */
async function dayLists(
  { context: { redis }, workspaceId }: UsageScope,
  api8s: ReadonlySet<string>,
  isWanted: (day: number) => boolean,
): Promise<List[]> {
  const queue = rollupQueueKey(workspaceKey(workspaceId));
  const lists = new Map<string, List>();
  for await (const member of membersOf(redis, queue)) {
    const text = member.toString('latin1');
    const api8 = text.slice(1, 9);
    const day = Number(text.slice(10));
    if (text[0] === 'k' && api8s.has(api8) && isWanted(day)) {
      lists.set(text, { api8, kind: 'day', number: day });
      if (lists.size > readsMax) throw tooMuch();
    }
  }
  // By API, as the keys are: those of the last APIs are often not read.
  return [...lists.values()].sort((a, b) => (a.api8 < b.api8 ? -1 : 1));
}

/**
 * Returns a function that adds the keys of lists, and returns the number of entries, and for each list whether it was
 * read to its end.
 */
function reader({ context, workspaceId }: UsageScope, keys: UsedKeys, bounded = false) {
  const { redis, run } = context;
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
      let reading = length > 0 && keys.takes(api8) ? readFrom(0) : undefined;
      while (reading) {
        const page: Buffer = await reading;
        found += page.length / idBytes;
        // The next page is read while this one is added.
        reading = page.length > 0 && found < length ? readFrom(found) : undefined;
        reading?.catch(() => {});
        await keys.add(api8, page);
        if (bounded && keys.upTo !== undefined) throw tooMuch();
      }
      complete.push(length > 0 && found >= length);
    }
    return { entries, complete };
  };
}
