// Totals by day of APIs, namespaces and identifiers (lua/analytics/totals.lua).

import { outcomes } from '../domain/verification.ts';
import { chunks } from '../redis/chunks.ts';
import { orStoreError } from '../redis/connection.ts';
import { identifierUsageKey, namespaceNamesKey, workspaceKey } from '../redis/names.ts';
import { countsOf, fieldsOf, readAll } from './commands.ts';
import {
  api8sOf,
  daysIn,
  hourOf,
  type InWorkspace,
  isIn,
  type KeptPeriod,
  keptHour,
  type NamespaceCount,
  type Period,
  readsMax,
  tooMuch,
  type UsageCount,
  type UsageScope,
  type Visit,
} from './query.ts';

/** Totals of a day that one script reads: some milliseconds, if they have every hour. */
const totalsStep = 20;

interface DayTotals {
  /** The index of the id in `ids`. */
  index: number;
  day: string;
  /** Counts by field. */
  counts: Map<string, number>;
}

/** The totals that exist of these APIs (last 8 characters of the id) or namespaces (id without prefix). */
async function* totalsOf(
  { context: { run }, workspaceId }: InWorkspace,
  kind: 'api' | 'namespace' | 'identifier',
  ids: readonly string[],
  period: Period,
  identifier = '',
): AsyncGenerator<DayTotals> {
  const days = daysIn(period);
  if (ids.length * days.length > readsMax) throw tooMuch();
  for (const someDays of chunks(days, totalsStep)) {
    let first = 0;
    for (const someIds of chunks(ids, Math.max(1, Math.floor(totalsStep / someDays.length)))) {
      const given = { kind, ids: someIds.join(''), days: someDays.join(' '), identifier };
      const reply = await run('analytics/totals', workspaceId, given);
      for (let at = 0; at < reply.length; at += 3) {
        const flat = reply[at + 2] as string[];
        const counts = new Map<string, number>();
        for (let field = 0; field < flat.length; field += 2) counts.set(flat[field]!, Number(flat[field + 1]));
        yield { index: first + (reply[at] as number) - 1, day: reply[at + 1] as string, counts };
      }
      first += someIds.length;
    }
  }
}

/** Counts of verifications by API. */
export async function countByApi(scope: UsageScope, visit: Visit<UsageCount>) {
  const { period, apiIds } = scope;
  for await (const { index, day, counts } of totalsOf(scope, 'api', api8sOf(scope), period)) {
    for (const [name, value] of counts) {
      const isSpent = name.startsWith('s');
      const field = isSpent ? name.slice(1) : name;
      // Credits spent are read with the count of the same outcome, unless holds were settled in an hour without one.
      if (isSpent && counts.has(field)) continue;
      const hour = hourOf(day, field.slice(0, 2));
      if (hour < period.fromHour || hour >= period.toHour) continue;
      visit({
        hour,
        outcome: outcomes[Number(field[2]) - 1]!,
        count: isSpent ? 0 : value,
        spentCredits: counts.get(`s${field}`) ?? 0,
        apiId: apiIds[index]!,
      });
    }
  }
}

/** Limit of the counts by identifier that a query reads. */
const identifierCountsMax = 1_000_000;

/** Counts of limit checks of each identifier. `wanted` are ids of namespaces, or true for all. */
export async function countByIdentifier(
  of: InWorkspace,
  wanted: true | readonly string[],
  period: KeptPeriod,
  visit: Visit<NamespaceCount>,
) {
  const { redis } = of.context;
  const workspace = workspaceKey(of.workspaceId);
  const days = daysIn(period);
  let left = identifierCountsMax;
  for await (const names of namespacesOf(of, wanted, period)) {
    const records = [...names].flatMap(([id16, namespace]) =>
      days.map((day) => ({ namespace, day, name: identifierUsageKey(workspace, id16, day) })),
    );
    const sizes = await readAll<(typeof records)[number], number>(redis, records, (commands, { name }) =>
      commands.hlen(name),
    );
    left -= sizes.reduce((sum, size) => sum + size, 0);
    if (left < 0) throw tooMuch();
    for (const [index, { namespace, day, name }] of records.entries()) {
      if (sizes[index] === 0) continue;
      for await (const fields of countsOf(redis, name)) {
        for (const [field, value] of fields) {
          const time = keptHour(day, field.toString('latin1', 0, 2), period);
          if (!isIn(period, time)) continue;
          const count = Number(value.toString());
          const passed = field[2] === 'p'.charCodeAt(0);
          const identifier = field.toString('utf8', 3);
          visit({ ...time, namespace, identifier, passed: passed ? count : 0, blocked: passed ? 0 : count });
        }
      }
    }
  }
}

/** Counts of limit checks by namespace, of all identifiers or of one. `wanted` are ids, or true for all namespaces. */
export async function countByNamespace(
  of: InWorkspace,
  wanted: true | readonly string[],
  identifier: string | undefined,
  period: KeptPeriod,
  visit: Visit<NamespaceCount>,
) {
  const kind = identifier === undefined ? 'namespace' : 'identifier';
  for await (const names of namespacesOf(of, wanted, period)) {
    const ids = [...names.keys()];
    for await (const { index, day, counts } of totalsOf(of, kind, ids, period, identifier)) {
      for (const [field, count] of counts) {
        const passed = field.endsWith('p');
        const namespace = names.get(ids[index]!)!;
        const hourOfDay = field.slice(0, 2);
        const time = identifier === undefined ? { hour: hourOf(day, hourOfDay) } : keptHour(day, hourOfDay, period);
        if (isIn(period, time)) visit({ ...time, namespace, passed: passed ? count : 0, blocked: passed ? 0 : count });
      }
    }
  }
}

/**
 * The names of namespaces by their ids (without prefix), some hundred at a time: all names may have hundreds of
 * megabytes.
 */
async function* namespacesOf(
  { context: { redis }, workspaceId }: InWorkspace,
  wanted: true | readonly string[],
  period: Period,
): AsyncGenerator<Map<string, string>> {
  const names = namespaceNamesKey(workspaceKey(workspaceId));
  const count = wanted === true ? await orStoreError(redis.hlen(names)) : wanted.length;
  if (count * daysIn(period).length > readsMax) throw tooMuch();
  if (wanted !== true) {
    const ids = wanted.map((id) => id.slice('rlns_'.length));
    const found = await readAll<string, string | null>(redis, ids, (commands, id16) => commands.hget(names, id16));
    yield new Map(ids.flatMap((id16, index) => (found[index] === null ? [] : [[id16, found[index]!]])));
    return;
  }
  for await (const fields of fieldsOf(redis, names)) {
    yield new Map(fields.map(([id16, name]) => [id16.toString('latin1'), name.toString()]));
  }
}
