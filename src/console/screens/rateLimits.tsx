import { Link } from 'wouter-preact';
import { useInAddress, useTyped } from '../address.ts';
import { useData } from '../api.ts';
import { percent } from '../format.ts';
import { isFound, usePages } from '../pages.ts';
import { Card, Empty, Head, LacksScreen, Loaded, PeriodChoice, SearchField } from '../parts/basic.tsx';
import { Chart } from '../parts/chart.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { type Column, column, List, useOrder } from '../parts/table.tsx';
import { Top } from '../parts/top.tsx';
import { namespacePath } from '../paths.ts';
import { byTime, type Period, sumOf, usePeriod } from '../period.ts';
import type { LimitRow, NamespaceRow } from '../records.ts';
import { may } from '../session.ts';

export function useLimits(namespace: string | undefined, { start, end, granularity }: Period) {
  const input = { ...(namespace && { namespace }), start, end, granularity };
  return useData<LimitRow[]>('analytics.getRatelimits', input, 5000);
}

export function LimitChart({ data, period }: { data: ReturnType<typeof useLimits>; period: Period }) {
  return (
    <Card title={`Checks by ${period.granularity}, UTC`}>
      <Loaded of={data} lines={7}>
        {(rows) => (
          <Chart
            title="Checks that passed and that were blocked"
            times={period.times}
            stepMs={period.stepMs}
            choose={period.choose}
            series={[
              { name: 'Passed', color: '--VALID', values: byTime(period, rows, ({ passed }) => passed) },
              { name: 'Blocked', color: '--RATE_LIMITED', values: byTime(period, rows, ({ blocked }) => blocked) },
            ]}
          />
        )}
      </Loaded>
    </Card>
  );
}

export function RateLimits() {
  const period = usePeriod();
  const search = useTyped('search');
  const { settled } = search;
  const { order, sorts } = useOrder('Created');
  const limits = useLimits(undefined, period);
  const listed = { order, limit: 50, ...(settled && { search: settled }) };
  const mayRead = may('ratelimit', 'read_namespace');
  const pages = usePages<NamespaceRow>('ratelimits.listNamespaces', mayRead ? listed : undefined, 30_000, true);
  useInAddress(search, isFound(pages));
  if (!mayRead) return <LacksScreen title="Rate limits" grant="ratelimit.*.read_namespace" />;
  const sum = (name: string, amount: (row: LimitRow) => number) =>
    sumOf(
      (limits.data ?? []).filter(({ namespace }) => namespace === name),
      amount,
    );
  const passed = ({ name }: NamespaceRow) => sum(name, (row) => row.passed);
  const blocked = ({ name }: NamespaceRow) => sum(name, (row) => row.blocked);
  const columns: Column<NamespaceRow>[] = [
    column('Namespace', 'text', ({ name }) => name, {
      cell: ({ name }) => <Link href={namespacePath(name)}>{name}</Link>,
    }),
    column('Passed', 'count', passed),
    column('Blocked', 'count', blocked),
    {
      name: 'Share blocked',
      cell: (row) => <span class="number">{percent(blocked(row), passed(row) + blocked(row))}</span>,
      isNumber: true,
      isWide: true,
    },
    column('Overrides', 'count', ({ overrideCount }) => overrideCount, { isWide: true }),
    column('Created', 'time', ({ createdAt }) => createdAt),
  ];
  return (
    <>
      <Head title="Rate limits">
        <CsvButton name="namespaces" columns={columns} of={pages} />
        <PeriodChoice period={period} />
      </Head>
      <LimitChart data={limits} period={period} />
      {may('ratelimit', 'read_analytics') && (
        <Top title="Identifiers with most checks" of="identifiers" period={period} />
      )}
      <Card title="Namespaces">
        <div class="bar">
          <SearchField id="namespace-search" placeholder="Name or id" typed={search} />
        </div>
        <List
          label="Namespaces"
          columns={columns}
          of={pages}
          idOf={({ id }) => id}
          sorts={sorts}
          empty={
            <Empty title={settled ? 'No namespace matches' : 'There is no namespace yet'}>
              <p class="quiet">
                The first <code>ratelimits.limit</code> that names one makes it.
              </p>
            </Empty>
          }
        />
      </Card>
    </>
  );
}
