import Type, { type Static } from 'typebox';
import { hourMs } from '../../domain/time.ts';
import { type ManageContext, manages } from '../../operation.ts';
import { filterOf, type Period, type UsageQuery } from '../../usage/query.ts';
import { addTo, addUsage, type RankedBy, type RankedVerifications, Ranking, type TopRow } from '../../usage/ranking.ts';
import { invalid, lacks } from '../rules.ts';
import { ApiId, ExternalId, Fields, Int, may, NamespaceRef, OneOf, out, Tag } from '../schemas.ts';
import { periodOf, readableNamespaces, readsDescription, timeFields, withoutMoves } from './buckets.ts';

const verified: readonly RankedVerifications[] = ['keys', 'identities', 'plans', 'apis', 'tags'];
const rankedBy: readonly RankedBy[] = ['count', 'refused', 'spentCredits'];
const checked = ['namespaces', 'identifiers'] as const;
const isVerified = (of: string): of is RankedVerifications => (verified as readonly string[]).includes(of);

const input = Fields({
  of: OneOf(
    [...verified, ...checked],
    'What is ranked. Namespaces and identifiers are ranked by limit checks, all others by verifications.',
  ),
  by: Type.Optional(OneOf(rankedBy, 'The number to rank by. Limit checks spend no credits.', 'count')),
  limit: Type.Optional(Int([1, 100], 'Number of rows.', 10)),
  apiId: Type.Optional(ApiId),
  externalId: Type.Optional(ExternalId),
  tag: Type.Optional(Tag),
  namespace: Type.Optional(NamespaceRef),
  ...timeFields,
});

export const getTop = manages({
  name: 'analytics.getTop',
  summary: 'Rank keys, identities, plans, APIs, tags, namespaces or identifiers by their usage in a period.',
  description: `\`apiId\`, \`externalId\` and \`tag\` filter verifications only, \`namespace\` limit checks only. A plan has the verifications of the identities that have it now. ${readsDescription}`,
  input,
  output: Type.Object({
    start: out.int('Start of the period that was counted in Unix milliseconds.'),
    end: out.int('End of the period that was counted in Unix milliseconds, exclusive.'),
    top: out.objects('The largest number first. What has 0 is left out.', {
      apiId: may.text('Id of the API.'),
      keyId: may.text('Id of the key.'),
      externalId: may.text('externalId of the identity.'),
      planId: may.text('Plan. Of keys and identities the one that they have themselves now.'),
      tag: may.text('Tag of the verifications.'),
      namespace: may.text('Name of the namespace.'),
      identifier: may.text('Identifier of the limit checks.'),
      count: out.int('Verifications or limit checks.'),
      refused: out.int('Verifications with another outcome than VALID, or blocked checks.'),
      spentCredits: may.int('Credits that verifications spent.'),
    }),
    untagged: may.object(
      'Of tags: the verifications without a counted tag, which are in no row. One with several is in the row of each.',
      {
        count: out.int('Verifications.'),
        refused: out.int('Verifications with another outcome than VALID.'),
        spentCredits: out.int('Credits that they spent.'),
      },
    ),
  }),
  // `api.*.read_analytics` or `ratelimit.*.read_analytics`, by `of`.
  needs: {},
  readsMuch: true,
  // A caller with grants for some APIs or namespaces gets only these ranked.
  scope: () => undefined,
  check({ of, by, apiId, externalId, tag, namespace }) {
    if (isVerified(of)) {
      if (namespace !== undefined) throw invalid('body.namespace', `does not apply to ${of}`);
      return;
    }
    for (const [field, value] of Object.entries({ apiId, externalId, tag })) {
      if (value !== undefined) throw invalid(`body.${field}`, `does not apply to ${of}`);
    }
    if (by === 'spentCredits') throw invalid('body.by', `cannot be spentCredits: limit checks spend no credits`);
  },

  async handle({ start, end, by = 'count', limit = 10, ...asked }, context) {
    const period = periodOf({ start, end }, 'total', await context.store.currentMs());
    const rank = isVerified(asked.of) ? rankVerifications : rankChecks;
    return withoutMoves(async () => {
      const { counted, ...ranked } = await rank({ ...asked, by, limit }, period, context);
      await context.store.analytics.addPlans(context.caller.workspaceId, ranked.top);
      return { start: counted.fromHour * hourMs, end: counted.toHour * hourMs, ...ranked };
    });
  },
});

type Ranked = Omit<Static<typeof input>, 'by' | 'limit'> & { by: RankedBy; limit: number };
type Result = { counted: Period; top: TopRow[]; untagged?: Required<Pick<TopRow, RankedBy>> };

async function rankVerifications(
  { of, by, limit, apiId, externalId, tag }: Ranked,
  period: Period,
  { store, caller }: ManageContext,
): Promise<Result> {
  if (!caller.grants.holdsAny('api', 'read_analytics')) throw lacks('api.*.read_analytics');
  const apiIds = caller.grants.idsFor('api', 'read_analytics', apiId);
  if ((of === 'keys' || of === 'identities') && externalId === undefined && tag === undefined) {
    return store.analytics.top(caller.workspaceId, { ...period, apiIds, of, by, limit });
  }
  const grouped = { key: of === 'keys', externalId: of === 'identities' || of === 'plans', tag: of === 'tags' };
  const query: UsageQuery = {
    ...period,
    apiIds,
    externalIds: filterOf(externalId),
    tag,
    by: grouped,
    bucketOf: () => 0,
  };
  const ranking = new Ranking();
  const untagged = { count: 0, refused: 0, spentCredits: 0 };
  const counted = await store.analytics.verifications(caller.workspaceId, query, (usage) => {
    if (usage.tag === '') addTo(untagged, usage);
    else addUsage(ranking, of as RankedVerifications, usage);
  });
  if (of === 'plans') {
    const identities = [...ranking].map(
      ([externalId, { fields: _fields, ...sums }]): TopRow => ({ externalId, ...sums }),
    );
    await store.analytics.addPlans(caller.workspaceId, identities);
    return { counted, top: Ranking.byPlan(identities).top(limit, by) };
  }
  // The subtracted counts may be of a later time.
  for (const figure of rankedBy) untagged[figure] = Math.max(0, untagged[figure]);
  return { counted, top: ranking.top(limit, by), ...(of === 'tags' && tag === undefined && { untagged }) };
}

async function rankChecks(
  { of, by, limit, namespace: wanted }: Ranked,
  period: Period,
  { store, caller }: ManageContext,
): Promise<Result> {
  if (!caller.grants.holdsAny('ratelimit', 'read_analytics')) throw lacks('ratelimit.*.read_analytics');
  const namespaceIds = await readableNamespaces(wanted, { store, caller });
  const byIdentifier = of === 'identifiers';
  const query = { ...period, namespaceIds, byIdentifier };
  const ranking = new Ranking();
  const counted = await store.analytics.ratelimits(
    caller.workspaceId,
    query,
    ({ namespace, identifier, passed, blocked }) => {
      // With its length, as the two names are ambiguous when joined.
      const name = byIdentifier ? `${namespace.length} ${namespace}${identifier}` : namespace;
      const row = ranking.rowOf(name, byIdentifier ? { namespace, identifier: identifier! } : { namespace });
      row.count += passed + blocked;
      row.refused += blocked;
    },
  );
  return { counted, top: ranking.top(limit, by) };
}
