// Reads usage counts (lua/include/usage.lua writes them). Counts are stored by hour; a query reads only the records that can
// contain its result: the totals of APIs, the histories of keys, or the counts by tag. A query sends many short commands, at
// most `readsMax`. It passes counts on as they arrive, because a workspace may have millions, and only sums are kept in memory.

import { membersStep, readAll } from './analytics/commands.ts';
import { countByKey } from './analytics/histories.ts';
import {
  clampPeriod,
  type NamespaceCount,
  type Period,
  readsMax,
  tooMuch,
  type UsageCount,
  type UsageQuery,
  type Visit,
} from './analytics/query.ts';
import { countByTag } from './analytics/tags.ts';
import { countByApi, countByNamespace } from './analytics/totals.ts';
import type { StoreContext } from './context.ts';
import { apiKey, apisKey, workspaceKey } from './keyspace.ts';
import { orStoreError } from './redis.ts';

export function openAnalytics(context: StoreContext) {
  const { currentMs, usageRetentionMs } = context;
  const clamped = async (period: Period) => clampPeriod(period, await currentMs(), usageRetentionMs);

  return {
    /** Visits counts of verifications. */
    async verifications(workspaceId: string, query: UsageQuery, visit: Visit<UsageCount>): Promise<void> {
      const period = await clamped(query);
      const apiIds = await existingApis(context, workspaceId, query.apiIds);
      const { by, keyId, externalId, tag } = query;
      const visitMatching = (count: UsageCount) => {
        if (count.hour < period.fromHour || count.hour >= period.toHour) return;
        if (keyId !== undefined && count.keyId !== keyId) return;
        if (externalId !== undefined && count.externalId !== externalId) return;
        if (tag !== undefined && count.tag !== tag) return;
        visit(count);
      };
      if (by.tag || tag !== undefined) await countByTag(context, workspaceId, apiIds, period, visitMatching);
      else if (by.key || by.externalId || keyId !== undefined || externalId !== undefined) {
        await countByKey(context, workspaceId, apiIds, query, period, visitMatching);
      } else await countByApi(context, workspaceId, apiIds, period, visitMatching);
    },

    /** Visits counts of limit checks, of all identifiers or of one; `namespaceIds` true is all namespaces. */
    async ratelimits(
      workspaceId: string,
      query: Period & { namespaceIds: true | readonly string[]; identifier?: string | undefined },
      visit: Visit<NamespaceCount>,
    ): Promise<void> {
      const period = await clamped(query);
      const { namespaceIds, identifier } = query;
      await countByNamespace(context, workspaceId, namespaceIds, identifier, period, (count) => {
        if (count.hour >= period.fromHour && count.hour < period.toHour) visit(count);
      });
    },
  };
}

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
