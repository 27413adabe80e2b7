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
//   Redis     shortens a term to 1/1.01 of what is left, by its own clock, until a slice or an hour ends, units expire,
//             a refill or an expiry
//
// Terms differ. A session claims a term with each request, LEASE_MS and the round trip that it measured, which may be
// any number; and a long one, for decisions that charge nothing and for units of what has much room. Redis bounds what
// is claimed, and the registry has the longest term that the session was granted since it was registered. A change
// waits for each session for as long as it has there; after a connect, for the longest that any may have.
//
// A hot lease is renewed before it ends: from half of its term on, one request asks for the next lease, while the
// others are decided by this one. When the next one comes, this one ends, and what it did not use is returned.
//
// A request that would be refused while units are out waits for one recall, which takes 1.01 of the longest terms at
// most: meanwhile
// Redis grants no more of these units. It waits for a second one only when another change gave it other windows. (The
// servers wait for half a term more, as a settlement may be on its way.)
//
// A lease charges windows of its key and of the identity of the key, and the balance. It is noted with both, each with
// the windows that it charged there: a window is found by its owner, name and duration, whatever limits the owner has
// since. The balance has a number, that of its next refill. So units come back to where they were charged after any
// change but one that resets that window or balance.
//
// What faults cost, and no more:
//
//   a killed or paused session   its units stay charged; a killed one's tallies are not counted: those of a quarter of
//                                a term, and up to seven earlier decisions of each lease
//   a lost connection            units that Redis grants to it afterwards stay charged; those of an identity also when
//                                the link of the key was changed before its session returns them
//   Redis loses its last writes  the charges, changes and settlements among them; leases on lost charges are used until
//                                they end
//   Redis's clock steps forward  windows start again, as without leases; units out at the step are admitted on top
//   Redis's clock steps back     window units that are out stay charged; credits come back
//   it steps during a recall     credits may be granted again before a balance is changed: a decrement below 0 sets it
//                                to 0 also if they come back
//
// A key stands for a counter of a namespace, too: then requests of several costs and limits share its window, and a
// changed duration stands for an override.
//
// A hold is a verification whose charges its caller settles later: less comes back, more is charged, also above a limit
// or the balance. Redis decides all of it. What is held is charged, so no lease has it; but what comes back makes a
// refusal wrong, so none is leased while units are held. Leases of other keys of an identity may see it up to a term
// late when a hold expires. After Redis's clock stepped back, units come back to the slice of that time, if there is
// one.
//
// Not in the model: late settlements of holds, holds of a request whose limit is at most 64 where other requests have
// larger ones on the same window, tags, servers whose LEASE_MS differ, deletion of identities and of registry entries
// with term 0, and of leases that have ended by Redis's clock when a record has no room for more.

/** Longest time between two settlements of a session, in terms. */
export const settleEvery = 1 / 4;
/** Fewer decisions of a lease are settled after its end. */
export const tallyMin = 8;
/** Two clocks differ by at most this factor. */
export const drift = 1.01;
/** Redis grants terms that are longer than LEASE_MS or the long term by at most this. */
export const addedMax = 200;
/** A long lease of units leaves this many times the room that another one leaves. */
export const longReserve = 4;
/** No units of a key are granted in this many terms after they were recalled: longer than a recall waits. */
export const pauseTerms = 2;
/**
 * A session leaves the registry after this many terms without work: longer than a request can be buffered for a dead
 * connection.
 */
export const idleTerms = 8;

/** An hour of usage; short, so that many end in a run. */
export const hourMs = 1_600;

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
  /** A refill sets the balance, too: credits come back only to the balance with the number that was charged. */
  refillClears: true,
  /** A changed refill without a new balance gives the balance another number, and the leases that charged it. */
  refillRenumbers: true,
  /** Then no lease that charged an earlier balance gets this number. */
  renumbersCurrent: true,
  /** A balance is decremented when the credits that are out are back, so it becomes 0 only if the key has too few. */
  decrementRecalls: true,
  /** A decrement to 0 sets the balance. */
  clampClears: true,
  /** Units come back to the windows that were charged, by name and duration, whatever else was changed. */
  windowsByName: true,
  /** Also when the key no longer has this limit: its window is kept. */
  keptWindows: true,
  /** Units come back to the identity that was charged, whatever became of the key and its link. */
  identityByName: true,
  /** The return of an ask without an answer does not know the identity: it is that of the key. */
  lostToLink: true,
  /** What comes back to a key that was deleted is credited to its record, as it may be restored. */
  deletedKeeps: true,
  /** Decisions of a key that was deleted for good are counted. */
  countsDeleted: true,
  /** A tally names the id of its key: another key may have its digest since. */
  tallyNamesKey: true,
  /** A lease ends with the hour, so that its tallies are of one hour. */
  endsWithHour: true,
  /** A tally has the time of its decisions, not their age when it was made. */
  usedAtOfDecision: true,
  /** A lease of units or of a refusal ends when units expire in one of its windows. */
  endsWithUnits: true,
  /** Units come back to the slice in which they were charged. */
  chargedSlice: true,
  /**
   * That is the oldest one that ends within a slice after the charge: a request with a limit of at most 64 may have
   * charged the same window since, in a slice of a millisecond.
   */
  oldestSlice: true,
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
  /** The registry has the longest term that was granted to a session, not the shorter one of its last lease. */
  longestTerm: true,
  /** A change waits for the term of each session, not for the one that its own would have. */
  termOfHolder: true,
  /** For each session only as long as for its own term, whatever those of others are. */
  waitsForEach: true,
  /** A claimed term is bounded. */
  boundedTerm: true,
  /** After a connect a change waits for the longest term that may have been granted to any session. */
  longestAfterConnect: true,
  /** It does not wait when some session has seen the life of Redis that it sees now, and no other one… */
  sameLife: true,
  /** …for as long as it would wait. */
  oldLife: true,
  /** A refusal waits for the longest term of those that hold units. */
  longestRecall: true,
  /** A lease that is renewed gives back what it did not use. */
  renewalReturns: true,
  /** It does so when the next one comes, from which time on it decides no more; not when that is asked for. */
  renewalReplaces: true,
  /** A lease decides until its end only, also while it is renewed. */
  renewalEnds: true,
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
  /** A recalled session returns the grants that are in flight, when they arrive. */
  returnInFlight: true,
  /** Units that are out are recalled before a request is refused. */
  recallUnits: true,
  /** A recall is acknowledged when all units are settled, those of grants in flight, too. */
  settleBeforeAck: true,
  /** While units are recalled, Redis grants no more of them: so a request waits for one recall at most. */
  pauseAfterRecall: true,
  /** Units that were out when the clock stepped back are not given back to a counter that was adapted to it. */
  stepClears: true,
  /** While units of a key or identity may be held, no refusal for want of them is leased: a settlement returns some. */
  heldRefusals: true,
  /** Credits that were held come back only to the balance that was charged. */
  heldBalance: true,
  /** Units that were held come back to the slice in which they were charged. */
  heldSlice: true,
  /** Units that were held come back to the identity that was charged. */
  heldOwner: true,
  /** A hold ends once. */
  heldOnce: true,
};
export type Rules = typeof rules;

/** What one run is about, chosen by the exploration. */
export interface Setting {
  rules: Rules;
  /** LEASE_MS. */
  term: number;
  /** The term of leases without units, and of units of what has much room. */
  long: number;
  /** A grant leaves this many times its units for each session. Cost only: no promise depends on it. */
  reserve: number;
  /** Sessions look at which life of Redis it is. */
  looks: boolean;
}

// ---- Redis

export type Outcome = 'VALID' | 'DISABLED' | 'EXPIRED' | 'RATE_LIMITED' | 'USAGE_EXCEEDED' | 'NOT_FOUND';

export interface Limit {
  name: string;
  limit: number;
  duration: number;
}

/** What a lease charges to a window with each decision. */
export interface ChargedWindow {
  name: string;
  duration: number;
  cost: number;
}

/** Units that a session may spend: in the record of their owner while they are out. */
export interface UnitsOut {
  session: string;
  number: number;
  /** By Redis's clock. */
  at: number;
  /** Decisions charged in advance. */
  count: number;
  isOverdue: boolean;
  /** The number of the balance that was charged; `never` when it gets nothing back. */
  balance: number;
  windows: readonly ChargedWindow[];
  /** Of all limits of the key and its identity. Only without `windowsByName`. */
  fingerprint: string;
}

/** What a verification charged until it is settled. */
export interface Hold {
  number: number;
  /** When it was charged and when it expires, by Redis's clock. */
  at: number;
  due: number;
  /** 0 for a key that was unlimited. */
  credits: number;
  balance: number;
  windows: readonly (ChargedWindow & { owner: string; limit: number })[];
}

export interface WindowEntry {
  /** End of the slice. */
  end: number;
  units: number;
}

/** A key or an identity. */
export interface Owner {
  /** Units are out and come back under this name. A key that is created again has another one. */
  id: string;
  limits: readonly Limit[];
  /** By name and duration: of its limits, of those that it had, and of requests. */
  windows: Record<string, WindowEntry[]>;
  leases: UnitsOut[];
  /** No units are granted before, by Redis's clock. */
  pausedUntil: number;
  /** The last expiry of a hold that charged it, by Redis's clock; of an identity. */
  heldUntil: number;
  version: number;
}

/** What a verification may ask for. */
export interface Request {
  /** Units of each window. */
  cost: number;
  /** In the place of the number of each limit. */
  limit?: number;
  /** One more limit. */
  adhoc?: Limit;
}

export interface Key extends Owner {
  enabled: boolean;
  /** A key that was deleted for good is gone. */
  state: 'stored' | 'deleted' | 'gone';
  identity?: number | undefined;
  requests: readonly Request[];
  holds: readonly Hold[];
  /** How often the balance was set or refilled. */
  balances: number;
  /** Each verification spends one credit. */
  credits?: number | undefined;
  refill?: { at: number; every: number; amount: number } | undefined;
  expires?: number | undefined;
}

/** An entry of the registry. Term 0: removed; the numbers stay. */
export interface Registered {
  term: number;
  granted: number;
  settled: number;
  removedAt: number;
}

export interface Seen {
  life: number;
  ms: number;
}

export interface RedisState {
  keys: Key[];
  identities: Owner[];
  registry: Map<string, Registered>;
  /** The life of Redis: each one begins with a restart. */
  life: number;
  /** Which life each session has seen, and for how long, by its clock. Sessions that are gone stay. */
  seen: Map<string, Seen>;
  /** The number of the last hold. */
  holds: number;
  /** By what is counted (a key, an identity, all keys), hour and outcome. */
  usage: Record<string, number>;
}

export interface Named {
  session: string;
  number: number;
}

export interface Ask {
  kind: 'decide';
  session: string;
  key: number;
  request: number;
  /** Decisions wanted as a lease, 0 for none. */
  wanted: number;
  number: number;
  /** What the session adds to the terms of its leases. */
  added: number;
  /** Entries that were recalled and waited for. */
  recalled: readonly Named[];
  /** The time to the expiry of a hold of what is charged; undefined for no hold. */
  hold: number | undefined;
}

/** Settles a hold of a key, if it has any. */
export interface EndHold {
  kind: 'endHold';
  key: number;
  /** Its place. */
  which: number;
  /** Of what was held: none, all, or twice that. */
  used: 0 | 1 | 2;
}

export interface Grant {
  number: number;
  /** Undefined for a read lease. */
  count: number | undefined;
  term: number;
}

/** What a decision says of a window or balance. */
export interface Left {
  /** The name of the window or balance, for what a session knows of it. */
  of: string;
  /** 0 for a balance. */
  limit: number;
  left: number;
  /** What one decision charges. */
  units: number;
}

export interface Decided {
  outcome: Outcome;
  version: number;
  /** By Redis's clock. */
  at: number;
  keyId: string;
  identity: number | undefined;
  left: readonly Left[];
  grant: Grant | undefined;
}

/** `term` is the longest one of those that hold units. */
export type Decision = Decided | { outcome: 'RECALL'; from: Named[]; term: number };

/** What was decided by a lease. */
export interface Counted {
  key: number;
  keyId: string;
  identity: number | undefined;
  outcome: Outcome;
  lease: number;
  count: number;
  /** Time of the last decision, by Redis's clock. */
  usedAt: number;
  /** Only without `usedAtOfDecision`. */
  age: number;
  /** When the first was decided, and the last of `tallyMin`. */
  since: number;
  manySince?: number;
}

export interface Returned {
  key: number;
  /** Undefined, as the identity, when the grant is not known to the session. */
  keyId: string | undefined;
  identity: number | undefined;
  number: number;
  used: number;
}

export interface Settlement {
  kind: 'settle';
  session: string;
  number: number;
  returns: Returned[];
  tallies: Counted[];
}

export type Mutation =
  | { set: 'enabled'; value: boolean }
  /** Null for an unlimited key. */
  | { set: 'credits'; value: number | null }
  | { set: 'moreCredits'; value: number }
  | { set: 'refill'; amount: number | null }
  /** Of the key or its identity. Number 0 removes the limit; without a duration it stays. */
  | { set: 'limit'; on: 'key' | 'identity'; name: string; limit: number; duration?: number }
  | { set: 'link'; value: number | null }
  | { set: 'deleted'; value: boolean }
  /** Deleted for good; created again with the same digest. */
  | { set: 'gone'; value: boolean };

export interface Change {
  kind: 'change';
  key: number;
  mutation: Mutation;
  begun: number;
  /** Whether credits that are out were recalled. */
  isAgain: boolean;
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

/** Reads which life of Redis it is, and stores for others how long the session has seen it. */
export interface Look {
  kind: 'look';
  session: string;
  seen: Seen | undefined;
}

export type Script = Ask | EndHold | Settlement | Change | Removal | Leave | Look;

/** A charge of one decision, or of `count`, to a window. */
export interface Charged {
  owner: string;
  window: string;
  end: number;
  duration: number;
  limit: number;
  cost: number;
}

/** What the checks must know about a script run; no part of the protocol. */
export interface Witness {
  charged(ask: Ask, count: number, number: number | undefined, charges: readonly Charged[], hasCredits: boolean): void;
  /** `windows` have too little room; undefined where the balance is too small. */
  refused(key: number, session: string, windows: readonly string[] | undefined): void;
  returned(owner: string, session: string, number: number, count: number): void;
  counted(settlement: Settlement): void;
  /** The balance was set, or `added` was added to it. */
  balanceSet(key: number, added?: number): void;
  balanceClamped(key: number): void;
  windowAdapted(owner: string): void;
  /** The charges of the last decision are held. */
  held(key: number, hold: Hold): void;
  /** `more` are charges now. */
  holdEnded(key: number, hold: Hold, used: number, more: readonly Charged[], isExpired: boolean): void;
}

const never = Infinity;
const memberOf = ({ name, duration }: { name: string; duration: number }) => `${name}/${duration}`;
export const windowIdOf = (owner: Owner, of: { name: string; duration: number }) => `${owner.id}/${memberOf(of)}`;

/** The slice in which a charge at `now` counts (lua/include/windowLog.lua). */
const sliceOf = (limit: number, duration: number) => (limit <= 64 ? 1 : Math.floor(duration / 64));

/** A limit of a request, and the units of its window that count. */
interface Checked extends Limit {
  owner: Owner;
  cost: number;
  total: number;
}

export function linked(state: RedisState, key: Key): Owner | undefined {
  return key.identity === undefined ? undefined : state.identities[key.identity];
}

/** The limits of a request: a limit of the key comes before one of its identity with the same name. */
export function limitsOf(state: RedisState, key: Key, { limit, adhoc }: Request): (Limit & { owner: Owner })[] {
  const own = new Set(key.limits.map(({ name }) => name));
  const shared = linked(state, key);
  return [
    ...key.limits.map((one) => ({ ...one, limit: limit ?? one.limit, owner: key as Owner })),
    ...(shared?.limits ?? [])
      .filter(({ name }) => !own.has(name))
      .map((one) => ({ ...one, limit: limit ?? one.limit, owner: shared! })),
    ...(adhoc ? [{ ...adhoc, owner: key as Owner }] : []),
  ];
}

/**
 * Units that count at `now`. Drops the entries that no longer do, and adapts the others to a step back of the clock.
 */
function windowTotal(owner: Owner, of: Limit, now: number, { rules }: Setting, witness: Witness): number {
  const { duration } = of;
  const member = memberOf(of);
  let window = owner.windows[member] ?? [];
  const latest = now + Math.floor(duration / 64);
  if (window.some(({ end }) => end > latest)) {
    const late = window.filter(({ end }) => end >= latest).reduce((sum, { units }) => sum + units, 0);
    window = [...window.filter(({ end }) => end < latest), { end: latest, units: late }];
    if (rules.stepClears) owner.leases = owner.leases.map((out) => ({ ...out, windows: [] }));
    witness.windowAdapted(owner.id);
  }
  if (window.length === 0 || window[0]!.end + duration <= now)
    window = window.filter(({ end }) => end + duration > now);
  owner.windows[member] = window;
  return window.reduce((total, { units }) => total + units, 0);
}

/** Charges `count` decisions; returns the end of the charged slice. */
function chargeWindow({ owner, limit, duration, name, cost }: Checked, now: number, count: number): number {
  const slice = sliceOf(limit, duration);
  const sliceEnd = now - (now % slice) + slice;
  const window = owner.windows[memberOf({ name, duration })]!;
  const newest = window.at(-1);
  if (newest && newest.end >= sliceEnd) {
    newest.units += count * cost;
    return newest.end;
  }
  window.push({ end: sliceEnd, units: count * cost });
  return sliceEnd;
}

/** The number of the balance. */
export const balanceOf = (key: Key) => (key.credits === undefined ? never : (key.refill?.at ?? 0));

function refill(key: Key, now: number, witness: Witness, index: number) {
  if (!key.refill || now < key.refill.at || key.credits === undefined) return;
  key.credits = key.refill.amount;
  key.balances++;
  while (key.refill.at <= now) key.refill = { ...key.refill, at: key.refill.at + key.refill.every };
  witness.balanceSet(index);
}

/** Verifies a key, charges it, and grants a lease if one is wanted. */
export function decide(state: RedisState, now: number, ask: Ask, setting: Setting, witness: Witness): Decision {
  const key = state.keys[ask.key]!;
  const request = key.requests[ask.request]!;
  const owners: Owner[] = [key, linked(state, key)].filter((owner) => owner !== undefined);
  let limits: Checked[] = [];
  if (key.state === 'stored') {
    expireHolds(state, key, ask.key, now, setting, witness);
    refill(key, now, witness, ask.key);
    limits = limitsOf(state, key, request).map((one) => {
      return { ...one, cost: request.cost, total: windowTotal(one.owner, one, now, setting, witness) };
    });
  }
  const outcome = outcomeOf(key, now, limits);
  const short = limits.filter(isShort);
  const awaited = awaitedOf(state, owners, outcome, ask, now, setting);
  if (awaited.length > 0) return { outcome: 'RECALL', from: awaited, term: recallTerm(state, setting) };
  const windows = outcome === 'RATE_LIMITED' ? short.map((one) => windowIdOf(one.owner, one)) : undefined;
  if (isRefusal(outcome)) witness.refused(ask.key, ask.session, windows);
  if (outcome === 'VALID') witness.charged(ask, 1, undefined, charge(key, limits, now, 1), key.credits !== undefined);
  if (outcome === 'VALID' && ask.hold !== undefined) hold(state, key, limits, now, ask, witness);
  if (outcome !== 'NOT_FOUND') count(state, key.id, key.identity, now, outcome, 1);
  const left = leftOf(key, limits, outcome);
  const grant = ask.wanted > 0 ? grantOf(state, key, now, ask, outcome, limits, setting, witness) : undefined;
  const version = Math.max(...owners.map((owner) => owner.version));
  return { outcome, version, at: now, keyId: key.id, identity: key.identity, left, grant };
}

const isShort = ({ total, cost, limit }: Checked) => total + cost > limit;
const isRefusal = (outcome: Outcome) => outcome === 'RATE_LIMITED' || outcome === 'USAGE_EXCEEDED';
const isSame = (one: Named, other: Named) => one.session === other.session && one.number === other.number;

/** The entries that a refusal waits for. Marks those that were recalled. */
function awaitedOf(
  state: RedisState,
  owners: Owner[],
  outcome: Outcome,
  ask: Ask,
  now: number,
  setting: Setting,
): Named[] {
  const { rules } = setting;
  const awaited: Named[] = [];
  for (const owner of owners) {
    // Whatever is decided, so that the next refusal does not wait for them again.
    const isRecalled = (out: UnitsOut) => ask.recalled.some((one) => isSame(one, out));
    if (rules.markRecalled && ask.recalled.length > 0)
      owner.leases = owner.leases.map((out) => (isRecalled(out) ? { ...out, isOverdue: true } : out));
    if (!rules.lateReturn) owner.leases = owner.leases.filter(({ isOverdue }) => !isOverdue);
    if (!isRefusal(outcome) || !rules.recallUnits) continue;
    for (const out of owner.leases) {
      if (!out.isOverdue && !awaited.some((one) => isSame(one, out)))
        awaited.push({ session: out.session, number: out.number });
    }
  }
  const pausedUntil = now + pauseTerms * recallTerm(state, setting);
  if (awaited.length > 0) for (const owner of owners) owner.pausedUntil = pausedUntil;
  return awaited;
}

/** The longest term that a session may have. */
export const boundOf = ({ term, long }: Setting) => Math.max(term, long) + addedMax;

/** The longest term of those that may hold leases; of any, when the registry has none. */
function recallTerm({ registry }: RedisState, setting: Setting): number {
  if (!setting.rules.longestRecall) return setting.term;
  return Math.max(0, ...[...registry.values()].map((entry) => entry.term)) || boundOf(setting);
}

function outcomeOf(key: Key, now: number, limits: Checked[]): Outcome {
  if (key.state !== 'stored') return 'NOT_FOUND';
  if (!key.enabled) return 'DISABLED';
  if (key.expires !== undefined && now >= key.expires) return 'EXPIRED';
  if (limits.some(isShort)) return 'RATE_LIMITED';
  if (key.credits !== undefined && key.credits < 1) return 'USAGE_EXCEEDED';
  return 'VALID';
}

function charge(key: Key, limits: Checked[], now: number, times: number): Charged[] {
  if (key.credits !== undefined) key.credits -= times;
  return limits.map((one) => {
    const { owner, duration, limit, cost } = one;
    return {
      owner: owner.id,
      window: windowIdOf(owner, one),
      end: chargeWindow(one, now, times),
      duration,
      limit,
      cost,
    };
  });
}

/** Holds what was just charged. */
function hold(state: RedisState, key: Key, limits: Checked[], now: number, ask: Ask, witness: Witness) {
  const due = now + ask.hold!;
  const windows = limits.map(({ owner, name, duration, limit, cost }) => {
    return { owner: owner.id, name, duration, limit, cost };
  });
  const credits = key.credits === undefined ? 0 : 1;
  const made = { number: ++state.holds, at: now, due, credits, balance: key.balances, windows };
  key.holds = [...key.holds, made];
  const shared = linked(state, key);
  if (shared && windows.some(({ owner }) => owner === shared.id)) shared.heldUntil = Math.max(shared.heldUntil, due);
  witness.held(ask.key, made);
}

/** What has expired comes back. */
function expireHolds(state: RedisState, key: Key, index: number, now: number, setting: Setting, witness: Witness) {
  for (const one of key.holds) if (one.due <= now) finishHold(state, key, index, one, 0, now, true, setting, witness);
}

/** Settles a hold. Nothing happens if its key was deleted, or has none. */
export function endHold(
  state: RedisState,
  now: number,
  { key: index, which, used }: EndHold,
  setting: Setting,
  witness: Witness,
) {
  const key = state.keys[index]!;
  if (key.state !== 'stored') return;
  expireHolds(state, key, index, now, setting, witness);
  const one = key.holds[which % key.holds.length];
  if (one) finishHold(state, key, index, one, used, now, false, setting, witness);
}

function finishHold(
  state: RedisState,
  key: Key,
  index: number,
  one: Hold,
  used: 0 | 1 | 2,
  now: number,
  isExpired: boolean,
  setting: Setting,
  witness: Witness,
) {
  const { rules } = setting;
  refill(key, now, witness, index);
  if (rules.heldOnce || isExpired) key.holds = key.holds.filter((other) => other !== one);
  const more: Charged[] = [];
  for (const of of one.windows) {
    const identity = state.identities.find(({ id }) => id === of.owner);
    const owner = of.owner === key.id ? key : rules.heldOwner ? identity : linked(state, key);
    if (!owner) continue;
    const at = rules.heldSlice ? one.at : now;
    if (used === 0) giveBack(owner, { at, windows: [of], limit: of.limit }, now, 1, rules);
    if (used === 2) more.push(...chargeAbove(owner, of, now, setting, witness));
  }
  const returned = one.credits * (1 - used);
  if (key.credits !== undefined && (returned < 0 || one.balance === key.balances || !rules.heldBalance))
    key.credits += returned;
  witness.holdEnded(index, one, used, more, isExpired);
}

/** Charges a window also above its limit. */
function chargeAbove(owner: Owner, of: Hold['windows'][number], now: number, setting: Setting, witness: Witness) {
  const checked = { ...of, owner, total: windowTotal(owner, of, now, setting, witness) };
  const window = windowIdOf(owner, of);
  const { limit, duration, cost } = of;
  return [{ owner: owner.id, window, end: chargeWindow(checked, now, 1), duration, limit, cost }];
}

/** What the decision says is left after it. */
function leftOf(key: Key, limits: Checked[], outcome: Outcome): Left[] {
  const isCharged = outcome === 'VALID';
  const left = limits.map((one) => {
    const { owner, limit, total, cost } = one;
    const after = total + (isCharged ? cost : 0);
    return { of: windowIdOf(owner, one), limit, left: Math.max(0, limit - after), units: cost };
  });
  if (key.credits !== undefined) left.push({ of: `${key.id}/credits`, limit: 0, left: key.credits, units: 1 });
  return left;
}

function count(state: RedisState, key: string, identity: number | undefined, at: number, outcome: Outcome, n: number) {
  const hour = Math.floor(at / hourMs);
  for (const name of [key, 'all', ...(identity === undefined ? [] : [state.identities[identity]!.id])]) {
    const field = `${name} ${hour} ${outcome}`;
    state.usage[field] = (state.usage[field] ?? 0) + n;
  }
}

/** When a decision may be another one, if nothing is changed. */
function endsOf(key: Key, now: number, outcome: Outcome, limits: Checked[], { rules }: Setting): number[] {
  const ends: number[] = [];
  if (outcome === 'NOT_FOUND') return ends;
  if (rules.endsWithHour) ends.push((Math.floor(now / hourMs) + 1) * hourMs);
  if (key.expires !== undefined && outcome !== 'EXPIRED' && outcome !== 'DISABLED') ends.push(key.expires);
  const isCharged = outcome === 'VALID' || isRefusal(outcome);
  for (const { due } of key.holds) ends.push(due);
  if (key.refill && isCharged) ends.push(key.refill.at);
  for (const one of limits) {
    const window = one.owner.windows[memberOf(one)]!;
    const isReason = outcome === 'RATE_LIMITED' && isShort(one);
    if (isCharged && (rules.endsWithUnits || isReason) && window.length > 0) ends.push(window[0]!.end + one.duration);
    if (outcome !== 'VALID' || !rules.endsWithSlice) continue;
    const slice = sliceOf(one.limit, one.duration);
    ends.push(now - (now % slice) + slice);
  }
  return ends;
}

/** The grant after an ordinary decision, at Redis's time `now`. Writes the registry. */
function grantOf(
  state: RedisState,
  key: Key,
  now: number,
  ask: Ask,
  outcome: Outcome,
  limits: Checked[],
  setting: Setting,
  witness: Witness,
): Grant | undefined {
  const { rules } = setting;
  const entry = state.registry.get(ask.session) ?? { term: 0, granted: 0, settled: 0, removedAt: 0 };
  const number = rules.ownNumbers ? ask.number : entry.granted + 1;
  const shared = linked(state, key);
  const owners = shared ? [key, shared] : [key];
  if (isRefusal(outcome) && owners.some(({ leases }) => leases.length > 0) && rules.overdueRefusals) return undefined;
  const isHeld = key.holds.length > 0 || (shared !== undefined && shared.heldUntil > now);
  if (isRefusal(outcome) && isHeld && rules.heldRefusals) return undefined;
  let units: number | undefined;
  if (outcome === 'VALID' && (limits.length > 0 || key.credits !== undefined)) {
    // Not for long after a step back of the clock.
    const longestPause = pauseTerms * boundOf(setting);
    const isPaused = owners.some(({ pausedUntil }) => now < pausedUntil && pausedUntil <= now + longestPause);
    if (isPaused && rules.pauseAfterRecall) return undefined;
    units = unitsOf(state, key, limits, ask.wanted, setting);
    if (units === 0) return undefined;
  }
  const isLong = units === undefined || hasRoom(state, key, limits, units, longReserve * setting.reserve);
  const added = rules.boundedTerm ? Math.min(ask.added, addedMax) : ask.added;
  const term = (isLong ? Math.max(setting.term, setting.long) : setting.term) + added;
  // Redis's time is whole milliseconds: up to one of them is over.
  const left = Math.min(...endsOf(key, now, outcome, limits, setting)) - now - (rules.millisecondOver ? 1 : 0);
  const shortened = Math.min(term, rules.driftOfTerm ? Math.floor(left / drift) : left);
  if (shortened <= 0) return undefined;
  if (units !== undefined) {
    const charges = charge(key, limits, now, units);
    const fingerprint = rules.windowsByName ? '' : fingerprintOf(state, key);
    for (const owner of owners) {
      const windows = limits
        .filter((one) => one.owner === owner)
        .map(({ name, duration, cost }) => ({ name, duration, cost }));
      const balance = owner === key ? balanceOf(key) : never;
      owner.leases = [
        ...owner.leases,
        { session: ask.session, number, at: now, count: units, isOverdue: false, balance, windows, fingerprint },
      ];
    }
    witness.charged(ask, units, number, charges, key.credits !== undefined);
  }
  state.registry.set(ask.session, {
    ...entry,
    term: rules.longestTerm ? Math.max(entry.term, term) : shortened,
    granted: number,
  });
  return { number, count: units, term: shortened };
}

const fingerprintOf = (state: RedisState, key: Key) => JSON.stringify([key.limits, linked(state, key)?.limits]);

/** The largest half, quarter, ... of `wanted` that leaves the reserve to every session. */
function unitsOf(state: RedisState, key: Key, limits: Checked[], wanted: number, { reserve }: Setting): number {
  if (limits.some(({ limit }) => limit <= 64)) return 0;
  let units = wanted;
  while (units > 0 && !hasRoom(state, key, limits, units, reserve)) units = Math.floor(units / 2);
  return units;
}

function hasRoom(state: RedisState, key: Key, limits: Checked[], units: number, reserve: number): boolean {
  const sessions = [...state.registry.values()].filter(({ term }) => term > 0).length + 1;
  // The decision itself is charged already.
  const room = limits.map(({ limit, total, cost }) => (limit - total - cost) / cost);
  return reserve * sessions * units <= Math.min(...room, key.credits ?? Infinity);
}

/** Counts tallies and takes units back, once for each number of a session. */
export function settle(state: RedisState, now: number, settlement: Settlement, setting: Setting, witness: Witness) {
  const { rules } = setting;
  const entry = state.registry.get(settlement.session) ?? { term: 0, granted: 0, settled: 0, removedAt: 0 };
  if (rules.countOnce && settlement.number <= entry.settled) return;
  state.registry.set(settlement.session, { ...entry, settled: settlement.number });
  for (const { key: index, keyId, identity, outcome, count: times, usedAt, age } of settlement.tallies) {
    const key = state.keys[index]!;
    if (!rules.countsDeleted && (key.id !== keyId || key.state === 'gone')) continue;
    count(
      state,
      rules.tallyNamesKey ? keyId : key.id,
      identity,
      rules.usedAtOfDecision ? usedAt : now - age,
      outcome,
      times,
    );
  }
  for (const one of settlement.returns) takeBack(state, now, settlement.session, one, setting, witness);
  witness.counted(settlement);
}

/** Units of one lease come back to its owners. */
function takeBack(state: RedisState, now: number, session: string, of: Returned, { rules }: Setting, witness: Witness) {
  const key = state.keys[of.key]!;
  const fingerprint = rules.windowsByName ? '' : fingerprintOf(state, key);
  const isStored = key.state !== 'gone' && (of.keyId === undefined || of.keyId === key.id);
  let identity = of.identity;
  if (of.keyId === undefined && rules.lostToLink) identity = key.identity;
  if (!rules.identityByName && (key.state !== 'stored' || !isStored || identity !== key.identity)) identity = undefined;
  const owners: Owner[] = [];
  if (isStored && (key.state === 'stored' || rules.deletedKeeps)) owners.push(key);
  if (identity !== undefined) owners.push(state.identities[identity]!);
  for (const owner of owners) {
    const out = owner.leases.find((one) => isSame(one, { session, number: of.number }));
    if (!out) continue;
    owner.leases = owner.leases.filter((one) => one !== out);
    const times = out.count - of.used;
    // A balance that was set since has none of these credits.
    const isOfBalance =
      owner === key && key.credits !== undefined && (out.balance === balanceOf(key) || !rules.refillClears);
    if (isOfBalance) key.credits! += times;
    if (rules.windowsByName || out.fingerprint === fingerprint) giveBack(owner, out, now, times, rules);
    witness.returned(owner.id, session, of.number, times);
  }
}

/** Window units go back only to the slice in which they were charged. */
function giveBack(
  owner: Owner,
  { at, windows, limit }: Pick<UnitsOut, 'at' | 'windows'> & { limit?: number },
  now: number,
  times: number,
  rules: Rules,
) {
  // After the clock stepped back, windows have other slices.
  if (at > now && rules.stepClears) return;
  for (const one of windows) {
    const slice = Math.floor(one.duration / 64);
    const own = limit === undefined ? slice : sliceOf(limit, one.duration);
    const [earliest, latest] = rules.chargedSlice ? [at - (at % own) + own, at + slice] : [0, never];
    if (!rules.keptWindows && !owner.limits.some((limit) => memberOf(limit) === memberOf(one))) continue;
    const isCharged = ({ end }: WindowEntry) => end >= earliest && end <= latest;
    const window = owner.windows[memberOf(one)] ?? [];
    const charged = window.filter(isCharged);
    let left = times * (rules.chargedCost ? one.cost : 20);
    // An older slice has fewer units only after the clock stepped back.
    for (const entry of rules.oldestSlice ? charged : charged.reverse()) {
      const taken = Math.min(entry.units, left);
      entry.units -= taken;
      left -= taken;
    }
  }
}

/** Applies a change, which gives the key or identity a new version. Returns the registry. */
export function change(
  state: RedisState,
  now: number,
  { key: index, mutation, isAgain }: Change,
  version: number,
  setting: Setting,
  witness: Witness,
): { registry: Map<string, Registered>; isLeased: boolean } {
  const { rules } = setting;
  const key = state.keys[index]!;
  const isStored = key.state === 'stored';
  const registry = new Map([...state.registry].filter(([, entry]) => entry.term > 0));
  const isOut = key.credits !== undefined && key.leases.some(({ balance }) => balance === balanceOf(key));
  if (isStored && mutation.set === 'moreCredits' && isOut && !isAgain && rules.decrementRecalls) {
    key.pausedUntil = now + pauseTerms * recallTerm(state, setting);
    return { registry, isLeased: true };
  }
  const owner = mutation.set === 'limit' && mutation.on === 'identity' ? linked(state, key) : key;
  if (owner) owner.version = version;
  if (owner && isStored) changeStored(state, owner, key, index, now, mutation, rules, witness);
  if (mutation.set === 'deleted' && key.state !== 'gone') key.state = mutation.value ? 'deleted' : 'stored';
  if (mutation.set === 'gone' && mutation.value !== (key.state === 'gone')) {
    Object.assign(key, {
      id: mutation.value ? key.id : `k${index}.${version}`,
      state: mutation.value ? 'gone' : 'stored',
    });
    Object.assign(key, {
      windows: {},
      leases: [],
      holds: [],
      pausedUntil: 0,
      identity: mutation.value ? undefined : key.identity,
    });
    witness.balanceSet(index);
  }
  return { registry, isLeased: false };
}

function changeStored(
  state: RedisState,
  owner: Owner,
  key: Key,
  index: number,
  now: number,
  mutation: Mutation,
  rules: Rules,
  witness: Witness,
) {
  refill(key, now, witness, index);
  if (mutation.set === 'enabled') key.enabled = mutation.value;
  if (mutation.set === 'link')
    key.identity = mutation.value === null ? undefined : mutation.value % state.identities.length;
  if (mutation.set === 'limit') setLimit(owner, mutation);
  if (mutation.set === 'credits') {
    key.credits = mutation.value ?? undefined;
    if (mutation.value === null) key.refill = undefined;
    if (rules.setClears) renumber(key, undefined);
    key.balances++;
    witness.balanceSet(index);
  }
  if (key.credits === undefined) return;
  if (mutation.set === 'refill') {
    const before = rules.refillRenumbers ? balanceOf(key) : undefined;
    key.refill = mutation.amount === null ? undefined : { at: now + 500, every: 500, amount: mutation.amount };
    renumber(key, before, rules);
  }
  if (mutation.set === 'moreCredits') {
    const { value } = mutation;
    if (key.credits + value < 0) {
      witness.balanceClamped(index);
      key.credits = Math.min(0, key.credits);
      key.balances++;
      if (rules.clampClears) renumber(key, undefined);
      witness.balanceSet(index);
    } else {
      key.credits += value;
      witness.balanceSet(index, value);
    }
  }
}

/** Leases that charged the balance `before` have its number of now; all others give no credits back. */
function renumber(key: Key, before: number | undefined, rules?: Rules) {
  const isCurrent = ({ balance }: UnitsOut) => balance === before || (rules && !rules.renumbersCurrent);
  key.leases = key.leases.map((out) => ({ ...out, balance: isCurrent(out) ? balanceOf(key) : never }));
}

/** The window of a limit that is removed is kept: one with its name and duration uses it again. */
function setLimit(owner: Owner, { name, limit, duration }: Mutation & { set: 'limit' }) {
  const before = owner.limits.find((one) => one.name === name);
  const others = owner.limits.filter((one) => one.name !== name);
  const set = { name, limit, duration: duration ?? before?.duration ?? 6_400 };
  owner.limits = limit === 0 ? others : [...others, set];
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

export function look({ life, seen }: RedisState, { session, seen: own }: Look): { life: number; seen: Seen[] } {
  if (own) seen.set(session, own);
  return { life, seen: [...seen.values()] };
}
