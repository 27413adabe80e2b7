// Usage: who used most in a period, and the bill of a month by customer.

import { type Billed, billColumns, noCustomer } from '../domain/columns.ts';
import { csvOf, csvRows } from '../domain/csv.ts';
import { microOf, type Owed, sumsOwed } from '../domain/price.ts';
import { dayMs } from '../domain/time.ts';
import type { Call, OutputOf } from './client.ts';
import { apiOption, type Given, given, type Output, period, requireFound, runs, text } from './commandRow.ts';
import type { Progress } from './progress.ts';
import type { CommandResult } from './result.ts';
import { columnsOf, numberOf, planIfAny, tableOf, timeText } from './table.ts';

/** The rankings of `--by`: the name of the operation, and the field with the name of a row. */
const ranked = {
  customer: ['identities', 'externalId'],
  key: ['keys', 'keyId'],
  plan: ['plans', 'planId'],
  api: ['apis', 'apiId'],
  tag: ['tags', 'tag'],
  namespace: ['namespaces', 'namespace'],
  identifier: ['identifiers', 'identifier'],
} as const;
type Ranked = keyof typeof ranked;

/** The figures of `--order-by`: the field of a row. */
const figures = { count: 'count', refused: 'refused', credits: 'spentCredits' } as const;
type Figure = keyof typeof figures;

function figureOf(value: Given[string], allowed: readonly Figure[]): (typeof figures)[Figure] {
  if (!allowed.includes(value as Figure)) throw new Error(`--order-by must be one of ${allowed.join(', ')}.`);
  return figures[value as Figure];
}

const pageMax = 1000;
/** From this time on a bill shows its progress. */
const silentMs = 1000;

interface Usage {
  /** Usage is counted by the hour, so the period may be longer than was asked for. */
  period: string;
  headings: readonly string[];
  rows: readonly (readonly (string | number | undefined)[])[];
  /** A line with the sums of all rows. */
  total?: readonly string[];
  /** Notes below the rows. */
  leftOut?: readonly string[];
  json: unknown;
}

/** The fields of a ranking. The options of a bill are read by themselves. */
interface Asked {
  limit?: number;
  start?: number;
  end?: number;
  apiId?: string;
}

export const usageRow = runs<Asked>({
  words: 'usage',
  about:
    'List the largest customers, keys, plans, APIs, tags, namespaces or identifiers, or the bill of a month by customer.',
  sets: {
    '--by': ['--by <what>', `what is ranked: ${Object.keys(ranked).join(', ')}; customer by default`],
    '--order-by': [
      '--order-by <figure>',
      `the figure to rank by: ${Object.keys(figures).join(', ')}; count by default. A bill has valid, too, its default, and owed.`,
    ],
    limit: ['--top <n>', 'how many, at most 100; 10 by default', numberOf],
    ...period([['--last <duration>', 'the period until now, such as 7d; 1d by default']]),
    '--month': [
      '--month [month]',
      'all customers in a month of UTC, such as 2026-10, by default this month, instead of a ranking',
    ],
    apiId: apiOption,
    '--csv': ['--csv', 'print CSV with headings, for a spreadsheet'],
  },
  showsProgress: true,
  async run(call, asked, { given: options, output }) {
    if (options.csv && options.json)
      throw new Error('--csv and --json are two forms of output. Leave one of them out.');
    if (options.month !== undefined && options.csv && options.orderBy === undefined)
      return printBill(call, options, output);
    const usage = await (options.month === undefined ? rankingOf(call, asked, options) : billOf(call, options, output));
    const { apiId } = asked;
    if (usage.rows.length === 0 && apiId !== undefined) await requireFound(call('apis.getApi', { apiId }));
    return options.csv ? csvResult(usage) : tableResult(usage);
  },
});

function tableResult({ period, headings, rows, total = [], leftOut = [], json }: Usage): CommandResult {
  if (rows.length === 0) return { lines: [`There is no usage ${period}.`, ...leftOut], json };
  const texts = rows.map((row) => row.map(String));
  return { lines: [`Usage ${period}`, ...tableOf(headings, texts), ...total, ...leftOut], json };
}

/** A cell with a line break is printed on several lines, in its quotes. */
const csvResult = ({ headings, rows, leftOut, json }: Usage): CommandResult =>
  given({ lines: csvOf(headings, rows).split('\r\n'), notes: leftOut, isData: true, json });

async function rankingOf(
  call: Call,
  { limit: wanted = 10, start, end, ...ofApi }: Asked,
  { by = 'customer', orderBy = 'count' }: Given,
): Promise<Usage> {
  if (!Object.hasOwn(ranked, String(by))) throw new Error(`--by must be one of ${Object.keys(ranked).join(', ')}.`);
  const [of, field] = ranked[by as Ranked];
  const isOfChecks = field === 'namespace' || field === 'identifier';
  const figure = figureOf(orderBy, isOfChecks ? ['count', 'refused'] : ['count', 'refused', 'credits']);
  const period = given(start === undefined && end === undefined ? { start: Date.now() - dayMs } : { start, end });
  const { data } = await call('analytics.getTop', { of, by: figure, limit: wanted, ...period, ...ofApi });
  const nameHeadings = field === 'identifier' ? ['NAMESPACE', 'IDENTIFIER'] : [String(by).toUpperCase()];
  const plan = field === 'planId' ? [] : planIfAny(data.top);
  const headings = [
    ...nameHeadings,
    ...plan.map((name) => name.toUpperCase()),
    isOfChecks ? 'CHECKS' : 'VERIFICATIONS',
    'REFUSED',
  ];
  const rows = data.top.map((row) => [
    ...(field === 'identifier' ? [row.namespace!] : []),
    row[field]!,
    ...plan.map(() => row.planId ?? ''),
    row.count,
    row.refused,
    ...(isOfChecks ? [] : [row.spentCredits!]),
  ]);
  // A ranking omits rows whose figure is 0.
  const hasAll = field === 'externalId' && orderBy === 'count' && data.top.length < wanted;
  return {
    period: periodText(data),
    headings: isOfChecks ? headings : [...headings, 'CREDITS'],
    rows,
    leftOut: data.untagged
      ? withoutTag(data.untagged.count)
      : hasAll
        ? await withoutCustomer(call, data, ofApi.apiId)
        : [],
    json: data,
  };
}

const periodText = ({ start, end }: { start: number; end: number }) => `from ${timeText(start)} to ${timeText(end)}`;

const verifications = (number: number) => (number === 1 ? '1 verification' : `${number} verifications`);
const notListed = (number: number) => `${number === 1 ? 'is' : 'are'} not in this list`;

function withoutTag(number: number): string[] {
  const left = number > 0 ? [`${verifications(number)} without a counted tag ${notListed(number)}.`] : [];
  return [...left, 'A verification with several tags is in the row of each.'];
}

/** States how many verifications have no customer, if all customers are in the ranking. */
async function withoutCustomer(
  call: Call,
  { start, end, top }: { start: number; end: number; top: readonly { count: number }[] },
  apiId: string | undefined,
): Promise<string[]> {
  const input = given({ start, end, granularity: 'total' as const, groupBy: [], apiId });
  const { data } = await call('analytics.getVerifications', input);
  const others = data.reduce((sum, { count }) => sum + count, 0) - top.reduce((sum, { count }) => sum + count, 0);
  if (others <= 0) return [];
  return [`${verifications(others)} of keys without a customer ${notListed(others)}. --by key lists keys.`];
}

interface Period {
  start: number;
  end: number;
}
type Customers = OutputOf<'analytics.listCustomers'>;
/** The figures of `--order-by` of a bill. */
const billFigures = {
  valid: 'Valid',
  count: 'Verifications',
  refused: 'Refused',
  credits: 'Credits',
  owed: 'Owed',
} as const;

/** The month of a bill. Throws for options that a bill does not have. */
function billed({ month, by = 'customer', top, last, from, to }: Given): Period {
  if (by !== 'customer' || [top, last, from, to].some((option) => option !== undefined))
    throw new Error(
      '--month lists all customers of a month. Leave out --top, --last, --from and --to, and --by if it is not customer.',
    );
  return monthOf(text(month) ?? new Date().toISOString().slice(0, 'YYYY-MM'.length));
}

/** The pages of all customers, in order of their names. The first pages may be empty while usage is added up. */
async function* customersOf(
  call: Call,
  period: Period,
  api: string | undefined,
  output: Output,
): AsyncGenerator<Customers> {
  const input = given({ ...period, apiId: api, limit: pageMax });
  const begunAt = performance.now();
  let shown: { progress: Progress; isReading: boolean } | undefined;
  const show = (isReading: boolean, total: number | undefined) => {
    if (shown?.isReading !== isReading) {
      shown?.progress.stop();
      const [task, unit] = isReading ? ['Adding up', 'keys'] : ['Listing', 'customers'];
      shown = { progress: output.progress(task!, total, unit!), isReading };
    }
    return shown!.progress;
  };
  try {
    let [looked, listed] = [0, 0];
    let next: string | undefined;
    do {
      const page = await call('analytics.listCustomers', input, next);
      next = page.next;
      looked += page.looked ?? 0;
      listed += page.data.length;
      if (next !== undefined && performance.now() - begunAt > silentMs) {
        if (page.total === undefined) show(false, undefined).update(listed, listed);
        else show(true, page.total).update(looked, looked);
      }
      yield page.data;
    } while (next !== undefined);
  } finally {
    shown?.progress.stop();
  }
}

/** A bill may be made this long after its month: an hour is final some seconds after its end. */
const finalAfterMs = 60_000;

function notFinal({ end }: Period): string[] {
  const final = end + finalAfterMs;
  return Date.now() < final ? [`These figures are not final before ${timeText(final)}.`] : [];
}

const billNames = Object.keys(billColumns) as (keyof typeof billColumns)[];
const cellOf = (row: Billed, name: keyof typeof billColumns) => billColumns[name].value(row, Date.now());
/** The rows of a file, with the columns of the console's file. */
const csvRow = (row: Billed) => billNames.map((name) => cellOf(row, name));
const owedText = ({ amount, currency }: Owed) => `${amount} ${currency}`;
const billTableOf = (rows: readonly Billed[]) => {
  const owed = rows.some((row) => row.owed) ? (['Owed'] as const) : [];
  const names = ['Customer', ...planIfAny(rows), 'Valid', 'Refused', 'Verifications', 'Credits', ...owed] as const;
  return columnsOf(billColumns, names, {
    Customer: ({ externalId = noCustomer }: Billed) => externalId,
    Owed: ({ owed }: Billed) => (owed ? owedText(owed) : ''),
  });
};

/** Prints the bill as CSV, page after page, so that any number of customers needs little memory. */
async function printBill(call: Call, options: Given, output: Output): Promise<undefined> {
  const api = text(options.api);
  const period = billed(options);
  const printRows = (rows: Parameters<typeof csvRows>[0], notes?: string[]) =>
    output.print(given({ lines: csvRows(rows).split('\r\n'), notes, isData: true, json: undefined }));
  let isBegun = false;
  for await (const customers of customersOf(call, period, api, output)) {
    if (customers.length === 0) continue;
    const rows = customers.map(csvRow);
    await (isBegun ? printRows(rows) : printRows([billNames, ...rows], notFinal(period)));
    isBegun = true;
  }
  if (isBegun) return undefined;
  if (api !== undefined) await requireFound(call('apis.getApi', { apiId: api }));
  await printRows([billNames], notFinal(period));
  return undefined;
}

/** The rows of all customers, the largest first. Verifications of keys without an identity are a row without a name. */
async function billOf(call: Call, options: Given, output: Output): Promise<Usage> {
  const figure = text(options.orderBy) ?? 'valid';
  const column = billFigures[figure as keyof typeof billFigures];
  if (column === undefined) throw new Error(`--order-by must be one of ${Object.keys(billFigures).join(', ')}.`);
  const amountOf = (row: Billed) =>
    column === 'Owed' ? Number(row.owed ? microOf(row.owed.amount) : -1) : (cellOf(row, column) as number);
  const period = billed(options);
  const customers: Customers = [];
  for await (const page of customersOf(call, period, text(options.api), output)) customers.push(...page);
  customers.sort((a, b) => amountOf(b) - amountOf(a));
  const sumOf = (name: keyof typeof billColumns) =>
    customers.reduce((sum, row) => sum + (cellOf(row, name) as number), 0);
  const billTable = billTableOf(customers);
  const owed = sumsOwed(customers.flatMap((row) => row.owed ?? [])).map(owedText);
  return {
    period: periodText(period),
    headings: options.csv ? billNames : billTable.headings,
    rows: customers.map(options.csv ? csvRow : billTable.rowOf),
    total: [
      `Total: ${sumOf('Valid')} valid and ${sumOf('Refused')} refused verifications, ${sumOf('Credits')} credits${owed.length > 0 ? `, ${owed.join(' and ')} owed` : ''}.`,
    ],
    leftOut: notFinal(period),
    json: { ...period, customers: customers.map((row) => ({ ...row, valid: cellOf(row, 'Valid') })) },
  };
}

function monthOf(month: string): Period {
  const [, year, number] = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(month) ?? [];
  if (!number) throw new Error(`${month} is not a month. Use, for example, 2026-10.`);
  const start = Date.parse(`${month}-01`);
  if (start > Date.now() || start < 0) throw new Error(`${month} has no usage: it is in the future, or before 1970.`);
  return { start, end: Date.UTC(Number(year), Number(number), 1) };
}
