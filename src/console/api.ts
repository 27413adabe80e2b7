// Calls of operations, and a cache of their responses.

import { useEffect, useReducer } from 'preact/hooks';
import type { Pagination } from '../domain/pagination.ts';
import { escapeInvisible } from '../domain/visible.ts';
import { currentSignIn, endSignIn } from './session.ts';
import { whenSaved } from './unsaved.ts';

/** An error of an operation, with the fields it names. */
export class Failure extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
  readonly fields: readonly { location: string; message: string; fix?: string }[];

  constructor(status: number, body: ErrorBody) {
    super(body.error?.detail ?? `The server responded ${status}.`);
    this.status = status;
    this.code = body.error?.type?.split('/').at(-1) ?? '';
    this.requestId = body.meta?.requestId ?? '';
    this.fields = body.error?.errors ?? [];
  }
}

interface ErrorBody {
  meta?: { requestId?: string };
  error?: { detail?: string; type?: string; errors?: Failure['fields'] };
}

export interface Page<T> {
  data: T;
  pagination?: Pagination;
  /** When it was asked for: what was changed since may not be in it. */
  askedAt: number;
}

/** Calls an operation. Throws a Failure for its errors, and for a server that cannot be reached. */
export async function callPage<T>(operation: string, input: object, rootKey?: string): Promise<Page<T>> {
  const key = rootKey ?? currentSignIn()?.rootKey;
  const askedAt = performance.now();
  let response: Response;
  try {
    response = await fetch(`/v2/${operation}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${key}` },
      body: JSON.stringify(input),
    });
  } catch {
    throw new Failure(0, { error: { detail: 'The server cannot be reached.' } });
  }
  const body = await response.json().catch(() => ({}));
  if (response.ok) return { ...body, askedAt };
  const failure = new Failure(response.status, body);
  const isOver = failure.status === 401 || /^root_key_(disabled|expired)$/.test(failure.code);
  if (isOver && rootKey === undefined && key === currentSignIn()?.rootKey) {
    const reason = failure.status === 401 ? 'Your root key is no longer accepted.' : failure.message;
    whenSaved(() => endSignIn(reason), reason);
  }
  throw failure;
}

export const call = async <T>(operation: string, input: object, rootKey?: string): Promise<T> =>
  (await callPage<T>(operation, input, rootKey)).data;

// ---- Cached data: a screen displays the last response immediately, and the next one when it arrives.

interface Entry {
  page: Page<unknown> | undefined;
  failure: Failure | undefined;
  /** When the last load ended, and when `page` was loaded. */
  at: number;
  loadedAt: number;
  loading: Promise<void> | undefined;
  /** How long the last load took. */
  tookMs: number;
  listeners: Set<() => void>;
  /** Whether its loads wait for those of others. */
  isInTurn: boolean;
}

export interface Data<T> {
  /** Undefined until the first response. */
  data: T | undefined;
  pagination: Page<T>['pagination'];
  askedAt: number;
  failure: Failure | undefined;
  reload: () => Promise<void>;
}

const entriesMax = 200;
/** Data of this age is reloaded when a screen opens. */
const freshMs = 2000;
/**
 * Data is reloaded after this many times the duration of its last load: a ranking of very many keys takes the server
 * some seconds.
 */
const restTimes = 10;
const entries = new Map<string, Entry>();
/** Called after every load. */
const watchers = new Set<() => void>();

function entryOf(id: string): Entry {
  let entry = entries.get(id);
  if (!entry) {
    for (const [oldest, { listeners }] of entries) {
      if (entries.size < entriesMax) break;
      if (listeners.size === 0) entries.delete(oldest);
    }
    const none = { page: undefined, failure: undefined, loading: undefined, isInTurn: false };
    entry = { ...none, at: 0, loadedAt: 0, tookMs: 0, listeners: new Set() };
    entries.set(id, entry);
  }
  return entry;
}

/** Loads that wait for those before them: as many at a time as there are queues. */
const queues: Promise<unknown>[] = [Promise.resolve(), Promise.resolve()];
let queued = 0;

/** Loads in its turn. If the user has left the screen or the workspace by then, nothing is sent. */
function callInTurn(entry: Entry, operation: string, input: object): Promise<Page<unknown> | undefined> {
  const at = queued++ % queues.length;
  const { workspaceId } = currentSignIn() ?? {};
  const isWanted = () => entry.listeners.size > 0 && currentSignIn()?.workspaceId === workspaceId;
  const turn = queues[at]!.then(() => (isWanted() ? callPage(operation, input) : undefined));
  queues[at] = turn.catch(() => {});
  return turn;
}

function load(entry: Entry, operation: string, input: object): Promise<void> {
  if (entry.loading) return entry.loading;
  const begunAt = performance.now();
  entry.loading = (entry.isInTurn ? callInTurn(entry, operation, input) : callPage(operation, input))
    .then(
      (page) => {
        if (!page) return;
        entry.page = page;
        entry.loadedAt = Date.now();
        entry.failure = undefined;
      },
      (cause: unknown) => {
        entry.failure = cause instanceof Failure ? cause : new Failure(0, { error: { detail: String(cause) } });
      },
    )
    .finally(() => {
      entry.loading = undefined;
      entry.at = performance.now();
      entry.tookMs = entry.at - begunAt;
      for (const listener of entry.listeners) listener();
      for (const watcher of watchers) watcher();
    });
  return entry.loading;
}

/**
 * The response of an operation, reloaded every `everyMs` while the page is visible, and less often if it takes long.
 * Without an input nothing is sent. The response that an earlier screen got is returned immediately. `isInTurn`: one of
 * many loads, as for rows.
 */
export function useData<T>(operation: string, input: object | undefined, everyMs = 0, isInTurn = false): Data<T> {
  const [, draw] = useReducer((count: number) => count + 1, 0);
  const id = input && idOf(operation, input);
  const entry = id === undefined ? undefined : entryOf(id);
  useEffect(() => {
    if (!entry || !input) return;
    const listener = () => draw(undefined as never);
    entry.listeners.add(listener);
    entry.isInTurn = isInTurn;
    if (performance.now() - entry.at > freshMs || (!entry.page && !entry.failure)) load(entry, operation, input);
    const reload = () => {
      const isRested = performance.now() - entry.at >= restTimes * entry.tookMs;
      if (isRested && !document.hidden) load(entry, operation, input);
    };
    const timer = everyMs > 0 && setInterval(reload, everyMs);
    return () => {
      entry.listeners.delete(listener);
      if (timer) clearInterval(timer);
    };
  }, [id, everyMs]);
  return {
    data: entry?.page?.data as T | undefined,
    pagination: entry?.page?.pagination,
    askedAt: entry?.page?.askedAt ?? 0,
    failure: entry?.failure,
    reload: () => (entry && input ? load(entry, operation, input) : Promise.resolve()),
  };
}

const refreshed = new Set<() => void>();
/** Calls the listener when data may have changed, before it is reloaded. */
export const onRefresh = (listener: () => void) => refreshed.add(listener);

/**
 * Reloads the data of the open screen, after a change. Lists of the operation `changed` display the change already, and
 * stay: a search would begin again.
 */
export function refresh(changed?: string) {
  if (changed === undefined) for (const listener of refreshed) listener();
  for (const [id, entry] of entries) {
    if (entry.listeners.size > 0 && operationOf(id) === changed) continue;
    if (entry.listeners.size === 0) {
      // Reloaded when a screen uses it. It is not removed, as a component that was rendered may not listen yet.
      entry.at = Number.NEGATIVE_INFINITY;
      continue;
    }
    // What is loading may have been read before the change.
    if (entry.loading) entry.loading.then(() => entry.listeners.size > 0 && reload(id, entry));
    else reload(id, entry);
  }
}

const idOf = (operation: string, input: object) =>
  `${currentSignIn()?.workspaceId} ${operation} ${JSON.stringify(input)}`;

/** The operation in the id of an entry. */
const operationOf = (id: string): string => id.split(' ', 2)[1]!;

function reload(id: string, entry: Entry) {
  const operation = operationOf(id);
  load(entry, operation, JSON.parse(id.slice(id.indexOf(operation) + operation.length + 1)));
}

const retryMs = 3000;

/** The oldest data of the open screen that could not be loaded again. A request without a response is retried. */
export function useStale(): { failure: Failure; loadedAt: number } | undefined {
  const [, draw] = useReducer((count: number) => count + 1, 0);
  const failed = [...entries].filter(([, { listeners, failure }]) => listeners.size > 0 && failure);
  useEffect(() => {
    const watcher = () => draw(undefined as never);
    watchers.add(watcher);
    return () => watchers.delete(watcher);
  }, []);
  useEffect(() => {
    if (failed.length === 0) return;
    const timer = setInterval(() => {
      for (const [id, entry] of failed) {
        const { status = 0 } = entry.failure ?? {};
        if (!document.hidden && (status === 0 || status === 429 || status >= 500)) reload(id, entry);
      }
    }, retryMs);
    return () => clearInterval(timer);
  }, [failed.map(([id]) => id).join()]);
  const [oldest] = failed.filter(([, { page }]) => page).sort(([, a], [, b]) => a.loadedAt - b.loadedAt);
  return oldest && { failure: oldest[1].failure!, loadedAt: oldest[1].loadedAt };
}

/** Clears the cache, when the workspace changes. */
export function forgetAll() {
  for (const [id, { listeners }] of entries) if (listeners.size === 0) entries.delete(id);
}

/** Forgets a response that no screen displays, with its request. */
export function forget(operation: string, input: object) {
  const id = idOf(operation, input);
  if (entries.get(id)?.listeners.size === 0) entries.delete(id);
}

/** A request as a command, with the root key as a variable. */
export function curlOf(operation: string, input: object): string {
  const body = escapeInvisible(JSON.stringify(input)).replaceAll("'", "'\\''");
  return [
    `curl ${location.origin}/v2/${operation} \\`,
    `  -H "Authorization: Bearer $ROOT_KEY" \\`,
    `  -H 'Content-Type: application/json' \\`,
    `  -d '${body}'`,
  ].join('\n');
}
