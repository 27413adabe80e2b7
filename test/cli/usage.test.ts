// Usage on the command line: on the store and over HTTP, with the same results.

import { beforeAll, expect, test, vi } from 'vitest';
import { refused, runCli } from '../support/cli.ts';
import { cellsOf, describeWays, served } from '../support/cliWays.ts';
import { harness } from '../support/harness.ts';

const app = harness();
const url = served(app);
let apiIds: string[];
const keyIds: Record<string, string> = {};
const billHeadings =
  'Customer,Valid,Refused,Verifications,Credits,RATE_LIMITED,USAGE_EXCEEDED,INSUFFICIENT_PERMISSIONS,FORBIDDEN,DISABLED,EXPIRED,Plan,Owed,Currency';
/** The cells of refusals of a row without any. */
const none = '0,0,0,0,0,0';
const month = new Date().toISOString().slice(0, 7);
const monthStart = Date.parse(`${month}-01`);
const next = new Date(monthStart);
next.setUTCMonth(next.getUTCMonth() + 1);
const monthEnd = next.toISOString().replace('.000', '');
const notFinal = `These figures are not final before ${monthEnd.replace('00:00Z', '01:00Z')}.`;

beforeAll(async () => {
  // The command uses Redis's clock.
  app.clock.now = Date.now();
  apiIds = [];
  for (const name of ['first', 'second']) apiIds.push((await app.ok('apis.createApi', { name })).apiId);
  for (const [externalId, apiId, times] of [
    ['ada', apiIds[0]!, 3],
    ['bob', apiIds[1]!, 2],
    [undefined, apiIds[0]!, 1],
  ] as const) {
    const { key, keyId } = await app.ok('keys.createKey', {
      apiId,
      ...(externalId && { externalId }),
      credits: { remaining: 2 },
    });
    keyIds[externalId ?? 'none'] = keyId;
    for (let count = 0; count < times; count++) await app.ok('keys.verifyKey', { key, tags: ['eu'] });
  }
  for (const identifier of ['x', 'x', 'y'])
    await app.ok('ratelimits.limit', { namespace: 'login', identifier, limit: 1, duration: 60_000 });
});

describeWays(app, url, ({ run, lines, json }) => {
  const cells = (table: string[]) => table.map(cellsOf);

  test('the largest of a period are ranked', async () => {
    const [period, ...table] = await lines('usage', '--top', '10', '--by', 'customer', '--last', '7d');
    expect(period).toMatch(/^Usage from \S+T\d\d:00:00Z to \S+T\d\d:00:00Z$/);
    const headings = ['VERIFICATIONS', 'REFUSED', 'CREDITS'];
    expect(cells(table)).toEqual([
      ['CUSTOMER', ...headings],
      ['ada', '3', '1', '2'],
      ['bob', '2', '0', '2'],
      ['1 verification of keys without a customer is not in this list. --by key lists keys.'],
    ]);
    expect(cells(await lines('usage', '--top', '1')).slice(1)).toEqual([
      ['CUSTOMER', ...headings],
      ['ada', '3', '1', '2'],
    ]);
    expect(cells(await lines('usage', '--order-by', 'refused')).slice(2)).toEqual([['ada', '3', '1', '2']]);
    expect(cells(await lines('usage', '--by', 'key', '--api', apiIds[1]!)).slice(1)).toEqual([
      ['KEY', ...headings],
      [keyIds.bob, '2', '0', '2'],
    ]);
    expect(cells(await lines('usage', '--by', 'api')).slice(1)).toEqual([
      ['API', ...headings],
      [apiIds[0], '4', '1', '3'],
      [apiIds[1], '2', '0', '2'],
    ]);
    expect(cells(await lines('usage', '--by', 'tag')).slice(2)).toEqual([
      ['eu', '6', '1', '5'],
      ['A verification with several tags is in the row of each.'],
    ]);
    expect(cells(await lines('usage', '--by', 'namespace')).slice(1)).toEqual([
      ['NAMESPACE', 'CHECKS', 'REFUSED'],
      ['login', '3', '1'],
    ]);
    expect(cells(await lines('usage', '--by', 'identifier')).slice(1)).toEqual([
      ['NAMESPACE', 'IDENTIFIER', 'CHECKS', 'REFUSED'],
      ['login', 'x', '2', '1'],
      ['login', 'y', '1', '0'],
    ]);
    expect(await json('usage')).toMatchObject({
      end: expect.any(Number),
      top: [
        { externalId: 'ada', count: 3, refused: 1, spentCredits: 2 },
        { externalId: 'bob', count: 2 },
      ],
    });
    const today = new Date(app.clock.now).toISOString().slice(0, 10);
    expect(await json('usage', '--from', today)).toMatchObject({ start: Date.parse(today), top: [{}, {}] });
    expect(await lines('usage', '--from', '2020-02-03', '--to', '2020-02-10')).toEqual([
      'There is no usage from 2020-02-03T00:00:00Z to 2020-02-10T00:00:00Z.',
    ]);
    const { apiId: unused } = await app.ok('apis.createApi', { name: 'unused' });
    expect(await lines('usage', '--api', unused)).toEqual([expect.stringMatching(/^There is no usage from /)]);
  });

  test('the bill of a month has all customers', async () => {
    const [period, ...table] = await lines('usage', '--month', month);
    expect(period).toBe(`Usage from ${month}-01T00:00:00Z to ${monthEnd}`);
    expect(cells(table)).toEqual([
      ['CUSTOMER', 'VALID', 'REFUSED', 'VERIFICATIONS', 'CREDITS'],
      ['ada', '2', '1', '3', '2'],
      ['bob', '2', '0', '2', '2'],
      ['(no customer)', '1', '0', '1', '1'],
      ['Total: 5 valid and 1 refused verifications, 5 credits.'],
      [notFinal],
    ]);
    expect(await json('usage', '--month', month, '--api', apiIds[1]!)).toEqual({
      start: monthStart,
      end: next.getTime(),
      customers: [{ externalId: 'bob', count: 2, outcomes: { VALID: 2 }, spentCredits: 2, valid: 2 }],
    });
    expect(await lines('usage', '--month')).toEqual([period, ...table]);
    expect(await lines('usage', '--month', '2020-02')).toEqual([
      'There is no usage from 2020-02-01T00:00:00Z to 2020-03-01T00:00:00Z.',
    ]);
  });

  test('with prices it has what each customer owes', async () => {
    const steps = [
      { from: 0, price: '0.25' },
      { from: 1, price: '1.005' },
    ];
    const rules = [{ unit: 'verification' as const, apiId: apiIds[1]!, steps }];
    await app.ok('workspace.updateSettings', { prices: { currency: 'EUR', decimals: 2, rules } });
    const table = cells(await lines('usage', '--month', '--order-by', 'owed'));
    expect(table.slice(1, 6)).toEqual([
      ['CUSTOMER', 'VALID', 'REFUSED', 'VERIFICATIONS', 'CREDITS', 'OWED'],
      ['bob', '2', '0', '2', '2', '1.26 EUR'],
      ['ada', '2', '1', '3', '2', '0.00 EUR'],
      ['(no customer)', '1', '0', '1', '1'],
      ['Total: 5 valid and 1 refused verifications, 5 credits, 1.26 EUR owed.'],
    ]);
    const { out } = await run(['usage', '--month', '--csv']);
    expect(out.split('\n').slice(1, 4)).toEqual([
      `,1,0,1,1,${none},,,`,
      'ada,2,1,3,2,0,1,0,0,0,0,,0.00,EUR',
      `bob,2,0,2,2,${none},,1.26,EUR`,
    ]);
    expect((await json('usage', '--month')).customers).toMatchObject([{ externalId: 'ada' }, {}, {}]);
    await app.ok('workspace.updateSettings', { prices: null });
  });

  test('as CSV it has headings and rows only; what is left out is on standard error', async () => {
    const { code, out, err } = await run(['usage', '--month', month, '--csv']);
    expect({ code, out, err }).toEqual({
      code: 0,
      // Refusals are not charged for. test/console/bill.test.ts: the same columns.
      out: `${billHeadings}\n,1,0,1,1,${none},,,\nada,2,1,3,2,0,1,0,0,0,0,,,\nbob,2,0,2,2,${none},,,\n`,
      err: `${notFinal}\n`,
    });
    const sorted = await run(['usage', '--month', '--csv', '--order-by', 'count']);
    expect(sorted.out.split('\n').map((line) => line.split(',')[0])).toEqual(['Customer', 'ada', 'bob', '', '']);
    expect(await run(['usage', '--csv'])).toEqual({
      code: 0,
      out: 'CUSTOMER,VERIFICATIONS,REFUSED,CREDITS\nada,3,1,2\nbob,2,0,2\n',
      err: '1 verification of keys without a customer is not in this list. --by key lists keys.\n',
    });
    const ranking = await run(['usage', '--csv', '--by', 'identifier']);
    expect(ranking.out).toBe('NAMESPACE,IDENTIFIER,CHECKS,REFUSED\nlogin,x,2,1\nlogin,y,1,0\n');
    const unused = await run(['usage', '--month', '2020-02', '--csv']);
    expect(unused).toEqual({ code: 0, out: `${billHeadings}\n`, err: '' });
  });

  test('a ranking of tags states how many verifications have none', async () => {
    const { apiId } = await app.ok('apis.createApi', { name: 'tagged' });
    const { key } = await app.ok('keys.createKey', { apiId });
    for (const tags of [['a', 'b', 'c'], ['a'], []]) await app.ok('keys.verifyKey', { key, tags });
    const usage = async () => (await lines('usage', '--by', 'tag', '--api', apiId)).slice(2).map(cellsOf);
    const rows = ['a', 'b', 'c'].map((tag, index) => [tag, index === 0 ? '2' : '1', '0', '0']);
    const several = ['A verification with several tags is in the row of each.'];
    expect(await usage()).toEqual([...rows, ['1 verification without a counted tag is not in this list.'], several]);
    await app.ok('keys.verifyKey', { key });
    expect(await usage()).toEqual([...rows, ['2 verifications without a counted tag are not in this list.'], several]);
    expect((await run(['usage', '--by', 'tag', '--api', apiId, '--csv'])).err).toContain('2 verifications without');
    await app.ok('apis.deleteApi', { apiId });
  });

  test.each([
    [['--csv', '--json'], '--csv and --json are two forms'],
    [['--by', 'colour'], '--by must be one of customer, key'],
    [['--by', 'toString'], '--by must be one of'],
    [['--top', 'many'], 'is not a whole number'],
    [['--top', '101'], 'tollgate: --top must '],
    [['--order-by', 'name'], '--order-by must be one of count, refused, credits'],
    [['--by', 'namespace', '--order-by', 'credits'], '--order-by must be one of count, refused.'],
    [['--month', '2026-10', '--order-by', 'name'], '--order-by must be one of valid, count, refused, credits'],
    [['--last', 'week'], 'is not a duration'],
    [['--from', 'monday'], 'is not a time'],
    [['--from', '2026-10-01', '--to', '2026-10-01'], '--from must be before --to'],
    [['--from', '9999-01-01'], 'tollgate: --from '],
    [['--last', '1d', '--from', '2026-10-01'], 'Leave it out, or --from and --to'],
    [['--month', '2026-10', '--to', '2026-10-01'], 'Leave out'],
    [['--api', 'api_unknown'], 'There is no API "api_unknown"'],
    [['--api', 'api_unknown', '--month', '2026-10'], 'There is no API "api_unknown"'],
    [['--month', '2026-13'], 'is not a month'],
    [['--month', '9999-12'], 'is in the future'],
    [['--month', '2026-10', '--by', 'key'], 'Leave out'],
    [['--month', '2026-10', '--last', '1d'], 'Leave out'],
    [['--by', 'namespace', '--api', 'api_1'], 'tollgate: --api '],
  ])('usage %j is refused', async (args, message) => {
    await refused(run(['usage', ...args]), message);
  });
});

test('a bill of more customers than a page has each of them once', async () => {
  const { usageRow } = await import('../../src/cli/usageCommand.ts');
  const customers = Array.from({ length: 2500 }, (_, index) => ({
    externalId: `c${index}`,
    count: index + 1,
    outcomes: { VALID: index + 1 },
    spentCredits: 1,
  }));
  const inputs: unknown[] = [];
  /** Usage is added up in the first pages, which are empty. */
  const call = async (_name: string, input: { limit: number }, next = 'adding') => {
    inputs.push([input.limit, next]);
    if (next.startsWith('adding'))
      return { data: [], next: next === 'adding' ? 'adding 2' : '0', looked: 500, total: 1000 };
    const end = Number(next) + input.limit;
    return { data: customers.slice(Number(next), end), next: end < 2500 ? String(end) : undefined };
  };
  const printed: string[] = [];
  const shown: unknown[] = [];
  const output = {
    print: async ({ lines }: { lines: readonly string[] }) => void printed.push(...lines),
    progress: (...of: unknown[]) => {
      shown.push(of);
      return { update: (...figures: unknown[]) => void shown.push(figures), stop: () => void shown.push('stop') };
    },
  };
  const run = (options: object) =>
    usageRow.run(call as never, { month: '2026-10', ...options }, async () => '', output as never);
  const { json, lines } = (await run({}))!;
  expect(inputs).toEqual(['adding', 'adding 2', '0', '1000', '2000'].map((next) => [1000, next]));
  expect((json as { customers: unknown[] }).customers).toEqual(
    customers.toReversed().map((row) => ({ ...row, valid: row.count })),
  );
  expect(lines).toHaveLength(2500 + 3);
  expect([printed, shown]).toEqual([[], []]);

  // As CSV each page is printed when it is there, and what takes long shows how far it is.
  const time = vi.spyOn(performance, 'now');
  let calls = 0;
  time.mockImplementation(() => 2000 * calls++);
  expect(await run({ csv: true })).toBeUndefined();
  time.mockRestore();
  expect(printed).toEqual([
    billHeadings,
    ...customers.map(({ externalId, count }) => `${externalId},${count},0,${count},1,${none},,,`),
  ]);
  expect(shown).toEqual([
    ['Adding up', 1000, 'keys'],
    [500, 500],
    [1000, 1000],
    'stop',
    ['Listing', undefined, 'customers'],
    [1000, 1000],
    [2000, 2000],
    'stop',
  ]);
  // In another order, all rows are sorted first.
  expect((await run({ csv: true, orderBy: 'count' }))!.lines[1]).toBe(`c2499,2500,0,2500,1,${none},,,`);
});

test('a cell of CSV is no formula of a spreadsheet', async () => {
  for (const identifier of ['=1+1', 'a,"b"\r\nc'])
    await app.ok('ratelimits.limit', { namespace: 'csv', identifier, limit: 1, duration: 60_000 });
  const env = { TOLLGATE_URL: url(), TOLLGATE_ROOT_KEY: app.rootKey };
  const { out } = await runCli(['usage', '--csv', '--by', 'identifier'], env);
  expect(out).toContain("\ncsv,'=1+1,1,0\n");
  expect(out).toContain('\ncsv,"a,""b""\nc",1,0\n');
});
