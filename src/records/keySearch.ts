// Lists the keys of one API or of all APIs of a workspace with filters: those that expire before a time in order of
// expiry, all others in order of creation (keyOrders.ts). There is an index of starts, which finds keys unless very
// many match. All other filters need a list in that order: a request examines a bounded number of keys in steps,
// between which Redis serves others, and reports how far it has looked. Several filters can be applied to the same
// keys, each of which is then read once.

import { idForms } from '../domain/records.ts';
import { orStoreError } from '../redis/connection.ts';
import { apisKey, workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import {
  areRead,
  byCreation,
  byExpiry,
  type Candidate,
  chunkMax,
  expiringAmong,
  idBytes,
  inOrder,
  isBefore,
  type KeyOrder,
  type ListFilter,
  orderOfCursor,
  type Place,
  placeOf,
  readAhead,
  sourceOf,
  takeNext,
} from './keyOrders.ts';
import { readReply } from './keyReplies.ts';
import { pageMetaMax } from './keys.ts';
import type { LookedPage, Order } from './pages.ts';
import type { KeyRecord } from './records.ts';

/** A filter of keys.listKeys. lua/keys/search.lua applies those that are not named here. */
export interface KeyFilter extends ListFilter {
  search?: string | undefined;
  [name: string]: string | number | boolean | undefined;
}

interface Listing {
  /** Undefined for all APIs. */
  apiId?: string | undefined;
  order: Order;
  /** The id in the cursor: the last key that was examined for the page before. */
  after?: string | undefined;
  /** The page of each filter. */
  count: number;
}

interface KeyQuery extends Listing {
  filter: KeyFilter;
}

interface KeyQueries extends Listing {
  by: KeyOrder;
  /** At least one. All have the same `deleted`, and only a single one has `start`, `externalId` or `planId`. */
  filters: readonly KeyFilter[];
  /** Limit of the keys whose record is read. */
  readMax: number;
}

/** Limit of the keys whose record one request reads. The index of starts returns no more. */
const examinedMax = 20_000;
/** Limit of the keys that one request by `start` reads in the lists. Keys that begin otherwise are read no further. */
const lookedMaxByStart = 200_000;
/** As examinedMax, of a request with several filters: a screen waits for all of them. */
const examinedMaxOfEach = 4000;
/** Limit of the APIs whose keys are listed together. */
export const apisMax = 1000;
/**
 * Keys that one step examines, at most: a few milliseconds of Redis's time. The script limits it further by their size.
 */
const stepMax = chunkMax;

/** The first version of the data in which the indexes of keys by expiry are complete. */
const expiriesSince = 5;

/**
 * The size of the response so far, of all its searches. `isFull` ends the page, so that writing it does not delay other
 * requests.
 */
class Size {
  readonly #metaMax: number;
  #metaLength = 0;
  #isLarge = false;

  constructor(metaMax = pageMetaMax) {
    this.#metaMax = metaMax;
  }

  add({ record, isLarge }: Awaited<ReturnType<typeof readReply>>) {
    this.#isLarge ||= isLarge;
    this.#metaLength += (record.meta?.text.length ?? 0) + (record.identity?.meta.text.length ?? 0);
  }

  get isFull(): boolean {
    return this.#isLarge || this.#metaLength > this.#metaMax;
  }

  /** The room left for the rest of the response. */
  rest(metaMax = pageMetaMax): Size {
    return new Size(metaMax - this.#metaLength);
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
      const by = orderFor(context, filter, listing.after);
      const query = { ...listing, by, filters: [filter], readMax: examinedMax };
      if (search !== undefined && idForms.key.test(search)) return findOne(context, workspaceId, search, query);
      const apis = await apisOf(context, workspaceId, query.apiId);
      if (!apis) return { refused: 'too_many_apis' };
      const few = await readFew(context, workspaceId, apis, query);
      return few
        ? findAmong(context, workspaceId, few, query)
        : (await findMany(context, workspaceId, apis, query))[0]!;
    },

    /** A page of keys for each filter, of APIs that exist. A filter ends when its page is full, the others continue. */
    async listEach(workspaceId: string, given: Omit<KeyQueries, 'by' | 'readMax'>): Promise<Found[] | TooMany> {
      const apis = await apisOf(context, workspaceId, given.apiId);
      if (!apis) return { refused: 'too_many_apis' };
      const query = { ...given, readMax: examinedMaxOfEach };
      const expiring = query.filters.find((filter) => orderFor(context, filter, query.after) === byExpiry);
      const others = query.filters.filter((filter) => filter !== expiring);
      // The list by expiry may use half of the size of the response, so that the others have some keys, too.
      const size = new Size(pageMetaMax / 2);
      const first = expiring
        ? await findMany(context, workspaceId, apis, { ...query, by: byExpiry, filters: [expiring] }, size)
        : [];
      const found =
        others.length > 0
          ? await findMany(context, workspaceId, apis, { ...query, by: byCreation, filters: others }, size.rest())
          : [];
      return query.filters.map((filter) => (filter === expiring ? first[0]! : found[others.indexOf(filter)]!));
    },
  };
}

/** The order of a list of keys. A cursor continues in its order, even if it began before the data had its version. */
function orderFor({ dataVersion }: StoreContext, filter: KeyFilter, after: string | undefined): KeyOrder {
  if (filter.expiresBefore === undefined || filter.deleted) return byCreation;
  if (after !== undefined) return orderOfCursor(after);
  return dataVersion.current >= expiriesSince ? byExpiry : byCreation;
}

/** The key with this id, if it is in the list and matches. */
async function findOne(context: StoreContext, workspaceId: string, keyId: string, query: KeyQueries): Promise<Found> {
  const search = new Search(query.filters[0]!, query.count);
  const place = placeOf(keyId);
  const source = sourceOf(keyId.slice(-8), place, query.order, 1);
  source.fromEnd = true;
  let looked = 0;
  if (query.apiId === undefined || query.apiId.endsWith(source.api8)) {
    looked = await readAhead(context, workspaceId, [source], { ...query, by: byCreation });
  }
  const keys = source.ahead.filter((key) => key.place === place);
  await examine(context, workspaceId, keys, [search]);
  return { items: search.items, next: undefined, looked, total: source.total };
}

/** The places of some keys, in no order. */
interface Few {
  places: readonly Place[];
  total: number;
}

/**
 * The keys that an index has for the filter, if these are few. If very many keys have a start, each part of a list has
 * some. Undefined if the list itself must be read.
 */
async function readFew(
  context: StoreContext,
  workspaceId: string,
  apis: readonly string[],
  { by, filters: [filter] }: KeyQueries,
): Promise<Few | undefined> {
  const { start, externalId, deleted } = filter!;
  const isOfIdentity = externalId !== undefined && !deleted;
  if (by === byCreation) {
    // The list of an identity has few keys and is in order. They are not looked up in the index.
    return start === undefined || isOfIdentity ? undefined : readStarted(context, workspaceId, apis, filter!);
  }
  const few = isOfIdentity
    ? await readIdentity(context, workspaceId, apis, filter!)
    : start !== undefined && (await readStarted(context, workspaceId, apis, filter!));
  if (!few) return undefined;
  const places = await expiringAmong(context, workspaceId, few.places, filter!);
  return { places, total: places.length };
}

/** A page of these keys. */
async function findAmong(
  context: StoreContext,
  workspaceId: string,
  { places, total }: Few,
  { filters, order, after, count, by }: KeyQueries,
): Promise<Found> {
  const last = after === undefined ? undefined : placeOf(after);
  const keys = places
    .filter((place) => last === undefined || isBefore(last, place, order))
    .map((place) => ({ place, digest: undefined }))
    .sort(inOrder(order));
  const search = new Search(filters[0]!, count);
  const looked = await examine(context, workspaceId, keys, [search]);
  const isAtEnd = search.isEmpty || looked === keys.length;
  return { items: search.items, next: isAtEnd ? undefined : by.idOf(keys[looked - 1]!.place), looked, total };
}

/** The keys that the index has for a start, and how many keys the APIs have; undefined if there are too many. */
async function readStarted(
  { run }: StoreContext,
  workspaceId: string,
  apis: readonly string[],
  filter: KeyFilter,
): Promise<Few | undefined> {
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
      const bytes = ids.toString('latin1');
      for (let from = 0; from < bytes.length; from += idBytes) places.add(bytes.slice(from, from + idBytes) + api8);
      total += ofApi;
    }
  }
  return { places: [...places], total };
}

/** The keys of an identity; undefined if there are too many. */
async function readIdentity(
  context: StoreContext,
  workspaceId: string,
  apis: readonly string[],
  filter: KeyFilter,
): Promise<Few | undefined> {
  const chunk = chunkOf(stepMax, apis);
  const sources = apis.map((api8) => sourceOf(api8, undefined, 'asc', chunk));
  const places: Place[] = [];
  while (!areRead(sources)) {
    await readAhead(context, workspaceId, sources, { by: byCreation, order: 'asc', filters: [filter] });
    for (const source of sources) {
      for (const { place } of source.ahead.splice(0)) places.push(place);
      source.isTaken = true;
    }
    if (places.length > examinedMax) return undefined;
  }
  return { places, total: places.length };
}

async function findMany(
  context: StoreContext,
  workspaceId: string,
  apis: readonly string[],
  query: KeyQueries,
  size = new Size(),
): Promise<Found[]> {
  const { by, filters, order, count, readMax, after } = query;
  const isFiltered = filters.some((filter) => isSelective(filter, by));
  const chunk = chunkOf(isFiltered ? stepMax : Math.min(count + 1, stepMax), apis);
  const afterPlace = after === undefined ? undefined : placeOf(after);
  const sources = apis.map((api8) => sourceOf(api8, afterPlace, order, chunk));
  // By expiry the start is compared when the key is examined.
  const readsStarts = by === byCreation && filters[0]!.start !== undefined;
  const max = readsStarts ? lookedMaxByStart : readMax;
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
        ends.set(search, {
          next: isAtEnd ? undefined : by.idOf(last!),
          looked: looked + (readsStarts ? read : examined),
        });
      }
      open = open.filter(({ isOver }) => !isOver);
    } while (open.length > 0 && examined < some.length);
    examinedCount += examined;
    isComplete = examined === keys.length;
    looked += readsStarts ? read : examined;
  }
  const isAtEnd = (isComplete && areRead(sources)) || last === undefined;
  const total = sources.reduce((sum, source) => sum + source.total, 0);
  return searches.map((search) => {
    const end = ends.get(search) ?? { next: isAtEnd ? undefined : by.idOf(last!), looked };
    return { items: search.items, ...end, total };
  });
}

/** How many keys to read first of each API, to have about this many of all. */
const chunkOf = (count: number, apis: readonly string[]): number =>
  Math.max(4, Math.ceil(count / Math.max(1, apis.length)));

/** Whether a filter leaves out keys of the list. */
const isSelective = (filter: KeyFilter, by: KeyOrder): boolean =>
  Object.entries(filter).some(([name, value]) => value !== undefined && !(by === byExpiry && /^expires/.test(name)));

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
