// Rolls up the usage of keys: moves the logs of days that have ended into the days of each key, removes hours that are no longer
// kept, and adds the keys to the list of their week. Redis only reads and writes; this process packs.

import { setTimeout as delay } from 'node:timers/promises';
import { dayMs } from '../domain/time.ts';
import { readDaysHead, rollUp } from './analytics/days.ts';
import type { StoreContext } from './context.ts';
import { weekDays } from './layout.ts';

/** Keys and bytes that one script reads, or writes: about a millisecond of Redis's time. */
const keysMax = 100;
const bytesMax = 65_536;
/** After each step Redis is left to others for this many times as long. */
const pauseFactor = 2;

type Page = [
  lateMs: string,
  now: string,
  api8: Buffer,
  day: Buffer,
  position: number,
  length: number,
  isLive: number,
  keys: (Buffer | null)[],
];

/** Returns a step that resolves to whether there may be more to do. */
export function openRollUp({ scripts, now, usageRetentionMs, usageHourlyDays, observe }: StoreContext) {
  return async function step(workspaceId: string): Promise<boolean> {
    const begunAt = performance.now();
    const reply = (await scripts.runPacked('sweep/rollup', workspaceId, [keysMax, bytesMax, now()])) as Page | [];
    observe?.due('usage', reply.length === 0 ? 0 : Number(reply[0]));
    if (reply.length === 0) return false;
    const [, nowText, api8, dayText, position, length, isLive, keys] = reply;
    const day = Number(dayText);
    const today = Math.floor(Number(nowText) / dayMs);
    const week = Math.floor(day / weekDays);
    const rules = {
      beforeDay: today,
      hoursFrom: today - usageHourlyDays,
      from: today - Math.ceil(usageRetentionMs / dayMs) - 1,
      week,
    };
    const args: (string | number | Buffer)[] = [];
    for (let at = 0; at < keys.length; at += 3) {
      const [id16, log, days] = keys.slice(at, at + 3) as [Buffer, Buffer | null, Buffer | null];
      const stored = { log: log ?? Buffer.alloc(0), days: days ?? Buffer.alloc(0) };
      const rolled = rollUp(stored, rules);
      const isNewInWeek = stored.days.length === 0 || readDaysHead(stored.days).week !== week;
      args.push(id16, rolled?.taken ?? 0, rolled?.days ?? '', isNewInWeek ? 1 : 0);
    }
    // Keys of a deleted API are not rolled up: nobody can read their usage any more.
    const next = isLive === 1 ? position + keys.length / 3 : length;
    const dropMs = isLive === 1 ? (day + usageHourlyDays + 1) * dayMs : 0;
    const head = [api8, day, next, week, dropMs, usageRetentionMs, now()];
    await scripts.run('sweep/rolled', workspaceId, [...head, ...(isLive === 1 ? args : [])]);
    await delay(Math.min(100, pauseFactor * (performance.now() - begunAt)));
    return true;
  };
}
