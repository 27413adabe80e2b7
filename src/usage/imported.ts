// Writes usage and refusals of an export. Records that exist are left as they are, and each part is stored once, so an
// import can be repeated.

import { dayMs, hourMs } from '../domain/time.ts';
import type { StoreContext } from '../scripts/context.ts';
import { countedOutcomes, notedMore, notedRefusal, tagField, weekDays } from '../scripts/layout.ts';
import { Reader } from '../scripts/struct.ts';
import { type KeyDay, packDays } from './days.ts';
import type { DayTotals, IdentifierCount, TagCount } from './exported.ts';
import { rowsIn } from './refusalRows.ts';
import { packSums } from './sums.ts';

export interface KeyUsage {
  keyId: string;
  days: KeyDay[];
  /** From 1: the usage of a key may be in several parts. */
  part: number;
  /** The hour in which a deleted key was deleted, since 1970. */
  deletedHour?: number | undefined;
  /** The externalId of the identity that the key has. */
  externalId?: string | undefined;
}

interface Part {
  day: number;
  part: number;
  importId: string;
}

/** `misplaced`: a part before this one is not stored. */
type Outcome = 'stored' | 'exists' | 'misplaced';
const outcomeOf = (reply: 0 | 1 | 2): Outcome => (['exists', 'stored', 'misplaced'] as const)[reply];

/** One script stores the usage of this many keys, with this many bytes and entries of lists: some milliseconds. */
const keysStep = 50;
const bytesStep = 65_536;
const entriesStep = 2000;
/** Counts of one script. */
export const countsStep = 1000;

export function openUsageImport({ run, currentMs, usageRetentionMs, usageHourlyDays, refusalHours }: StoreContext) {
  /** How long a record of a day is kept; 0 if it is too old. */
  const keptMs = async (day: number) => Math.max(0, (day + 2) * dayMs + usageRetentionMs - (await currentMs()));

  return {
    /** Stores the totals of a day. `id` is 8 characters of an API, or 16 of a namespace. False if there are some. */
    async total(
      workspaceId: string,
      { of, id, day, counts, importId }: DayTotals & { of: 'api' | 'namespace'; id: string; importId: string },
      isDryRun: boolean,
    ): Promise<boolean> {
      const kept = await keptMs(day);
      if (kept === 0) return false;
      const given = { kind: of, id, day, importId, keptMs: kept, dryRun: isDryRun ? 1 : 0 };
      return (await run('usage/total', workspaceId, { ...given, counts: Object.entries(counts).flat() })) === 1;
    },

    /** Stores some counts by tag of an API, after the totals of its day. `exists`: they are stored, or other totals. */
    tags: (workspaceId: string, api8: string, part: Part, counts: readonly TagCount[], isDryRun: boolean) =>
      storePart(workspaceId, { ...part, kind: 't', id: api8 }, namesOf(counts, 'tag'), tagFields(counts), isDryRun),

    /** Stores some counts by identifier of a namespace, as `tags`. */
    identifiers: (
      workspaceId: string,
      id16: string,
      part: Part,
      counts: readonly IdentifierCount[],
      isDryRun: boolean,
    ) =>
      storePart(
        workspaceId,
        { ...part, kind: 'i', id: id16 },
        namesOf(counts, 'identifier'),
        counts.flatMap(({ field, identifier, count }) => [field + identifier, count]),
        isDryRun,
      ),

    /** Stores the usage of keys of an API, in an order in which parts ascend. */
    async keys(workspaceId: string, api8: string, keys: readonly KeyUsage[], isDryRun: boolean): Promise<Outcome[]> {
      const today = Math.floor((await currentMs()) / dayMs);
      const from = today - Math.ceil(usageRetentionMs / dayMs) - 1;
      const prepared = keys.map((key) => packedUsage(key, { today, from, hourlyDays: usageHourlyDays }));
      const stored: Outcome[] = [];
      for (const some of boundedSteps(prepared)) {
        const request = { dryRun: isDryRun, lastDay: lastDayOf(keys), keys: some.map(({ lists }) => lists) };
        const reply = await run('usage/keys', workspaceId, {
          api8,
          request: JSON.stringify(request),
          hourlyDays: usageHourlyDays,
          retentionMs: usageRetentionMs,
          days: some.flatMap(({ packed, sums }) => [packed, sums]),
        });
        stored.push(...reply.map(outcomeOf));
      }
      return stored;
    },

    /** Appends rows of refusals. False if the hour has other rows, or these, or is too old. */
    async refusals(
      workspaceId: string,
      { hour, offset, rows }: { hour: number; offset: number; rows: Buffer },
      isDryRun: boolean,
    ): Promise<boolean> {
      const kept = Math.max(0, (hour + refusalHours + 2) * hourMs - (await currentMs()));
      if (kept === 0) return false;
      const given = { hour, offset, rows, keptMs: kept, dryRun: isDryRun ? 1 : 0 };
      return (await run('usage/refusals', workspaceId, given)) === 1;
    },
  };

  async function storePart(
    workspaceId: string,
    { kind, id, day, part, importId }: Part & { kind: 't' | 'i'; id: string },
    names: readonly string[],
    counts: readonly (string | number | Buffer)[],
    isDryRun: boolean,
  ): Promise<Outcome> {
    const kept = await keptMs(day);
    if (kept === 0) return 'exists';
    const given = { kind, id, day, part, importId, names: JSON.stringify(names), keptMs: kept };
    return outcomeOf(await run('usage/part', workspaceId, { ...given, dryRun: isDryRun ? 1 : 0, counts }));
  }
}

const lastDayOf = (keys: readonly KeyUsage[]): number =>
  Math.max(0, ...keys.flatMap(({ days }) => days.map(({ day }) => day)));

/** A count without a tag is of no name. */
const namesOf = <Name extends string>(counts: readonly { [Each in Name]: string }[], name: Name) =>
  [...new Set(counts.map((count) => count[name]))].filter((each) => each !== '');

/** Fields and amounts, as lua/decide/usageByTag.lua names them. */
function tagFields(counts: readonly TagCount[]): (Buffer | number)[] {
  return counts.flatMap(({ keyId, externalId, tag, hourOfDay, outcome, count, spent }) => {
    const names = { externalId: Buffer.from(externalId), tag: Buffer.from(tag) };
    const fields = { hourOfDay, outcome: `${outcome}`, key24: keyId.slice('key_'.length), ...names };
    const name = Buffer.alloc(tagField.size(fields));
    tagField.write(name, 0, fields);
    return [name, count, ...(spent > 0 ? [Buffer.concat([Buffer.from('s'), name]), spent] : [])];
  });
}

interface PackedUsage {
  packed: Buffer | '';
  /** Packed sums by customer for the same days. */
  sums: Buffer;
  lists: { part: number; [list: string]: unknown };
  entries: number;
}

/** The arguments of lua/usage/keys.lua for a key. */
function packedUsage(
  { keyId, days, part, deletedHour, externalId }: KeyUsage,
  { today, from, hourlyDays }: { today: number; from: number; hourlyDays: number },
): PackedUsage {
  const kept = days.filter(({ day }) => day >= from);
  const numbers = [...new Set(kept.map(({ day }) => day))];
  // The list of a day is dropped with its hours. The sweeper has not rolled up yesterday and today.
  const rolledUp = numbers.filter((day) => day < today - 1);
  const weeks = [...new Set(rolledUp.map((day) => Math.floor(day / weekDays)))];
  const week = weeks.at(-1) ?? 0;
  const owners = new Map<string, number>();
  for (const day of kept) {
    if (day.externalId !== '' && (day.externalId !== externalId || deletedHour !== undefined))
      owners.set(day.externalId, (day.day + 1) * 24);
  }
  const daysOfLists = rolledUp.filter((day) => day >= today - hourlyDays);
  return {
    packed: kept.length === 0 ? '' : packDays({ rewrites: part, week }, kept),
    sums: packSums(kept),
    lists: {
      id16: keyId.slice('key_'.length, 'key_'.length + 16),
      part,
      weeks,
      days: daysOfLists,
      recent: numbers.filter((day) => day >= today - 1),
      deletedHour,
      owners: [...owners],
    },
    // The list of an owner is a record of its own, and a sum is one that is read and written.
    entries: weeks.length + numbers.length + 4 * owners.size + 4 * kept.length,
  };
}

function* boundedSteps(all: readonly PackedUsage[]): Generator<PackedUsage[]> {
  let some: PackedUsage[] = [];
  let bytes = 0;
  let entries = 0;
  for (const each of all) {
    // A script reads before it writes: in the same one, the part before this one would not be stored yet.
    const isFurther = each.lists.part > 1 && some.length > 0;
    if (isFurther || some.length === keysStep || bytes > bytesStep || entries > entriesStep) {
      yield some;
      some = [];
      bytes = 0;
      entries = 0;
    }
    some.push(each);
    bytes += each.packed.length;
    entries += each.entries;
  }
  if (some.length > 0) yield some;
}

/** Returns the fault of rows of refusals of an hour; undefined if they can be stored. */
export function faultOfRows(rows: Buffer, hour: number): string | undefined {
  let whole = 0;
  for (const { row, end } of rowsIn(rows)) {
    const reader = new Reader(row);
    whole = end;
    try {
      const { time, outcome, leased, key24, tags } = notedRefusal.read(reader);
      if (!reader.isAtEnd) notedMore.read(reader);
      const isKnown = outcome > 1 && countedOutcomes.includes(outcome) && leased <= 2;
      if (!isKnown) return 'a row has an unknown outcome';
      if (Math.floor(time / hourMs) !== hour) return 'a row is of another hour';
      if (!/^[1-9A-HJ-NP-Za-km-z]{24}$/.test(key24)) return 'a row has no key';
      if (tags !== '') {
        const list: unknown = JSON.parse(tags);
        if (!Array.isArray(list) || list.some((tag) => typeof tag !== 'string')) return 'a row has invalid tags';
      }
    } catch {
      return 'a row cannot be read';
    }
  }
  return whole < rows.length ? 'a row is incomplete' : undefined;
}
