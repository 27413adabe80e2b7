// Counts by key and externalId: from the days, the log and the current hour of each key that was used. A query that
// does not need keys reads whole days that were rolled up from the sums by customer.

import { packIdInto } from '../domain/keyString.ts';
import { outcomes } from '../domain/verification.ts';
import { chunks } from '../redis/chunks.ts';
import { orStoreError } from '../redis/connection.ts';
import { formerMembersKey, workspaceKey } from '../redis/names.ts';
import { countedOutcomes, countPlaces, keyUsage, spentPlace } from '../scripts/layout.ts';
import { readUint } from '../scripts/struct.ts';
import { membersOf, membersStep } from './commands.ts';
import { type Counts, type DayVisitor, noCounts, readCurrentHour, readLog, visitDays } from './days.ts';
import {
  type InWorkspace,
  type KeptPeriod,
  tooMuch,
  type UsageCount,
  type UsageQuery,
  type UsageScope,
  type Visit,
} from './query.ts';
import { Steps } from './steps.ts';
import { isSummed, summedDays } from './summed.ts';
import { dayBefore, monthOf, visitSums } from './sums.ts';
import { usedKeys } from './used.ts';

/** Keys and bytes that one script reads, in less than a millisecond: verifications wait for it. */
const keysStep = 96;
const bytesStep = 131_072;
/** Bytes of sums that one script reads, of some hundred customers: adding them up takes longer than reading them. */
const sumBytesStep = 16_384;
/**
 * Limit of the keys of an identity that are looked up one by one. With more, the keys used in the period are read
 * instead.
 */
const keysOfIdentityMax = 20_000;
/** Identities whose keys are read concurrently. */
const identitiesStep = 25;

/**
 * Counts of one key, or of one customer in an API, in one bucket of time. The object is used again: copy it to keep it.
 */
export interface Sum {
  /** The first hour that was added. */
  hour: number;
  apiId: string;
  /** '' for the sums of a customer. */
  keyId: string;
  externalId: string;
  counts: Counts;
}
export type VisitSum = (sum: Sum) => void;

/** Visits the counts of a sum one by one. */
export function byOutcome(visit: Visit<UsageCount>, { hourlyFrom }: KeptPeriod): VisitSum {
  return ({ hour, apiId, keyId, externalId, counts }) => {
    for (const number of countedOutcomes) {
      const count = counts[number - 1]!;
      const outcome = outcomes[number - 1]!;
      // Only VALID verifications are charged, some of them in a later hour: when a hold is settled.
      const spentCredits = outcome === 'VALID' ? counts[spentPlace]! : 0;
      if (count === 0 && spentCredits === 0) continue;
      visit({ hour, isOfDay: hour < hourlyFrom, outcome, count, spentCredits, apiId, keyId, externalId });
    }
  };
}

/** Counts of verifications by key and externalId. Counts of whole days have no key unless the query asks for it. */
export async function countByKey(scope: UsageScope, query: UsageQuery, visit: Visit<UsageCount>) {
  const { externalIds, bounded } = query;
  const visitSum = byOutcome(visit, scope.period);
  const named = await keysNamed(scope, query);
  if (named) return countKeys(scope, named, visitSum);
  const summed = query.by.key ? undefined : await summedDays(scope);
  const rest = { ...scope, period: { ...scope.period, summed } };
  if (summed) {
    // The caller leaves out the customers between the first and the last name that it did not ask for.
    const names = externalIds && [...externalIds].sort();
    const of = { from: names?.[0] ?? '', upTo: () => names?.at(-1) };
    await countSums(rest, of, visitSum);
  }
  for await (const keys of usedKeys(rest, { bounded })) await countKeys(rest, keys, visitSum);
}

/** The counts of these keys (without `key_`), as far as they are of the APIs. `settle` is called after some keys. */
export async function countKeys(
  scope: UsageScope,
  found: readonly string[],
  visit: VisitSum,
  settle?: (keys: number) => void,
) {
  const apiOf = new Map(scope.apiIds.map((apiId) => [apiId.slice(-8), apiId]));
  const keys = found.filter((key24) => key24.length === 24 && apiOf.has(key24.slice(16)));
  const sums = new Sums(scope, visit);
  const steps = new Steps();
  for await (const { first, found } of usageOf(scope, keys, firstDayOf(scope.period))) {
    for (let index = 0; index < found.length; index++) {
      const { days, log, current } = found[index]!;
      const key24 = keys[first + index]!;
      sums.begin(apiOf.get(key24.slice(16))!, `key_${key24}`);
      if (days.length > 0) visitDays(days, sums.visitor);
      if (log.length > 0) for (const hour of readLog(log)) sums.addHour(hour);
      if (current.length > 0) sums.addHour(readCurrentHour(current));
      sums.end();
      if (steps.isOver) await steps.next();
    }
    settle?.(found.length);
  }
}

/** The first day that is read from keys. */
function firstDayOf(period: KeptPeriod): number {
  const first = Math.floor(period.fromHour / 24);
  return isSummed(period, first) ? period.summed!.toDay : first;
}

/** Customers, by their externalIds byte by byte: one in the first leaf that is read, and the last one. */
interface Customers {
  from: string;
  /** Undefined for all. It is called again for each page. */
  upTo(): string | undefined;
}

/** The sums of customers on the days `period.summed`. `settle` is called after some customers. */
export async function countSums(
  scope: UsageScope,
  customers: Customers,
  visit: VisitSum,
  settle?: (customers: number) => void,
) {
  const { fromDay, toDay } = scope.period.summed!;
  const sums = new Sums(scope, visit);
  const counts = noCounts();
  const steps = new Steps();
  for (const apiId of scope.apiIds) {
    for (let month = monthOf(fromDay); month <= monthOf(toDay - 1); month++) {
      const before = dayBefore(month);
      let externalId = '';
      const addDay = (dayOfMonth: number) => {
        const day = before + dayOfMonth;
        if (day >= fromDay && day < toDay) sums.addDay(day, counts, externalId);
      };
      for await (const leaf of leavesOf(scope, { api8: apiId.slice(-8), month }, customers)) {
        for (const [name, stored] of inOrder(leaf)) {
          externalId = name;
          sums.begin(apiId, '');
          visitSums(stored, counts, addDay);
          sums.end();
          if (steps.isOver) await steps.next();
        }
        settle?.(leaf.length / 2);
      }
    }
  }
}

/** The customers of a leaf in order, so that all leaves together are in order, and fill the parts of `Ordered`. */
function inOrder(leaf: readonly Buffer[]): [externalId: string, stored: Buffer][] {
  const customers: [string, Buffer][] = [];
  for (let at = 0; at < leaf.length; at += 2) customers.push([leaf[at]!.toString('latin1'), leaf[at + 1]!]);
  return customers.sort(([one], [other]) => (one < other ? -1 : 1));
}

/** The sums of an API in a month: of some customers at a time, each externalId and its days. */
async function* leavesOf(
  { context: { run }, workspaceId }: UsageScope,
  of: { api8: string; month: number },
  { from, upTo }: Customers,
): AsyncGenerator<Buffer[]> {
  const readFrom = (place: Buffer | string) => {
    const given = { ...of, from: place, upTo: upTo() ?? '', bytesMax: sumBytesStep };
    const reading = run('analytics/sums', workspaceId, given);
    // For a query that is abandoned: otherwise its error is thrown where it is awaited.
    reading.catch(() => {});
    return reading;
  };
  const isAfter = (place: Buffer) => {
    const last = upTo();
    return last !== undefined && place.toString() > last;
  };
  for (let reading: ReturnType<typeof readFrom> | undefined = readFrom(from); reading; ) {
    const [next, ...leaves]: [Buffer | null, ...Buffer[][]] = await reading;
    // The next ones are read while these are added up.
    reading = next === null || isAfter(next) ? undefined : readFrom(next);
    yield* leaves;
  }
}

/** Adds up counts one after the other, and visits a sum for each bucket and externalId. */
class Sums {
  readonly #bucketOf: UsageQuery['bucketOf'];
  readonly #period: KeptPeriod;
  readonly #visit: VisitSum;
  /** The sum that is being added up. */
  readonly #sum: Sum = { hour: -1, apiId: '', keyId: '', externalId: '', counts: noCounts() };
  #bucket = 0;
  /** Called for each day of a key. */
  readonly visitor: DayVisitor;

  constructor({ bucketOf, period }: UsageScope, visit: VisitSum) {
    this.#bucketOf = bucketOf;
    this.#period = period;
    this.#visit = visit;
    const { fromHour, toHour, hourlyFrom } = period;
    this.visitor = {
      wants: (day) => 24 * day < toHour && 24 * day + 24 > fromHour && !isSummed(period, day),
      wantsHours(day) {
        const first = 24 * day;
        if (first < hourlyFrom) return false;
        return first < fromHour || first + 24 > toHour || bucketOf(first) !== bucketOf(first + 23);
      },
      visit: (day, hourOfDay, counts, externalId) => {
        const hour = 24 * day + (hourOfDay ?? 0);
        // Sums are read of days that are wanted whole, or whose hours are not kept.
        if (hourOfDay === undefined || this.#covers(hour)) this.#add(hour, counts, externalId);
      },
    };
  }

  begin(apiId: string, keyId: string) {
    this.#sum.apiId = apiId;
    this.#sum.keyId = keyId;
  }

  addHour({ hour, counts, externalId }: ReturnType<typeof readCurrentHour>) {
    const day = Math.floor(hour / 24);
    const kept = hour < this.#period.hourlyFrom ? 24 * day : hour;
    if (this.#covers(kept) && !isSummed(this.#period, day)) this.#add(kept, counts, externalId);
  }

  addDay(day: number, counts: Counts, externalId: string) {
    this.#add(24 * day, counts, externalId);
  }

  #covers(hour: number): boolean {
    return hour >= this.#period.fromHour && hour < this.#period.toHour;
  }

  #add(hour: number, counts: Counts, externalId: string) {
    const bucket = this.#bucketOf(hour);
    const sum = this.#sum;
    if (sum.hour < 0 || bucket !== this.#bucket || externalId !== sum.externalId) {
      this.end();
      sum.hour = hour;
      sum.externalId = externalId;
      this.#bucket = bucket;
    }
    for (let index = 0; index < countPlaces; index++) sum.counts[index]! += counts[index]!;
  }

  /** Visits the last sum. */
  end() {
    const sum = this.#sum;
    if (sum.hour < 0) return;
    this.#visit(sum);
    sum.hour = -1;
    sum.counts.fill(0);
  }
}

/** The stored usage of a key (lua/analytics/keys.lua); a part without usage is empty. */
interface StoredUsage {
  days: Buffer;
  log: Buffer;
  current: Buffer;
}

const nothing = Buffer.alloc(0);

/** Reads a reply of lua/analytics/keys.lua. */
function readUsage(reply: Buffer): StoredUsage[] {
  const found: StoredUsage[] = [];
  const { at: places, bytes, fields } = keyUsage;
  for (let at = 0; at < reply.length; ) {
    const daysAt = at + bytes;
    const logAt = daysAt + readUint(reply, at + places.days, fields.days.bytes);
    const currentAt = logAt + readUint(reply, at + places.log, fields.log.bytes);
    const end = currentAt + readUint(reply, at + places.current, fields.current.bytes);
    const part = (from: number, to: number) => (from === to ? nothing : reply.subarray(from, to));
    found.push({ days: part(daysAt, logAt), log: part(logAt, currentAt), current: part(currentAt, end) });
    at = end;
  }
  return found;
}

/** Half of the keys, which is read in steps. Two halves keep Redis and this process busy. */
interface Half {
  /** The index of the first key of the step that is being read. */
  first: number;
  end: number;
  reading: Promise<Buffer | 0> | undefined;
}

/**
 * The stored usage of keys, in steps: that of some keys, and the index of the first of them. Days before `firstDay` may
 * be left out. One step runs at Redis and one waits for it while a third is added up: with one, Redis and the server
 * would wait for each other.
 */
export async function* usageOf(
  { context: { run }, workspaceId }: InWorkspace,
  keys: readonly string[],
  firstDay: number,
): AsyncGenerator<{ first: number; found: StoredUsage[] }> {
  const read = (first: number, end: number) => {
    if (first >= end) return undefined;
    const packed = packedKeys(keys.slice(first, Math.min(first + keysStep, end)));
    const reading = run('analytics/keys', workspaceId, { keys: packed, firstDay, bytesMax: bytesStep });
    // For a query that is abandoned: otherwise its error is thrown where it is awaited.
    reading.catch(() => {});
    return reading;
  };
  const half = Math.ceil(keys.length / 2);
  const halves: Half[] = [
    { first: 0, end: half, reading: read(0, half) },
    { first: half, end: keys.length, reading: read(half, keys.length) },
  ];
  while (halves.some(({ reading }) => reading)) {
    for (const part of halves) {
      const { first, reading } = part;
      if (!reading) continue;
      const reply = await reading;
      if (reply === 0) throw tooMuch();
      const found = readUsage(reply);
      part.first = first + found.length;
      part.reading = read(part.first, part.end);
      yield { first, found };
    }
  }
}

/** Bytes of the id of a key in arguments of a script: its 24 characters, and the first 16 of them packed. */
const [id24Bytes, packedIdBytes] = [24, 12];

/** Each key with its packed id: Lua takes longer to pack an id than to read its usage. */
function packedKeys(keys: readonly string[]): Buffer {
  const packed = Buffer.allocUnsafe(keys.length * (id24Bytes + packedIdBytes));
  for (const [index, key24] of keys.entries()) {
    const at = index * (id24Bytes + packedIdBytes);
    packed.write(key24, at, 'latin1');
    packIdInto(packed, at + id24Bytes, key24);
  }
  return packed;
}

/** The keys that a query names, including deleted ones; undefined if it names none, or identities with very many. */
async function keysNamed(of: InWorkspace, { keyIds, externalIds }: UsageQuery): Promise<string[] | undefined> {
  if (keyIds !== undefined) return [...keyIds].map((keyId) => keyId.slice('key_'.length));
  if (externalIds === undefined) return undefined;
  const keys = await keysOfIdentities(of, [...externalIds], keysOfIdentityMax);
  return keys && [...keys];
}

/** The present and former keys of identities, each once; undefined if they are more than `max`. */
export async function keysOfIdentities(
  of: InWorkspace,
  externalIds: readonly string[],
  max: number,
): Promise<ReadonlySet<string> | undefined> {
  const keys = new Set<string>();
  for (const some of chunks(externalIds, identitiesStep)) {
    const found = await Promise.all(some.map((externalId) => keysOfIdentity(of, externalId)));
    for (const ofIdentity of found) {
      if (!ofIdentity || keys.size + ofIdentity.length > max) return undefined;
      for (const key24 of ofIdentity) keys.add(key24);
    }
  }
  return keys;
}

/**
 * The present and former keys of all identities with this externalId, including deleted identities; undefined if they
 * are many.
 */
async function keysOfIdentity(
  { context, workspaceId }: InWorkspace,
  externalId: string,
): Promise<string[] | undefined> {
  const { redis, run } = context;
  const keys = new Set<string>();
  /** `identity` is an id without `id_`; '' is the identity that exists. Returns whether it has not too many keys. */
  async function addKeysOf(identity: string): Promise<boolean> {
    for (let after: string | null = ''; after !== null; ) {
      const given: { externalId: string; id16: string; after: string; count: number } = {
        externalId,
        id16: identity,
        after,
        count: membersStep,
      };
      const [found, next]: [string[], string | null] = await run('analytics/identityKeys', workspaceId, given);
      for (const key24 of found) keys.add(key24);
      if (keys.size > keysOfIdentityMax) return false;
      after = next;
    }
    return true;
  }
  // The existing identity is read first. If it is deleted meanwhile, it is in the list that is read next.
  if (!(await addKeysOf(''))) return undefined;
  const identities: string[] = [];
  const former = formerMembersKey(workspaceKey(workspaceId), externalId);
  if ((await orStoreError(redis.zcard(former))) > keysOfIdentityMax) return undefined;
  for await (const member of membersOf(redis, former)) {
    if (member.length === 16) identities.push(member.toString('latin1'));
    else keys.add(member.toString('latin1'));
  }
  for (const identity of identities) if (!(await addKeysOf(identity))) return undefined;
  return [...keys];
}
