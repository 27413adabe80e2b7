// Reads the reply of lua/keys/inspect.lua, for `tollgate inspect`. Times are in Unix milliseconds, durations in
// milliseconds.

import { presentedDuration, type Ratelimit } from '../domain/limit.ts';
import { quotaCodes } from '../domain/quota.ts';
import { dayMs, hourMs } from '../domain/time.ts';
import { type Outcome, outcomes } from '../domain/verification.ts';
import type { Reply } from '../scripts/calls.ts';
import {
  countedOutcomes,
  type KeyTime,
  keyFixed,
  keyFlags,
  keyRecordFields,
  keyTimes,
  spentPlace,
} from '../scripts/layout.ts';
import { type Counts, noCounts, readDays, readLog } from '../usage/days.ts';
import { fromNamed, type LimitReply, limitOfReply } from './records.ts';

/** Bytes that do not fit their declaration. */
export interface Fault {
  /** The first field that does not fit, and its offset. */
  field: string;
  offset: number;
  bytes: number;
  /** The first 64 KB. */
  hex: string;
}

/** A window (lua/include/windowLog.lua). If it has 0 bytes, the fields from `kind` to `sum` are undefined. */
export type InspectedWindow =
  | { fault: Fault }
  | {
      fault?: undefined;
      bytes: number;
      /** Units that count now. */
      counted: number;
      /** Undefined for a counter, because no limit is stored with it. */
      remaining: number | undefined;
      /** The time when the oldest unit leaves. Undefined when nothing counts. */
      reset: number | undefined;
      /** It was charged while Redis's clock was ahead of its present time. */
      isAhead: true | undefined;
      /** 1 to 4, the width of its entries. */
      kind: number | undefined;
      base: number | undefined;
      step: number | undefined;
      /** Units in all slices, including those that no longer count. */
      sum: number | undefined;
      slices: { end: number; units: number; counts: boolean }[];
    };

export interface InspectedLimit extends Ratelimit {
  window: InspectedWindow;
}

export type InspectedRefill = { amount: number; interval: 'daily' | 'monthly'; day: number | undefined; due: number };
export type InspectedCounters = ReturnType<typeof readCounters>;
export type InspectedUsage = ReturnType<typeof usageOf>;
export type InspectedState = ReturnType<typeof readState>;
export type InspectedIdentity = ReturnType<typeof readIdentity>;
export type InspectedBalance = ReturnType<typeof readBalance>;
export type InspectedHistory = ReturnType<typeof readHistory>;
export type Inspection = ReturnType<typeof readFound>;

export type Inspected =
  | { outcome: 'unknown' }
  /** `hour`: of the deletion. `purge`: when its record will be removed. Undefined if this is not stored any more. */
  | { outcome: 'deleted'; keyId: string; hour: number | undefined; purge: number | undefined }
  | { outcome: 'found'; inspection: Inspection };

type Flag = 1 | undefined;
type VersionReply = [time: number, number: number];
type FaultReply = { field: string; position: number; bytes: number; hex: string };

interface WindowReply {
  fault?: Reply;
  bytes: number;
  kind?: number;
  base?: number;
  step?: number;
  ends?: number[];
  units?: number[];
  sum?: number;
  counted: number;
  remaining?: number;
  reset?: number;
  ahead?: Flag;
}

interface CounterReply {
  name: string;
  duration: string;
  /** Time until Redis removes it. */
  expiresIn: number;
  window: Reply;
}

interface StateReply extends Record<KeyTime, number> {
  flags: string[];
  version: VersionReply;
  refill_amount: number;
  refill_day: number;
  refill_due: number;
  balance: number;
  last_used: number;
  forbidden: number;
  usage: number[];
  limits: Reply[];
}

interface CountersReply {
  counters?: Reply[];
  counterCount?: number;
}

interface IdentityReply extends CountersReply {
  id: string;
  externalId: string;
  deleted?: Flag;
  /** Another identity has its externalId now. */
  replaced?: Flag;
  /** JSON text. */
  meta?: string;
  version?: VersionReply;
  /** The values of `identityBalance`. */
  balance?: [balance: number, amount: number, day: number, due: number, number: number, held: number];
  limits?: Reply[];
  fault?: Reply;
}

/** The named reply of lua/keys/inspect.lua. */
interface InspectionReply extends CountersReply {
  now: number;
  /** Bytes of the state. */
  bytes: number;
  /** Fields of the record besides the state, as they are stored. */
  fields: Reply;
  /** Missing if the key was read by its digest and its state, which contains the id, cannot be decoded. */
  keyId?: string;
  /** Missing when the API was deleted. */
  apiId?: string;
  apiName?: string;
  /** Why the state cannot be decoded, which is missing then. */
  fault?: Reply;
  state?: Reply;
  identity?: Reply;
}

export function readInspection(outcome: string, reply: unknown, history: (Buffer | number)[]): Inspected {
  if (outcome === 'unknown') return { outcome };
  if (outcome === 'deleted') {
    const { keyId, hour, purge } = fromNamed<{ keyId: string; hour?: string; purge?: string }>(reply);
    return {
      outcome,
      keyId,
      hour: hour === undefined ? undefined : Number(hour) * hourMs,
      purge: purge === undefined ? undefined : Number(purge),
    };
  }
  return { outcome: 'found', inspection: readFound(fromNamed<InspectionReply>(reply), history) };
}

function readFound(found: InspectionReply, history: (Buffer | number)[]) {
  const { apiId, apiName = '' } = found;
  return {
    now: found.now,
    keyId: found.keyId,
    api: apiId === undefined ? undefined : { id: apiId, name: apiName },
    stateBytes: found.bytes,
    state: found.state === undefined ? undefined : readState(found.state, found.now),
    fault: readFault(found.fault),
    identity: found.identity === undefined ? undefined : readIdentity(found.identity, found.now),
    fields: readFields(found.fields),
    counters: readCounters(found, found.now),
    history: readHistory(history),
  };
}

/** The fields in the order of their declaration. */
function readFields(reply: Reply): Partial<Record<keyof typeof keyRecordFields, string>> {
  const stored = fromNamed<Record<string, string>>(reply);
  return Object.fromEntries(
    Object.keys(keyRecordFields).flatMap((name) => (stored[name] === undefined ? [] : [[name, stored[name]]])),
  );
}

const readVersion = ([time, number]: VersionReply) => ({ time, number });

function readFault(reply: Reply | undefined): Fault | undefined {
  if (reply === undefined) return undefined;
  const { field, position, bytes, hex } = fromNamed<FaultReply>(reply);
  if (field !== 'fixed') return { field, offset: position, bytes, hex };
  // Too short for the fields that every state has. Returns the field within which it ends.
  const [name, offset] = Object.entries(keyFixed.at).findLast(([, at]) => at <= bytes)!;
  return { field: name, offset, bytes, hex };
}

/** The slots of a concurrency limit are a window of which each entry ends by itself: its duration is 0. */
function readWindow(reply: Reply, duration: number, now: number): InspectedWindow {
  const { fault, bytes, counted, remaining, reset, ahead, kind, base, step, sum, ends, units } =
    fromNamed<WindowReply>(reply);
  if (fault !== undefined) return { fault: readFault(fault)! };
  const slices = (ends ?? []).map((end, index) => ({
    end,
    units: units![index]!,
    counts: (duration < quotaCodes ? end + duration : end) > now,
  }));
  const isAhead = ahead === 1 ? true : undefined;
  return { bytes, counted, remaining, reset, isAhead, kind, base, step, sum, slices };
}

function readLimit(reply: Reply, now: number): InspectedLimit {
  const { window, ...stored } = fromNamed<LimitReply & { window: Reply }>(reply);
  const limit = limitOfReply(stored);
  return { ...limit, window: readWindow(window, limit.type === 'concurrency' ? 0 : Number(stored.duration), now) };
}

/**
 * Windows with records of their own: of ad hoc limits, or of limits that were removed or got another duration. At most
 * 100 are read. `count` is the number in the list, some of which may have expired.
 */
function readCounters({ counters = [], counterCount = 0 }: CountersReply, now: number) {
  const read = counters.map((reply) => {
    const { name, expiresIn, window, ...stored } = fromNamed<CounterReply>(reply);
    const duration = Number(stored.duration);
    return { name, ...presentedDuration(duration, now), expiresIn, window: readWindow(window, duration, now) };
  });
  return { count: counterCount, counters: read };
}

/** The counts of an hour, and when it began. */
function usageOf(hour: number, counted: Counts) {
  const counts: Partial<Record<Outcome, number>> = {};
  for (const number of countedOutcomes) {
    const count = counted[number - 1]!;
    if (count > 0) counts[outcomes[number - 1]!] = count;
  }
  return { hour: hour * hourMs, counts, spentCredits: counted[spentPlace]! };
}

const refillOf = (amount: number, day: number, due: number): InspectedRefill => ({
  amount,
  interval: day === 0 ? 'daily' : 'monthly',
  day: day === 0 ? undefined : day,
  due,
});

/** A negative balance is a debt. `held`: the credits of open holds of its keys that give them back at their expiry. */
function readBalance(values: NonNullable<IdentityReply['balance']>) {
  const [balance, amount, day, due, number, held] = values;
  return { balance, refill: due === 0 ? undefined : refillOf(amount, day, due), number, held };
}

const timeOrNone = (time: number, none: number): number | undefined => (time === none ? undefined : time);

function readState(reply: Reply, now: number) {
  const state = fromNamed<StateReply>(reply);
  // USAGE: its counts and the credits spent are in the order of places.
  const [hour, ...inTail] = state.usage as [number, ...number[]];
  const counts = Object.assign(noCounts(), inTail, { [outcomes.indexOf('FORBIDDEN')]: state.forbidden });
  const { refill_amount: amount, refill_day: refillDay, refill_due: due } = state;
  const times = Object.fromEntries(
    Object.entries(keyTimes).map(([name, { none }]) => [name, timeOrNone(state[name as KeyTime], none)]),
  ) as Record<KeyTime, number | undefined>;
  const flags = keyFlags.filter((flag) => state.flags.includes(flag));
  return {
    version: readVersion(state.version),
    flags,
    ...times,
    refill: flags.includes('refilled') ? refillOf(amount, refillDay, due) : undefined,
    balance: flags.includes('limited') ? state.balance : undefined,
    lastUsed: state.last_used === 0 ? undefined : state.last_used,
    // Counts that are not in the history yet.
    usage: hour === 0 ? undefined : usageOf(hour, counts),
    limits: state.limits.map((limit) => readLimit(limit, now)),
  };
}

function readIdentity(reply: Reply, now: number) {
  const identity = fromNamed<IdentityReply>(reply);
  return {
    id: `id_${identity.id}`,
    externalId: identity.externalId,
    isDeleted: identity.deleted === 1,
    isReplaced: identity.replaced === 1,
    meta: identity.meta,
    version: identity.version && readVersion(identity.version),
    balance: identity.balance && readBalance(identity.balance),
    limits: (identity.limits ?? []).map((limit) => readLimit(limit, now)),
    counters: readCounters(identity, now),
    fault: readFault(identity.fault),
  };
}

/** Reads {bytes, log, bytes, days}, or nothing for a key without an id. Each is empty with more than 512 KB. */
function readHistory([logBytes = 0, log, daysBytes = 0, days]: (Buffer | number)[]) {
  const none = Buffer.alloc(0);
  return {
    log: { bytes: logBytes as number, ...readHours((log as Buffer | undefined) ?? none) },
    days: { bytes: daysBytes as number, ...readStoredDays((days as Buffer | undefined) ?? none) },
  };
}

/** The hours that ended since the last roll-up. */
function readHours(log: Buffer): { hours: (InspectedUsage & { externalId: string })[]; fault: Fault | undefined } {
  const hours: (InspectedUsage & { externalId: string })[] = [];
  let offset = 0;
  try {
    for (const { hour, counts, externalId, end } of readLog(log)) {
      if (!(end <= log.length)) throw new RangeError('The last hour is incomplete.');
      hours.push({ ...usageOf(hour, counts), externalId });
      offset = end;
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { hours, fault: { field: `hours[${hours.length}]`, offset, bytes: log.length, hex: log.toString('hex') } };
  }
  return { hours, fault: undefined };
}

/** The rolled-up days: empty if they cannot be decoded. Earlier ones are kept as sums only. */
function readStoredDays(stored: Buffer) {
  try {
    const days = readDays(stored).map(({ day, externalId, sums, hours }) => {
      const { hour: _hour, ...of } = usageOf(24 * day, sums);
      const ofHours = hours && [...hours].map(([at, counts]) => usageOf(24 * day + at, counts));
      return { day: day * dayMs, ...of, externalId, hours: ofHours };
    });
    return { days, fault: undefined };
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return { days: [], fault: { field: 'days', offset: 0, bytes: stored.length, hex: stored.toString('hex') } };
  }
}
