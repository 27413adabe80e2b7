// The protocol of leases as a state machine. This file is its documentation: what Redis stores, what each script does,
// and what a session (one server process in one workspace) does. test/decide/leases/world.ts runs it with clocks, a
// network and faults, and checks its promises. Each rule that a promise depends on has a name in `Rules`; without it
// the model breaks (model.test.ts).
//
// Clocks are never compared. Each side measures a duration on its own monotonic clock, and any two clocks drift by at
// most 1 %:
//
//   session   a lease ends `term` after the moment before its request was sent
//   changer   waits 1.01 terms, from after its change was applied
//   Redis     shortens a term to 1/1.01 of what is left, by its own clock, until a slice ends, units become free, a
//             refill or an expiry
//
// A request that would be refused while units are out waits for one recall, which takes 1.01 terms at most: meanwhile
// Redis grants no more of these units. (The servers wait for half a term more, as a settlement may be on its way.)
//
// What faults cost, and no more:
//
//   a killed or paused session   its units stay charged; a killed one's tallies are not counted: those of a quarter of
//                                a term, and up to seven earlier decisions of each lease
//   a lost connection            units that Redis grants to it afterwards stay charged
//   Redis loses its last writes  the charges, changes and settlements among them; leases on lost charges are used until
//                                they end
//   Redis's clock steps forward  windows start again, as without leases; units out at the step are admitted on top
//   Redis's clock steps back     window units that are out stay charged; credits come back
//
// A key stands for a counter of a namespace, too: then requests of several costs and limits share its window.
//
// Not in the model: identities, several limits of a key or of a request, servers whose terms differ, deletion of
// registry entries with term 0, and of leases that have ended by Redis's clock when a record has no room for more.

/** Longest time between two settlements of a session, in terms. */
export const settleEvery = 1 / 4;
/** Fewer decisions of a lease are settled after its end. */
export const tallyMin = 8;
/** Two clocks differ by at most this factor. */
export const drift = 1.01;
/** No units of a key are granted in this many terms after they were recalled: longer than a recall waits. */
export const pauseTerms = 2;
/**
 * A session leaves the registry after this many terms without work: longer than a request can be buffered for a dead
 * connection.
 */
export const idleTerms = 8;

/** The rules of the protocol. A mutant switches one off. */
export const rules = {
  /** A grant in flight when its session drops its leases is not used. */
  epoch: true,
  /** A recalled session drops its leases before it acknowledges. */
  dropFirst: true,
  /** A session without answer is removed from the registry only if it was granted nothing since. */
  compareBeforeRemoval: true,
  /** A removed session keeps its numbers in the registry until it cannot repeat a settlement. */
  removalKeepsNumbers: true,
  /** Nothing of an old balance is given back after the balance was set. */
  setClears: true,
  /** A refill sets the balance, too. */
  refillClears: true,
  /** No unit lease lasts longer than the slice in which its units were charged. */
  endsWithSlice: true,
  /** A term by Redis's clock is shortened by the drift. */
  driftOfTerm: true,
  /** A term by Redis's clock is shortened by what whole milliseconds may hide. */
  millisecondOver: true,
  /** A change waits longer than a term by the drift. */
  driftOfChange: true,
  /**
   * A change that was applied soon after a connect waits until a term after the connect, as Redis may have forgotten
   * the registry.
   */
  waitAfterConnect: true,
  /** A lease is measured from before its request was sent. */
  clockBeforeAsk: true,
  /** The registry stores the session's term, not the shorter one of its last lease. */
  wholeTerm: true,
  /** The session numbers its grants; Redis does not. */
  ownNumbers: true,
  /** A settlement counts once. */
  countOnce: true,
  /**
   * After a recall of units, the entries that were recalled and are still there are overdue: no refusal waits for them
   * again.
   */
  markRecalled: true,
  /** Units that are overdue are given back when they are returned after all. */
  lateReturn: true,
  /** While units are overdue, no refusal for want of units is leased: they may be returned after all. */
  overdueRefusals: true,
  /** A lease decides only the request that it was granted for. */
  sameRequest: true,
  /** Units are given back at the cost at which they were charged. */
  chargedCost: true,
  /** A recalled session returns the grants that are in flight. */
  returnInFlight: true,
  /** Units that are out are recalled before a request is refused. */
  recallUnits: true,
  /** A recall of units is acknowledged when they are settled. */
  settleBeforeAck: true,
  /** While units are recalled, Redis grants no more of them: so a request waits for one recall at most. */
  pauseAfterRecall: true,
  /** When a counter is adapted to a step back of the clock, its units that are out are not given back. */
  stepClears: true,
};
export type Rules = typeof rules;

/** What one run is about, chosen by the exploration. */
export interface Setting {
  rules: Rules;
  /** LEASE_MS. */
  term: number;
  /** A grant leaves this many times its units for each session. Cost only: no promise depends on it. */
  reserve: number;
}

// ---- Redis

export type Outcome = 'VALID' | 'DISABLED' | 'EXPIRED' | 'RATE_LIMITED' | 'USAGE_EXCEEDED';

export interface Limit {
  limit: number;
  duration: number;
}

/** Units of one key that a session may spend: in the key's record while they are out. */
export interface UnitsOut {
  session: string;
  number: number;
  /** Decisions charged in advance. */
  count: number;
  /** Window units of each decision. */
  cost: number;
  isOverdue: boolean;
  /** End of the window entry that was charged. */
  sliceEnd: number;
  /** Undefined when its window gets nothing back. */
  limit: Limit | undefined;
}

/** What a verification may ask for. */
export interface Request {
  /** Window units. */
  cost: number;
  /** In the place of the key's limit. */
  limit?: number;
}

export interface Key {
  version: number;
  enabled: boolean;
  requests: readonly Request[];
  limit?: Limit | undefined;
  window: { end: number; units: number }[];
  /** Each verification spends one credit. */
  credits?: number | undefined;
  refill?: { at: number; every: number; amount: number } | undefined;
  expires?: number | undefined;
  leases: UnitsOut[];
  /** No units are granted before, by Redis's clock. */
  pausedUntil: number;
}

/** An entry of the registry. Term 0: removed; the numbers stay. */
export interface Registered {
  term: number;
  granted: number;
  settled: number;
  removedAt: number;
}

export interface RedisState {
  keys: Key[];
  registry: Map<string, Registered>;
  usage: Record<string, number>[];
}

export interface Ask {
  kind: 'decide';
  session: string;
  key: number;
  request: number;
  /** Decisions wanted as a lease, 0 for none. */
  wanted: number;
  number: number;
  /** Entries that were recalled and waited for. */
  recalled: { session: string; number: number }[];
}

export interface Grant {
  number: number;
  /** Undefined for a read lease. */
  count: number | undefined;
  term: number;
}

export type Decision =
  | { outcome: Outcome; version: number; grant: Grant | undefined }
  | { outcome: 'RECALL'; from: { session: string; number: number }[] };

/** What was decided by a lease. */
export interface Counted {
  key: number;
  outcome: Outcome;
  lease: number;
  count: number;
  /** When the first was decided, and the last of `tallyMin`. */
  since: number;
  manySince?: number;
}

export interface Settlement {
  kind: 'settle';
  session: string;
  number: number;
  returns: { key: number; number: number; used: number }[];
  tallies: Counted[];
}

export type Mutation =
  | { set: 'enabled'; value: boolean }
  | { set: 'credits'; value: number }
  | { set: 'moreCredits'; value: number }
  | { set: 'limit'; value: number };

export interface Change {
  kind: 'change';
  key: number;
  mutation: Mutation;
}

export interface Removal {
  kind: 'remove';
  sessions: { session: string; granted: number }[];
}

export interface Leave {
  kind: 'leave';
  session: string;
  granted: number;
}

export type Script = Ask | Settlement | Change | Removal | Leave;

/** What the checks must know about a script run; no part of the protocol. */
export interface Witness {
  charged(ask: Ask, count: number, number: number | undefined): void;
  refused(key: number, session: string): void;
  returned(key: number, session: string, number: number, count: number): void;
  counted(settlement: Settlement): void;
  /** The balance was set, or `added` was added to it. */
  balanceSet(key: number, added?: number): void;
  windowAdapted(key: number): void;
}

/** The slice in which a charge at `now` counts (lua/include/window.lua). */
const sliceOf = ({ limit, duration }: Limit) => (limit <= 64 ? 1 : Math.floor(duration / 64));

/**
 * Units that count at `now`. Drops the entries that no longer do, and adapts the others to a step back of the clock.
 */
function windowTotal(key: Key, now: number, { rules }: Setting, witness: Witness, index: number): number {
  const { duration } = key.limit!;
  const latest = now + Math.floor(duration / 64);
  if (key.window.some(({ end }) => end > latest)) {
    const late = key.window.filter(({ end }) => end >= latest).reduce((sum, { units }) => sum + units, 0);
    key.window = [...key.window.filter(({ end }) => end < latest), { end: latest, units: late }];
    if (rules.stepClears) key.leases = key.leases.map((out) => ({ ...out, limit: undefined }));
    witness.windowAdapted(index);
  }
  key.window = key.window.filter(({ end }) => end + duration > now);
  return key.window.reduce((total, { units }) => total + units, 0);
}

const limitOf = (key: Key, request: Request): Limit => ({ ...key.limit!, limit: request.limit ?? key.limit!.limit });

function chargeWindow(key: Key, request: Request, now: number, units: number): number {
  const slice = sliceOf(limitOf(key, request));
  const sliceEnd = now - (now % slice) + slice;
  const newest = key.window.at(-1);
  if (newest && newest.end >= sliceEnd) {
    newest.units += units;
    return newest.end;
  }
  key.window.push({ end: sliceEnd, units });
  return sliceEnd;
}

function refill(key: Key, now: number, { rules }: Setting, witness: Witness, index: number) {
  if (!key.refill || now < key.refill.at || key.credits === undefined) return;
  key.credits = key.refill.amount;
  while (key.refill.at <= now) key.refill = { ...key.refill, at: key.refill.at + key.refill.every };
  if (rules.refillClears) key.leases = [];
  witness.balanceSet(index);
}

/** Verifies a key, charges it, and grants a lease if one is wanted. */
export function decide(state: RedisState, now: number, ask: Ask, setting: Setting, witness: Witness): Decision {
  const { rules } = setting;
  const key = state.keys[ask.key]!;
  const request = key.requests[ask.request]!;
  refill(key, now, setting, witness, ask.key);
  const total = key.limit ? windowTotal(key, now, setting, witness, ask.key) : 0;
  const outcome = outcomeOf(key, request, now, total);
  // Whatever is decided, so that the next refusal does not wait for them again.
  const isRecalled = (out: UnitsOut) => ask.recalled.some((one) => isSame(one, out));
  if (rules.markRecalled) key.leases = key.leases.map((out) => (isRecalled(out) ? { ...out, isOverdue: true } : out));
  if (!rules.lateReturn) key.leases = key.leases.filter(({ isOverdue }) => !isOverdue);
  if (outcome === 'RATE_LIMITED' || outcome === 'USAGE_EXCEEDED') {
    const awaited = key.leases.filter(({ isOverdue }) => !isOverdue);
    if (awaited.length > 0 && rules.recallUnits) {
      key.pausedUntil = now + pauseTerms * setting.term;
      return { outcome: 'RECALL', from: awaited.map(({ session, number }) => ({ session, number })) };
    }
    witness.refused(ask.key, ask.session);
  }
  if (outcome === 'VALID') charge(key, request, now, 1);
  if (outcome === 'VALID') witness.charged(ask, 1, undefined);
  const usage = state.usage[ask.key]!;
  usage[outcome] = (usage[outcome] ?? 0) + 1;
  const grant = ask.wanted > 0 ? grantOf(state, key, now, ask, outcome, setting, witness) : undefined;
  return { outcome, version: key.version, grant };
}

const isSame = (one: { session: string; number: number }, other: { session: string; number: number }) =>
  one.session === other.session && one.number === other.number;

function outcomeOf(key: Key, request: Request, now: number, total: number): Outcome {
  if (!key.enabled) return 'DISABLED';
  if (key.expires !== undefined && now >= key.expires) return 'EXPIRED';
  if (key.limit && total + request.cost > limitOf(key, request).limit) return 'RATE_LIMITED';
  if (key.credits !== undefined && key.credits < 1) return 'USAGE_EXCEEDED';
  return 'VALID';
}

function charge(key: Key, request: Request, now: number, count: number): number {
  if (key.credits !== undefined) key.credits -= count;
  return key.limit ? chargeWindow(key, request, now, count * request.cost) : 0;
}

/** The grant after an ordinary decision, at Redis's time `now`. Writes the registry. */
function grantOf(
  state: RedisState,
  key: Key,
  now: number,
  ask: Ask,
  outcome: Outcome,
  setting: Setting,
  witness: Witness,
): Grant | undefined {
  const { rules, term, reserve } = setting;
  const request = key.requests[ask.request]!;
  const entry = state.registry.get(ask.session) ?? { term: 0, granted: 0, settled: 0, removedAt: 0 };
  const number = rules.ownNumbers ? ask.number : entry.granted + 1;
  const ends: number[] = [];
  let count: number | undefined;
  const isShort = outcome === 'RATE_LIMITED' || outcome === 'USAGE_EXCEEDED';
  if (isShort && key.leases.length > 0 && rules.overdueRefusals) return undefined;
  if (key.expires !== undefined && outcome !== 'EXPIRED' && outcome !== 'DISABLED') ends.push(key.expires);
  if (key.refill && (outcome === 'VALID' || outcome === 'USAGE_EXCEEDED')) ends.push(key.refill.at);
  if (outcome === 'RATE_LIMITED') ends.push(Math.min(...key.window.map(({ end }) => end)) + key.limit!.duration);
  if (outcome === 'VALID' && (key.limit || key.credits !== undefined)) {
    // Not for long after a step back of the clock.
    const isPaused = now < key.pausedUntil && key.pausedUntil <= now + pauseTerms * term;
    if (isPaused && rules.pauseAfterRecall) return undefined;
    count = unitsOf(state, key, request, ask.wanted, reserve);
    if (count === 0) return undefined;
    if (key.limit && rules.endsWithSlice) {
      const slice = sliceOf(limitOf(key, request));
      ends.push(now - (now % slice) + slice);
    }
  }
  // Redis's time is whole milliseconds: up to one of them is over.
  const left = Math.min(...ends) - now - (rules.millisecondOver ? 1 : 0);
  const shortened = Math.min(term, rules.driftOfTerm ? Math.floor(left / drift) : left);
  if (shortened <= 0) return undefined;
  if (count !== undefined) {
    const sliceEnd = charge(key, request, now, count);
    const { cost } = request;
    key.leases.push({ session: ask.session, number, count, cost, isOverdue: false, sliceEnd, limit: key.limit });
    witness.charged(ask, count, number);
  }
  state.registry.set(ask.session, { ...entry, term: rules.wholeTerm ? term : shortened, granted: number });
  return { number, count, term: shortened };
}

/** The largest half, quarter, ... of `wanted` that leaves the reserve to every session. */
function unitsOf(state: RedisState, key: Key, request: Request, wanted: number, reserve: number): number {
  const limit = key.limit ? limitOf(key, request).limit : Infinity;
  if (limit <= 64) return 0;
  const sessions = new Set([...state.registry].filter(([, { term }]) => term > 0).map(([session]) => session)).size + 1;
  const windowLeft = limit - key.window.reduce((sum, { units }) => sum + units, 0);
  const decisionsLeft = Math.min(windowLeft / request.cost, key.credits ?? Infinity);
  let count = wanted;
  while (count > 0 && reserve * sessions * count > decisionsLeft) count = Math.floor(count / 2);
  return count;
}

/** Counts tallies and takes units back, once for each number of a session. */
export function settle(state: RedisState, settlement: Settlement, setting: Setting, witness: Witness) {
  const { rules } = setting;
  const entry = state.registry.get(settlement.session) ?? { term: 0, granted: 0, settled: 0, removedAt: 0 };
  if (rules.countOnce && settlement.number <= entry.settled) return;
  state.registry.set(settlement.session, { ...entry, settled: settlement.number });
  for (const { key, outcome, count } of settlement.tallies) {
    const usage = state.usage[key]!;
    usage[outcome] = (usage[outcome] ?? 0) + count;
  }
  for (const { key: index, number, used } of settlement.returns) {
    const key = state.keys[index]!;
    const out = key.leases.find((one) => isSame(one, { session: settlement.session, number }));
    if (!out) continue;
    key.leases = key.leases.filter((one) => one !== out);
    giveBack(key, out, out.count - used, setting);
    witness.returned(index, settlement.session, number, out.count - used);
  }
  witness.counted(settlement);
}

/** Window units go back only to the entry in which they were charged. */
function giveBack(key: Key, out: UnitsOut, count: number, { rules }: Setting) {
  if (key.credits !== undefined) key.credits += count;
  if (out.limit?.duration !== key.limit?.duration) return;
  const entry = key.window.find(({ end }) => end === out.sliceEnd);
  if (entry) entry.units -= count * (rules.chargedCost ? out.cost : key.requests[0]!.cost);
}

/** Applies a change, which gives the key a new version; returns the registry. */
export function change(
  state: RedisState,
  { key: index, mutation }: Change,
  version: number,
  { rules }: Setting,
  witness: Witness,
) {
  const key = state.keys[index]!;
  key.version = version;
  if (mutation.set === 'enabled') key.enabled = mutation.value;
  if (mutation.set === 'limit' && key.limit) key.limit = { ...key.limit, limit: mutation.value };
  if (mutation.set === 'moreCredits' && key.credits !== undefined) {
    key.credits += mutation.value;
    witness.balanceSet(index, mutation.value);
  }
  if (mutation.set === 'credits' && key.credits !== undefined) {
    key.credits = mutation.value;
    if (rules.setClears) key.leases = [];
    witness.balanceSet(index);
  }
  return new Map([...state.registry].filter(([, { term }]) => term > 0));
}

/** Removes sessions that did not answer a recall. */
export function remove(state: RedisState, now: number, { sessions }: Removal, { rules }: Setting) {
  for (const { session, granted } of sessions) {
    const entry = state.registry.get(session);
    if (!entry || (rules.compareBeforeRemoval && entry.granted !== granted)) continue;
    if (rules.removalKeepsNumbers) state.registry.set(session, { ...entry, term: 0, removedAt: now });
    else state.registry.delete(session);
  }
}

/** An idle session leaves the registry, unless it was granted something that it does not know of. */
export function leave(state: RedisState, { session, granted }: Leave) {
  if ((state.registry.get(session)?.granted ?? 0) <= granted) state.registry.delete(session);
}
