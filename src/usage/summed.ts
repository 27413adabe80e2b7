// Which days of a query are read from the sums by customer, and which from keys.
//
// The sums of a day have all its usage once every key that was used on it has been rolled up. A late count for such a
// day is in the log of a key, and its API rolls up the day again: until then the day and all later ones are read from
// keys. So each count is read in exactly one of the two places. Days before the first one with sums, of data that an
// earlier version wrote, are always read from keys.

import { dayMs } from '../domain/time.ts';
import { orStoreError, type RedisClient } from '../redis/connection.ts';
import { rollupQueueKey, workspaceKey } from '../redis/names.ts';
import { rolledUpAfterMs } from '../scripts/layout.ts';
import { scoredMembersOf } from './commands.ts';
import { api8sOf, type Days, type KeptPeriod, todayOf, type UsageScope } from './query.ts';

/** Whether a day of a query is read from the sums. */
export const isSummed = ({ summed }: KeptPeriod, day: number): boolean =>
  summed !== undefined && day >= summed.fromDay && day < summed.toDay;

/** The days of a query that are read from the sums; undefined for none. */
export async function summedDays(scope: UsageScope): Promise<Days | undefined> {
  const { context, workspaceId, bucketOf } = scope;
  const { fromHour, toHour, hourlyFrom } = scope.period;
  const today = todayOf(scope);
  const isByHour = bucketOf(0) !== bucketOf(23);
  // Days before `hourlyFrom` are never divided.
  const asked = {
    fromDay: Math.ceil(fromHour / 24),
    toDay: Math.floor((isByHour ? Math.min(toHour, hourlyFrom) : toHour) / 24),
  };
  if (asked.fromDay >= Math.min(asked.toDay, today)) return undefined;
  const { redis } = context;
  const workspace = workspaceKey(workspaceId);
  const first = await orStoreError(redis.hget(workspace, 'summed'));
  if (first === null) return undefined;
  const fromDay = Math.max(asked.fromDay, Number(first));
  const end = Math.min(asked.toDay, today);
  if (fromDay >= end) return undefined;
  const toDay = Math.min(end, await firstToRollUp(redis, workspace, new Set(api8sOf(scope))));
  return fromDay < toDay ? { fromDay, toDay } : undefined;
}

/** The first day of which the used keys of some of these APIs are to be rolled up. */
async function firstToRollUp(redis: RedisClient, workspace: string, api8s: ReadonlySet<string>): Promise<number> {
  const queue = rollupQueueKey(workspace);
  let first = Number.POSITIVE_INFINITY;
  for await (const [member, dueMs] of scoredMembersOf(redis, queue)) {
    const text = member.toString('latin1');
    const day = Number(text.slice(10));
    // A list that was rolled up waits until its hours are dropped, which is later.
    const isToDo = dueMs <= (day + 1) * dayMs + rolledUpAfterMs;
    if (text[0] === 'k' && isToDo && day < first && api8s.has(text.slice(1, 9))) first = day;
  }
  return first;
}
