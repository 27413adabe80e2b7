// Reads usage counts (lua/include/usage.lua writes them). A query reads only the records that can contain its result:
// the totals of APIs, the usage of the keys that were used in the period, or the counts by tag. A query sends many
// short commands, at most `readsMax`. It passes counts on as they arrive, because a workspace may have millions, and
// only sums are kept in memory.

import { chunks } from '../redis/chunks.ts';
import { orStoreError } from '../redis/connection.ts';
import { apiKey, apisKey, workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { membersStep, readAll } from './commands.ts';
import { type CustomersFrom, type CustomersPage, openCustomers } from './customers.ts';
import { countByKey } from './histories.ts';
import {
  clampPeriod,
  type KeptPeriod,
  keptPeriod,
  type NamespaceCount,
  type Period,
  readsMax,
  tooMuch,
  type UsageCount,
  type UsageQuery,
  type Visit,
} from './query.ts';
import type { Planned, TopRow } from './ranking.ts';
import { openRankings, type RankQuery } from './standings.ts';
import { countByTag, takenOff } from './tags.ts';
import { countByApi, countByIdentifier, countByNamespace } from './totals.ts';

type SumsQuery = Period & Pick<UsageQuery, 'apiIds'>;
type CustomersQuery = SumsQuery & {
  planId?: string | undefined;
  from: CustomersFrom | undefined;
  limit: number;
  apart?: readonly string[];
};
type TopQuery = SumsQuery & Pick<RankQuery, 'of' | 'by' | 'limit'>;
type ChecksQuery = Period & {
  namespaceIds: true | readonly string[];
  identifier?: string | undefined;
  byIdentifier?: boolean;
};

export function openAnalytics(context: StoreContext) {
  const { currentMs, usageRetentionMs, usageHourlyDays } = context;
  const rank = openRankings(context);
  const customersPage = openCustomers();

  /** The part of a period that can have counts, and the same with whole days where hours are not kept. */
  async function periodsOf(asked: Period) {
    const nowMs = await currentMs();
    const clamped = clampPeriod(asked, nowMs, usageRetentionMs);
    return { nowMs, clamped, period: keptPeriod(clamped, nowMs, usageHourlyDays) };
  }

  async function scopeOf(workspaceId: string, query: SumsQuery, bucketOf: UsageQuery['bucketOf'] = () => 0) {
    const periods = await periodsOf(query);
    const apiIds = await existingApis(context, workspaceId, query.apiIds);
    return { context, workspaceId, apiIds, bucketOf, ...periods };
  }

  return {
    addPlans: (workspaceId: string, rows: readonly Planned[]) => addPlans(context, workspaceId, rows),

    /** A page of the sums of all customers, or of those among them that have a plan now. */
    async customers(workspaceId: string, query: CustomersQuery): Promise<CustomersPage & { counted: Period }> {
      const scope = { ...(await scopeOf(workspaceId, query)), apart: query.apart ?? [] };
      const page = await customersPage(scope, query.from, query.limit);
      await addPlans(context, workspaceId, page.customers);
      const isWanted = ({ planId }: Planned) => query.planId === undefined || planId === query.planId;
      return { ...page, customers: page.customers.filter(isWanted), counted: counted(query, scope.period) };
    },

    /** Ranks keys or identities by their verifications. Returns the period that was counted, and the first rows. */
    async top(workspaceId: string, query: TopQuery): Promise<{ counted: Period; top: TopRow[] }> {
      const { of, by, limit, fromHour, toHour } = query;
      const scope = await scopeOf(workspaceId, query);
      const top = await rank({ ...scope, of, by, limit, hours: toHour - fromHour });
      return { counted: counted(query, scope.period), top };
    },

    /**
     * Visits counts of verifications. By tag, the sum of the counts with the tag '' is that of verifications without a
     * counted tag. Returns the period that was counted.
     */
    async verifications(workspaceId: string, query: UsageQuery, visit: Visit<UsageCount>): Promise<Period> {
      const scope = await scopeOf(workspaceId, query, query.bucketOf);
      const { period, clamped } = scope;
      const { by, keyIds, externalIds, tag } = query;
      const visitMatching = (count: UsageCount) => {
        if (keyIds !== undefined && !keyIds.has(count.keyId!)) return;
        if (externalIds !== undefined && !externalIds.has(count.externalId!)) return;
        if (tag !== undefined && count.tag !== tag) return;
        visit(count);
      };
      const isOfTags = by.tag || tag !== undefined;
      const countAll = (visitCount: Visit<UsageCount>) =>
        isOfKeys(query)
          ? countByKey(scope, query, visitCount)
          : // These totals keep their hours: the period is not widened to whole days.
            countByApi(isOfTags ? scope : { ...scope, period: { ...period, ...clamped } }, visitCount);
      if (!isOfTags) await countAll(visitMatching);
      else if (tag !== undefined) await countByTag(scope, visitMatching);
      else {
        await countByTag(scope, takenOff(visitMatching));
        // Read second, so that a verification between the two reads is not subtracted without being counted.
        await countAll(inDays(period, (count) => visitMatching({ ...count, tag: '' })));
      }
      return isOfTags || isOfKeys(query) ? counted(query, period) : query;
    },

    /**
     * Visits counts of limit checks, of all identifiers together, of one, or of each; `namespaceIds` true is all
     * namespaces. Returns the period that was counted.
     */
    async ratelimits(workspaceId: string, query: ChecksQuery, visit: Visit<NamespaceCount>): Promise<Period> {
      const { clamped, period } = await periodsOf(query);
      const of = { context, workspaceId };
      const { namespaceIds, identifier, byIdentifier } = query;
      if (byIdentifier) await countByIdentifier(of, namespaceIds, period, visit);
      else if (identifier !== undefined) await countByNamespace(of, namespaceIds, identifier, period, visit);
      else {
        // These totals keep their hours: the period is not widened to whole days.
        await countByNamespace(of, namespaceIds, undefined, { ...period, ...clamped }, visit);
        return query;
      }
      return counted(query, period);
    },
  };
}

const isOfKeys = ({ by, keyIds, externalIds }: UsageQuery): boolean =>
  by.key || by.externalId || keyIds !== undefined || externalIds !== undefined;

/** Visits counts by hour in the form of counts by day, into which they turn after some days. */
const inDays =
  ({ hourlyFrom }: KeptPeriod, visit: Visit<UsageCount>): Visit<UsageCount> =>
  ({ hour, ...count }) =>
    visit({ ...count, hour: hour < hourlyFrom ? hour - (hour % 24) : hour, isOfDay: hour < hourlyFrom });

/** The period that was asked for, with the days that were counted whole. */
const counted = (asked: Period, { fromHour, toHour }: Period): Period => ({
  fromHour: Math.min(asked.fromHour, fromHour),
  toHour: Math.max(asked.toHour, toHour),
});

/** The wanted APIs that exist. `true` means all APIs. */
async function existingApis(
  { redis }: StoreContext,
  workspaceId: string,
  wanted: true | readonly string[],
): Promise<string[]> {
  const workspace = workspaceKey(workspaceId);
  if (wanted !== true) {
    const found = await readAll<string, string | null>(redis, wanted, (commands, apiId) =>
      commands.hget(apiKey(workspace, apiId), 'id'),
    );
    return wanted.filter((apiId, index) => found[index] === apiId);
  }
  const list = apisKey(workspace);
  if ((await orStoreError(redis.zcard(list))) > readsMax) throw tooMuch();
  const ids: string[] = [];
  for (let from = '-'; ; from = `(${ids.at(-1)}`) {
    const some = await orStoreError(redis.zrange(list, from, '+', 'BYLEX', 'LIMIT', 0, membersStep));
    ids.push(...some);
    if (some.length < membersStep) return ids.map((id16) => `api_${id16}`);
  }
}

/** Rows of which a script reads the plans, in some milliseconds. */
const plansStep = 250;

/** Adds to rows the plan that their key has now, or else their identity; rows with neither are left as they are. */
async function addPlans({ run }: StoreContext, workspaceId: string, rows: readonly Planned[]) {
  const owned = rows.filter(({ keyId, externalId }) => keyId !== undefined || externalId !== undefined);
  for (const some of chunks(owned, plansStep)) {
    const names = some.map(({ keyId = '', externalId = '' }) => [keyId, externalId]);
    const planIds = await run('analytics/plans', workspaceId, { rows: JSON.stringify(names) });
    for (const [at, planId] of planIds.entries()) if (planId !== '') some[at]!.planId = planId;
  }
}
