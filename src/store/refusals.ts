// Reads the recent refusals of a workspace (lua/include/decide/refusals.lua writes them).

import { dayMs } from '../domain/time.ts';
import { type Outcome, outcomes } from '../domain/verification.ts';
import type { StoreContext } from './context.ts';
import { apiKey, refusalsKey, workspaceKey } from './keyspace.ts';
import { notedRefusal } from './layout.ts';
import { orStoreError } from './redis.ts';
import { Reader } from './struct.ts';

/** Refusals of a key that have one entry. */
interface Refusals {
  /** Of the last one. */
  time: number;
  outcome: Exclude<Outcome, 'VALID' | 'NOT_FOUND'>;
  keyId: string;
  apiId: string;
  externalId?: string;
  /** The first limit that was exceeded, by its name. */
  ratelimit?: string;
  limit?: number;
  duration?: number;
  tags?: string[];
  source: 'redis' | 'lease';
  count: number;
}

/** How long a refusal is listed. */
const listedMs = dayMs;
/** Entries that one command reads, in less than a millisecond of Redis's time. */
const step = 1000;

/** `apiIds` true is all APIs. */
interface RefusalsQuery {
  apiIds: true | readonly string[];
  keyId?: string | undefined;
  externalId?: string | undefined;
  outcome?: string | undefined;
  start: number;
  end: number;
  limit: number;
}

export const openRefusals = ({ redis, currentMs }: Pick<StoreContext, 'redis' | 'currentMs'>) => {
  /** Packed entries of a day in steps, newest first. */
  async function* steps(list: string): AsyncGenerator<Buffer[]> {
    // Positions are counted from the beginning, because entries are added at the end meanwhile.
    let end = await orStoreError(redis.llen(list));
    /** The entry at `end`, which was read in the step before. */
    let last: Buffer | undefined;
    while (end > 0) {
      const first = Math.max(0, end - step);
      const entries = await orStoreError(redis.lrangeBuffer(list, first, last ? end : end - 1));
      if (last && !entries.pop()?.equals(last)) {
        // The beginning of the list was cut meanwhile.
        end = (await orStoreError(redis.lpos(list, last))) ?? 0;
        continue;
      }
      [end, last] = [first, entries[0]];
      yield entries.reverse();
    }
  }

  return {
    /** Recent refusals, newest first. Those of deleted APIs are not listed. */
    async list(workspaceId: string, query: RefusalsQuery): Promise<Refusals[]> {
      const workspace = workspaceKey(workspaceId);
      const nowMs = await currentMs();
      const matches = matching(query, nowMs - listedMs);
      // Most entries lack these texts, and searching for them is faster than unpacking: 27 ms for 21,000 entries, not 78.
      const { keyId = '', externalId = '' } = query;
      const texts = [keyId.replace(/^key_/, ''), externalId].filter(Boolean).map((text) => Buffer.from(text));
      const ids = new Map<string, string | null>();
      const found: Refusals[] = [];
      for (const day of [0, 1].map((before) => Math.floor(nowMs / dayMs) - before)) {
        for await (const entries of steps(refusalsKey(workspace, String(day)))) {
          for (const packed of entries) {
            if (!texts.every((text) => packed.includes(text))) continue;
            const entry = notedRefusal.read(new Reader(packed));
            if (!matches(entry)) continue;
            const api8 = api8Of(entry);
            if (!ids.has(api8)) ids.set(api8, await orStoreError(redis.hget(apiKey(workspace, api8), 'id')));
            const apiId = ids.get(api8);
            const isReadable = query.apiIds === true || query.apiIds.includes(apiId ?? '');
            if (apiId && isReadable && found.push(refusalsOf(entry, apiId)) === query.limit) return found;
          }
        }
      }
      return found;
    },
  };
};

type Entry = ReturnType<typeof notedRefusal.read>;

const keyIdOf = ({ key24 }: Entry): string => `key_${key24}`;
/** The last 8 characters of the id of the key's API. */
const api8Of = ({ key24 }: Entry): string => key24.slice(16);

function matching(query: RefusalsQuery, listedFrom: number): (entry: Entry) => boolean {
  const apis = query.apiIds === true ? undefined : new Set(query.apiIds.map((id) => id.slice(-8)));
  return (entry) =>
    (query.keyId === undefined || keyIdOf(entry) === query.keyId) &&
    (!apis || apis.has(api8Of(entry))) &&
    (query.externalId === undefined || entry.externalId === query.externalId) &&
    (query.outcome === undefined || outcomes[entry.outcome - 1] === query.outcome) &&
    entry.time > listedFrom &&
    entry.time >= query.start &&
    entry.time < query.end;
}

function refusalsOf(entry: Entry, apiId: string): Refusals {
  const { time, externalId, ratelimit, limit, duration, tags, count } = entry;
  return {
    time,
    outcome: outcomes[entry.outcome - 1] as Refusals['outcome'],
    keyId: keyIdOf(entry),
    apiId,
    ...(externalId !== '' && { externalId }),
    ...(duration > 0 && { ratelimit, limit, duration }),
    ...(tags !== '' && { tags: JSON.parse(tags) as string[] }),
    source: entry.leased === 1 ? 'lease' : 'redis',
    count,
  };
}
