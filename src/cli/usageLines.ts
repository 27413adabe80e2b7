// Lines of usage: totals by day, counts by tag and identifier, the usage of keys, and recent refusals.

import Type, { type TSchema } from 'typebox';
import type { UsedSlices } from '../domain/limit.ts';
import { timeMax } from '../domain/time.ts';
import { invalid } from '../operations/rules.ts';
import { ExternalId, Fields, Identifier, Int, Tag } from '../operations/schemas.ts';
import { countedOutcomes, countPlaces } from '../scripts/layout.ts';
import { type KeyDay, noCounts } from '../usage/days.ts';
import type { DayTotals, IdentifierCount, TagCount } from '../usage/exported.ts';
import { countsStep, faultOfRows, type KeyUsage } from '../usage/imported.ts';
import { type ExportedLine, lineOf } from './exportedLine.ts';
import { base58, idOf, lineKind } from './lineKinds.ts';

export const LineKeyId = Type.String({ pattern: `^key_${base58}{24}$` });
export const LineApiId = idOf('api');
export const LineNamespaceId = idOf('rlns');

/** A window has 65 slices; one that was charged with limits of both kinds may have more. */
const slicesMax = 200;
/** The slices of a window: ends, ascending, and units. */
export const Used = Type.Unsafe<UsedSlices>({
  type: 'array',
  minItems: 1,
  maxItems: slicesMax,
  items: {
    type: 'array',
    items: [Int([0, timeMax]), Int([1, 2 ** 46])],
    minItems: 2,
    additionalItems: false,
  },
});

export function checkUsed(used: UsedSlices, location: string) {
  for (const [at, [end]] of used.entries())
    if (at > 0 && end <= used[at - 1]![0]) throw invalid(location, 'must ascend');
}

/** A day since 1970. The names of days have five digits, and a day of a key two bytes. */
const Day = Int([10_000, 65_535]);
const Count = Int(0);
const Part = Int([1, 1_000_000]);
const Owner = Type.Union([Type.Literal(''), ExternalId]);
const hour = '(?:[01]\\d|2[0-3])';
const outcome = `[${countedOutcomes.join('')}]`;

/** An object of counts whose names match. */
const counts = (pattern: string) =>
  Type.Unsafe<Record<string, number>>({
    type: 'object',
    patternProperties: { [`^${pattern}$`]: Count },
    additionalProperties: false,
  });
const tuple = <Item>(...items: TSchema[]) =>
  Type.Unsafe<Item>({ type: 'array', items, minItems: items.length, additionalItems: false });

type TagTuple = [
  keyId: string,
  externalId: string,
  tag: string,
  hourOfDay: string,
  outcome: number,
  count: number,
  spent: number,
];
const HourOfDay = Type.String({ pattern: `^(?:${hour}|--)$` });
const TagTuple = tuple<TagTuple>(
  LineKeyId,
  Owner,
  // Without a tag: the counts that several tags of a verification repeat, maybe only credits.
  Type.Union([Type.Literal(''), Tag]),
  HourOfDay,
  Type.Enum([...countedOutcomes]),
  Count,
  Count,
);
type IdentifierTuple = [field: string, identifier: string, count: number];
const IdentifierTuple = tuple<IdentifierTuple>(Type.String({ pattern: `^(?:${hour}|--)[pb]$` }), Identifier, Int(1));

/** Counts by their place (countPlaces of layout.ts), without the zeros at the end. */
const OutcomeCounts = Type.Array(Count, { minItems: 1, maxItems: countPlaces });
type DayTuple = [day: number, externalId: string, counts: number[] | Record<string, number[]>];
const DayTuple = tuple<DayTuple>(
  Day,
  Owner,
  Type.Unsafe<DayTuple[2]>({
    anyOf: [
      OutcomeCounts,
      {
        type: 'object',
        patternProperties: { [`^${hour}$`]: OutcomeCounts },
        additionalProperties: false,
        minProperties: 1,
      },
    ],
  }),
);

const ofApi = { apiId: LineApiId, day: Day };
const ofNamespace = { namespaceId: LineNamespaceId, day: Day };
const partOf = (Tuple: TSchema) => ({ part: Part, counts: Type.Array(Tuple, { minItems: 1, maxItems: countsStep }) });
export const usageKinds = {
  apiUsage: lineKind(Fields({ ...ofApi, counts: counts(`(?:s?${hour}${outcome}|tags)`) }), ({ apiId, ...usage }) => ({
    apiId,
    usage,
  })),
  tagUsage: lineKind(Fields({ ...ofApi, ...partOf(TagTuple) }), ({ apiId, day, part, counts }) => ({
    apiId,
    of: { day, part },
    counts: (counts as TagTuple[]).map((each) => tagCountOf(each, apiId)),
  })),
  namespaceUsage: lineKind(Fields({ ...ofNamespace, counts: counts(`${hour}[pb]`) }), ({ namespaceId, ...usage }) => ({
    namespaceId,
    usage,
  })),
  identifierUsage: lineKind(
    Fields({ ...ofNamespace, ...partOf(IdentifierTuple) }),
    ({ namespaceId, day, part, counts }) => ({
      namespaceId,
      of: { day, part },
      counts: (counts as IdentifierTuple[]).map(([field, identifier, count]) => ({ field, identifier, count })),
    }),
  ),
  keyUsage: lineKind(
    Fields({
      apiId: LineApiId,
      keyId: LineKeyId,
      part: Type.Optional(Int([1, 60_000])),
      externalId: Type.Optional(ExternalId),
      deletedHour: Type.Optional(Int([240_000, 999_999])),
      days: Type.Array(DayTuple, { maxItems: 100_000 }),
    }),
    ({ apiId, keyId, part = 1, externalId, deletedHour, days }) => {
      if (keyId.slice(-8) !== apiId.slice(-8))
        throw invalid('body.keyId', 'does not end with the last 8 characters of apiId');
      const read = days.map(keyDayOf).sort((a, b) => a.day - b.day);
      return { apiId, usage: { keyId, days: read, part, externalId, deletedHour } };
    },
  ),
  refusals: lineKind(
    Fields({
      hour: Int([240_000, 999_999]),
      offset: Int([0, 512 * 1024 * 1024]),
      rows: Type.String({ minLength: 4, maxLength: 524_288, pattern: '^[A-Za-z0-9+/]+=*$' }),
    }),
    ({ hour, offset, rows: text }) => {
      const rows = Buffer.from(text, 'base64');
      const fault = faultOfRows(rows, hour);
      if (fault !== undefined) throw invalid('body.rows', `is not valid: ${fault}`);
      return { hour, offset, rows };
    },
  ),
};

function tagCountOf([keyId, externalId, tag, hourOfDay, outcome, count, spent]: TagTuple, apiId: string): TagCount {
  if (keyId.slice(-8) !== apiId.slice(-8)) throw invalid('body.counts', 'names a key of another API');
  return { keyId, externalId, tag, hourOfDay, outcome, count, spent };
}

function keyDayOf([day, externalId, given]: DayTuple): KeyDay {
  if (Array.isArray(given)) return { day, externalId, sums: widened(given), hours: undefined };
  const hours = new Map(Object.entries(given).map(([hour, counted]) => [Number(hour), widened(counted)]));
  const sums = noCounts();
  for (const counted of hours.values()) for (const [index, count] of counted.entries()) sums[index]! += count;
  if (sums.some((sum) => sum > Number.MAX_SAFE_INTEGER)) throw invalid('body.days', 'has counts that are too large');
  return { day, externalId, sums, hours };
}

const widened = (given: readonly number[]): number[] => noCounts().map((zero, index) => given[index] ?? zero);

/** Bytes of the JSON of a part. A line has less than a megabyte. */
const partBytesMax = 262_144;

/** Tuples in parts. */
function partsOf<Tuple>(tuples: readonly Tuple[]): Tuple[][] {
  const all: Tuple[][] = [];
  let bytes = 0;
  for (const tuple of tuples) {
    if (all.length === 0 || bytes > partBytesMax || all.at(-1)!.length === countsStep) {
      all.push([]);
      bytes = 0;
    }
    all.at(-1)!.push(tuple);
    bytes += JSON.stringify(tuple).length;
  }
  return all;
}

export const apiUsageLine = (apiId: string, { day, counts }: DayTotals) => lineOf('apiUsage', { apiId, day, counts });

export const namespaceUsageLine = (namespaceId: string, { day, counts }: DayTotals) =>
  lineOf('namespaceUsage', { namespaceId, day, counts });

export function tagUsageLines(apiId: string, day: number, counts: readonly TagCount[]): ExportedLine[] {
  const tuples = counts.map(({ keyId, externalId, tag, hourOfDay, outcome, count, spent }): TagTuple => {
    return [keyId, externalId, tag, hourOfDay, outcome, count, spent];
  });
  return partsOf(tuples).map((counts, at) => lineOf('tagUsage', { apiId, day, part: at + 1, counts }));
}

export function identifierUsageLines(
  namespaceId: string,
  day: number,
  counts: readonly IdentifierCount[],
): ExportedLine[] {
  const tuples = counts.map(({ field, identifier, count }): IdentifierTuple => [field, identifier, count]);
  return partsOf(tuples).map((counts, at) => lineOf('identifierUsage', { namespaceId, day, part: at + 1, counts }));
}

/** A line, or several for very long usage. */
export function keyUsageLines(apiId: string, usage: Omit<KeyUsage, 'part'>): ExportedLine[] {
  const { keyId, externalId, deletedHour } = usage;
  const parts = partsOf(usage.days.map(dayTupleOf));
  if (parts.length === 0 && deletedHour !== undefined) parts.push([]);
  return parts.map((days, at) => {
    const part = at === 0 ? undefined : at + 1;
    return lineOf('keyUsage', { apiId, keyId, part, externalId, deletedHour, days });
  });
}

function dayTupleOf({ day, externalId, sums, hours }: KeyDay): DayTuple {
  if (!hours) return [day, externalId, shortened(sums)];
  const byHour = [...hours].map(([hour, counted]) => [String(hour).padStart(2, '0'), shortened(counted)]);
  return [day, externalId, Object.fromEntries(byHour)];
}

/** Without the zeros at the end, but one at least. */
function shortened(counted: readonly number[]): number[] {
  const last = counted.findLastIndex((count) => count > 0);
  return counted.slice(0, Math.max(last, 0) + 1);
}

export const refusalsLine = (hour: number, offset: number, rows: Buffer) =>
  lineOf('refusals', { hour, offset, rows: rows.toString('base64') });
