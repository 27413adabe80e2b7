// Rolls up usage. For keys it moves the logs of days that have ended into the days of each key, removes hours that are
// no longer kept, and adds the keys to the list of their week; Redis only reads and writes, this process packs. For
// counts by tag and identifier it adds up the hours of days whose hours are no longer kept.

import { setTimeout as delay } from 'node:timers/promises';
import { dayMs } from '../domain/time.ts';
import { orStoreError } from '../redis/connection.ts';
import { identifierUsageKey, tagUsageKey, workspaceKey } from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import { weekDays } from '../scripts/layout.ts';
import { readDaysHead, rollUp } from './days.ts';
import { hasSums } from './sums.ts';

/** Keys and bytes that one script reads, or writes: about a millisecond of Redis's time. */
const keysMax = 100;
const bytesMax = 65_536;
/** Sums of a customer and day that one script adds, in some milliseconds. */
const addedMax = 400;
/** Counts by tag or identifier that one script moves, in about a millisecond. */
const countsStep = 200;
/** The pause after a step, in times of its duration. */
const pauseFactor = 2;

type Due = [lateMs: string, now: string, kind: Buffer, id: Buffer, day: Buffer];
type Page = [position: number, length: number, isLive: number, keys: (Buffer | null)[]];

/** Something to roll up, of a day. */
interface Task {
  workspaceId: string;
  kind: string;
  id: string;
  day: number;
  today: number;
}

/** Returns a step that resolves to whether there may be more to do. */
export function openRollUp(context: StoreContext) {
  const { run, observe, usageRetentionMs: retentionMs } = context;
  const rollCounts = countsRoller(context);
  return async function step(workspaceId: string): Promise<boolean> {
    const begunAt = performance.now();
    const reply = (await run('sweep/rollup', workspaceId, { count: keysMax, bytesMax, retentionMs })) as
      | [...Due, ...Page]
      | [];
    observe?.due('usage', reply.length === 0 ? 0 : Number(reply[0]));
    if (reply.length === 0) return false;
    const [, nowMs, kind, id, day, ...page] = reply;
    const today = Math.floor(Number(nowMs) / dayMs);
    const task = { workspaceId, kind: kind.toString(), id: id.toString(), day: Number(day), today };
    if (task.kind === 'k') await rollKeys(context, task, page);
    else await rollCounts(task);
    await delay(Math.min(1000, pauseFactor * (performance.now() - begunAt)));
    return true;
  };
}

/** Moves the logs of some keys into their days, and adds the moved counts to the sums by customer. */
async function rollKeys(
  context: StoreContext,
  { workspaceId, id: api8, day, today }: Task,
  [position, length, isLive, keys]: Page,
) {
  const { run, usageRetentionMs, usageHourlyDays } = context;
  const week = Math.floor(day / weekDays);
  const from = today - Math.ceil(usageRetentionMs / dayMs) - 1;
  const rules = { beforeDay: today, hoursFrom: today - usageHourlyDays, from, week };
  const rolledKeys: (string | number | Buffer)[] = [];
  // Keys of an API that was removed are not rolled up, because their usage cannot be read any more.
  let next = isLive === 1 ? position : length;
  let left = addedMax;
  const seen = new Set<string>();
  for (let at = 0; at < keys.length && isLive === 1 && left > 0; at += 3) {
    const [id16, log, days] = keys.slice(at, at + 3) as [Buffer, Buffer | null, Buffer | null];
    // The list may name it several times, and its log must not be added twice.
    if (seen.has(id16.toString('latin1'))) {
      next++;
      continue;
    }
    seen.add(id16.toString('latin1'));
    const stored = { log: log ?? Buffer.alloc(0), days: days ?? Buffer.alloc(0) };
    const rolled = rollUp(stored, rules, left);
    const isNewInWeek = stored.days.length === 0 || readDaysHead(stored.days).week !== week;
    const { kept = '', days: packed = '', added = '' } = rolled ?? {};
    rolledKeys.push(id16, stored.log.length, kept, packed, added, isNewInWeek ? 1 : 0);
    left -= rolled?.addedCount ?? 0;
    // A key whose identity changes all the time is rolled up in several steps.
    if (rolled?.isComplete === false) break;
    next++;
  }
  const dropMs = isLive === 1 ? (day + usageHourlyDays + 1) * dayMs : 0;
  const done = { api8, day, position: next, week, dropMs, retentionMs: usageRetentionMs };
  await run('sweep/rolled', workspaceId, {
    ...done,
    sums: hasSums(context) ? 1 : 0,
    lastDay: today - 1,
    keys: rolledKeys,
  });
}

/** A count of an hour: `s` is before the name of one of spent credits. */
const ofHour = /^s?\d\d/;

/** Returns a function that adds up some counts by tag or identifier of a day, once its hours are no longer kept. */
function countsRoller({ redis, run, usageRetentionMs, usageHourlyDays }: StoreContext) {
  /**
   * By workspace: what is rolled up, where the next step continues, and whether a count was moved since the beginning.
   * Another server may end a pass, so only the last one of a workspace is kept.
   */
  const passes = new Map<string, { member: string; cursor: string; moved: boolean }>();
  return async ({ workspaceId, kind, id, day, today }: Task): Promise<void> => {
    const member = `${kind}${id}:${day}`;
    if (day >= today - usageHourlyDays) {
      await run('sweep/requeue', workspaceId, { member, dueMs: (day + usageHourlyDays + 1) * dayMs });
      return;
    }
    const last = passes.get(workspaceId);
    const pass = last?.member === member ? last : { member, cursor: '0', moved: false };
    const workspace = workspaceKey(workspaceId);
    const record = kind === 't' ? tagUsageKey(workspace, id, `${day}`) : identifierUsageKey(workspace, id, `${day}`);
    const [cursor, pairs] = await orStoreError(redis.hscanBuffer(record, pass.cursor, 'COUNT', countsStep));
    const fields = pairs.filter((field, index) => index % 2 === 0 && ofHour.test(field.toString('latin1', 0, 3)));
    if (fields.length > 0) {
      await run('sweep/rollCounts', workspaceId, { kind, id, day, retentionMs: usageRetentionMs, fields });
      pass.moved = true;
    }
    pass.cursor = cursor.toString();
    passes.set(workspaceId, pass);
    if (pass.cursor !== '0') return;
    // A pass may miss counts that were written meanwhile: a pass without any is the last.
    if (!pass.moved) await run('sweep/requeue', workspaceId, { member, dueMs: '' });
    passes.delete(workspaceId);
  };
}
