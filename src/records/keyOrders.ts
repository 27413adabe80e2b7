// The keys of several APIs in an order: by creation, from the lists of keys, or by expiry, from the indexes of keys by
// expiry (lua/include/expiries.lua). The lists of the APIs are merged: of each list some keys are read ahead, and all
// keys up to the nearest end of what was read are taken in order.

import { packId, unpackId } from '../domain/keyString.ts';
import type { StoreContext } from '../scripts/context.ts';
import type { Order } from './pages.ts';

/**
 * The place of a key in an order, as bytes, one per character: by creation its packed id, by expiry its expiry and its
 * packed id; then the end of the id of its API, because imported keys of two APIs may have the same packed id.
 */
export type Place = string;

/**
 * A key to examine. Its bytes are characters of strings, because a string of 32 characters costs less than a Buffer.
 */
export interface Candidate {
  place: Place;
  /** Undefined for a key from an index, whose record must still be read. */
  digest: string | undefined;
}

/** The list of an API's keys in an order. */
interface Source {
  api8: string;
  /** The place of the last key that was read, '' for none. */
  end: Place;
  /** The list is read from that key on, instead of after it. */
  fromEnd: boolean;
  /** All that was read was taken. */
  isTaken: boolean;
  isAtEnd: boolean;
  /** The keys that were read, in order. */
  ahead: Candidate[];
  /** How many keys to read next. */
  chunk: number;
  total: number;
}

/** The filters that choose the lists. */
export interface ListFilter {
  /** The beginning of the key string, more or less of it than is stored. */
  start?: string | undefined;
  externalId?: string | undefined;
  planId?: string | undefined;
  /** Unix milliseconds. */
  expiresBefore?: number | undefined;
  /** Unix milliseconds, included. Only with `expiresBefore`. */
  expiresAfter?: number | undefined;
  /** Lists deleted keys instead of the others. */
  deleted?: boolean | undefined;
}

interface Listing {
  by: KeyOrder;
  /** By expiry, `asc` has the first key to expire first. */
  order: Order;
  /** The first one chooses the lists. */
  filters: readonly ListFilter[];
}

/** Keys of an API: the keys that were found, how many were read, the last of these, and how many there are. */
type NextReply = [found: Buffer, read: number, last: Buffer, total: number];

interface Reading {
  sources: readonly Source[];
  filter: ListFilter;
  order: Order;
  /** Limit of the keys of each source. */
  count: number;
}

export interface KeyOrder {
  /** Bytes of a place without the API. */
  placeBytes: number;
  /** Bytes of a key in a reply: its place, and its digest if the list has it. */
  keyBytes: number;
  read(context: StoreContext, workspaceId: string, reading: Reading): Promise<NextReply[]>;
  /** The id of a key in a cursor. */
  idOf(place: Place): string;
}

/** Bytes of an id, of a digest and of an expiry in lists and indexes of keys. */
export const idBytes = 12;
const digestBytes = 32;
const expiresBytes = 6;

/** Keys that one step reads ahead. */
const aheadMax = 1000;
/** Limit of a chunk, which the next step examines. */
export const chunkMax = 250;

const bytesOf = (place: Place): Buffer => Buffer.from(place, 'latin1');
const textOf = (bytes: Buffer): string => bytes.toString('latin1');
const key24Of = (place: Place): string => unpackId(bytesOf(place.slice(-idBytes - 8, -8))) + place.slice(-8);
const expiresOf = (place: Place): number => bytesOf(place).readUIntBE(0, expiresBytes);

export const byCreation: KeyOrder = {
  placeBytes: idBytes,
  keyBytes: idBytes + digestBytes,
  async read({ run }, workspaceId, { sources, filter, order, count }) {
    const { deleted, externalId, planId, start = '' } = filter;
    const named = sources.map(({ api8, end, fromEnd }) => [api8, end && key24Of(end), fromEnd]);
    const owned = externalId !== undefined ? 'identity' : planId !== undefined ? 'plan' : 'keys';
    const source = deleted ? 'deleted' : owned;
    const given = { source, owner: externalId ?? planId ?? '', start, order, count, sources: JSON.stringify(named) };
    return (await run('keys/next', workspaceId, given)) as NextReply[];
  },
  idOf: (place) => `key_${key24Of(place)}`,
};

/** The keys that expire before a time, or in a period, and are not deleted. */
export const byExpiry: KeyOrder = {
  placeBytes: expiresBytes + idBytes,
  keyBytes: expiresBytes + idBytes,
  async read({ run }, workspaceId, { sources, filter, order, count }) {
    const named = sources.map(({ api8, end, fromEnd }) => [
      api8,
      end && String(expiresOf(end)),
      end && key24Of(end),
      fromEnd,
    ]);
    const { expiresBefore, expiresAfter = '' } = filter;
    const given = { expiresBefore: expiresBefore!, expiresAfter, order, count, sources: JSON.stringify(named) };
    return (await run('keys/expiring', workspaceId, given)) as NextReply[];
  },
  idOf: (place) => `${expiresOf(place)}_key_${key24Of(place)}`,
};

/** The order of a list by an id in its cursor. */
export const orderOfCursor = (id: string): KeyOrder => (id.startsWith('key_') ? byCreation : byExpiry);

/** The place of a key by its id in a cursor. */
export function placeOf(id: string): Place {
  const key24 = id.slice(-24);
  const place = textOf(packId(key24)) + key24.slice(-8);
  if (orderOfCursor(id) === byCreation) return place;
  const expires = Buffer.allocUnsafe(expiresBytes);
  expires.writeUIntBE(Number.parseInt(id, 10), 0, expiresBytes);
  return textOf(expires) + place;
}

/** The places by expiry of those of some keys, by their places by creation, that expire in the period of the filter. */
export async function expiringAmong(
  { run }: StoreContext,
  workspaceId: string,
  places: readonly Place[],
  { expiresBefore = 0, expiresAfter = 0 }: ListFilter,
): Promise<Place[]> {
  const found: Place[] = [];
  for (let at = 0; at < places.length; at += aheadMax) {
    const some = places.slice(at, at + aheadMax);
    const expiries = await run('keys/expiriesOf', workspaceId, { keys: Buffer.from(some.join(''), 'latin1') });
    for (const [index, place] of some.entries()) {
      const expires = expiries.readUIntBE(index * expiresBytes, expiresBytes);
      // NEVER is later than any time.
      if (expires >= expiresBefore || expires < expiresAfter) continue;
      found.push(textOf(expiries.subarray(index * expiresBytes, (index + 1) * expiresBytes)) + place);
    }
  }
  return found;
}

export const isBefore = (one: Place, other: Place, order: Order): boolean =>
  order === 'asc' ? one < other : one > other;

export const inOrder =
  (order: Order) =>
  (one: { place: Place }, other: { place: Place }): number =>
    isBefore(one.place, other.place, order) ? -1 : 1;

/** The list of an API, after the place of a key of any API; undefined for all of it. */
export function sourceOf(api8: string, after: Place | undefined, order: Order, chunk: number): Source {
  const end = after === undefined ? '' : after.slice(0, -8) + api8;
  // With the same packed id, the API decides.
  const fromEnd = after !== undefined && isBefore(after.slice(-8), api8, order);
  return { api8, end, fromEnd, isTaken: true, isAtEnd: false, ahead: [], chunk, total: 0 };
}

/** Reads ahead in the sources from which everything was taken. Returns how many keys were read. */
export async function readAhead(
  context: StoreContext,
  workspaceId: string,
  sources: readonly Source[],
  { by, order, filters }: Listing,
): Promise<number> {
  const [filter] = filters as [ListFilter];
  let readCount = 0;
  let waiting = sources.filter(({ isTaken, isAtEnd }) => isTaken && !isAtEnd);
  while (waiting.length > 0) {
    const { chunk } = waiting[0]!;
    const some = waiting.filter((source) => source.chunk === chunk).slice(0, Math.ceil(aheadMax / chunk));
    const replies = await by.read(context, workspaceId, { sources: some, filter, order, count: chunk });
    for (const [index, reply] of replies.entries()) {
      readKeys(by, some[index]!, reply, filter.start === undefined ? chunkMax : aheadMax);
      readCount += reply[1];
    }
    waiting = waiting.filter((source) => !some.includes(source));
  }
  return readCount;
}

/** Adds keys to a source. The next chunk is larger. */
function readKeys({ placeBytes, keyBytes }: KeyOrder, source: Source, reply: NextReply, max: number) {
  const [found, read, last, total] = reply;
  source.ahead = [];
  const keys = textOf(found);
  for (let at = 0; at < keys.length; at += keyBytes) {
    const place = keys.slice(at, at + placeBytes) + source.api8;
    source.ahead.push({ place, digest: keys.slice(at + placeBytes, at + keyBytes) || undefined });
  }
  source.isAtEnd = read < source.chunk;
  source.isTaken = read === 0;
  if (read > 0) source.end = textOf(last.subarray(0, placeBytes)) + source.api8;
  source.total = total;
  source.fromEnd = false;
  source.chunk = Math.min(2 * source.chunk, max);
}

export const areRead = (sources: readonly Source[]): boolean =>
  sources.every(({ isAtEnd, isTaken }) => isAtEnd && isTaken);

/**
 * Takes, in order, the keys up to the nearest end of what was read ahead, where further keys of that list may follow.
 * Returns that end too; without one, all keys of all lists were taken.
 */
export function takeNext(sources: readonly Source[], order: Order): { keys: Candidate[]; end: Place | undefined } {
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
  if (sources.length > 1) keys.sort(inOrder(order));
  return { keys, end };
}
