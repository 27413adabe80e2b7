// The sums of all customers in a period, in order of their externalIds byte by byte: a bill of any length.
//
// A pass adds up a window of customers: days that were rolled up from the sums by customer, and the others from the
// keys that were used on them. The window is kept for some time, because the next page begins in it. Without it, as on
// another server, the next page makes a pass of its own: a place is an externalId, so no customer is left out or
// repeated. A pass may take longer than a caller waits: then a page is empty, and the next one waits for the same pass.

import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { digestOf } from '../domain/keyString.ts';
import { type Outcome, outcomes } from '../domain/verification.ts';
import { countedOutcomes, spentPlace } from '../scripts/layout.ts';
import { countKeys, countSums, type VisitSum } from './histories.ts';
import type { UsageScope } from './query.ts';
import { summedDays } from './summed.ts';
import { usedKeys } from './used.ts';
import { type Customer, CustomerWindow } from './window.ts';

/** The progress of a pass: used keys that were read, and about how many there are. */
interface Work {
  done: number;
  total: number;
}

/**
 * Adds up the first customers after a place, at most `max` if no keys have to be read: then they cost no more than
 * their own sums. Keys would all have to be read again for the next ones.
 */
export async function windowOf(
  scope: UsageScope,
  after: string | undefined,
  { work = { done: 0, total: 0 }, max = Number.POSITIVE_INFINITY }: { work?: Work; max?: number } = {},
): Promise<CustomerWindow> {
  const { customers } = scope.context.usageBounds;
  let window = new CustomerWindow(after, customers, scope.apart);
  const visit: VisitSum = ({ externalId, counts, apiId }) => window.add(externalId, counts, apiId);
  const settle = (count: number) => {
    work.done += count;
    window.settle();
  };
  const summed = await summedDays(scope);
  const rest = { ...scope, period: { ...scope.period, summed } };
  const entries = (count: number) => {
    work.total = count;
  };
  // The keys first: their number is known before they are read, and they take longest.
  for await (const keys of usedKeys(rest, { entries })) await countKeys(rest, keys, visit, settle);
  if (work.total === 0) window = new CustomerWindow(after, Math.min(max, customers), scope.apart);
  if (summed) await countSums(rest, { from: after ?? '', upTo: () => window.upTo }, visit, settle);
  return window.finish();
}

/** Each next window holds this many times as many customers, if no keys are read. The first one holds two pages. */
const growth = 8;
/** How long a page waits for a pass. */
const waitMs = 4000;
/** How long a window is kept after its last page. */
const keptMs = 60_000;
/** Limit of the customers in all windows that are kept, and of the windows of a workspace. */
const keptMax = { customers: 600_000, windows: 4 };
/**
 * Limit of the passes at a time, of a workspace and of all: they go on after their requests were answered, and each has
 * a window and used keys in memory.
 */
const passesMax = { workspace: 2, all: 4 };

/** The beginning of a page in a listing: after a place, or at its start. */
export interface CustomersFrom {
  listing: string;
  place: string | undefined;
}

/** Where a pass begins. */
interface Place {
  workspaceId: string;
  /** A listing has passes of its own: otherwise it could have counts from before it began. */
  listing: string;
  after: string | undefined;
  /**
   * What is counted. A cursor may come from another root key, or the grants and prices may have changed, so the window
   * of a listing may have other APIs than this caller may read.
   */
  counted: string;
}

interface Pass extends Place {
  /** Limit of its customers, if no keys are read. */
  max: number;
  work: Work;
  /** The part of `work` that was reported to the caller. */
  reported: number;
  window: CustomerWindow | undefined;
  /** Resolves when the window is complete, or the pass has failed. */
  ended: Promise<void>;
  error: unknown;
  usedAt: number;
}

/** The counts of a customer. */
export interface CustomerRow {
  /** '' for keys without an identity. */
  externalId: string;
  count: number;
  /** Without outcomes that were not counted. */
  outcomes: Partial<Record<Outcome, number>>;
  spentCredits: number;
  /** Of APIs that are counted apart, see Customer of window.ts. */
  apart?: number[];
  /** The plan of the identity now. */
  planId?: string;
}

export interface CustomersPage {
  customers: CustomerRow[];
  /** Undefined at the end. */
  next: CustomersFrom | undefined;
  /**
   * The page is empty because usage is being added up: used keys that were read since the last page, and all of them.
   */
  looked?: number;
  total?: number;
}

/** Returns a function that reads a page of customers; `from` is `next` of the page before. */
export function openCustomers() {
  const passes = new Passes();
  return async function page(
    scope: UsageScope,
    from: CustomersFrom = { listing: randomBytes(6).toString('hex'), place: undefined },
    limit: number,
  ): Promise<CustomersPage> {
    const { workspaceId } = scope;
    const { listing, place } = from;
    const { apiIds, apart, period } = scope;
    const counted = digestOf(JSON.stringify([apiIds, apart, period])).toString('latin1');
    const of = { workspaceId, listing, after: place, counted };
    const until = performance.now() + waitMs;
    let pass = passes.find(of);
    for (; !pass; pass ??= passes.find(of)) {
      const first = passes.toWaitFor(workspaceId);
      if (first.length === 0) pass = passes.begin(scope, of, limit);
      else if (performance.now() >= until) return { customers: [], next: from };
      else await Promise.race([...first.map(({ ended }) => ended), delay(until - performance.now())]);
    }
    await Promise.race([pass.ended, delay(Math.max(0, until - performance.now()))]);
    if (pass.error !== undefined) throw pass.error;
    return pass.window ? pageOf(pass, pass.window, place, limit) : reportOf(pass, place);
  };
}

function pageOf(pass: Pass, window: CustomerWindow, after: string | undefined, limit: number): CustomersPage {
  pass.usedAt = performance.now();
  const { listing } = pass;
  const customers = window.page(after, limit + 1, rowOf);
  const hasMore = customers.length > limit;
  if (hasMore) customers.pop();
  const place = hasMore ? customers.at(-1)!.externalId : window.upTo;
  return { customers, next: place === undefined ? undefined : { listing, place } };
}

function rowOf({ externalId, counts, apart }: Customer): CustomerRow {
  const row: CustomerRow = { externalId, count: 0, outcomes: {}, spentCredits: counts[spentPlace]! };
  if (apart.length > 0) row.apart = [...apart];
  for (const number of countedOutcomes) {
    const count = counts[number - 1]!;
    row.count += count;
    if (count > 0) row.outcomes[outcomes[number - 1]!] = count;
  }
  return row;
}

/** An empty page, with the progress since the last one. */
function reportOf(pass: Pass, place: string | undefined): CustomersPage {
  const { done, total } = pass.work;
  const looked = done - pass.reported;
  pass.reported = done;
  return { customers: [], next: { listing: pass.listing, place }, looked, total: Math.max(total, done) };
}

/** The passes that run, and those whose windows are kept. */
class Passes {
  readonly #all = new Set<Pass>();
  #timer: NodeJS.Timeout | undefined;

  /** The pass of a listing that has, or will have, the customers after a place. */
  find({ workspaceId, listing, after, counted }: Place): Pass | undefined {
    return [...this.#all].find(
      (pass) =>
        pass.workspaceId === workspaceId &&
        pass.listing === listing &&
        pass.counted === counted &&
        (pass.window ? pass.window.has(after) : pass.after === after),
    );
  }

  /** The passes to wait for, if there are too many: one of them must end before this workspace may begin another. */
  toWaitFor(workspaceId: string): Pass[] {
    const running = [...this.#all].filter(({ window }) => !window);
    const own = running.filter((pass) => pass.workspaceId === workspaceId);
    if (own.length >= passesMax.workspace) return own;
    return running.length >= passesMax.all ? running : [];
  }

  /** Limit of the customers of the next window of a listing, if no keys are read. */
  #maxOf({ workspaceId, listing, after }: Place, limit: number): number {
    if (after === undefined) return 2 * limit;
    const before = [...this.#all].find(
      (pass) => pass.workspaceId === workspaceId && pass.listing === listing && pass.window?.upTo === after,
    );
    return before ? growth * before.max : Number.POSITIVE_INFINITY;
  }

  begin(scope: UsageScope, of: Place, limit: number): Pass {
    const work = { done: 0, total: 0 };
    const max = this.#maxOf(of, limit);
    const reading = windowOf(scope, of.after, { work, max });
    const pass: Pass = {
      ...of,
      max,
      work,
      reported: 0,
      window: undefined,
      error: undefined,
      usedAt: 0,
      ended: Promise.resolve(),
    };
    pass.ended = reading.then(
      (window) => {
        pass.window = window;
        pass.usedAt = performance.now();
        this.#bound();
      },
      (error) => {
        pass.error = error;
        this.#all.delete(pass);
      },
    );
    this.#all.add(pass);
    return pass;
  }

  /** Drops windows that are not used any more, and the oldest of too many. */
  #bound() {
    const latest = [...this.#all].filter(({ window }) => window).sort((a, b) => b.usedAt - a.usedAt);
    let customers = 0;
    const windows = new Map<string, number>();
    for (const pass of latest) {
      const ofWorkspace = (windows.get(pass.workspaceId) ?? 0) + 1;
      windows.set(pass.workspaceId, ofWorkspace);
      customers += pass.window!.size;
      const isKept = performance.now() - pass.usedAt < keptMs;
      // The latest one is kept in any case.
      const fits = pass === latest[0] || (customers <= keptMax.customers && ofWorkspace <= keptMax.windows);
      if (!isKept || !fits) this.#all.delete(pass);
    }
    if (this.#all.size === 0) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#bound(), keptMs).unref();
  }
}
