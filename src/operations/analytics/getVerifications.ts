import Type from 'typebox';
import { outcomes } from '../../domain/verification.ts';
import { manages } from '../../operation.ts';
import type { UsageCount } from '../../store/analytics/query.ts';
import { ApiId, ExternalId, Fields, KeyId, SqlQuery, Tag } from '../schemas.ts';
import {
  bucketOf,
  type Granularity,
  periodOf,
  rejectSql,
  rowsDescription,
  Time,
  Totals,
  timeFields,
} from './buckets.ts';

interface Row extends Partial<Omit<UsageCount, 'hour'>> {
  time: number;
  count: number;
  spentCredits: number;
}

const groups = ['apiId', 'keyId', 'externalId', 'outcome', 'tag'] as const;

export const getVerifications = manages({
  name: 'analytics.getVerifications',
  summary: 'Count verifications and the credits they spent, by time and by the groups of `groupBy`.',
  input: Fields({
    apiId: Type.Optional(ApiId),
    keyId: Type.Optional(KeyId),
    externalId: Type.Optional(ExternalId),
    tag: Type.Optional(Tag),
    ...timeFields,
    groupBy: Type.Optional(Type.Array(Type.Enum([...groups]), { maxItems: groups.length, default: ['outcome'] })),
    query: Type.Optional(SqlQuery),
  }),
  output: Type.Array(
    Type.Object({
      time: Time,
      apiId: Type.Optional(Type.String()),
      keyId: Type.Optional(Type.String()),
      externalId: Type.Optional(Type.String()),
      outcome: Type.Optional(Type.Enum(outcomes.filter((outcome) => outcome !== 'NOT_FOUND'))),
      tag: Type.Optional(Type.String()),
      count: Type.Integer(),
      spentCredits: Type.Integer(),
    }),
    {
      description: `${rowsDescription} A verification with several tags counts in the row of each tag.`,
    },
  ),
  needs: { api: ['read_analytics'] },
  readsMuch: true,
  // A caller with grants for some APIs gets only their rows.
  scope: () => undefined,
  check({ query }) {
    rejectSql(query, 'Use apiId, keyId, externalId, tag, start, end, granularity and groupBy.');
  },

  async handle(
    { apiId, keyId, externalId, tag, start, end, granularity = 'hour', groupBy = ['outcome'] },
    { store, caller },
  ) {
    const period = periodOf({ start, end }, granularity as Granularity, await store.currentMs());
    const readable = caller.grants.idsFor('api', 'read_analytics');
    const apiIds = apiId === undefined ? readable : readable === true || readable.includes(apiId) ? [apiId] : [];
    const by = (group: (typeof groups)[number]) => groupBy.includes(group);
    const totals = new Totals<Row>();
    const query = {
      ...period,
      apiIds,
      keyId,
      externalId,
      tag,
      by: { key: by('keyId'), externalId: by('externalId'), tag: by('tag') },
    };
    await store.analytics.verifications(caller.workspaceId, query, (usage) => {
      const time = bucketOf(usage.hour, granularity as Granularity);
      const row = totals.rowOf(
        time,
        groupBy.map((group) => usage[group as (typeof groups)[number]] ?? ''),
        () => ({
          time,
          ...(by('apiId') && { apiId: usage.apiId }),
          ...(by('keyId') && { keyId: usage.keyId }),
          // Verifications without an identity are a group of their own, without the field.
          ...(by('externalId') && usage.externalId && { externalId: usage.externalId }),
          ...(by('outcome') && { outcome: usage.outcome }),
          ...(by('tag') && { tag: usage.tag }),
          count: 0,
          spentCredits: 0,
        }),
      );
      row.count += usage.count;
      row.spentCredits += usage.spentCredits;
    });
    return totals.rows() as never;
  },
});
