// Reads usage and refusals for an export: everything that analytics can return, some records at a time.

import { dayMs, hourMs } from '../domain/time.ts';
import { ApiError } from '../errors.ts';
import { chunks } from '../redis/chunks.ts';
import { orStoreError } from '../redis/connection.ts';
import {
  apiUsageKey,
  formerKeysKey,
  identifierUsageKey,
  namespaceUsageKey,
  refusalRowsKey,
  tagUsageKey,
  workspaceKey,
} from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { tagField } from '../scripts/layout.ts';
import { Reader } from '../scripts/struct.ts';
import { countsOf, readAll } from './commands.ts';
import { allDays, type KeyDay } from './days.ts';
import { usageOf } from './histories.ts';
import { CountsMoved } from './query.ts';
import { rowsIn } from './refusalRows.ts';

/** The totals of a day: counts by hour and outcome (`13` and `1`), or by hour and `p` or `b`; `tags` of an API. */
export interface DayTotals {
  day: number;
  counts: Record<string, number>;
}

/** A count by tag. `hourOfDay` is `--` for the whole day. */
export interface TagCount {
  keyId: string;
  externalId: string;
  tag: string;
  hourOfDay: string;
  outcome: number;
  count: number;
  spent: number;
}

/** A count by identifier. `field` is the hour, or `--`, and `p` or `b`. */
export interface IdentifierCount {
  field: string;
  identifier: string;
  count: number;
}

interface FormerKey {
  keyId: string;
  /** The hour of its deletion, since 1970. */
  deletedHour: number;
}

/** Totals that one pipeline reads. */
const totalsStep = 100;
/** Counts are read again if the sweeper moves some meanwhile. It moves those of a day in one pass. */
const readsOfCounts = 20;
/** Bytes of refusals that one command reads. */
const rowsBytesStep = 262_144;

type Totals = 'api' | 'namespace';
/** `id` is 8 characters of an API, or 16 of a namespace. */
const totalsKey = (workspace: string, of: Totals, id: string, day: number) =>
  of === 'api' ? apiUsageKey(workspace, id, day) : namespaceUsageKey(workspace, id, day);

export function openUsageExport(context: StoreContext) {
  const { redis, currentMs, usageRetentionMs, refusalHours } = context;

  return {
    /** The days of which usage can be stored: first and last, since 1970. */
    async days(): Promise<{ first: number; last: number }> {
      const today = Math.floor((await currentMs()) / dayMs);
      return { first: today - Math.ceil(usageRetentionMs / dayMs) - 2, last: today + 1 };
    },

    /** The totals of an API (last 8 characters of its id) or a namespace (id without prefix) that are stored. */
    async *totals(
      workspaceId: string,
      of: Totals,
      id: string,
      { first, last }: { first: number; last: number },
    ): AsyncGenerator<DayTotals> {
      const workspace = workspaceKey(workspaceId);
      const days = Array.from({ length: last - first + 1 }, (_, index) => first + index);
      for (const some of chunks(days, totalsStep)) {
        const found = await readAll<number, Record<string, string>>(redis, some, (commands, day) =>
          commands.hgetall(totalsKey(workspace, of, id, day)),
        );
        for (const [index, stored] of found.entries()) {
          const { import: _mark, ...counts } = stored;
          if (Object.keys(counts).length === 0) continue;
          const numbers = Object.entries(counts).map(([field, count]) => [field, Number(count)]);
          yield { day: some[index]!, counts: Object.fromEntries(numbers) };
        }
      }
    },

    ...openParts(context),

    /** The usage of keys that have some. `leaveOut` gets each key that has too much to be read. */
    async keys(
      workspaceId: string,
      keyIds: readonly string[],
      leaveOut: (keyId: string) => void,
    ): Promise<Map<string, KeyDay[]>> {
      const found = new Map<string, KeyDay[]>();
      async function read(some: readonly string[]): Promise<void> {
        const key24s = some.map((keyId) => keyId.slice('key_'.length));
        try {
          for await (const { first, found: usages } of usageOf({ context, workspaceId }, key24s, 0)) {
            for (const [index, stored] of usages.entries()) {
              if (stored.days.length + stored.log.length + stored.current.length === 0) continue;
              found.set(some[first + index]!, allDays(stored));
            }
          }
        } catch (error) {
          if (!(error instanceof ApiError) || error.status >= 500) throw error;
          if (some.length === 1) return leaveOut(some[0]!);
          for (const keyId of some) await read([keyId]);
        }
      }
      await read(keyIds);
      return found;
    },

    /** Deleted keys of an API whose usage is kept, in order of deletion, from a rank on. */
    async formerKeys(workspaceId: string, api8: string, from: number, count: number): Promise<FormerKey[]> {
      const list = formerKeysKey(workspaceKey(workspaceId), api8);
      const pairs = await orStoreError(redis.zrange(list, String(from), String(from + count - 1), 'WITHSCORES'));
      return Array.from({ length: pairs.length / 2 }, (_, index) => ({
        keyId: `key_${pairs[2 * index]!}`,
        deletedHour: Number(pairs[2 * index + 1]),
      }));
    },

    /** The rows of recent refusals, in parts: whole rows of an hour, and the bytes of the rows before them. */
    async *refusals(workspaceId: string): AsyncGenerator<{ hour: number; offset: number; rows: Buffer }> {
      const hourNow = Math.floor((await currentMs()) / hourMs);
      for (let hour = hourNow - refusalHours; hour <= hourNow + 1; hour++) {
        const name = refusalRowsKey(workspaceKey(workspaceId), hour);
        for (let offset = 0; ; ) {
          const read = await orStoreError(redis.getrangeBuffer(name, offset, offset + rowsBytesStep - 1));
          let whole = 0;
          for (const { end } of rowsIn(read)) whole = end;
          if (whole === 0) break;
          yield { hour, offset, rows: read.subarray(0, whole) };
          offset += whole;
        }
      }
    },
  };
}

/** Counts of a day that may be too many for one line. */
function openParts({ redis }: StoreContext) {
  async function countsOfRecord(record: string): Promise<[field: Buffer, value: Buffer][]> {
    for (let reads = 1; ; reads++) {
      const all: [Buffer, Buffer][] = [];
      try {
        for await (const fields of countsOf(redis, record)) all.push(...fields);
        return all;
      } catch (error) {
        if (!(error instanceof CountsMoved) || reads === readsOfCounts) throw error;
      }
    }
  }

  return {
    /** The counts by tag of an API on a day. They are limited in bytes (TAG_BYTES_MAX). */
    async tags(workspaceId: string, api8: string, day: number): Promise<TagCount[]> {
      const spent = new Map<string, number>();
      const counts: { name: Buffer; count: number }[] = [];
      for (const [name, value] of await countsOfRecord(tagUsageKey(workspaceKey(workspaceId), api8, `${day}`))) {
        const count = Number(value.toString());
        if (name[0] === 's'.charCodeAt(0)) spent.set(name.toString('latin1', 1), count);
        else counts.push({ name, count });
      }
      return counts.map(({ name, count }) => {
        const { hourOfDay, outcome, key24, externalId, tag } = tagField.read(new Reader(name));
        return {
          keyId: `key_${key24}`,
          externalId,
          tag,
          hourOfDay,
          outcome: Number(outcome),
          count,
          spent: spent.get(name.toString('latin1')) ?? 0,
        };
      });
    },

    /** The counts by identifier of a namespace on a day. They are limited in number (IDENTIFIERS_MAX). */
    async identifiers(workspaceId: string, id16: string, day: number): Promise<IdentifierCount[]> {
      const record = identifierUsageKey(workspaceKey(workspaceId), id16, `${day}`);
      return (await countsOfRecord(record)).map(([name, value]) => ({
        field: name.toString('latin1', 0, 3),
        identifier: name.toString('utf8', 3),
        count: Number(value.toString()),
      }));
    },
  };
}
