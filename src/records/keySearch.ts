// Lists the keys of one API or of all APIs of a workspace, in order of creation, with filters. There is an index of
// starts, which finds keys unless very many match. All other filters need the lists of keys: a request examines a
// bounded number of keys in steps, between which Redis serves others, and reports how far it has looked. Several
// filters can be applied to the same keys, each of which is then read once.
//
// The lists of the APIs are merged by the ids of the keys: of each list some keys are read ahead, and all keys up to
// the nearest end of what was read are examined in order.

import { packId, unpackId } from '../domain/keyString.ts';
import { orStoreError } from '../redis/connection.ts';
import { apisKey, workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { readReply } from './keyReplies.ts';
import { pageMetaMax } from './keys.ts';
import type { LookedPage, Order } from './pages.ts';
import type { KeyRecord } from './records.ts';

export interface KeyFilter {
  /** Text in any case (A to Z) that the name, start, id, externalId or metadata contains. */
  search?: string | undefined;
  /** The beginning of the key string, more or less of it than is stored. */
  start?: string | undefined;
  enabled?: boolean | undefined;
  /** Unix milliseconds. */
  expiresBefore?: number | undefined;
  /** Unix milliseconds: created before, and without a VALID verification since. */
  unusedSince?: number | undefined;
  creditsBelow?: number | undefined;
  /** Has a successor, is enabled and not expired, and was used since the successor was created. */
  rerolledInUse?: boolean | undefined;
  /** Slug, of the key itself or of one of its roles. */
  permission?: string | undefined;
  /** Name. */
  role?: string | undefined;
  externalId?: string | undefined;
  /** Lists deleted keys instead of the others. */
  deleted?: boolean | undefined;
}

interface Listing {
  /** Undefined for all APIs. */
  apiId?: string | undefined;
  order: Order;
  /** The id of the last key that was examined for the page before. */
  after?: string | undefined;
  /** Of each filter. */
  count: number;
}

interface KeyQuery extends Listing {
  filter: KeyFilter;
}

interface KeyQueries extends Listing {
  /** At least one. All have the same `deleted`, and only a single one has `start` or `externalId`. */
  filters: readonly KeyFilter[];
  /** Limit of the keys whose record is read. */
  readMax: number;
}

/** Limit of the keys whose record one request reads. The index of starts returns no more. */
const examinedMax = 20_000;
/**
 * Limit of the keys that one request by `start` reads in the lists. Of a key that does not begin with it, nothing else
 * is read.
 */
const lookedMaxByStart = 200_000;
/** As examinedMax, of a request with several filters: a screen waits for all of them. */
const examinedMaxOfEach = 10_000;
/** Limit of the APIs whose keys are listed together. */
export const apisMax = 1000;
/**
 * Keys that one step examines, at most: a few milliseconds of Redis's time. The script limits it further by their size.
 */
const stepMax = 250;
/** Keys that one step reads ahead. */
const aheadMax = 1000;

const keyIdForm = /^key_[1-9A-HJ-NP-Za-km-z]{24}$/;
/** Bytes of an id and of a digest in a list of keys (lua/include/keyIds.lua). */
const idBytes = 12;
const memberBytes = 44;

/**
 * The place of a key in the order of creation: the bytes of its packed id, and the end of the id of its API. Imported
 * keys of two APIs may have the same packed id.
 */
type Place = string;

/**
 * A key to examine. Its bytes are characters of strings, because a string of 32 characters costs less than a Buffer.
 */
interface Candidate {
  place: Place;
  /** Undefined for a key that the index has, whose record must still be read. */
  digest: string | undefined;
}

/** The list of an API's keys. */
interface Source {
  api8: string;
  /** The id (24) of the last key that was read, '' for none. */
  last: string;
  /** The place of that key. */
  end: Place;
  /** The list is read from that key on, instead of after it. */
  fromLast: boolean;
  /** All that was read was taken. */
  isTaken: boolean;
  isAtEnd: boolean;
  /** The keys that were read, in order. */
  ahead: Candidate[];
  /** How many keys to read next. */
  chunk: number;
  total: number;
}

const isBefore = (one: string, other: string, order: Order): boolean => (order === 'asc' ? one < other : one > other);

const placeOf = (packedId: Buffer, api8: string): Place => packedId.toString('latin1', 0, idBytes) + api8;
/** The place of a key by its id. */
const placeOfId = (keyId: string): Place => placeOf(packId(keyId.slice(4)), keyId.slice(-8));
const key24Of = (place: Place): string =>
  unpackId(Buffer.from(place, 'latin1').subarray(0, idBytes)) + place.slice(idBytes);

function sourceOf(api8: string, { after, order }: Listing, chunk: number): Source {
  const cursor = after?.slice('key_'.length) ?? '';
  const last = cursor && cursor.slice(0, 16) + api8;
  // With the same packed id, the API decides.
  const fromLast = last !== '' && isBefore(cursor.slice(16), api8, order);
  return { api8, last, end: '', fromLast, isTaken: true, isAtEnd: false, ahead: [], chunk, total: 0 };
}

/** What a response has of all its searches. It ends when writing it would delay other requests. */
class Size {
  #metaLength = 0;
  #isLarge = false;

  add({ record, isLarge }: Awaited<ReturnType<typeof readReply>>) {
    this.#isLarge ||= isLarge;
    this.#metaLength += (record.meta?.text.length ?? 0) + (record.identity?.meta.text.length ?? 0);
  }

  get isFull(): boolean {
    return this.#isLarge || this.#metaLength > pageMetaMax;
  }
}

/** The search for the keys of a page. */
class Search {
  readonly filter: KeyFilter;
  readonly count: number;
  readonly items: KeyRecord[] = [];
  /** No key can match. */
  isEmpty = false;
  readonly #size: Size;

  constructor(filter: KeyFilter, count: number, size = new Size()) {
    this.filter = filter;
    this.count = count;
    this.#size = size;
  }

  add(reply: Awaited<ReturnType<typeof readReply>>) {
    this.items.push(reply.record);
    this.#size.add(reply);
  }

  get isOver(): boolean {
    return this.isEmpty || this.items.length === this.count || this.#size.isFull;
  }
}

type Found = LookedPage<KeyRecord>;
interface TooMany {
  refused: 'too_many_apis';
}

export function openKeySearch(context: StoreContext) {
  return {
    /** A page of keys of APIs that exist. */
    async list(workspaceId: string, { filter, ...listing }: KeyQuery): Promise<Found | TooMany> {
      const { search } = filter;
      const query = { ...listing, filters: [filter], readMax: examinedMax };
      if (search !== undefined && keyIdForm.test(search)) return findOne(context, workspaceId, search, query);
      const apis = await apisOf(context, workspaceId, query.apiId);
      if (!apis) return { refused: 'too_many_apis' };
      const indexed = await findStarted(context, workspaceId, apis, query);
      return indexed ?? (await findMany(context, workspaceId, apis, query))[0]!;
    },

    /** Of each filter a page of keys of APIs that exist. A filter ends when its page is full, the others go on. */
    async listEach(workspaceId: string, query: Omit<KeyQueries, 'readMax'>): Promise<Found[] | TooMany> {
      const apis = await apisOf(context, workspaceId, query.apiId);
      if (!apis) return { refused: 'too_many_apis' };
      return findMany(context, workspaceId, apis, { ...query, readMax: examinedMaxOfEach });
    },
  };
}

/** The key with this id, if it is in the list and matches. */
async function findOne(context: StoreContext, workspaceId: string, keyId: string, query: KeyQueries): Promise<Found> {
  const search = new Search(query.filters[0]!, query.count);
  const source = sourceOf(keyId.slice(-8), { ...query, after: keyId }, 1);
  source.fromLast = true;
  let looked = 0;
  if (query.apiId === undefined || query.apiId.endsWith(source.api8)) {
    looked = await readAhead(context, workspaceId, [source], query);
  }
  const keys = source.ahead.filter(({ place }) => keyId === `key_${key24Of(place)}`);
  await examine(context, workspaceId, keys, [search]);
  return { items: search.items, next: undefined, looked, total: source.total };
}

/**
 * A page of the keys that begin with a text, by the index of starts. Undefined if very many do: then each part of the
 * lists has some. The keys of an identity are few, and are not looked up in the index.
 */
async function findStarted(
  context: StoreContext,
  workspaceId: string,
  apis: readonly string[],
  query: KeyQueries,
): Promise<Found | undefined> {
  const [filter] = query.filters as [KeyFilter];
  const { start, externalId, deleted } = filter;
  if (start === undefined || (externalId !== undefined && !deleted)) return undefined;
  const indexed = await readIndex(context, workspaceId, apis, filter);
  if (!indexed) return undefined;
  const after = query.after && placeOfId(query.after);
  const keys = [...indexed.places]
    .filter((place) => !after || isBefore(after, place, query.order))
    .sort((one, other) => (isBefore(one, other, query.order) ? -1 : 1))
    .map((place) => ({ place, digest: undefined }));
  const search = new Search(filter, query.count);
  const looked = await examine(context, workspaceId, keys, [search]);
  const isAtEnd = search.isEmpty || looked === keys.length;
  return {
    items: search.items,
    next: isAtEnd ? undefined : idOf(keys[looked - 1]!.place),
    looked,
    total: indexed.total,
  };
}

/** The keys that the index has for a start, and how many keys the APIs have; undefined if there are too many. */
async function readIndex(
  { run }: StoreContext,
  workspaceId: string,
  apis: readonly string[],
  filter: KeyFilter,
): Promise<{ places: Set<Place>; total: number } | undefined> {
  const places = new Set<Place>();
  let total = 0;
  for (let at = 0; at < apis.length; ) {
    const source = filter.deleted ? 'deleted' : 'keys';
    const replies = await run('keys/started', workspaceId, {
      source,
      start: filter.start!,
      apis: apis.slice(at).join(''),
    });
    for (const [ids, ofApi] of replies) {
      const api8 = apis[at++]!;
      if (!ids || places.size + ids.length / idBytes > examinedMax) return undefined;
      for (let from = 0; from < ids.length; from += idBytes) places.add(placeOf(ids.subarray(from), api8));
      total += ofApi;
    }
  }
  return { places, total };
}

async function findMany(
  context: StoreContext,
  workspaceId: string,
  apis: readonly string[],
  query: KeyQueries,
): Promise<Found[]> {
  const { filters, order, count, readMax } = query;
  const isFiltered = filters.some((filter) => Object.values(filter).some((value) => value !== undefined));
  const chunk = Math.ceil((isFiltered ? stepMax : Math.min(count + 1, stepMax)) / Math.max(1, apis.length));
  const sources = apis.map((api8) => sourceOf(api8, query, Math.max(4, chunk)));
  const hasStart = filters[0]!.start !== undefined;
  const max = hasStart ? lookedMaxByStart : readMax;
  const size = new Size();
  const searches = filters.map((filter) => new Search(filter, count, size));
  const ends = new Map<Search, Omit<Found, 'items' | 'total'>>();
  let last: Place | undefined;
  let looked = 0;
  let examinedCount = 0;
  let isComplete = true;
  let open = searches;
  let ahead: Promise<number> | undefined;
  while (looked < max && examinedCount < readMax && open.length > 0 && isComplete && !areRead(sources)) {
    const read = await (ahead ?? readAhead(context, workspaceId, sources, query));
    const { keys, end } = takeNext(sources, order);
    const some = keys.slice(0, readMax - examinedCount);
    // The next keys are read while these are examined. A page without a filter nearly always ends with these.
    const goesOn = isFiltered && some.length === keys.length && looked + keys.length < max;
    ahead = goesOn ? readAhead(context, workspaceId, sources, query) : undefined;
    // If it fails while these are examined, it is reported when it is awaited.
    ahead?.catch(() => {});
    let examined = 0;
    do {
      examined += await examine(context, workspaceId, some.slice(examined), open);
      const isAll = examined === keys.length;
      if (isAll) await ahead;
      last = isAll ? (end ?? last) : (keys[examined - 1]?.place ?? last);
      for (const search of open.filter(({ isOver }) => isOver)) {
        const isAtEnd = search.isEmpty || (isAll && areRead(sources)) || last === undefined;
        ends.set(search, { next: isAtEnd ? undefined : idOf(last!), looked: looked + (hasStart ? read : examined) });
      }
      open = open.filter(({ isOver }) => !isOver);
    } while (open.length > 0 && examined < some.length);
    examinedCount += examined;
    isComplete = examined === keys.length;
    looked += hasStart ? read : examined;
  }
  const isAtEnd = (isComplete && areRead(sources)) || last === undefined;
  const total = sources.reduce((sum, source) => sum + source.total, 0);
  return searches.map((search) => {
    const end = ends.get(search) ?? { next: isAtEnd ? undefined : idOf(last!), looked };
    return { items: search.items, ...end, total };
  });
}

const idOf = (place: Place): string => `key_${key24Of(place)}`;

/** The last 8 characters of the id of this API, or of all; undefined when they are too many. */
const apisOf = async (context: StoreContext, workspaceId: string, apiId: string | undefined) =>
  apiId === undefined ? allApis(context, workspaceId) : [apiId.slice(-8)];

/**
 * The last 8 characters of the ids of all APIs; undefined when they are too many. One command, so it needs no script.
 */
async function allApis({ redis }: StoreContext, workspaceId: string): Promise<string[] | undefined> {
  const ids = await orStoreError(redis.zrange(apisKey(workspaceKey(workspaceId)), '0', String(apisMax)));
  return ids.length > apisMax ? undefined : ids.map((id16) => id16.slice(8));
}

/** Reads ahead in the sources from which everything was taken. Returns how many keys were read. */
async function readAhead(
  { run }: StoreContext,
  workspaceId: string,
  sources: readonly Source[],
  { filters, order }: KeyQueries,
): Promise<number> {
  const [filter] = filters as [KeyFilter];
  const kind = filter.deleted ? 'deleted' : filter.externalId === undefined ? 'keys' : 'identity';
  let readCount = 0;
  let waiting = sources.filter(({ isTaken, isAtEnd }) => isTaken && !isAtEnd);
  while (waiting.length > 0) {
    const { chunk } = waiting[0]!;
    const some = waiting.filter((source) => source.chunk === chunk).slice(0, Math.ceil(aheadMax / chunk));
    const named = some.map(({ api8, last, fromLast }) => [api8, last, fromLast]);
    const { externalId = '', start = '' } = filter;
    const given = { source: kind, externalId, start, order, count: chunk, sources: JSON.stringify(named) };
    const replies = (await run('keys/next', workspaceId, given)) as NextReply[];
    for (const [index, reply] of replies.entries()) {
      readMembers(some[index]!, reply, filter.start === undefined ? stepMax : aheadMax);
      readCount += reply[1];
    }
    waiting = waiting.filter((source) => !some.includes(source));
  }
  return readCount;
}

/** Examines keys in order until one of these searches is over. Returns how many were examined. */
async function examine(
  { redis, run }: StoreContext,
  workspaceId: string,
  keys: readonly Candidate[],
  searches: readonly Search[],
): Promise<number> {
  let at = 0;
  while (at < keys.length && !searches.some(({ isOver }) => isOver)) {
    const some = keys.slice(at, at + stepMax).map(({ place, digest }) => digest ?? place);
    const filters = searches.map(({ filter, count, items }) => ({
      ...filter,
      search: lowered(filter.search),
      wanted: count - items.length,
    }));
    const [examined, ...found] = await run('keys/search', workspaceId, {
      keys: Buffer.from(some.join(''), 'latin1'),
      keyBytes: some[0]!.length,
      filters: JSON.stringify(filters),
    });
    at += examined;
    for (const [index, [mayMatch, ...keyReplies]] of found.entries()) {
      const search = searches[index]!;
      for (const keyReply of keyReplies) search.add(await readReply(redis, workspaceId, keyReply));
      search.isEmpty = mayMatch === 0;
    }
  }
  return at;
}

/** Letters A to Z in lower case: what Lua does with the texts that it searches. */
const lowered = (text: string | undefined) => text?.replaceAll(/[A-Z]/g, (letter) => letter.toLowerCase());

/** Of an API: the keys that were found, how many were read, the last of these, and how many there are. */
type NextReply = [found: Buffer, read: number, last: Buffer, total: number];

/** Adds keys to a source. The next chunk is larger. */
function readMembers(source: Source, [found, read, last, total]: NextReply, chunkMax: number) {
  source.ahead = [];
  const members = found.toString('latin1');
  for (let at = 0; at < members.length; at += memberBytes) {
    const place = members.slice(at, at + idBytes) + source.api8;
    source.ahead.push({ place, digest: members.slice(at + idBytes, at + memberBytes) });
  }
  source.isAtEnd = read < source.chunk;
  source.isTaken = read === 0;
  if (read > 0) {
    source.end = placeOf(last.subarray(0, idBytes), source.api8);
    source.last = key24Of(source.end);
  }
  source.total = total;
  source.fromLast = false;
  source.chunk = Math.min(2 * source.chunk, chunkMax);
}

const areRead = (sources: readonly Source[]): boolean => sources.every(({ isAtEnd, isTaken }) => isAtEnd && isTaken);

/**
 * Takes, in order, the keys up to the nearest end of what was read ahead, where further keys of that list may follow.
 * Returns that end too; without one, all keys of all lists were taken.
 */
function takeNext(sources: readonly Source[], order: Order): { keys: Candidate[]; end: Place | undefined } {
  const nearer = (one: Place | undefined, other: Place) =>
    one === undefined || isBefore(other, one, order) ? other : one;
  const end = sources
    .filter(({ isAtEnd }) => !isAtEnd)
    .reduce<Place | undefined>((one, { end }) => nearer(one, end), undefined);
  const keys: Candidate[] = [];
  for (const source of sources) {
    const behind = end === undefined ? -1 : source.ahead.findIndex(({ place }) => isBefore(end, place, order));
    keys.push(...source.ahead.splice(0, behind < 0 ? source.ahead.length : behind));
    source.isTaken = source.isAtEnd ? source.ahead.length === 0 : source.end === end;
  }
  if (sources.length > 1) keys.sort((one, other) => (isBefore(one.place, other.place, order) ? -1 : 1));
  return { keys, end };
}
