// The keys that were used in a period: the lists of used keys of each day that the sweeper has not dropped yet, and
// those of weeks for earlier days. So a query costs what the keys used cost, and not what the stored keys cost.

import { setImmediate as otherRequests } from 'node:timers/promises';
import { chunks } from '../redis/chunks.ts';
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
 * some at a time, each key once, and in order within its API, so that a script finds them next to each other
 * (lua/analytics/keys.lua). `entries` is called with the number of entries of the lists.
 */
export async function* usedKeys(
  context: StoreContext,
  workspaceId: string,
  api8s: readonly string[],
  wanted: Wanted,
  entries?: (count: number) => void,
): AsyncGenerator<string[]> {
  // More keys than are in memory at a time are found in several passes over the lists.
  for (let after: string | undefined = ''; after !== undefined; ) {
    const keys: UsedKeys = new UsedKeys(after, context.usageBounds.keys);
    const found = await readPart(context, workspaceId, api8s, wanted, keys);
    if (after === '') entries?.(found);
    yield* keys.inOrder();
    after = keys.upTo;
  }
}

/** Reads all lists. Resolves to the number of their entries. */
async function readPart(
  context: StoreContext,
  workspaceId: string,
  api8s: readonly string[],
  { period, today, bounded }: Wanted,
  keys: UsedKeys,
): Promise<number> {
  const firstDay = Math.floor(period.fromHour / 24);
  const lastDay = Math.floor((period.toHour - 1) / 24);
  const isWanted = (day: number) => day >= firstDay && day <= lastDay && !isSummed(period, day);
  const read = reader(context, workspaceId, keys, bounded);
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

/** Ids of which the last ones are looked for. */
const sampleMax = 1000;
/** Ids that are looked at in one turn of the event loop. */
const turnStep = 20_000;
/** Keys that are read at a time. */
const keysStep = 5000;

/**
 * Different keys by their API: the first ones after an id (its first 16 characters). A key is in the lists of many
 * days.
 */
class UsedKeys {
  /** The id up to which it has all keys; undefined for all. */
  upTo: string | undefined;
  readonly #after: string;
  readonly #max: number;
  readonly #idsByApi = new Map<string, Set<string>>();
  #count = 0;

  constructor(after: string, max: number) {
    this.#after = after;
    this.#max = max;
  }

  /** Adds the keys of an API, the first 16 characters of their ids one after the other. */
  add(api8: string, id16s: string) {
    const ids = this.#idsByApi.get(api8) ?? new Set<string>();
    this.#idsByApi.set(api8, ids);
    const before = ids.size;
    for (let at = 0; at < id16s.length; at += idBytes) {
      const id16 = id16s.slice(at, at + idBytes);
      if (id16 <= this.#after || (this.upTo !== undefined && id16 > this.upTo)) continue;
      // A copy: the slice would keep the whole page in memory.
      if (!ids.has(id16)) ids.add(Buffer.from(id16, 'latin1').toString('latin1'));
    }
    this.#count += ids.size - before;
  }

  /** Leaves out the last keys if there are too many. It is called after some were added. */
  async settle(): Promise<void> {
    let isLess = true;
    while (isLess && this.#count > this.#max) isLess = await this.#leaveOut();
  }

  /** Leaves out the last quarter: with fewer there are fewer passes. Returns whether there are some. */
  async #leaveOut(): Promise<boolean> {
    const [before, every] = [this.#count, Math.max(1, Math.floor(this.#count / sampleMax))];
    const sample: string[] = [];
    let index = 0;
    for (const ids of this.#idsByApi.values()) for (const id16 of ids) if (index++ % every === 0) sample.push(id16);
    sample.sort();
    this.upTo = sample[Math.floor(((sample.length - 1) * 3) / 4)]!;
    for (const ids of this.#idsByApi.values()) {
      for (const id16 of ids) {
        if (id16 > this.upTo && ids.delete(id16)) this.#count--;
        if (++index % turnStep === 0) await otherRequests();
      }
    }
    return this.#count < before;
  }

  async *inOrder(): AsyncGenerator<string[]> {
    let some: string[] = [];
    for (const [api8, ids] of this.#idsByApi) {
      for (const id16 of await sorted([...ids])) {
        if (some.push(id16 + api8) < keysStep) continue;
        yield some;
        some = [];
      }
    }
    yield some;
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
function reader({ redis, run }: StoreContext, workspaceId: string, keys: UsedKeys, bounded = false) {
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
        await keys.settle();
        if (bounded && keys.upTo !== undefined) throw tooMuch();
      }
      complete.push(length > 0 && found >= length);
    }
    return { entries, complete };
  };
}

/** Strings that are sorted in one turn of the event loop. */
const sortStep = 5000;

/** Strings in order, with other requests between the steps. */
async function sorted(all: readonly string[]): Promise<string[]> {
  let parts: string[][] = [];
  for (const part of chunks(all, sortStep)) {
    parts.push([...part].sort());
    await otherRequests();
  }
  while (parts.length > 1) {
    const merged: string[][] = [];
    for (let at = 0; at < parts.length; at += 2) {
      const [one, other] = [parts[at]!, parts[at + 1]];
      merged.push(other ? await merge(one, other) : one);
    }
    parts = merged;
  }
  return parts[0] ?? [];
}

async function merge(one: readonly string[], other: readonly string[]): Promise<string[]> {
  const merged: string[] = [];
  for (let [at, from] = [0, 0]; at < one.length || from < other.length; ) {
    const isFirst = from === other.length || (at < one.length && one[at]! < other[from]!);
    merged.push(isFirst ? one[at++]! : other[from++]!);
    if (merged.length % turnStep === 0) await otherRequests();
  }
  return merged;
}
