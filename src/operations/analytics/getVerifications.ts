import Type from 'typebox';
import { hourMs } from '../../domain/time.ts';
import { manages } from '../../operation.ts';
import type { Period, UsageCount, UsageQuery } from '../../usage/query.ts';
import { listOf } from '../lists.ts';
import { ApiId, Cursor, ExternalId, Fields, Int, KeyId, may, OneOf, optional, out, SqlQuery, Tag } from '../schemas.ts';
import {
  bucketOf,
  counted,
  Granularity,
  pagedResult,
  periodOf,
  readsDescription,
  rejectSql,
  rowsDescription,
  Time,
  Totals,
  timeFields,
  WholeDay,
  wholeResult,
  withoutMoves,
} from './buckets.ts';

interface Row extends Partial<Omit<UsageCount, 'hour' | 'isOfDay'>> {
  time: number;
  granularity?: 'day';
  count: number;
  spentCredits: number;
}

const groups = ['apiId', 'keyId', 'externalId', 'outcome', 'tag'] as const;
type Group = (typeof groups)[number];

export const getVerifications = manages({
  name: 'analytics.getVerifications',
  summary: 'Count verifications and the credits they spent, by time and by the groups of `groupBy`.',
  description: readsDescription,
  input: Fields(
    optional({
      apiId: ApiId,
      keyId: KeyId,
      keyIds: Type.Array(KeyId, { minItems: 1, maxItems: 100, description: 'Any of these keys.' }),
      externalId: ExternalId,
      externalIds: Type.Array(ExternalId, { minItems: 1, maxItems: 100, description: 'Any of these identities.' }),
      tag: Tag,
      ...timeFields,
      granularity: Granularity,
      groupBy: Type.Array(Type.Enum([...groups]), {
        maxItems: groups.length,
        default: ['outcome'],
        description: 'Fields to group by. Rows have only these fields.',
      }),
      orderBy: OneOf(
        ['time', 'count', 'spentCredits'],
        'Order of the rows: the earliest first, or the largest number first.',
        'time',
      ),
      limit: Int([1, 1000], 'Number of rows of a page. Without it, all rows are in one response, up to its maximum.'),
      cursor: Cursor,
      query: SqlQuery,
    }),
  ),
  output: out.objects(
    `${rowsDescription} With \`limit\`, one of more than 100 000 rows or 40 MB. By \`tag\`, a verification with several tags counts in the row of each, and one without a counted tag in a row without \`tag\`.`,
    {
      time: Time,
      granularity: Type.Optional(WholeDay),
      apiId: may.text('Id of the API.'),
      keyId: may.text('Id of the key.'),
      externalId: may.text('externalId of the identity.'),
      outcome: may.oneOf(counted, 'Outcome of the verifications.'),
      tag: may.text('Tag of the verifications. Absent from the row of those without one.'),
      count: out.int('Number of verifications.'),
      spentCredits: out.int('Credits that they spent.'),
    },
  ),
  needs: { api: ['read_analytics'] },
  // A caller with grants for some APIs gets only their rows.
  scope: () => undefined,
  // The cursor contains the period, because the default period moves.
  list: (query) => listOf('usage', query, 12),
  listedIds: 'row',
  check({ query }) {
    rejectSql(
      query,
      'Use apiId, keyId, keyIds, externalId, externalIds, tag, start, end, granularity, groupBy, orderBy and limit.',
    );
  },

  async handle(input, { store, caller, after }) {
    const { apiId, tag, start, end, groupBy = ['outcome'], orderBy = 'time', limit } = input;
    const granularity = input.granularity ?? 'hour';
    const place = after === undefined ? undefined : readPlace(after);
    const period = place?.period ?? periodOf({ start, end }, granularity, await store.currentMs());
    const apiIds = caller.grants.idsFor('api', 'read_analytics', apiId);
    const by = (group: Group) => groupBy.includes(group);
    const query: UsageQuery = {
      ...period,
      apiIds,
      keyIds: allowed(input.keyId, input.keyIds),
      externalIds: allowed(input.externalId, input.externalIds),
      tag,
      by: { key: by('keyId'), externalId: by('externalId'), tag: by('tag') },
      bucketOf: (hour: number) => bucketOf(hour, granularity),
    };
    const { totals, counted } = await withoutMoves(async () => {
      const totals = new Totals<Row>(limit === undefined ? wholeResult : pagedResult);
      const counted = await store.analytics.verifications(caller.workspaceId, query, (usage) => {
        const row = rowOf(totals, usage, groupBy as Group[], granularity);
        row.count += usage.count;
        row.spentCredits += usage.spentCredits;
      });
      return { totals, counted };
    });
    if (query.by.tag && tag === undefined) totals.remove(hasNothing);
    const sizeOf = (row: Row) => (orderBy === 'time' ? 0 : row[orderBy]);
    const isWhole = limit === undefined && place === undefined && orderBy === 'time';
    const { items, next } = isWhole
      ? { items: await totals.rows(), next: undefined }
      : await totals.page(limit ?? wholeResult.rows, place?.row, sizeOf);
    if (granularity === 'total') for (const row of items) row.time = counted.fromHour * hourMs;
    return {
      items: items as never[],
      next: next === undefined ? undefined : `${period.fromHour}-${period.toHour}_${next}`,
    };
  },
});

/** The ids that both filters allow, one id and any of some; undefined for all. */
function allowed(id: string | undefined, ids: readonly string[] | undefined): ReadonlySet<string> | undefined {
  if (id === undefined) return ids && new Set(ids);
  return new Set(ids === undefined || ids.includes(id) ? [id] : []);
}

/** An empty row without a tag: all of its verifications have tags. The subtracted counts may be of a later time. */
function hasNothing(row: Row): boolean {
  if (row.tag !== undefined) return false;
  row.count = Math.max(0, row.count);
  row.spentCredits = Math.max(0, row.spentCredits);
  return row.count + row.spentCredits === 0;
}

/** Reads a cursor, whose format was checked (http/cursor.ts). */
function readPlace(after: string): { period: Period; row: string } {
  const end = after.indexOf('_');
  const [fromHour, toHour] = after.slice(0, end).split('-').map(Number) as [number, number];
  return { period: { fromHour, toHour }, row: after.slice(end + 1) };
}

function rowOf(totals: Totals<Row>, usage: UsageCount, groupBy: readonly Group[], granularity: Granularity): Row {
  const time = bucketOf(usage.hour, granularity);
  const by = (group: Group) => groupBy.includes(group);
  return totals.rowOf(
    time,
    groupBy.map((group) => usage[group] ?? ''),
    () => ({
      time,
      ...(granularity === 'hour' && usage.isOfDay && { granularity: 'day' as const }),
      ...(by('apiId') && { apiId: usage.apiId }),
      ...(by('keyId') && { keyId: usage.keyId! }),
      // Verifications without an identity or tag are a group of their own, without the field.
      ...(by('externalId') && usage.externalId && { externalId: usage.externalId }),
      ...(by('outcome') && { outcome: usage.outcome }),
      ...(by('tag') && usage.tag && { tag: usage.tag }),
      count: 0,
      spentCredits: 0,
    }),
  );
}
