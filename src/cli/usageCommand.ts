// Usage: who used most in a period, and the bill of a month by customer.

import type { Call } from './client.ts';
import {
  apiOption,
  type CommandRow,
  type Given,
  given,
  periodOf,
  periodOptions,
  readAll,
  requireFound,
  text,
} from './commandRow.ts';
import type { CommandResult } from './result.ts';
import { numberOf, tableOf, timeText } from './table.ts';

/** What `--by` ranks: the name of the operation, and the field with the name of a row. */
const ranked = {
  customer: ['identities', 'externalId'],
  key: ['keys', 'keyId'],
  api: ['apis', 'apiId'],
  tag: ['tags', 'tag'],
  namespace: ['namespaces', 'namespace'],
  identifier: ['identifiers', 'identifier'],
} as const;
type Ranked = keyof typeof ranked;

/** What `--order-by` names: the field of a row. */
const figures = { count: 'count', refused: 'refused', credits: 'spentCredits' } as const;
type Figure = keyof typeof figures;

function figureOf(value: Given[string], allowed: readonly Figure[]): (typeof figures)[Figure] {
  if (!allowed.includes(value as Figure)) throw new Error(`--order-by must be one of ${allowed.join(', ')}.`);
  return figures[value as Figure];
}

const pageMax = 1000;

interface UsageResult extends CommandResult {
  isEmpty: boolean;
}

export const usageRow: CommandRow = {
  words: 'usage',
  about: 'List the largest customers, keys, APIs, tags, namespaces or identifiers, or the bill of a month by customer.',
  options: [
    ['--by <what>', `what is ranked: ${Object.keys(ranked).join(', ')}; customer by default`],
    ['--order-by <figure>', `the figure to rank by: ${Object.keys(figures).join(', ')}; count by default`],
    ['--top <n>', 'how many, at most 100; 10 by default'],
    ['--last <duration>', 'the period until now, such as 7d; 1d by default'],
    ...periodOptions,
    ['--month <month>', 'all customers in a month of UTC, such as 2026-10, instead of a ranking'],
    apiOption,
  ],
  async run(call, options) {
    const { lines, json, isEmpty } = await (options.month === undefined ? rankingOf : billOf)(call, options);
    const apiId = text(options.api);
    if (isEmpty && apiId !== undefined) await requireFound(call('apis.getApi', { apiId }));
    return { lines, json };
  },
};

async function rankingOf(
  call: Call,
  { by = 'customer', orderBy = 'count', top, api, last, from, to }: Given,
): Promise<UsageResult> {
  if (!Object.hasOwn(ranked, String(by))) throw new Error(`--by must be one of ${Object.keys(ranked).join(', ')}.`);
  const [of, field] = ranked[by as Ranked];
  const isOfChecks = field === 'namespace' || field === 'identifier';
  const { data } = await call(
    'analytics.getTop',
    given({
      of,
      by: figureOf(orderBy, isOfChecks ? ['count', 'refused'] : ['count', 'refused', 'credits']),
      limit: numberOf(text(top) ?? '10'),
      ...periodOf({ last: last ?? (from === undefined && to === undefined ? '1d' : undefined), from, to }),
      apiId: text(api),
    }),
  );
  const nameHeadings = field === 'identifier' ? ['NAMESPACE', 'IDENTIFIER'] : [String(by).toUpperCase()];
  const headings = [...nameHeadings, isOfChecks ? 'CHECKS' : 'VERIFICATIONS', 'REFUSED'];
  const rows = data.top.map((row) => [
    ...(field === 'identifier' ? [row.namespace!] : []),
    row[field]!,
    String(row.count),
    String(row.refused),
    ...(isOfChecks ? [] : [String(row.spentCredits)]),
  ]);
  const lines = usageLines(data, isOfChecks ? headings : [...headings, 'CREDITS'], rows);
  return { lines, json: data, isEmpty: rows.length === 0 };
}

/** Usage is counted by the hour, so the period is longer than was asked for. */
const usageLines = (
  { start, end }: { start: number; end: number },
  headings: readonly string[],
  rows: readonly (readonly string[])[],
): string[] => {
  const period = `from ${timeText(start)} to ${timeText(end)}`;
  return rows.length > 0 ? [`Usage ${period}`, ...tableOf(headings, rows)] : [`There is no usage ${period}.`];
};

/** The rows of all customers, the largest first. Verifications of keys without an identity are a row without a name. */
async function billOf(
  call: Call,
  { month, by = 'customer', orderBy = 'count', top, last, from, to, api }: Given,
): Promise<UsageResult> {
  if (by !== 'customer' || [top, last, from, to].some((option) => option !== undefined))
    throw new Error(
      '--month lists all customers of a month. Leave out --top, --last, --from and --to, and --by if it is not customer.',
    );
  const figure = figureOf(orderBy, ['count', 'credits']) as 'count' | 'spentCredits';
  const period = monthOf(text(month)!);
  // In order of time, which is the same in all rows, no row moves to another page when a count changes.
  const input = given({ ...period, granularity: 'total' as const, groupBy: ['externalId' as const], apiId: text(api) });
  const read = (limit: number, next: string | undefined) =>
    call('analytics.getVerifications', { ...input, limit }, next);
  const { data } = await readAll(Number.POSITIVE_INFINITY, read, pageMax);
  const customers = data
    .map(({ externalId, count, spentCredits }) => given({ externalId, count, spentCredits }))
    .sort((a, b) => b[figure] - a[figure]);
  const rows = customers.map(({ externalId, count, spentCredits }) => [
    externalId ?? '(no identity)',
    String(count),
    String(spentCredits),
  ]);
  const sumOf = (field: 'count' | 'spentCredits') => customers.reduce((sum, row) => sum + row[field], 0);
  const total = `Total: ${sumOf('count')} verifications, ${sumOf('spentCredits')} credits.`;
  return {
    lines: [...usageLines(period, ['CUSTOMER', 'VERIFICATIONS', 'CREDITS'], rows), ...(rows.length > 0 ? [total] : [])],
    json: { ...period, customers },
    isEmpty: rows.length === 0,
  };
}

function monthOf(month: string): { start: number; end: number } {
  const [, year, number] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(month) ?? [];
  if (!number) throw new Error(`${month} is not a month. Use, for example, 2026-10.`);
  const start = Date.parse(`${month}-01`);
  if (start > Date.now() || start < 0) throw new Error(`${month} has no usage: it is in the future, or before 1970.`);
  return { start, end: Date.UTC(Number(year), Number(number), 1) };
}
