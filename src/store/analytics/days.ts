// The usage of a key, as Redis stores it: the log, to which scripts append each hour that ended (lua/include/usage.lua), and the
// days, into which the sweeper packs the log. Recent days have their hours, earlier ones only sums.

import {
  keyDay,
  keyDaysHead,
  outcomesCounted,
  usageCount,
  usageEntryEnd,
  usageEntryHead,
  usageSpent,
} from '../layout.ts';
import { readUint } from '../struct.ts';

/** Counts by the index of their outcome in `outcomes`, then the credits spent. */
export type Counts = number[];
const spentAt = outcomesCounted;
const noCounts = (): Counts => new Array<number>(outcomesCounted + 1).fill(0);

/**
 * The hours of a log, as usage_entry of lua/include/usage.lua packs them, each with the offset of its end. `counted` has the counts
 * in the order of `outcomes`.
 */
export function* readLog(log: Buffer) {
  for (let at = 0; at < log.length; ) {
    const hour = readUint(log, at, usageEntryHead.fields.hour.bytes);
    const bits = log[at + usageEntryHead.at.bits]!;
    at += usageEntryHead.bytes;
    const counted: number[] = [];
    for (let outcome = 0; outcome < outcomesCounted; outcome++) {
      const isCounted = bits & (1 << outcome);
      counted.push(isCounted ? readUint(log, at, usageCount.bytes) : 0);
      if (isCounted) at += usageCount.bytes;
    }
    const isSpent = bits & (1 << spentAt);
    const spent = isSpent ? readUint(log, at, usageSpent.bytes) : 0;
    if (isSpent) at += usageSpent.bytes;
    const externalIdAt = at + usageEntryEnd.fields.externalId.lengthBytes;
    at = externalIdAt + log[at]!;
    yield { hour, counted, spent, externalId: log.toString('utf8', externalIdAt, at), end: at };
  }
}

/** A day of a key and an externalId. */
interface KeyDay {
  day: number;
  externalId: string;
  sums: Counts;
  /** Counts by the hour of the day; undefined if only the sums are kept. */
  hours: Map<number, Counts> | undefined;
}

/** Widths of numbers that occur, in bytes. */
type Width = 1 | 2 | 4 | 7;
const widthFor = (most: number): Width => (most < 2 ** 8 ? 1 : most < 2 ** 16 ? 2 : most < 2 ** 32 ? 4 : 7);

/** Calls `visit` for each hour of the days that has counts, or for each day that has none by hour, without creating objects. */
export function visitDays(
  days: Buffer,
  {
    wants,
    wantsHours,
    visit,
  }: {
    wants(day: number): boolean;
    /** Whether the hours of a day are visited if they are kept, or else its sums. */
    wantsHours(day: number): boolean;
    /** `counts` is used again for the next call. `hourOfDay` is undefined for the sums of a day. */
    visit(day: number, hourOfDay: number | undefined, counts: Counts, externalId: string): void;
  },
): void {
  const counts = noCounts();
  let externalId = '';
  let externalIdFrom = 0;
  let externalIdTo = 0;
  for (let at = keyDaysHead.bytes; at < days.length; ) {
    const day = readUint(days, at, keyDay.fields.day.bytes);
    const end = at + keyDay.at.bits + readUint(days, at + keyDay.at.bytes, keyDay.fields.bytes.bytes);
    if (!(end <= days.length)) throw new RangeError('A day is incomplete.');
    if (!wants(day)) {
      at = end;
      continue;
    }
    const bits = days[at + keyDay.at.bits]!;
    const sumBytes = days[at + keyDay.at.sumBytes]! as Width;
    const countBytes = days[at + keyDay.at.countBytes]! as Width | 0;
    const from = at + keyDay.bytes + 1;
    at = from + days[from - 1]!;
    // Nearly all days of a key have the same externalId.
    if (days.compare(days, externalIdFrom, externalIdTo, from, at) !== 0) externalId = days.toString('utf8', from, at);
    externalIdFrom = from;
    externalIdTo = at;
    if (countBytes !== 0 && wantsHours(day)) {
      at += sumBytes * bitsIn(bits);
      while (at < end) {
        const hourOfDay = days[at]!;
        const hourBits = days[at + 1]!;
        at = readCounts(days, at + 2, hourBits, countBytes, counts);
        visit(day, hourOfDay, counts, externalId);
      }
    } else {
      readCounts(days, at, bits, sumBytes, counts);
      visit(day, undefined, counts, externalId);
    }
    at = end;
  }
}

function bitsIn(byte: number): number {
  let count = 0;
  for (let rest = byte; rest > 0; rest >>= 1) count += rest & 1;
  return count;
}

/** Returns the offset after the counts. */
function readCounts(days: Buffer, from: number, bits: number, width: Width, counts: Counts): number {
  let at = from;
  for (let index = 0; index <= spentAt; index++) {
    if (bits & (1 << index)) {
      counts[index] = readUint(days, at, width);
      at += width;
    } else counts[index] = 0;
  }
  return at;
}

/** The days as objects, and the head. */
export function readDays(days: Buffer): { rewrites: number; week: number; days: KeyDay[] } {
  if (days.length === 0) return { rewrites: 0, week: 0, days: [] };
  const read: KeyDay[] = [];
  const all = () => true;
  visitDays(days, {
    wants: all,
    wantsHours: all,
    visit(day, hourOfDay, counts, externalId) {
      const of = { day, externalId };
      if (hourOfDay === undefined) read.push({ ...of, sums: [...counts], hours: undefined });
      else {
        let last = read.at(-1);
        // A stored day has each of its hours once.
        if (!last?.hours || last.day !== day || last.externalId !== externalId || last.hours.has(hourOfDay)) {
          last = { ...of, sums: noCounts(), hours: new Map() };
          read.push(last);
        }
        last.hours!.set(hourOfDay, [...counts]);
        add(last.sums, counts);
      }
    },
  });
  const rewrites = readUint(days, keyDaysHead.at.rewrites, keyDaysHead.fields.rewrites.bytes);
  const week = readUint(days, keyDaysHead.at.week, keyDaysHead.fields.week.bytes);
  return { rewrites, week, days: read };
}

function add(sums: Counts, more: readonly number[]) {
  for (const [index, count] of more.entries()) sums[index]! += count;
}

/** Packs days in order. The bytes of `readDays`, and of nothing else. */
export function packDays(head: { rewrites: number; week: number }, days: readonly KeyDay[]): Buffer {
  const packedHead = Buffer.alloc(keyDaysHead.bytes);
  keyDaysHead.write(packedHead, 0, { rewrites: head.rewrites % 2 ** 16, week: head.week });
  return Buffer.concat([packedHead, ...days.map(packDay)]);
}

function packDay({ day, externalId, sums, hours }: KeyDay): Buffer {
  const counted = hours ? [...hours].sort(([a], [b]) => a - b) : [];
  const sumBytes = widthFor(Math.max(...sums));
  const countBytes = hours ? widthFor(Math.max(...counted.flatMap(([, counts]) => counts))) : 0;
  const external = Buffer.from(externalId);
  const parts = [packCounts(sums, sumBytes)];
  for (const [hourOfDay, counts] of counted) {
    parts.push(Buffer.of(hourOfDay, bitsOf(counts)), packCounts(counts, countBytes as Width));
  }
  const body = Buffer.concat(parts);
  const packed = Buffer.alloc(keyDay.bytes + 1 + external.length);
  const bytes = packed.length - keyDay.at.bits + body.length;
  keyDay.write(packed, 0, { day, bytes, bits: bitsOf(sums), sumBytes, countBytes, externalId: external });
  return Buffer.concat([packed, body]);
}

function bitsOf(counts: Counts): number {
  let bits = 0;
  for (const [index, count] of counts.entries()) if (count > 0) bits += 2 ** index;
  return bits;
}

function packCounts(counts: Counts, width: Width): Buffer {
  const present = counts.filter((count) => count > 0);
  const packed = Buffer.alloc(present.length * width);
  for (const [index, count] of present.entries()) {
    if (width === 7) {
      packed.writeUIntBE(Math.floor(count / 2 ** 32), index * 7, 3);
      packed.writeUInt32BE(count % 2 ** 32, index * 7 + 3);
    } else packed.writeUIntBE(count, index * width, width);
  }
  return packed;
}

/**
 * Moves the hours of a log that began before `beforeDay` into the days, removes the hours of days before `hoursFrom`, and removes
 * days before `from`. Returns undefined if nothing changes. `taken` are the bytes of the log that are in the days then: an hour of
 * a later day ends the part that is taken, because only the beginning of a log can be removed.
 */
export function rollUp(
  stored: { days: Buffer; log: Buffer },
  { beforeDay, hoursFrom, from, week }: { beforeDay: number; hoursFrom: number; from: number; week: number },
): { days: Buffer; taken: number } | undefined {
  const { rewrites, days } = readDays(stored.days);
  let taken = 0;
  for (const { hour, counted, spent, externalId, end } of readLog(stored.log)) {
    const day = Math.floor(hour / 24);
    if (day >= beforeDay) break;
    taken = end;
    addHour(days, day, hour % 24, [...counted, spent], externalId);
  }
  let isChanged = taken > 0;
  for (const each of days) {
    if (each.day >= hoursFrom || !each.hours) continue;
    each.hours = undefined;
    isChanged = true;
  }
  const kept = days.filter(({ day }) => day >= from).sort((a, b) => a.day - b.day);
  if (!isChanged && kept.length === days.length) return undefined;
  return { days: packDays({ rewrites: rewrites + 1, week }, merged(kept)), taken };
}

/** Adds an hour to its day, which is nearly always the last one. */
function addHour(days: KeyDay[], day: number, hourOfDay: number, counts: Counts, externalId: string) {
  let found = days.findLast((each) => each.day === day && each.externalId === externalId && each.hours);
  if (!found) {
    found = { day, externalId, sums: noCounts(), hours: new Map() };
    days.push(found);
  }
  add(found.sums, counts);
  const known = found.hours!.get(hourOfDay);
  if (known) add(known, counts);
  else found.hours!.set(hourOfDay, counts);
}

/** One entry for each day and externalId whose hours are not kept. */
function merged(days: readonly KeyDay[]): KeyDay[] {
  const result: KeyDay[] = [];
  for (const each of days) {
    const same = each.hours
      ? undefined
      : result.findLast(({ day, externalId, hours }) => !hours && day === each.day && externalId === each.externalId);
    if (same) add(same.sums, each.sums);
    else result.push(each);
  }
  return result;
}
