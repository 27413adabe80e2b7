// The usage of a key, as Redis stores it: the log, to which scripts append each hour that ended
// (lua/include/usage.lua), and the days, into which the sweeper packs the log. Recent days have their hours, earlier
// ones only sums.

import { outcomes } from '../domain/verification.ts';
import {
  countPlaces,
  currentUsage,
  keyDay,
  keyDaysHead,
  outcomesInTail,
  sameExternalId,
  spentPlace,
  usageCount,
  usageEntryEnd,
  usageEntryHead,
  usageSpent,
} from '../scripts/layout.ts';
import { readUint } from '../scripts/struct.ts';
import { readCounts, uintAt, type Width, widthFor, writeCounts } from './counts.ts';
import { packSums } from './sums.ts';

/** Counts by their place (countPlaces of layout.ts): of outcomes, and the credits spent. */
export type Counts = number[];
const forbiddenPlace = outcomes.indexOf('FORBIDDEN');
export const noCounts = (): Counts => new Array<number>(countPlaces).fill(0);

/** The hours of a log, as usage_entry of lua/include/usage.lua packs them, each with the offset of its end. */
export function* readLog(log: Buffer) {
  for (let at = 0; at < log.length; ) {
    const hour = readUint(log, at, usageEntryHead.fields.hour.bytes);
    const bits = log[at + usageEntryHead.at.bits]!;
    at += usageEntryHead.bytes;
    const counts = noCounts();
    for (let place = 0; place < countPlaces; place++) {
      if (!(bits & (1 << place))) continue;
      const { bytes } = place === spentPlace ? usageSpent : usageCount;
      counts[place] = readUint(log, at, bytes);
      at += bytes;
    }
    const externalIdAt = at + usageEntryEnd.fields.externalId.lengthBytes;
    at = externalIdAt + log[at]!;
    yield { hour, counts, externalId: log.toString('utf8', externalIdAt, at), end: at };
  }
}

/** The hour in the state of a key, after the present externalId (lua/analytics/keys.lua), as an hour of a log. */
export function readCurrentHour(current: Buffer) {
  const from = current.length - currentUsage.bytes;
  const { at, fields } = currentUsage;
  const counts = noCounts();
  for (let place = 0; place < outcomesInTail; place++) {
    counts[place] = readUint(current, from + at.counts + place * usageCount.bytes, usageCount.bytes);
  }
  counts[spentPlace] = readUint(current, from + at.spent, fields.spent.bytes);
  counts[forbiddenPlace] = readUint(current, from + at.forbidden, fields.forbidden.bytes);
  return {
    hour: readUint(current, from + at.hour, fields.hour.bytes),
    counts,
    externalId: current.toString('utf8', 0, from),
  };
}

/** A day of a key and an externalId. */
export interface KeyDay {
  day: number;
  externalId: string;
  sums: Counts;
  /** Counts by the hour of the day; undefined if only the sums are kept. */
  hours: Map<number, Counts> | undefined;
}

const dayAt = (days: Buffer, at: number): number => uintAt(days, at + keyDay.at.day, keyDay.fields.day.bytes);

/** Calls functions for the days of a key without creating objects, because a query reads millions of days. */
export interface DayVisitor {
  wants(day: number): boolean;
  /** Whether the hours of a day are visited if they are kept, or else its sums. */
  wantsHours(day: number): boolean;
  /** `counts` is used again for the next call. `hourOfDay` is undefined for the sums of a day. */
  visit(day: number, hourOfDay: number | undefined, counts: Counts, externalId: string): void;
}

/** Visits each wanted day. */
export function visitDays(days: Buffer, visitor: DayVisitor): void {
  const ids = new ExternalIds(days);
  const counts = noCounts();
  for (let at = keyDaysHead.bytes; at < days.length; ) {
    const end = endOf(days, at);
    const sumsAt = ids.pass(at);
    if (visitor.wants(dayAt(days, at))) {
      visitDay(days, at, sumsAt, end, visitor, counts, ids);
    }
    at = end;
  }
}

function endOf(days: Buffer, at: number): number {
  const end = at + keyDay.at.bits + uintAt(days, at + keyDay.at.bytes, keyDay.fields.bytes.bytes);
  if (!(end <= days.length)) throw new RangeError('A day is incomplete.');
  return end;
}

/** The externalId of the day that was read last, which is decoded only if it is needed. */
class ExternalIds {
  readonly #days: Buffer;
  #from = 0;
  #to = 0;
  #decoded: string | undefined = '';

  constructor(days: Buffer) {
    this.#days = days;
  }

  /** Returns the offset of the sums of the day at `at`. */
  pass(at: number): number {
    const next = at + keyDay.bytes;
    if (this.#days[at + keyDay.at.sumBytes]! >= sameExternalId) return next;
    this.#from = next + 1;
    this.#to = this.#from + this.#days[next]!;
    this.#decoded = undefined;
    return this.#to;
  }

  get(): string {
    this.#decoded ??= this.#days.toString('utf8', this.#from, this.#to);
    return this.#decoded;
  }
}

function visitDay(
  days: Buffer,
  at: number,
  sumsAt: number,
  end: number,
  { wantsHours, visit }: DayVisitor,
  counts: Counts,
  ids: ExternalIds,
) {
  const day = dayAt(days, at);
  const bits = days[at + keyDay.at.bits]!;
  const sumBytes = (days[at + keyDay.at.sumBytes]! % sameExternalId) as Width;
  const countBytes = days[at + keyDay.at.countBytes]! as Width | 0;
  if (countBytes === 0 || !wantsHours(day)) {
    readCounts(days, sumsAt, bits, sumBytes, counts);
    visit(day, undefined, counts, ids.get());
    return;
  }
  for (let hourAt = sumsAt + sumBytes * bitsIn(bits); hourAt < end; ) {
    const next = readCounts(days, hourAt + 2, days[hourAt + 1]!, countBytes, counts);
    visit(day, days[hourAt]!, counts, ids.get());
    hourAt = next;
  }
}

function bitsIn(byte: number): number {
  let count = 0;
  for (let rest = byte; rest > 0; rest >>= 1) count += rest & 1;
  return count;
}

/** The numbers in the head of days; zeros for a key without days. */
export const readDaysHead = (days: Buffer): { rewrites: number; week: number } =>
  days.length === 0
    ? { rewrites: 0, week: 0 }
    : {
        rewrites: readUint(days, keyDaysHead.at.rewrites, keyDaysHead.fields.rewrites.bytes),
        week: readUint(days, keyDaysHead.at.week, keyDaysHead.fields.week.bytes),
      };

/** The days as objects. */
export const readDays = (days: Buffer): KeyDay[] => storedDays(days).map((stored) => stored.read());

/** A day in packed form. */
interface StoredDay {
  day: number;
  from: number;
  to: number;
  externalId: string;
  hasHours: boolean;
  read(): KeyDay;
}

function storedDays(days: Buffer): StoredDay[] {
  const ids = new ExternalIds(days);
  const stored: StoredDay[] = [];
  for (let from = keyDaysHead.bytes; from < days.length; ) {
    const to = endOf(days, from);
    const sumsAt = ids.pass(from);
    const day = dayAt(days, from);
    const externalId = ids.get();
    const at = from;
    const hasHours = days[at + keyDay.at.countBytes]! > 0;
    stored.push({ day, from, to, externalId, hasHours, read: () => readDay(days, at, sumsAt, to, externalId) });
    from = to;
  }
  return stored;
}

function readDay(days: Buffer, at: number, sumsAt: number, end: number, externalId: string): KeyDay {
  const day = dayAt(days, at);
  const read: KeyDay = { day, externalId, sums: noCounts(), hours: undefined };
  const visitor: DayVisitor = {
    wants: () => true,
    wantsHours: () => true,
    visit(_day, hourOfDay, counts) {
      if (hourOfDay !== undefined) {
        read.hours ??= new Map();
        read.hours.set(hourOfDay, [...counts]);
      }
      add(read.sums, counts);
    },
  };
  visitDay(days, at, sumsAt, end, visitor, noCounts(), new ExternalIds(days));
  return read;
}

function add(sums: Counts, more: readonly number[]) {
  for (let index = 0; index < countPlaces; index++)
    sums[index] = Math.min(sums[index]! + more[index]!, Number.MAX_SAFE_INTEGER);
}

/** Packs days one after the other. Used again for every key, as one buffer. */
class Packer {
  #buffer = Buffer.alloc(65_536);
  #at = 0;
  #externalId: string | undefined;

  begin({ rewrites, week }: { rewrites: number; week: number }) {
    this.#at = keyDaysHead.write(this.#buffer, 0, { rewrites: rewrites % 2 ** 16, week });
    this.#externalId = undefined;
  }

  /** Copies a stored day. Returns false if its externalId is that of another day than the one before here. */
  copy(days: Buffer, { from, to, externalId }: StoredDay): boolean {
    if (days[from + keyDay.at.sumBytes]! >= sameExternalId && externalId !== this.#externalId) return false;
    this.#reserve(to - from);
    this.#at += days.copy(this.#buffer, this.#at, from, to);
    this.#externalId = externalId;
    return true;
  }

  add({ day, externalId, sums, hours }: KeyDay) {
    const counted = hours ? [...hours].sort(([a], [b]) => a - b) : [];
    this.#reserve(keyDay.bytes + 256 + (counted.length + 1) * (2 + 7 * countPlaces));
    let most = 0;
    for (const [, counts] of counted) for (const count of counts) if (count > most) most = count;
    const sumBytes = widthFor(Math.max(...sums));
    const countBytes = hours ? widthFor(most) : 0;
    const isSame = externalId === this.#externalId;
    const at = this.#at;
    this.#at += keyDay.bytes;
    if (!isSame) this.#text(externalId);
    const bits = this.#counts(sums, sumBytes);
    for (const [hourOfDay, counts] of counted) {
      this.#buffer[this.#at] = hourOfDay;
      const bitsAt = this.#at + 1;
      this.#at += 2;
      this.#buffer[bitsAt] = this.#counts(counts, countBytes as Width);
    }
    const bytes = this.#at - at - keyDay.at.bits;
    const widths = { sumBytes: sumBytes + (isSame ? sameExternalId : 0), countBytes };
    keyDay.write(this.#buffer, at, { day, bytes, bits, ...widths });
    this.#externalId = externalId;
  }

  end(): Buffer {
    return Buffer.from(this.#buffer.subarray(0, this.#at));
  }

  #text(text: string) {
    const bytes = this.#buffer.write(text, this.#at + 1);
    this.#buffer[this.#at] = bytes;
    this.#at += 1 + bytes;
  }

  /** Returns the bits of the counts that are written. */
  #counts(counts: Counts, width: Width): number {
    const [bits, end] = writeCounts(this.#buffer, this.#at, counts, width);
    this.#at = end;
    return bits;
  }

  #reserve(bytes: number) {
    if (this.#at + bytes <= this.#buffer.length) return;
    this.#buffer = Buffer.concat([this.#buffer, Buffer.alloc(Math.max(bytes, this.#buffer.length))]);
  }
}

const packer = new Packer();

/** Packs days in order. */
export function packDays(head: { rewrites: number; week: number }, days: readonly KeyDay[]): Buffer {
  packer.begin(head);
  for (const day of days) packer.add(day);
  return packer.end();
}

/**
 * Moves the hours of a log that began before `beforeDay` into the days, removes the hours of days before `hoursFrom`,
 * and removes days before `from`. At most `addedMax` days with an externalId get hours. Returns undefined if nothing
 * changes; otherwise what stays of the log (`kept`), what was moved, for the sums by customer (`added`), and whether
 * nothing that could be moved stays (`isComplete`).
 */
export function rollUp(
  stored: { days: Buffer; log: Buffer },
  { beforeDay, hoursFrom, from, week }: { beforeDay: number; hoursFrom: number; from: number; week: number },
  addedMax = Number.POSITIVE_INFINITY,
) {
  const { changed, kept, isComplete } = takeLog(stored.log, beforeDay, addedMax);
  // Before these days are merged with those that are stored.
  const added = packSums(changed.filter(({ day }) => day >= from));
  const addedCount = changed.length;
  const logged = new Set(changed.map(({ day }) => day));
  const unchanged: StoredDay[] = [];
  let isChanged = changed.length > 0;
  for (const day of storedDays(stored.days)) {
    if (day.day < from) isChanged = true;
    else if (logged.has(day.day) || (day.hasHours && day.day < hoursFrom)) {
      changed.push(day.read());
      isChanged = true;
    } else unchanged.push(day);
  }
  if (!isChanged) return undefined;
  packer.begin({ rewrites: readDaysHead(stored.days).rewrites + 1, week });
  const all = [...unchanged, ...merged(changed, { hoursFrom, from })].sort((a, b) => a.day - b.day);
  for (const day of all) {
    if (!('read' in day)) packer.add(day);
    else if (!packer.copy(stored.days, day)) packer.add(day.read());
  }
  return { days: packer.end(), kept, added, addedCount, isComplete };
}

/** Everything that is stored of a key (lua/analytics/keys.lua), as days in order. */
export function allDays({ days, log, current }: { days: Buffer; log: Buffer; current: Buffer }): KeyDay[] {
  const { changed } = takeLog(log, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY);
  if (current.length > 0) {
    const { hour, counts, externalId } = readCurrentHour(current);
    changed.push({ day: Math.floor(hour / 24), externalId, sums: counts, hours: new Map([[hour % 24, [...counts]]]) });
  }
  const stored = [...readDays(days), ...changed];
  return merged(stored, { hoursFrom: 0, from: 0 }).sort((a, b) => a.day - b.day);
}

/** The hours of a log before a day, as at most `max` days, and the log without them. A log may have many thousands. */
function takeLog(log: Buffer, beforeDay: number, max: number) {
  const taken = new Map<string, KeyDay>();
  const kept: Buffer[] = [];
  let isComplete = true;
  let at = 0;
  for (const { hour, counts, externalId, end } of readLog(log)) {
    const day = Math.floor(hour / 24);
    const name = `${day} ${externalId}`;
    let found = taken.get(name);
    const isTaken = day < beforeDay && (found !== undefined || taken.size < max);
    if (isTaken) {
      if (!found) {
        found = { day, externalId, sums: noCounts(), hours: new Map() };
        taken.set(name, found);
      }
      addHour(found, hour % 24, counts);
    } else {
      kept.push(log.subarray(at, end));
      if (day < beforeDay) isComplete = false;
    }
    at = end;
  }
  return { changed: [...taken.values()], kept: Buffer.concat(kept), isComplete };
}

function addHour({ sums, hours }: KeyDay, hourOfDay: number, counts: Counts) {
  add(sums, counts);
  const known = hours!.get(hourOfDay);
  if (known) add(known, counts);
  else hours!.set(hourOfDay, counts);
}

/** One entry for each day and externalId; two if a day without hours gets some that were counted late. */
function merged(days: readonly KeyDay[], { hoursFrom, from }: { hoursFrom: number; from: number }): KeyDay[] {
  const result = new Map<string, KeyDay>();
  for (const each of days) {
    if (each.day < from) continue;
    const hours = each.day < hoursFrom ? undefined : each.hours;
    const name = `${each.day} ${hours ? 'hours' : 'sums'} ${each.externalId}`;
    const same = result.get(name);
    if (!same) result.set(name, { ...each, hours });
    else if (!hours) add(same.sums, each.sums);
    else for (const [hourOfDay, counts] of hours) addHour(same, hourOfDay, counts);
  }
  return [...result.values()];
}
