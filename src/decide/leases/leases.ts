// The leases of this process: decisions that it may repeat by itself, without Redis, for a short time.
//
// The life of a lease:
//
//   ask      A request that was decided often within a term is sent as a lease item (`ask`), with how many more
//            decisions like it this process wants.
//   grant    lua/decide/lease.lua decides it as any other, charges units for further decisions in advance, and returns
//            their number and the term of the lease (`granted`). A decision that charges nothing (a key without limits
//            and credits, or a refusal) is leased without units.
//   decide   The same request is decided here (`decide`) until the lease ends or its units are used. What was decided
//            is tallied, for each list of tags by itself. When a quarter of its units or its term is left, or no more
//            of the term than a round trip, one request asks for the next lease, and the others are decided here
//            meanwhile. The next lease ends this one.
//   settle   Tallies are sent to Redis every quarter of a term, with the units of ended leases that were not used
//            (`settle`). Of a lease that decided little, there is one tally, at its end.
//   recall   A change of the workspace, or a refusal that returned units would turn into a VALID, takes leases back
//            (`recall`): they end at once, also those whose grant is on its way, and the recall is answered when they
//            are settled. After a refusal, Redis grants no more of them in a while, so that the refused request is
//            decided meanwhile.
//
// A lease ends `term` after the moment before it was asked for, by the monotonic clock of this process. So it has ended
// here before a change is answered, which waits for the term after it was made. A term is LEASE_MS and what a call to
// Redis takes (roundTrip.ts): what is left of it when the answer comes does not depend on the distance. Redis bounds
// and stores it with the grant, so no promise depends on what was measured. What charges nothing, and what has much
// room in its limits and balance, is leased for LEASE_LONG_MS in place of LEASE_MS, so a lease of it is asked for after
// fewer decisions.

import { hourMs } from '../../domain/time.ts';
import type { tally as tallyStruct } from '../../scripts/layout.ts';
import type { Written } from '../../scripts/struct.ts';
import { Amounts, type Charge } from './amounts.ts';

export type Tally = Written<typeof tallyStruct.fields>;

export interface LeaseOptions {
  /** LEASE_MS. */
  termMs: number;
  /** LEASE_LONG_MS; not less than LEASE_MS. */
  longMs?: (() => number) | undefined;
  /**
   * A lease is asked for from this many decisions in a term of LEASE_MS on, or from fewer in a long one (`near`).
   */
  after: number;
  /** Milliseconds of a monotonic clock. */
  nowMs: () => number;
  /** Whether this process receives recalls, and has done so for a term. */
  mayAsk: () => boolean;
  /** The round trip to Redis in milliseconds, which is added to terms; 0 while it is not known. */
  roundTripMs?: () => number;
  /**
   * Sends a settlement, with the next batch of the workspace (decider.ts). It rejects when it is not known whether
   * Redis counted it. `counted` is called when Redis has, before later answers are processed. `leaves` is that of
   * LEASE_SESSION.
   */
  settle: (
    workspaceId: string,
    settlement: number,
    tallies: readonly Tally[],
    leaves: number,
    counted: () => void,
  ) => Promise<void>;
  observe?: LeaseObserver | undefined;
}

export interface LeaseObserver {
  /** A lease was granted, with this many units. */
  granted(units: number): void;
  /** A lease of units ended or was recalled with this many units that were not used. */
  returned(units: number): void;
}

/** The `text` of a request that has nothing besides its `about` and cost. */
export const noText = Buffer.alloc(0);

/** A request of a caller that may be leased. */
export interface LeasedRequest {
  workspaceId: string;
  rootDigest: string;
  /** The subject of the request: the digest of a key, or limit checks with all their values. */
  about: string;
  /** Credits of a verification. */
  cost: number;
  /** The rest of a verification, as in TALLIED_KEY. */
  text: Buffer;
  /** A lease is for requests with the same bytes of `text` up to here. The others, the tags, are only counted. */
  leasedBytes: number;
  /** The tags as JSON; '' for none. */
  tags: string;
  /**
   * The slot of its counters in `Leases`, and its name; -1 and '' until they are needed. They are computed once, as a
   * repeated request is the same object.
   */
  slot: number;
  name: string;
}

/** A decision that a lease repeats. */
export interface Repeatable<Decision> {
  /** As in TALLY; 0 for a decision that is not counted. */
  readonly outcome: number;
  /** As in TALLY, for a request with other tags than the first one. */
  subjectOf(request: LeasedRequest): Buffer;
  /** Time of the first decision by Redis's clock, in Unix milliseconds. */
  readonly atMs: number;
  /** The charges of each repetition; without units, the amounts that the decision depends on. */
  readonly charges: readonly Charge[];
  /** Returns the decision `elapsedMs` after the first one. It was charged before. */
  decisionAfter(elapsedMs: number): Decision;
}

/** A grant of Redis: decisions (0 without units), milliseconds (0 for no lease). */
export interface Grant {
  units: number;
  term: number;
  /**
   * The lease was cut short because something that its decision depends on ends earlier: a slice, a refill, an expiry.
   */
  isCut: boolean;
  /** Its whole term is the long one. */
  isLong: boolean;
}

/** A lease that was asked for, until its answer. */
export interface Ask {
  wanted: number;
  number: number;
  /** Whether the request comes often enough for a lease of LEASE_MS, too. */
  isHot: boolean;
  /** Resolves when the answer was processed. */
  done: Promise<void>;
}

/** A tally that waits for its settlement. */
interface PendingTally extends Tally {
  /** The subject of its request. */
  about: string;
  /** The charges of a returned lease, and how many decisions it did not use. */
  charges: readonly Charge[];
  left: number;
}

interface PendingAsk extends Ask {
  request: LeasedRequest;
  askedAt: number;
  isRecalled: boolean;
  finish: () => void;
}

/** Decisions with the same tags that were not tallied. */
interface Count {
  tags: string;
  subject: Buffer;
  count: number;
}

interface Lease {
  request: LeasedRequest;
  /** 0 for a lease without units. */
  number: number;
  isLong: boolean;
  /** How many units were wanted with it, and how many are wanted next. */
  asked: number;
  next: number;
  endsAt: number;
  /** From this time on, or with this few units left, the next request asks for another lease. */
  renewsAt: number;
  renewsLeft: number;
  isRenewing: boolean;
  /** After its end no lease is asked for before this time: the next one would be cut for the same reason. */
  asksFrom: number;
  units: number;
  left: number;
  /** Decisions of the lease before it. */
  before: number;
  /** Its decisions. */
  decided: number;
  /** Its decisions that were not tallied: all, those by tags, and those with the tags of the last one. */
  count: number;
  counts: Map<string, Count>;
  last: Count;
  /** The lists of tags with at least `tallyMin` decisions. */
  due: Count[];
  /** When the first of the leases that pass these counts on was granted. */
  countsFrom: number;
  /** Its lists of tags besides the first one, for each time that they are tallied. */
  others: number;
  usedAt: number;
  grantedAt: number;
  decision: Repeatable<unknown>;
}

/**
 * Counters by a hash of a request, so that most requests need no look-up in a Map. The last byte of a counter is the
 * heat, the others are the number of leases and wishes (`WorkspaceLeases`) with this hash: one number, because most
 * requests read both. The hash is of all that a lease is for: a key in heavy use whose requests differ, in more than
 * their tags, asks for none.
 */
const slots = 131_072;
/** A lease or a wish. */
const oneEntry = 256;

/**
 * A Map by the names of requests. It also counts its entries by slot, so that a request without a lease looks up
 * nothing.
 */
class Counted<Value> extends Map<string, Value> {
  readonly #counters: Uint32Array;

  constructor(counters: Uint32Array) {
    super();
    this.#counters = counters;
  }

  override set(name: string, value: Value): this {
    if (!this.has(name)) this.#counters[slotOf(name)]! += oneEntry;
    return super.set(name, value);
  }

  override delete(name: string): boolean {
    if (this.has(name)) this.#counters[slotOf(name)]! -= oneEntry;
    return super.delete(name);
  }

  override clear() {
    for (const name of this.keys()) this.delete(name);
  }
}

/**
 * The next lease to ask for: its units, from when on, and until when this is valid; and how often the last lease
 * decided.
 */
interface Wish {
  wanted: number;
  isHot: boolean;
  from: number;
  until: number;
  decided: number;
  hasWaited: boolean;
}

/** The leases of this process in a workspace. */
class WorkspaceLeases {
  readonly workspaceId: string;
  /** These, the asks and the wishes are by the name of their request. */
  readonly leases: Map<string, Lease>;
  readonly asks = new Map<string, PendingAsk>();
  readonly amounts = new Amounts();
  /** Tallies that wait for a settlement. */
  tallies: PendingTally[] = [];
  /** The number of tallies that give units back, by what their requests are about. */
  readonly returning = new Map<string, number>();
  /** A settlement that is on its way, or that has to be sent again. */
  sending: { settlement: number; tallies: PendingTally[] } | undefined;
  settling: Promise<void> | undefined;
  /** The wishes of requests whose last lease decided often. */
  readonly wishes: Map<string, Wish>;
  /** The time of the last decision by a lease, or of the last grant. */
  usedAt = 0;
  isRegistered = false;

  /** `counters` count the leases and wishes of this workspace. */
  constructor(workspaceId: string, counters: Uint32Array) {
    this.workspaceId = workspaceId;
    this.leases = new Counted(counters);
    this.wishes = new Counted(counters);
  }

  get isEmpty(): boolean {
    const { leases, asks, tallies, wishes } = this;
    return leases.size + asks.size + tallies.length + wishes.size === 0 && !this.sending;
  }
}

/** Limits: leases of this process, units of a lease, tallies of a settlement, and bytes of their subjects. */
const leasesMax = 20_000;
const unitsMax = 4096;
const talliesMax = 128;
const subjectsMax = 8192;
/**
 * While this many tallies of a workspace wait, no lease is asked for: a settlement is sent when the one before is
 * counted, so with Redis far away there is one for each round trip.
 */
const backlogMax = 4 * talliesMax;
/**
 * Limit of the text of a request, in bytes: leases keep it, and settlements send it. Longer ones are rare (lua:
 * MEMO_TEXT_MAX).
 */
const textMax = 1024;
/** The lists of tags that a lease may count until its next tally, and all leases together besides their first ones. */
const tagsMax = 1024;
const allTagsMax = 16_384;
/**
 * Fewer decisions with the same tags are tallied at the end of their lease: a tally costs Redis as much as a
 * verification.
 */
const tallyMin = 8;
/**
 * A long lease is asked for from this many decisions within its term on, and again after one that decided `kept` times.
 * An ask and a tally cost as much processor time as about four verifications, and a decision by a lease saves six
 * tenths of one (`npm run bench -- rates`). So where Redis is near, a lease that decides seldom does not pay; where it
 * is far it saves time.
 */
const near = { asked: 10, kept: 6 };
const far = { asked: 6, kept: 3 };
/** From this round trip on Redis is far, in milliseconds. */
const farMs = 10;
/** After this many milliseconds a request that had a lease asks again, if it was granted nothing. */
const againMs = 25;
/** A lease is asked for with at most this many times the units that were wanted with the last one. */
const growthMax = 8;
/** How often settlements are sent in a term. */
const settlementsPerTerm = 4;
/** A process without leases leaves the registry of a workspace after this many terms. */
const idleTerms = 10;
/**
 * Heat is how often a request was decided in this term, up to `heatMax`. From `refusedHeat` it counts down: a request
 * that was granted no lease asks for none meanwhile.
 */
const heatMax = 200;
const refusedHeat = heatMax + 32;
/**
 * After `refusalsInRow` asks without a grant, a request asks for none in the next `pauseMin` decisions, whichever terms
 * they are in, and each further time in twice as many, up to `pauseMax`. Redis may never grant it one, as for credits,
 * and an ask costs Redis more than a verification.
 */
const refusalsInRow = 4;
const pauseMin = 64;
const pauseMax = 512;
/** A lease is renewed when this part of its term or of its units is left. */
const renewedPart = 0.25;
/** Or earlier, this many round trips before its end, as some take longer than the shortest one. */
const renewedTrips = 1.125;
/**
 * The clocks of Redis and of this process seldom differ in speed by more than this part, and Redis's time is whole
 * milliseconds. A request for the next lease that comes too early is refused, and another one asks.
 */
const drift = 0.001;
const roundedMs = 2;

export class Leases {
  readonly #options: LeaseOptions;
  readonly #workspaces = new Map<string, WorkspaceLeases>();
  readonly #counters = new Uint32Array(slots);
  /** How often requests of a slot were granted no lease in a row, and the decisions until one asks again. */
  readonly #refusals = new Uint8Array(slots);
  readonly #pauses = new Uint16Array(slots);
  #heatSince = 0;
  #held = 0;
  /** Of `Count`s, besides the first ones of leases. */
  #tagged = 0;
  #lastNumber = 0;
  /** Returns of leases of units that wait for a settlement. */
  #returning = 0;
  /**
   * The number of the last settlement. Redis counts each number of a session once, even after this process has left the
   * registry and returned.
   */
  #lastSettlement = 0;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;
  /** Fewer decisions are no reason to ask, whichever terms they were in. */
  readonly #askedFrom: number;

  constructor(options: LeaseOptions) {
    this.#options = options;
    this.#askedFrom = options.longMs ? Math.min(options.after, far.asked) : options.after;
  }

  get #longMs(): number {
    const { termMs, longMs } = this.#options;
    return longMs?.() ?? termMs;
  }

  get #warm(): typeof near {
    return (this.#options.roundTripMs?.() ?? 0) < farMs ? near : far;
  }

  /** Decides a request by a lease; undefined when there is none. `Decision` is the type that its leases repeat. */
  decide<Decision>(request: LeasedRequest): Decision | undefined {
    // Below `oneEntry` no lease has this hash.
    if (this.#held === 0 || this.#counters[slotOfRequest(request)]! < oneEntry) return undefined;
    const workspace = this.#workspaces.get(request.workspaceId);
    const lease = workspace?.leases.get(nameOf(request));
    if (!workspace || !lease) return undefined;
    const now = this.#options.nowMs();
    if (now >= lease.endsAt || (lease.number > 0 ? lease.left === 0 : isOutdated(lease))) {
      this.#end(workspace, lease);
      return undefined;
    }
    // One request renews it, while others are decided here.
    if (!lease.isRenewing && this.#isKept(lease) && (now >= lease.renewsAt || isNearlyUsed(lease))) {
      lease.isRenewing = true;
      return undefined;
    }
    const counted = lease.last.tags === request.tags ? lease.last : this.#countOf(lease, request);
    if (!counted) return undefined;
    lease.last = counted;
    if (++counted.count === tallyMin) lease.due.push(counted);
    lease.left--;
    lease.decided++;
    lease.count++;
    lease.usedAt = now;
    workspace.usedAt = now;
    if (lease.number > 0) charge(lease.decision.charges);
    const elapsedMs = Math.max(0, Math.round(now - lease.grantedAt));
    return lease.decision.decisionAfter(elapsedMs) as Decision;
  }

  /** Where a lease counts decisions with the tags of a request; undefined if it counts too many lists already. */
  #countOf(lease: Lease, request: LeasedRequest): Count | undefined {
    const { counts, decision } = lease;
    const { tags, text } = request;
    const known = counts.get(tags);
    if (known || counts.size >= tagsMax || this.#tagged >= allTagsMax || text.length > textMax) return known;
    const added = { tags, subject: decision.subjectOf(request), count: 0 };
    counts.set(tags, added);
    lease.others++;
    this.#tagged++;
    return added;
  }

  /** The amounts that leases of this process charge in a workspace; undefined if there are none. */
  amountsOf(workspaceId: string): Amounts | undefined {
    const amounts = this.#workspaces.get(workspaceId)?.amounts;
    return amounts?.isEmpty ? undefined : amounts;
  }

  /**
   * Settles ended leases before a request about the same subject is sent, so that Redis decides with the returned
   * units.
   */
  settleBefore({ workspaceId, about }: LeasedRequest) {
    if (this.#returning === 0) return;
    const workspace = this.#workspaces.get(workspaceId);
    if (workspace?.returning.has(about) && !workspace.settling) this.#settle(workspace).catch(() => {});
  }

  /**
   * Ends and settles the leases that charge amounts of an owner, before a request that changes the amounts other than
   * by a charge. The next answer of Redis has the remaining amounts.
   */
  endOf(workspaceId: string, owner: string) {
    const workspace = this.#workspaces.get(workspaceId);
    if (!workspace?.amounts.concerns(owner)) return;
    for (const lease of [...workspace.leases.values()])
      if (lease.decision.charges.some(({ amount }) => amount.owner === owner)) this.#end(workspace, lease);
    if (!workspace.settling) this.#settle(workspace).catch(() => {});
  }

  /** The lease to ask for with a request that is sent to Redis; undefined for none. */
  ask(request: LeasedRequest): Ask | undefined {
    const { termMs, after } = this.#options;
    if (termMs === 0) return undefined;
    const slot = slotOfRequest(request);
    const counter = this.#counters[slot]!;
    if (counter < this.#askedFrom - 1) {
      // Too few decisions for a lease, whichever terms they were in: the clock need not be read.
      this.#counters[slot] = counter + 1;
      return undefined;
    }
    if (request.text.length > textMax || request.about.length > textMax) return undefined;
    if (this.#pauses[slot]! > 0) {
      this.#pauses[slot]!--;
      return undefined;
    }
    const now = this.#options.nowMs();
    const known = counter < oneEntry ? undefined : this.#workspaces.get(request.workspaceId);
    const isLong = this.#longMs > termMs;
    const least = isLong ? Math.min(after, this.#warm.asked) : after;
    const decided = this.#decidedInTerm(slot, now);
    if (decided === 0 || (decided < least && !known)) return undefined;
    const name = nameOf(request);
    const renewed = known?.leases.get(name);
    const wish = known?.wishes.get(name);
    if (decided < least && !wish && !renewed?.isRenewing) return undefined;
    // A lease that did not decide it counts too many lists of tags.
    if (renewed && !renewed.isRenewing && now < renewed.endsAt) return undefined;
    if (wish && now < wish.from) return undefined;
    if (this.#held >= leasesMax || !this.#options.mayAsk()) return undefined;
    const workspace = this.#workspaceOf(request.workspaceId);
    if (workspace.asks.has(name) || workspace.tallies.length >= backlogMax) return undefined;
    workspace.isRegistered = true;
    let finish!: () => void;
    const done = new Promise<void>((resolve) => (finish = resolve));
    // A number of a session is never used again, also not after a restart of Redis.
    const number = ++this.#lastNumber;
    const wanted = (renewed && wantedNow(renewed, now)) ?? wish?.wanted ?? 2 * decided;
    const isOften = decided >= after && decided * termMs >= after * (now - this.#heatSince);
    const isHot = (renewed && this.#isHot(renewed, now)) ?? wish?.isHot ?? (isOften || !isLong);
    const ask = { request, wanted, isHot, number, askedAt: now, isRecalled: false, done, finish };
    workspace.asks.set(name, ask);
    this.#tick();
    return ask;
  }

  /** Processes the answer to an ask: a lease, or none. `repeatable` makes the decision that it repeats. */
  granted(ask: Ask, grant: Grant, repeatable: (amounts: Amounts) => Repeatable<unknown>) {
    const { request, isRecalled } = ask as PendingAsk;
    const { units, term } = grant;
    const workspace = this.#workspaceOf(request.workspaceId);
    const isLeased = term > 0 && !isRecalled;
    if (term > 0) this.#refusals[slotOfRequest(request)] = 0;
    if (isLeased || units > 0) {
      const lease = this.#leaseOf(ask as PendingAsk, grant, repeatable(workspace.amounts));
      if (isLeased) this.#hold(workspace, lease);
      else this.#return(workspace, lease);
    } else if (term === 0 && !this.#waits(workspace, request)) {
      // An ask costs Redis more than a verification, so a request that gets no lease does not ask each time. With a
      // wish it asks once more: it may have asked in the last moment of a slice.
      this.#refuse(slotOfRequest(request));
    }
    workspace.usedAt = this.#options.nowMs();
    this.finished(ask);
  }

  /** Whether a request that was granted nothing asks again soon: once, if it had a lease before. */
  #waits({ wishes }: WorkspaceLeases, request: LeasedRequest): boolean {
    const wish = wishes.get(nameOf(request));
    if (!wish) return false;
    const now = this.#options.nowMs();
    if (wish.hasWaited) wishes.delete(nameOf(request));
    else Object.assign(wish, { from: now + againMs, hasWaited: true });
    return true;
  }

  #leaseOf(ask: PendingAsk, { units, term, isCut, isLong }: Grant, decision: Repeatable<unknown>): Lease {
    const { request, askedAt, number, wanted } = ask;
    for (const { amount, units: each } of decision.charges) amount.held += each * units;
    const endsAt = askedAt + term;
    const last = { tags: request.tags, subject: decision.subjectOf(request), count: 0 };
    const grantedAt = this.#options.nowMs();
    const aheadMs = renewedTrips * (this.#options.roundTripMs?.() ?? 0);
    const part = Math.max(renewedPart, Math.min(1, aheadMs / term));
    // Some calls to Redis take a little longer than the shortest.
    const laterMs = drift * term + roundedMs + aheadMs / 16;
    return {
      request,
      number: units > 0 ? number : 0,
      isLong,
      asked: wanted,
      next: wanted,
      endsAt,
      // A lease that is asked for earlier would be cut, too.
      renewsAt: isCut ? Number.POSITIVE_INFINITY : endsAt - part * term,
      renewsLeft: part * units,
      isRenewing: false,
      asksFrom: isCut ? endsAt + laterMs : 0,
      units,
      left: units,
      before: 0,
      decided: 0,
      count: 0,
      counts: new Map([[request.tags, last]]),
      last,
      due: [],
      countsFrom: grantedAt,
      others: 0,
      usedAt: askedAt,
      grantedAt,
      decision,
    };
  }

  #hold(workspace: WorkspaceLeases, lease: Lease) {
    const name = nameOf(lease.request);
    const renewed = workspace.leases.get(name);
    if (renewed) {
      this.#passCounts(renewed, lease);
      this.#end(workspace, renewed);
    }
    const wish = workspace.wishes.get(name);
    if (wish) {
      lease.before = wish.decided;
      lease.next = wish.wanted;
    }
    workspace.leases.set(name, lease);
    this.#held++;
    this.#options.observe?.granted(lease.units);
  }

  /**
   * The lease that renews another goes on with its counts, so that a hot request whose tags change needs no tally of
   * few decisions for each list of tags with each renewal. They wait for at most two long terms, and for none of the
   * next hour.
   */
  #passCounts(renewed: Lease, lease: Lease) {
    const { decision, counts, countsFrom, count, due, request } = renewed;
    const next = lease.decision;
    const isAlike = decision.outcome === next.outcome && decision.subjectOf(request).equals(next.subjectOf(request));
    const isSameHour = Math.floor(decision.atMs / hourMs) === Math.floor(next.atMs / hourMs);
    const isFull = counts.size >= tagsMax || this.#tagged >= allTagsMax;
    if (!isAlike || !isSameHour || isFull || lease.grantedAt - countsFrom >= this.#longMs) return;
    const none = { ...lease.last };
    const known = counts.get(none.tags);
    if (!known) {
      counts.set(none.tags, lease.last);
      this.#tagged++;
    }
    Object.assign(lease, { counts, countsFrom, count, due, last: known ?? lease.last });
    Object.assign(renewed, { counts: new Map([[none.tags, none]]), count: 0, due: [], last: none });
  }

  /**
   * The answer to an ask is lost: a lease of units that was granted is returned. Units are granted with one outcome
   * only.
   */
  lost(ask: Ask, { outcome, subject }: Pick<Tally, 'outcome' | 'subject'>) {
    const { request, number } = ask as PendingAsk;
    const { about } = request;
    const workspace = this.#workspaceOf(request.workspaceId);
    this.#tally(workspace, { number, count: 0, outcome, used: 0, usedAt: 0, subject, about, charges: [], left: 0 });
    this.finished(ask);
  }

  /** Forgets an ask that was answered. */
  finished(ask: Ask) {
    const { request, finish } = ask as PendingAsk;
    this.#workspaces.get(request.workspaceId)?.asks.delete(nameOf(request));
    finish();
  }

  /**
   * Takes leases back: those with these numbers, all of a workspace, or all. They end immediately; resolves when their
   * decisions and unused units are settled.
   */
  async recall(workspaceId?: string, numbers?: ReadonlySet<number>): Promise<void> {
    const workspaces = [...this.#workspaces.values()].filter(
      (workspace) => (workspaceId ?? workspace.workspaceId) === workspace.workspaceId,
    );
    await Promise.all(workspaces.map((workspace) => this.#recall(workspace, numbers)));
  }

  async #recall(workspace: WorkspaceLeases, numbers: ReadonlySet<number> | undefined): Promise<void> {
    const asks = [...workspace.asks.values()].filter(({ number }) => numbers?.has(number) ?? true);
    const leases = [...workspace.leases.values()].filter(({ number }) => numbers?.has(number) ?? true);
    for (const ask of asks) {
      ask.isRecalled = true;
      this.#recalled(workspace, ask.request, 0);
    }
    for (const lease of leases) {
      this.#end(workspace, lease);
      this.#recalled(workspace, lease.request, lease.before + gainOf(lease));
    }
    await Promise.all(asks.map(({ done }) => done));
    await this.#settleAll(workspace);
  }

  /**
   * Called when a lease was taken back. `decided`: how many decisions the lease made. Below its cost, the heat of its
   * request starts at 0: with so many changes, the next lease would be taken back as early.
   */
  #recalled(workspace: WorkspaceLeases, request: LeasedRequest, decided: number) {
    if (decided >= Math.min(this.#options.after, this.#warm.kept)) return;
    workspace.wishes.delete(nameOf(request));
    this.#setHeat(slotOfRequest(request), 0);
  }

  /**
   * Redis has this process in the registry of a workspace, perhaps because it forgot that it had left. So it leaves
   * again.
   */
  registered(workspaceId: string) {
    this.#workspaceOf(workspaceId).isRegistered = true;
    this.#tick();
  }

  /** Takes back all leases, for the end of the process. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.recall().catch(() => {});
    for (const { wishes } of this.#workspaces.values()) wishes.clear();
    await Promise.all([...this.#workspaces.values()].map((workspace) => this.#leave(workspace)));
  }

  /** The decisions of a slot in this term, including this one; 0 for a while after an ask was granted nothing. */
  #decidedInTerm(slot: number, now: number): number {
    const counters = this.#counters;
    if (now - this.#heatSince >= this.#longMs) {
      for (let each = 0; each < slots; each++) counters[each]! -= counters[each]! % oneEntry;
      this.#heatSince = now;
    }
    const heat = counters[slot]! % oneEntry;
    if (heat > heatMax) {
      this.#setHeat(slot, heat - 1);
      return 0;
    }
    const decided = Math.min(heat + 1, heatMax);
    this.#setHeat(slot, decided);
    return decided;
  }

  /** For a while no request of a slot asks. */
  #refuse(slot: number) {
    this.#setHeat(slot, refusedHeat);
    const more = this.#refusals[slot]! - refusalsInRow;
    if (more >= 0) this.#pauses[slot] = Math.min(pauseMin * 2 ** more, pauseMax);
    this.#refusals[slot] = Math.min(this.#refusals[slot]! + 1, 255);
  }

  #setHeat(slot: number, heat: number) {
    const counter = this.#counters[slot]!;
    this.#counters[slot] = counter - (counter % oneEntry) + heat;
  }

  #workspaceOf(workspaceId: string): WorkspaceLeases {
    let workspace = this.#workspaces.get(workspaceId);
    if (!workspace) {
      workspace = new WorkspaceLeases(workspaceId, this.#counters);
      this.#workspaces.set(workspaceId, workspace);
    }
    return workspace;
  }

  /** Ends a lease: what it decided is tallied, and the units that it did not use are returned. */
  #end(workspace: WorkspaceLeases, lease: Lease) {
    const name = nameOf(lease.request);
    workspace.leases.delete(name);
    this.#held--;
    if (this.#isKept(lease)) {
      const { isLong, endsAt, asksFrom } = lease;
      const now = this.#options.nowMs();
      const from = now < endsAt ? 0 : asksFrom;
      const until = Math.max(now, from) + 2 * (isLong ? this.#longMs : this.#options.termMs);
      workspace.wishes.set(name, {
        wanted: wantedNext(lease, now),
        isHot: this.#isHot(lease, now),
        from,
        until,
        decided: gainOf(lease),
        hasWaited: false,
      });
    }
    this.#return(workspace, lease);
  }

  /**
   * Whether a lease decides so often that the next one is asked for. The decisions of the lease before it count, too,
   * because a lease that was renewed early had little time.
   */
  #isKept(lease: Lease): boolean {
    const { after } = this.#options;
    return lease.before + gainOf(lease) >= (lease.isLong ? Math.min(after, this.#warm.kept) : after);
  }

  /** Whether it decides so often that it is worth a lease for a term of LEASE_MS. */
  #isHot({ decided, isLong, grantedAt }: Lease, now: number): boolean {
    const { termMs, after } = this.#options;
    return !isLong || decided * termMs >= after * (now - grantedAt);
  }

  #return(workspace: WorkspaceLeases, lease: Lease) {
    this.#tallyLease(workspace, lease, lease.number);
    if (lease.number > 0) this.#options.observe?.returned(lease.left);
    else for (const each of lease.decision.charges) workspace.amounts.release(each);
    this.#tick();
  }

  #tally(workspace: WorkspaceLeases, tally: PendingTally) {
    workspace.tallies.push(tally);
    if (tally.number > 0) this.#countReturn(workspace, tally, 1);
  }

  #countReturn(workspace: WorkspaceLeases, { about }: PendingTally, change: 1 | -1) {
    const { returning } = workspace;
    const count = (returning.get(about) ?? 0) + change;
    if (count > 0) returning.set(about, count);
    else returning.delete(about);
    this.#returning += change;
  }

  /**
   * Sends the waiting tallies. Rejects when it is not known whether Redis counted them: then the same settlement is
   * sent again later.
   */
  #settle(workspace: WorkspaceLeases): Promise<void> {
    workspace.settling ??= this.#sendSettlement(workspace).finally(() => (workspace.settling = undefined));
    return workspace.settling;
  }

  async #sendSettlement(workspace: WorkspaceLeases): Promise<void> {
    if (!workspace.sending) {
      const tallies = workspace.tallies.splice(0, countOfSettlement(workspace.tallies));
      if (tallies.length === 0) return;
      for (const tally of tallies) if (tally.number > 0) this.#countReturn(workspace, tally, -1);
      workspace.sending = { settlement: ++this.#lastSettlement, tallies };
    }
    const { sending } = workspace;
    const counted = () => {
      if (workspace.sending === sending) settled(workspace, sending.tallies);
      workspace.sending = undefined;
    };
    await this.#options.settle(workspace.workspaceId, sending.settlement, sending.tallies, 0, counted);
    counted();
  }

  /** Tallies what leases decided at least `tallyMin` times for a list of tags since it was last tallied. */
  #tallyAll(workspace: WorkspaceLeases) {
    for (const lease of workspace.leases.values()) {
      if (lease.due.length > 0) this.#tallyLease(workspace, lease, 0, lease.due);
    }
  }

  /**
   * Takes from a lease what it decided and did not tally, as a tally for each list of tags, or for some of them. A
   * `number` above 0 also returns the lease, with the first one.
   */
  #tallyLease(workspace: WorkspaceLeases, lease: Lease, number: number, some?: Count[]) {
    lease.due = [];
    const { counts, last, decided, grantedAt, decision, left, request } = lease;
    const { outcome, atMs, charges } = decision;
    const usedAt = atMs + Math.max(0, Math.round(lease.usedAt - grantedAt));
    let returned = number;
    for (const counted of some ?? counts.values()) {
      const { subject, count, tags } = counted;
      if (counted !== last) {
        counts.delete(tags);
        this.#tagged--;
      }
      const isCounted = outcome > 0 && count > 0;
      counted.count = 0;
      lease.count -= count;
      if (!isCounted && returned === 0) continue;
      const of = returned > 0 ? { number, used: decided, charges, left } : { number: 0, used: 0, charges: [], left: 0 };
      const { about } = request;
      this.#tally(workspace, { ...of, count: isCounted ? count : 0, outcome, usedAt, subject, about });
      returned = 0;
    }
  }

  async #settleAll(workspace: WorkspaceLeases): Promise<void> {
    while (workspace.settling || workspace.sending || workspace.tallies.length > 0) await this.#settle(workspace);
  }

  /** Leaves the registry of a workspace, and forgets it. */
  async #leave(workspace: WorkspaceLeases): Promise<void> {
    if (!workspace.isEmpty) return;
    if (!workspace.isRegistered) {
      this.#workspaces.delete(workspace.workspaceId);
      return;
    }
    workspace.isRegistered = false;
    const next = this.#lastNumber + 1;
    const left = this.#options.settle(workspace.workspaceId, ++this.#lastSettlement, [], next, () => {});
    await left.catch(() => {
      workspace.isRegistered = true;
    });
  }

  /** Starts the timer that settles, if it does not run. */
  #tick() {
    if (this.#timer || this.#isClosed) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      for (const workspace of this.#workspaces.values()) this.#turn(workspace);
      if (this.#workspaces.size > 0) this.#tick();
    }, this.#options.termMs / settlementsPerTerm).unref();
  }

  #turn(workspace: WorkspaceLeases) {
    const { nowMs, termMs } = this.#options;
    const now = nowMs();
    for (const lease of workspace.leases.values()) if (now >= lease.endsAt) this.#end(workspace, lease);
    for (const [name, { until }] of workspace.wishes) if (now >= until) workspace.wishes.delete(name);
    if (!workspace.settling) {
      // Leases are not tallied before the last settlement was counted, so that their tallies are bounded by their
      // number.
      if (!workspace.sending) this.#tallyAll(workspace);
      // A settlement that failed is sent again in the next turn.
      this.#settleAll(workspace).catch(() => {});
    }
    if (now - workspace.usedAt > idleTerms * termMs) void this.#leave(workspace);
  }
}

/** Whether an amount has changed on which the decision of a lease without units depends. */
const isOutdated = ({ decision }: Lease): boolean =>
  decision.charges.some(({ amount, version }) => amount.version !== version);

/** Charges a decision by a lease of units. */
function charge(charges: readonly Charge[]) {
  for (const { amount, units } of charges) {
    amount.used += units;
    amount.held -= units;
    amount.version++;
  }
}

/** Redis has counted these tallies: the leases among them hold nothing more. */
function settled({ amounts }: WorkspaceLeases, tallies: readonly PendingTally[]) {
  for (const { charges, left } of tallies) {
    for (const each of charges) {
      each.amount.held -= each.units * left;
      amounts.release(each);
    }
  }
}

/** How many calls to Redis a lease saves: each list of tags has a tally, which costs as much as a verification. */
const gainOf = ({ decided, others }: Lease): number => decided - others;

const isNearlyUsed = ({ number, left, renewsLeft }: Lease): boolean => number > 0 && left <= renewsLeft;

/** Slow start: twice as much as before when nearly all was used. */
const wantedNow = (lease: Lease, now: number): number => (isNearlyUsed(lease) ? growing(lease, now) : lease.next);

/** Up to eight times as much when the units of a long term were used in a part of it. */
function growing({ asked, isLong, grantedAt, endsAt }: Lease, now: number): number {
  const part = (now - grantedAt) / (endsAt - grantedAt);
  const times = isLong ? Math.min(Math.max(2, 1 / part), growthMax) : 2;
  return Math.min(Math.round(times * asked), unitsMax);
}

/** At the end of a lease: half as much when less than a third was used. */
function wantedNext(lease: Lease, now: number): number {
  const { number, asked, decided, units } = lease;
  if (isNearlyUsed(lease)) return growing(lease, now);
  return number > 0 && decided < units / 3 ? Math.ceil(asked / 2) : asked;
}

/** How many of these tallies make a settlement: a tally of many limit checks is much work for Redis. */
function countOfSettlement(tallies: readonly Tally[]): number {
  let count = 0;
  for (let bytes = 0; count < Math.min(tallies.length, talliesMax) && bytes < subjectsMax; count++) {
    bytes += tallies[count]!.subject.length;
  }
  return count;
}

/** The name of a request: all that a lease is for, except its workspace. */
function nameOf(request: LeasedRequest): string {
  const { rootDigest, cost, about, text, leasedBytes } = request;
  if (request.name === '') request.name = `${rootDigest}${cost} ${about}${text.toString('latin1', 0, leasedBytes)}`;
  return request.name;
}

/** The slot of a request, which is that of its name. Most requests never need the name as text. */
function slotOfRequest(request: LeasedRequest): number {
  const { rootDigest, cost, about, text, leasedBytes } = request;
  if (request.slot < 0) {
    let hash = hashOf(about, hashOf(`${rootDigest}${cost} `));
    // A longer text is not leased.
    const bytes = Math.min(leasedBytes, textMax);
    for (let at = 0; at < bytes; at++) hash = Math.imul(hash ^ text[at]!, 0x01000193);
    request.slot = slotOfHash(hash);
  }
  return request.slot;
}

/** The slot of a name. */
const slotOf = (name: string): number => slotOfHash(hashOf(name));
const slotOfHash = (hash: number): number => ((hash >>> 16) ^ hash) & (slots - 1);

/** FNV-1a of a text; `before` is the hash of an earlier part. */
function hashOf(text: string, before = 0x811c9dc5): number {
  let hash = before;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash;
}
