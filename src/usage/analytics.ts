// Reads usage counts (lua/include/usage.lua writes them). A query reads only the records that can contain its result:
// the totals of APIs, the usage of the keys that were used in the period, or the counts by tag. A query sends many
// short commands, at most `readsMax`. It passes counts on as they arrive, because a workspace may have millions, and
// only sums are kept in memory.

import { dayMs } from '../domain/time.ts';
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
import type { TopRow } from './ranking.ts';
import { openRankings, type RankQuery } from './standings.ts';
import { countByTag, takenOff } from './tags.ts';
import { countByApi, countByIdentifier, countByNamespace } from './totals.ts';

type CustomersQuery = Period &
  Pick<UsageQuery, 'apiIds'> & {
    from: CustomersFrom | undefined;
    limit: number;
  };
type TopQuery = Period & Pick<UsageQuery, 'apiIds'> & Pick<RankQuery, 'of' | 'by' | 'limit'>;

export function openAnalytics(context: StoreContext) {
  const { currentMs, usageRetentionMs, usageHourlyDays } = context;
  const rank = openRankings(context);
  const customersPage = openCustomers(context);

  return {
    /** A page of the sums of all customers. */
    async customers(workspaceId: string, query: CustomersQuery): Promise<CustomersPage & { counted: Period }> {
      const nowMs = await currentMs();
      const period = keptPeriod(clampPeriod(query, nowMs, usageRetentionMs), nowMs, usageHourlyDays);
      const apiIds = await existingApis(context, workspaceId, query.apiIds);
      const page = await customersPage(workspaceId, { apiIds, period, nowMs }, query.from, query.limit);
      return { ...page, counted: counted(query, period) };
    },

    /** Ranks keys or identities by their verifications. Returns the period that was counted, and the first rows. */
    async top(workspaceId: string, query: TopQuery): Promise<{ counted: Period; top: TopRow[] }> {
      const nowMs = await currentMs();
      const { of, by, limit, fromHour, toHour } = query;
      const period = keptPeriod(clampPeriod(query, nowMs, usageRetentionMs), nowMs, usageHourlyDays);
      const apiIds = await existingApis(context, workspaceId, query.apiIds);
      const asked = { of, by, limit, hours: toHour - fromHour };
      const top = await rank(workspaceId, { ...asked, apiIds, period, nowMs });
      return { counted: counted(query, period), top };
    },

    /**
     * Visits counts of verifications. By tag, the sum of the counts with the tag '' is that of verifications without a
     * counted tag. Returns the period that was counted.
     */
    async verifications(workspaceId: string, query: UsageQuery, visit: Visit<UsageCount>): Promise<Period> {
      const nowMs = await currentMs();
      const clampedPeriod = clampPeriod(query, nowMs, usageRetentionMs);
      const period = keptPeriod(clampedPeriod, nowMs, usageHourlyDays);
      const apiIds = await existingApis(context, workspaceId, query.apiIds);
      const { by, keyIds, externalIds, tag } = query;
      const visitMatching = (count: UsageCount) => {
        if (keyIds !== undefined && !keyIds.has(count.keyId!)) return;
        if (externalIds !== undefined && !externalIds.has(count.externalId!)) return;
        if (tag !== undefined && count.tag !== tag) return;
        visit(count);
      };
      const isOfTags = by.tag || tag !== undefined;
      const countAll = isOfKeys(query)
        ? (visitCount: Visit<UsageCount>) =>
            countByKey(context, workspaceId, apiIds, query, { period, today: Math.floor(nowMs / dayMs) }, visitCount)
        : (visitCount: Visit<UsageCount>) =>
            // Kept by hour.
            countByApi(context, workspaceId, apiIds, isOfTags ? period : clampedPeriod, visitCount);
      if (!isOfTags) await countAll(visitMatching);
      else if (tag !== undefined) await countByTag(context, workspaceId, apiIds, period, visitMatching);
      else {
        await countByTag(context, workspaceId, apiIds, period, takenOff(visitMatching));
        // Read second, so that a verification between the two reads is not subtracted without being counted.
        await countAll(inDays(period, (count) => visitMatching({ ...count, tag: '' })));
      }
      return isOfTags || isOfKeys(query) ? counted(query, period) : query;
    },

    /**
     * Visits counts of limit checks, of all identifiers together, of one, or of each; `namespaceIds` true is all
     * namespaces. Returns the period that was counted.
     */
    async ratelimits(
      workspaceId: string,
      query: Period & {
        namespaceIds: true | readonly string[];
        identifier?: string | undefined;
        byIdentifier?: boolean;
      },
      visit: Visit<NamespaceCount>,
    ): Promise<Period> {
      const nowMs = await currentMs();
      const clampedPeriod = clampPeriod(query, nowMs, usageRetentionMs);
      const period = keptPeriod(clampedPeriod, nowMs, usageHourlyDays);
      const { namespaceIds, identifier, byIdentifier } = query;
      if (byIdentifier) await countByIdentifier(context, workspaceId, namespaceIds, period, visit);
      else if (identifier !== undefined) {
        await countByNamespace(context, workspaceId, namespaceIds, identifier, period, visit);
      } else {
        // Kept by hour.
        await countByNamespace(context, workspaceId, namespaceIds, undefined, { ...period, ...clampedPeriod }, visit);
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
