// Lists, page after page by cursor: for a table, for a search that goes on by itself, and for a file.

import { useEffect, useReducer, useRef, useState } from 'preact/hooks';
import { useAddress } from './address.ts';
import { callPage, type Data, type Failure, onRefresh, type Page, useData } from './api.ts';
import type { Key } from './records.ts';
import { currentSignIn, onSignIn } from './session.ts';

type Input = { limit?: number; [name: string]: unknown };

export interface Paged<T> {
  rows: readonly T[] | undefined;
  failure: Failure | undefined;
  hasMore: boolean;
  /** Loads one more page. */
  more: () => void;
  /** Whether a search has not found enough yet, and continues by itself. */
  isSearching: boolean;
  stop: () => void;
  /** Whether a table has the most rows that it may have. */
  isFull: boolean;
  reload: () => Promise<void>;
  /** All pages that were loaded. */
  pages: readonly Page<T[]>[];
  /** The operation of the list. */
  operation: string;
  input: Input | undefined;
}

/** A table with more pages is slow. A file has all rows. */
const pagesMax = 100;

/** The later pages of a list, which follow a first page with this cursor. */
interface Rest {
  after: string | undefined;
  pages: readonly Page<unknown[]>[];
}
const rests = new Map<string, Rest>();
const restsMax = 20;
onSignIn(() => rests.clear());
onRefresh(() => rests.clear());

function keepRest(id: string, rest: Rest) {
  rests.delete(id);
  rests.set(id, rest);
  if (rests.size > restsMax) rests.delete(rests.keys().next().value!);
}

/** Fields of keys that were changed, and when: a list that was asked for before has other ones. */
const changed = new Map<string, { fields: Partial<Key>; at: number }>();
onSignIn(() => changed.clear());

/** Displays changed fields of a key in all lists before they are loaded again. */
export function change(keyId: string, fields: Partial<Key>) {
  changed.set(keyId, { fields: { ...changed.get(keyId)?.fields, ...fields }, at: performance.now() });
}

/** A key that was read at that time, as it is now. */
export function asChanged(key: Key, readAt: number): Key {
  const { fields, at = 0 } = changed.get(key.keyId) ?? {};
  return at > readAt ? { ...key, ...fields } : key;
}

/** Searches read one page after the other, so that the server responds to the other cards of a screen meanwhile. */
let turn: Promise<unknown> = Promise.resolve();
function inTurn<T>(read: () => Promise<T> | undefined): Promise<T | undefined> {
  const page = turn.then(read);
  turn = page.catch(() => {});
  return page;
}

const idOf = (operation: string, input: Input | undefined) =>
  `${currentSignIn()?.workspaceId} ${operation} ${JSON.stringify(input)}`;

/** Whether the list is filtered, so that a page may have fewer rows than it examined. */
const isSearch = (input: Input | undefined, { data, pagination }: Page<unknown[]>) =>
  input?.search !== undefined || (pagination?.looked ?? 0) > data.length;

/** How many pages are displayed. In the address, only one list of a screen can have it. */
function useWanted(id: string, isInAddress: boolean): [number, (count: number) => void] {
  const [{ pages }, set] = useAddress({ pages: '' });
  const [local, setLocal] = useState({ id, wanted: 1 });
  const wanted = isInAddress ? Math.floor(Number(pages)) : local.id === id ? local.wanted : 1;
  const enter = (count: number) => (isInAddress ? set({ pages: `${count}` }, true) : setLocal({ id, wanted: count }));
  return [Math.min(pagesMax, Math.max(1, wanted || 0)), enter];
}

/** The rows of a list. One page alone is loaded again every `everyMs`. The number of pages may be in the address. */
export function usePages<T>(operation: string, input: Input | undefined, everyMs = 0, isInAddress = false): Paged<T> {
  const isLong = rests.get(idOf(operation, input))?.pages.length;
  const first = useData<T[]>(operation, input, isLong ? 0 : everyMs);
  return useRest(first, operation, input, isInAddress);
}

/** The rows of a list whose first page is from another operation. */
export const usePagesAfter = <T>(first: Data<T[]>, operation: string, input: Input | undefined): Paged<T> =>
  useRest(first, operation, input, false);

function useRest<T>(first: Data<T[]>, operation: string, input: Input | undefined, isInAddress: boolean): Paged<T> {
  const id = idOf(operation, input);
  const [, draw] = useReducer((count: number) => count + 1, 0);
  const [wanted, setWanted] = useWanted(id, isInAddress);
  const [ended, setEnded] = useState<{ id: string; failure?: Failure }>();
  const isEnded = ended?.id === id;
  const after = first.pagination?.cursor;
  const rest = rests.get(id) as { after: typeof after; pages: readonly Page<T[]>[] } | undefined;
  const later = rest?.after === after ? (rest?.pages ?? []) : [];
  const { data, pagination, askedAt } = first;
  const pages = data ? [{ data, pagination, askedAt }, ...later] : [];
  const last = pages.at(-1);
  const { hasMore = false, cursor } = last?.pagination ?? {};
  const rows = pages.flatMap(({ data, askedAt }) =>
    operation === 'keys.listKeys' ? data.map((key) => asChanged(key as Key, askedAt) as T) : data,
  );
  const size = input?.limit ?? 100;
  const searches = last !== undefined && isSearch(input, last);
  const isLoading = hasMore && !isEnded && rows.length < wanted * size && (searches || pages.length < wanted);
  useEffect(() => {
    if (!isLoading) return undefined;
    let isLeft = false;
    const read = () => (isLeft ? undefined : callPage<T[]>(operation, { ...input, cursor }));
    (searches ? inTurn(read) : read()!).then(
      (page) => {
        if (isLeft || !page) return;
        // Ignored if the pages before it were dropped meanwhile.
        if (rests.get(id) === rest) keepRest(id, { after, pages: [...later, page] });
        draw(undefined as never);
      },
      (failure) => !isLeft && setEnded({ id, failure }),
    );
    return () => {
      isLeft = true;
    };
  }, [isLoading, id, cursor]);
  // The displayed rows stay while later pages are loaded again, after a change of the first one.
  const shown = useRef({ id, rows });
  if (shown.current.id !== id || !isLoading || rows.length >= shown.current.rows.length) shown.current = { id, rows };
  const more = () => {
    setEnded(undefined);
    setWanted(Math.max(Math.floor(rows.length / size), searches ? 0 : pages.length) + 1);
  };
  return {
    rows: first.data && shown.current.rows,
    failure: first.failure ?? (isEnded ? ended.failure : undefined),
    hasMore,
    more,
    isSearching: isLoading && searches,
    stop: () => setEnded({ id }),
    isFull: wanted === pagesMax,
    reload: first.reload,
    pages,
    operation,
    input,
  };
}

/** For each id of a list, the ids on the same page, which share one request. */
export function slicesOf(ids: readonly string[], pageSize: number): Map<string, readonly string[]> {
  const slices = new Map<string, readonly string[]>();
  for (let first = 0; first < ids.length; first += pageSize) {
    const slice = ids.slice(first, first + pageSize);
    for (const id of slice) slices.set(id, slice);
  }
  return slices;
}

/** Whether a list has a row; undefined until that is known. */
export const isFound = ({ rows, hasMore }: Paged<unknown>): boolean | undefined =>
  rows && (rows.length > 0 || (hasMore ? undefined : false));

/** The pages of a list after a cursor, or all. */
export async function* pagesOf<T>(operation: string, input: object, after?: string): AsyncGenerator<Page<T[]>> {
  let cursor = after;
  do {
    const page = await callPage<T[]>(operation, { ...input, ...(cursor && { cursor }) });
    yield page;
    cursor = page.pagination?.cursor;
  } while (cursor);
}
