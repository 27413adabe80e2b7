// The usage of all customers in a month: the figures of an invoice.

import { useMemo, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { type Billed, billColumns, noCustomer, refusals } from '../../domain/columns.ts';
import { sumsOwed } from '../../domain/price.ts';
import { useAddress } from '../address.ts';
import { useData } from '../api.ts';
import { count, date } from '../format.ts';
import { type Paged, pagesOf, usePages } from '../pages.ts';
import { ApiSelect } from '../parts/apiSelect.tsx';
import { Button, Card, CustomerLink, Empty, Head, LacksScreen } from '../parts/basic.tsx';
import { Figure } from '../parts/chart.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { EditPrices, OwedBy, owedText, usePrices } from '../parts/prices.tsx';
import { type Column, List, shared, Table } from '../parts/table.tsx';
import { Top, topInput } from '../parts/top.tsx';
import { UsageChart, useUsage } from '../parts/usage.tsx';
import { countOf, dayMs, hourMs, lastMonths, monthOf, type Period, sumOf } from '../period.ts';
import type { TopRow } from '../records.ts';
import { may } from '../session.ts';

const columns: Column<Billed>[] = [
  shared(billColumns, 'Customer', {
    cell: ({ externalId }) =>
      externalId === undefined ? <span class="quiet">{noCustomer}</span> : <CustomerLink externalId={externalId} />,
  }),
  shared(billColumns, 'Valid'),
  shared(billColumns, 'Refused', { isWide: true }),
  shared(billColumns, 'Verifications', { isWide: true }),
  shared(billColumns, 'Credits'),
  ...refusals.map((outcome) => shared(billColumns, outcome, { isCsvOnly: true })),
  shared(billColumns, 'Plan', { isCsvOnly: true }),
  shared(billColumns, 'Owed', {
    cell: ({ owed }) => owed && <span class="number">{owedText(owed)}</span>,
    isNumber: true,
  }),
  shared(billColumns, 'Currency', { isCsvOnly: true }),
];
/** Of a workspace without prices. */
const unpriced = columns.filter(({ name }) => name !== 'Owed');

/** Rows of a request for the file: the maximum, because a bill may be long. */
const pageMax = 1000;

export function Bill() {
  const months = lastMonths();
  const prices = usePrices();
  const [address, set] = useAddress({ month: months[0]!, api: '', pages: '' });
  const month = months.includes(address.month) ? address.month : months[0]!;
  const period = monthOf(month);
  const of = address.api ? { apiId: address.api } : {};
  const { data: plans = [] } = useData<unknown[]>(
    'plans.listPlans',
    may('plan', 'read_plan') ? { limit: 1 } : undefined,
  );
  if (!may('api', 'read_analytics')) return <LacksScreen title="Bill" grant="api.*.read_analytics" />;
  const isOver = period.end <= Date.now();
  return (
    <>
      <Head title="Bill">
        <PricesButton />
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
      <p class="printed">
        {month}, UTC{address.api && `, of the API ${address.api}`}
      </p>
      <Totals of={of} period={period} />
      <Card title={`Verifications by day, UTC${isOver ? '' : '; the month is not over'}`}>
        <UsageChart of={of} period={period} />
      </Card>
      <Top title="Largest customers" of="identities" period={period} within={of} more={prices && owedIn(period, of)} />
      {plans.length > 0 && <Top title="Plans of customers" of="plans" period={period} within={of} />}
      <BillRows of={of} month={month} period={period} />
    </>
  );
}

/** A column of a ranking of customers. */
const owedIn = (period: Period, within: object) => (rows: readonly TopRow[]) => {
  const of = rows.flatMap(({ externalId }) => externalId ?? []);
  const cell = ({ externalId = '' }: TopRow) => <OwedBy {...{ externalId, of, period, within }} />;
  return [{ name: 'Owed', cell, isNumber: true }];
};

function PricesButton() {
  const [isOpen, setOpen] = useState(false);
  if (!may('workspace', 'read_settings') || !may('workspace', 'update_settings')) return null;
  return (
    <>
      <Button onClick={() => setOpen(true)}>Prices …</Button>
      {isOpen && <EditPrices close={() => setOpen(false)} />}
    </>
  );
}

type Month = { of: { apiId?: string }; period: Period };

/** Usage is in the sums by customer about an hour after the end of its day. */
const summedAfterMs = 2 * hourMs;

/**
 * The rows of a month. Until they arrive, the rows of its days that have ended, up to `endedAt`: the server has added
 * these up, and the usage since then takes longer the more keys were used. Undefined if all days of the month have
 * ended, or none.
 */
function useBilled({ of, period }: Month) {
  const { start, end } = period;
  const nowDay = useMemo(() => Math.floor((Date.now() - summedAfterMs) / dayMs) * dayMs, []);
  const endedAt = start < nowDay && nowDay < end ? nowDay : undefined;
  const endedInput = endedAt === undefined ? undefined : { ...of, start, end: endedAt };
  const ended = useData<Billed[]>('analytics.listCustomers', endedInput);
  // The ranking of the screen arrives before the month, too: their scripts take turns at Redis.
  const ranking = useData('analytics.getTop', topInput({ of: 'identities', period, within: of }));
  const isNext = endedAt === undefined || [ended, ranking].every(({ data, failure }) => data ?? failure);
  const pages = usePages<Billed>('analytics.listCustomers', isNext ? { ...of, start, end } : undefined, 0, true);
  const isThere = pages.rows !== undefined && (pages.rows.length > 0 || !pages.hasMore);
  const rows = ended.data ?? [];
  return { pages, ended: endedAt !== undefined && !isThere && rows.length > 0 ? { rows, endedAt } : undefined };
}

const idOf = ({ externalId = '' }: Billed) => externalId;

function BillRows({ of, period, month }: Month & { month: string }) {
  const { pages, ended } = useBilled({ of, period });
  const { start, end } = period;
  const read = (after?: string) =>
    pagesOf<Billed>('analytics.listCustomers', { ...of, start, end, limit: pageMax }, after);
  const prices = usePrices();
  const shown = prices ? columns : unpriced;
  const sums = sumsOwed((pages.rows ?? []).flatMap(({ owed }) => owed ?? [])).map(owedText);
  return (
    <Card title="All customers" actions={<CsvButton name={`bill-${month}`} columns={columns} of={pages} read={read} />}>
      {ended && <Ended {...ended} columns={shown} of={pages} />}
      {(!ended || pages.rows || pages.failure) && (
        <List
          label="All customers"
          columns={shown}
          of={pages}
          idOf={idOf}
          empty={
            <Empty title="Nothing was verified in this month">
              <p class="quiet">
                Counts are kept for 90 days, unless <code>USAGE_RETENTION_DAYS</code> is another number.
              </p>
            </Empty>
          }
        />
      )}
      {sums.length > 0 && (
        <p>
          {pages.hasMore ? 'The customers that are displayed' : 'All customers together'} owe {sums.join(' and ')}.
        </p>
      )}
      <p class="quiet">
        In order of externalId.{' '}
        {!prices && may('workspace', 'read_settings') && 'Without prices, what a customer owes is not computed. '}
        <Link href="/customers">All customers and their limits</Link>
      </p>
    </Card>
  );
}

/** The first rows of the days that have ended, while those of the month are added up. */
function Ended(props: { rows: readonly Billed[]; endedAt: number; columns: typeof columns; of: Paged<Billed> }) {
  const { rows, endedAt, columns, of } = props;
  return (
    <>
      <p class="quiet" role="status">
        Until the end of {date(endedAt - dayMs)}, UTC. What was used since then is being added up …
      </p>
      {!of.rows && !of.failure && <progress aria-label="Adding up" />}
      <Table label="All customers" columns={columns} rows={rows} idOf={idOf} />
    </>
  );
}

function Totals({ of, period }: Month) {
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
