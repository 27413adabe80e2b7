// The rows of recent refusals as Redis stores them (lua/decide/notedRefusals.lua), an hour at a time.

import { setImmediate as otherRequests } from 'node:timers/promises';
import { presentedDuration } from '../domain/limit.ts';
import { quotaCodes } from '../domain/quota.ts';
import { dayMs, hourMs } from '../domain/time.ts';
import { type Outcome, outcomes } from '../domain/verification.ts';
import { orStoreError } from '../redis/connection.ts';
import { apiKey, refusalRowsKey, refusalsOfDayKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { notedMore, notedQueryMax, notedRefusal } from '../scripts/layout.ts';
import { Reader, readUint } from '../scripts/struct.ts';

/** Refusals of a key that have one row. */
export type Refusals = ReturnType<typeof refusalsOf> & { planId?: string };

/**
 * The rows of an hour in the order in which they were written, each with its length before it, and where each begins.
 */
interface Rows {
  packed: Buffer;
  starts: readonly number[];
}
const lengthBytes = 2;

/** The rows that are complete, each with the place after it. */
export function* rowsIn(packed: Buffer): Generator<{ row: Buffer; end: number }> {
  for (let at = 0, end = 0; at + lengthBytes <= packed.length; at = end) {
    end = at + lengthBytes + readUint(packed, at, lengthBytes);
    if (end > packed.length) return;
    yield { row: packed.subarray(at + lengthBytes, end), end };
  }
}

/** Bytes that one command reads, in less than a millisecond of Redis's time. */
const bytesStep = 524_288;
/** Rows that are examined in one turn of the event loop, in some milliseconds. */
const rowsStep = 20_000;

/** Which rows a query asks for. */
export interface RowFilter {
  /** True is all APIs. */
  apiIds: true | readonly string[];
  keyId?: string | undefined;
  externalId?: string | undefined;
  outcome?: string | undefined;
  start: number;
  end: number;
  limit: number;
}

/** The rows of an hour for a query. */
interface OfHour {
  /** The refusals of its rows, those outside of `start` and `end` included. */
  listed: number;
  /** The index of the row before which the next page continues; undefined if this hour has no more. */
  next: number | undefined;
}

export class RefusalRows {
  readonly #redis: StoreContext['redis'];
  readonly #workspace: string;
  readonly #filter: RowFilter;
  readonly #apiIds = new Map<string, string | null>();
  readonly #days = new Map<number, Promise<Buffer[]>>();
  /** Bytes that were read. */
  bytes = 0;

  constructor(redis: StoreContext['redis'], workspace: string, filter: RowFilter) {
    this.#redis = redis;
    this.#workspace = workspace;
    this.#filter = filter;
  }

  /** Adds the rows of an hour before this index to `found`, newest first, until it has `limit` rows. */
  async addTo(found: Refusals[], hour: number, before: number): Promise<OfHour> {
    const { packed, starts } = await this.#read(hour);
    const matches = matching(packed, this.#filter);
    const { start, end, limit } = this.#filter;
    let listed = 0;
    let next: number | undefined;
    for (let index = starts.length - 1; index >= 0; index--) {
      if (index % rowsStep === 0) await otherRequests();
      const at = starts[index]!;
      if (!matches(at)) continue;
      const apiId = await this.#apiIdOf(packed, at);
      if (apiId === null) continue;
      listed += uintAt(packed, at, 'count');
      const time = uintAt(packed, at, 'time');
      if (index >= before || time < start || time >= end) continue;
      if (found.length < limit) found.push(refusalsOf(packed, at, apiId));
      else next ??= index + 1;
    }
    return { listed, next };
  }

  /** The id of the API of a row; null if it was deleted. */
  #apiIdOf(packed: Buffer, at: number): string | null | Promise<string | null> {
    const api8 = api8At(packed, at);
    return this.#apiIds.get(api8) ?? this.#readApiId(api8);
  }

  async #readApiId(api8: string): Promise<string | null> {
    if (!this.#apiIds.has(api8)) {
      this.#apiIds.set(api8, await orStoreError(this.#redis.hget(apiKey(this.#workspace, api8), 'id')));
    }
    return this.#apiIds.get(api8)!;
  }

  async #read(hour: number): Promise<Rows> {
    const parts = await this.#rowsOfDay(hour);
    const name = refusalRowsKey(this.#workspace, hour);
    for (let at = 0, part: Buffer; ; at += bytesStep) {
      part = await orStoreError(this.#redis.getrangeBuffer(name, at, at + bytesStep - 1));
      parts.push(part);
      if (part.length < bytesStep) break;
    }
    const packed = Buffer.concat(parts);
    this.bytes += packed.length;
    const starts: number[] = [];
    for (let at = 0; at < packed.length; at += lengthBytes + readUint(packed, at, lengthBytes)) starts.push(at);
    return { packed, starts };
  }

  /** Rows of this hour that a server of an earlier version wrote: a list for each day, which is kept for two days. */
  async #rowsOfDay(hour: number): Promise<Buffer[]> {
    const day = Math.floor((hour * hourMs) / dayMs);
    let reading = this.#days.get(day);
    if (!reading) {
      reading = orStoreError(this.#redis.lrangeBuffer(refusalsOfDayKey(this.#workspace, day), 0, -1));
      this.#days.set(day, reading);
    }
    return (await reading)
      .filter((row) => Math.floor(readUint(row, notedRefusal.at.time, 6) / hourMs) === hour)
      .flatMap((row) => {
        const length = Buffer.alloc(lengthBytes);
        length.writeUInt16BE(row.length);
        return [length, row];
      });
  }
}

type Fixed = 'time' | 'outcome' | 'count';
const uintAt = (packed: Buffer, at: number, field: Fixed): number =>
  readUint(packed, at + lengthBytes + notedRefusal.at[field], notedRefusal.fields[field].bytes);

const key24Bytes = notedRefusal.fields.key24.bytes;
const key24At = (at: number): number => at + lengthBytes + notedRefusal.at.key24;
/** The last 8 characters of the id of the API of the key. */
const api8At = (packed: Buffer, at: number): string =>
  packed.toString('latin1', key24At(at) + key24Bytes - 8, key24At(at) + key24Bytes);

/** Whether the row at a place matches, apart from its time. Compares bytes, as most rows of a search do not match. */
function matching(packed: Buffer, { apiIds, keyId, externalId, outcome }: RowFilter): (at: number) => boolean {
  const apis = apiIds === true ? undefined : new Set(apiIds.map((id) => id.slice(-8)));
  const key24 = keyId === undefined ? undefined : Buffer.from(keyId.replace(/^key_/, ''));
  const owner = externalId === undefined ? undefined : Buffer.from(externalId);
  const has = (text: Buffer, at: number) => packed.compare(text, 0, text.length, at, at + text.length) === 0;
  return (at) => {
    const ownerAt = key24At(at) + key24Bytes;
    if (outcome !== undefined && outcomes[uintAt(packed, at, 'outcome') - 1] !== outcome) return false;
    if (key24 && !(key24.length === key24Bytes && has(key24, key24At(at)))) return false;
    if (owner && !(packed[ownerAt] === owner.length && has(owner, ownerAt + 1))) return false;
    return !apis || apis.has(api8At(packed, at));
  };
}

function refusalsOf(packed: Buffer, at: number, apiId: string) {
  const from = at + lengthBytes;
  const reader = new Reader(packed.subarray(from, from + readUint(packed, at, lengthBytes)));
  const row = notedRefusal.read(reader);
  const { time, key24, externalId, ratelimit, limit, duration, tags, leased, count } = row;
  // Rows of servers of an earlier version end here.
  const more = reader.isAtEnd ? undefined : notedMore.read(reader);
  const outcome = outcomes[row.outcome - 1] as Exclude<Outcome, 'VALID' | 'NOT_FOUND'>;
  const isOfLimit = duration > 0;
  const type = leased === 2 ? ('concurrency' as const) : duration >= quotaCodes && ('quota' as const);
  const isOfCredits = outcome === 'USAGE_EXCEEDED' && more !== undefined;
  const isCut = more && more.query.length > notedQueryMax;
  return {
    time,
    outcome,
    keyId: `key_${key24}`,
    apiId,
    ...(externalId !== '' && { externalId }),
    ...(more && more.query !== '' && { permissions: more.query.slice(0, notedQueryMax) }),
    ...(isCut && { permissionsCut: true as const }),
    ...(isOfLimit && { ratelimit, limit, ...presentedDuration(duration, time), ...(type && { type }) }),
    ...(more && (isOfLimit || isOfCredits) && { cost: more.cost }),
    // The balance at the time of a decision by a lease is not known.
    ...(more && (isOfLimit || (isOfCredits && leased !== 1)) && { remaining: more.remaining }),
    // A row of credits has the mark of a balance of the identity in place of a limit.
    ...(isOfCredits && limit === 1 && { of: 'identity' as const }),
    ...(tags !== '' && { tags: JSON.parse(tags) as string[] }),
    source: leased === 1 ? ('lease' as const) : ('redis' as const),
    count,
  };
}
