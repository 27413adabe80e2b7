import Type from 'typebox';
import { outcomes } from '../../domain/verification.ts';
import { manages } from '../../operation.ts';
import type { UsageCount } from '../../store/analytics.ts';
import { ApiId, ExternalId, Fields, KeyId, SqlQuery, Tag } from '../schemas.ts';
import { bucketOf, type Granularity, periodOf, refuseSql, rowsDescription, Totals, timeFields } from './buckets.ts';

interface Row extends Partial<Omit<UsageCount, 'hour'>> {
  time: number;
  count: number;
  spentCredits: number;
}

const groups = ['apiId', 'keyId', 'externalId', 'outcome', 'tag'] as const;

export const getVerifications = manages({
  name: 'analytics.getVerifications',
  summary: 'Count verifications and the credits they spent, by time and whatever they are grouped by.',
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
      time: Type.Integer({ description: 'When the hour, day or month begins, Unix milliseconds.' }),
      apiId: Type.Optional(Type.String()),
      keyId: Type.Optional(Type.String()),
      externalId: Type.Optional(Type.String()),
      outcome: Type.Optional(Type.Enum(outcomes.filter((outcome) => outcome !== 'NOT_FOUND'))),
      tag: Type.Optional(Type.String()),
      count: Type.Integer(),
      spentCredits: Type.Integer(),
    }),
    {
      description: `${rowsDescription} A verification with several tags is in the rows of each.`,
    },
  ),
  needs: { api: ['read_analytics'] },
  readsMuch: true,
  // A caller with some APIs only gets their rows.
  scope: () => undefined,
  check({ query }) {
    refuseSql(query, 'Use apiId, keyId, externalId, tag, start, end, granularity and groupBy.');
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
    await store.analytics.verifications(caller.workspaceId, query, (of) => {
      const time = bucketOf(of.hour, granularity as Granularity);
      const row = totals.at(
        time,
        groupBy.map((group) => of[group as (typeof groups)[number]] ?? ''),
        () => ({
          time,
          ...(by('apiId') && { apiId: of.apiId }),
          ...(by('keyId') && { keyId: of.keyId }),
          // What had no identity is a group of its own, without the field.
          ...(by('externalId') && of.externalId && { externalId: of.externalId }),
          ...(by('outcome') && { outcome: of.outcome }),
          ...(by('tag') && { tag: of.tag }),
          count: 0,
          spentCredits: 0,
        }),
      );
      row.count += of.count;
      row.spentCredits += of.spentCredits;
    });
    return totals.rows() as never;
  },
});
