// What all customers used in a month: the figures of an invoice.

import { Link } from 'wouter-preact';
import { useAddress } from '../address.ts';
import { count } from '../format.ts';
import { pagesOf, usePages } from '../pages.ts';
import { ApiSelect } from '../parts/apiSelect.tsx';
import { Card, Count, CustomerLink, Empty, Head, LacksScreen, outcomes, wordOf } from '../parts/basic.tsx';
import { Figure } from '../parts/chart.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { type Column, List } from '../parts/table.tsx';
import { Top } from '../parts/top.tsx';
import { UsageChart, useUsage } from '../parts/usage.tsx';
import { countOf, lastMonths, monthOf, sumOf } from '../period.ts';
import { may } from '../session.ts';

interface Billed {
  externalId?: string;
  count: number;
  outcomes: Record<string, number>;
  spentCredits: number;
}

const refusedOf = ({ count: all, outcomes: { VALID = 0 } }: Billed) => all - VALID;

const columns: Column<Billed>[] = [
  {
    name: 'Customer (externalId)',
    cell: ({ externalId }) =>
      externalId === undefined ? (
        <span class="quiet">keys without a customer</span>
      ) : (
        <CustomerLink externalId={externalId} />
      ),
    csv: ({ externalId }) => externalId,
  },
  { name: 'Verifications', cell: (row) => <Count value={row.count} />, csv: (row) => row.count, isNumber: true },
  {
    name: 'Refused',
    cell: (row) => <Count value={refusedOf(row)} />,
    csv: refusedOf,
    isNumber: true,
    isWide: true,
  },
  ...outcomes.map(
    (outcome): Column<Billed> => ({
      name: wordOf(outcome),
      cell: () => null,
      csv: (row) => row.outcomes[outcome] ?? 0,
      isCsvOnly: true,
    }),
  ),
  {
    name: 'Credits',
    cell: ({ spentCredits }) => <Count value={spentCredits} />,
    csv: ({ spentCredits }) => spentCredits,
    isNumber: true,
  },
];

/** Rows of a request for the file: the most that there may be, as a bill may be long. */
const pageMax = 1000;

export function Bill() {
  const months = lastMonths();
  const [address, set] = useAddress({ month: months[0]!, api: '', pages: '' });
  const month = months.includes(address.month) ? address.month : months[0]!;
  const period = monthOf(month);
  const of = address.api ? { apiId: address.api } : {};
  const isAllowed = may('api', 'read_analytics');
  const input = { ...of, start: period.start, end: period.end };
  const pages = usePages<Billed>('analytics.listCustomers', isAllowed ? input : undefined, 0, true);
  if (!isAllowed) return <LacksScreen title="Bill" grant="api.*.read_analytics" />;
  const isOver = period.end <= Date.now();
  return (
    <>
      <Head title="Bill">
        <ApiSelect isBare value={address.api} set={(api) => set({ api, pages: '' })} none="All APIs" />
        <select
          aria-label="Month, UTC"
          value={month}
          onChange={(e) => set({ month: e.currentTarget.value, pages: '' })}
        >
          {months.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </Head>
      <Totals of={of} period={period} />
      <Card title={`Verifications by day, UTC${isOver ? '' : '; the month is not over'}`}>
        <UsageChart of={of} period={period} title="Verifications by outcome" />
      </Card>
      <Top title="Largest customers" of="identities" period={period} within={of} />
      <Card
        title="All customers"
        actions={
          <CsvButton
            name={`bill-${month}`}
            columns={columns}
            of={pages}
            read={(after) => pagesOf('analytics.listCustomers', { ...input, limit: pageMax }, after)}
          />
        }
      >
        <List
          label="All customers"
          columns={columns}
          of={pages}
          idOf={({ externalId = '' }) => externalId}
          empty={
            <Empty title="Nothing was verified in this month">
              <p class="quiet">
                Counts are kept for 90 days, unless <code>USAGE_RETENTION_DAYS</code> is another number.
              </p>
            </Empty>
          }
        />
        <p class="quiet">
          In order of externalId. What a customer owes is not stored here: prices are yours.{' '}
          <Link href="/customers">All customers and their limits</Link>
        </p>
      </Card>
    </>
  );
}

function Totals({ of, period }: { of: { apiId?: string }; period: ReturnType<typeof monthOf> }) {
  const { data } = useUsage(of, period);
  const shown = (amount: number | undefined) => (amount === undefined ? '–' : count(amount));
  return (
    <div class="figures-row">
      <Figure label="Verifications" value={shown(data && countOf(data))} />
      <Figure label="Refused" value={shown(data && countOf(data) - countOf(data, 'VALID'))} />
      <Figure label="Credits spent" value={shown(data && sumOf(data, ({ spentCredits }) => spentCredits))} />
    </div>
  );
}
