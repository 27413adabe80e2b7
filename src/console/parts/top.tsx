// The largest of a kind in a period: keys, customers, tags, identifiers, with their share and what was refused.

import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { call, useData } from '../api.ts';
import { count, percent, timeSpan } from '../format.ts';
import { customerPath, namespacePath, planPath } from '../paths.ts';
import { type Period, sumOf } from '../period.ts';
import type { LimitRow, TopRow, UsageRow } from '../records.ts';
import { Card, Count, Empty, Loaded } from './basic.tsx';
import { CsvButton } from './csv.tsx';
import { KeyName } from './keyName.tsx';
import { type Column, Table } from './table.tsx';

type Of = 'keys' | 'identities' | 'plans' | 'apis' | 'tags' | 'namespaces' | 'identifiers';

const pathOf = ({ keyId, externalId, planId, apiId, identifier, namespace }: TopRow): string | undefined => {
  if (keyId) return `/keys/${keyId}`;
  if (externalId) return customerPath(externalId);
  if (planId) return planPath(planId);
  if (apiId) return `/apis/${apiId}`;
  return namespace && !identifier ? namespacePath(namespace) : undefined;
};

const nameOfRow = ({ keyId, externalId, planId, apiId, tag, namespace, identifier }: TopRow): string =>
  keyId ?? externalId ?? planId ?? (identifier && `${namespace}: ${identifier}`) ?? namespace ?? tag ?? apiId ?? '';

type By = 'count' | 'refused' | 'spentCredits';

/** Rows of which the shares are computed: verifications, or limit checks. */
type AllRow = Partial<UsageRow & Pick<LimitRow, 'passed' | 'blocked'>>;

/** The sum of all rows, ranked or not; undefined until it is known. The request is that of a chart of the screen. */
function useAll(isChecks: boolean, by: By, { start, end, granularity }: Period, within: object | undefined) {
  const input = { ...within, start, end, granularity, ...(!isChecks && { groupBy: ['outcome'] }) };
  const { data } = useData<AllRow[]>(`analytics.get${isChecks ? 'Ratelimits' : 'Verifications'}`, input, 30_000);
  return (
    data &&
    sumOf(data, ({ outcome, count = 0, spentCredits = 0, passed = 0, blocked = 0 }) => {
      if (by === 'spentCredits') return spentCredits;
      if (by === 'refused') return blocked + (outcome === 'VALID' ? 0 : count);
      return passed + blocked + count;
    })
  );
}

/** At least half of them were refused. */
const isHot = ({ count, refused }: TopRow) => 2 * refused >= count;

const Share = ({ row, largest }: { row: TopRow; largest: number }) => {
  const part = (amount: number) => ({ width: `${(100 * amount) / Math.max(1, largest)}%` });
  return (
    <div class={`share ${isHot(row) ? 'hot' : ''}`} aria-hidden="true">
      <i style={part(row.count - row.refused)} />
      <i style={part(row.refused)} />
    </div>
  );
};

/** The request of a ranking: two parts of a screen with the same one share the response. */
export const topInput = (asked: { of: Of; by?: By; period: Period; within: object | undefined }) => {
  const { of, by = 'count', period, within } = asked;
  return { of, by, start: period.start, end: period.end, limit: 10, ...within };
};

export function Top(props: {
  title: string;
  of: Of;
  period: Period;
  within?: object;
  by?: By;
  /** Further columns of these rows. */
  more?: ((rows: readonly TopRow[]) => Column<TopRow>[]) | undefined;
}) {
  const { title, of, period, within, more } = props;
  const { start, end } = period;
  const [by, setBy] = useState<By>(props.by ?? 'count');
  const input = topInput({ of, by, period, within });
  const { data, ...rest } = useData<{ top: TopRow[]; start: number; end: number }>('analytics.getTop', input, 30_000);
  const isChecks = of === 'namespaces' || of === 'identifiers';
  const all = useAll(isChecks, by, period, within);
  const rows = data?.top;
  const columns = columnsOf(isChecks, by, rows ?? [], all);
  // The store ranks the largest first.
  const sort = (order: By) => ({ order: order === by ? ('desc' as const) : undefined, set: () => setBy(order) });
  const sorts = {
    [isChecks ? 'Checks' : 'Verifications']: sort('count'),
    [isChecks ? 'Blocked' : 'Refused']: sort('refused'),
    Credits: sort('spentCredits'),
  };
  const read = async function* () {
    yield { data: (await call<{ top: TopRow[] }>('analytics.getTop', { ...input, limit: 100 })).top };
  };
  return (
    <Card title={title} actions={<CsvButton name={`top-${of}`} columns={columns} rows={rows} read={read} />}>
      <Loaded of={{ ...rest, data: rows }} lines={5}>
        {(top) =>
          top.length === 0 ? (
            <Empty title="Nothing was used in this period" />
          ) : (
            <Table
              label={title}
              rows={top}
              idOf={nameOfRow}
              columns={[...columns, ...(more?.(top) ?? [])]}
              sorts={sorts}
            />
          )
        }
      </Loaded>
      {data && (data.start < start || data.end > end) && (
        // A day of which no hours are kept.
        <p class="quiet">Counted: {timeSpan(data.start, data.end)} UTC.</p>
      )}
    </Card>
  );
}

function columnsOf(isChecks: boolean, by: By, rows: TopRow[], all: number | undefined) {
  const largest = Math.max(0, ...rows.map((row) => row.count));
  const amountOf = (row: TopRow) => row[by] ?? 0;
  const number = (of: typeof by, name: string, isWide = false): Column<TopRow> => ({
    name,
    cell: (row) => (
      <>
        <Count value={row[of] ?? 0} />
        {of === by && all !== undefined && <small>{percent(amountOf(row), all)}</small>}
      </>
    ),
    csv: (row) => row[of] ?? 0,
    isNumber: true,
    isWide,
  });
  const columns: Column<TopRow>[] = [
    {
      name: 'Name',
      cell: (row) => {
        const path = pathOf(row);
        const name = row.keyId ? <KeyName keyId={row.keyId} /> : nameOfRow(row);
        return (
          <>
            {path ? <Link href={path}>{name}</Link> : name}
            {row.planId !== undefined && row.planId !== name && <small>{row.planId}</small>}
            <Share row={row} largest={largest} />
          </>
        );
      },
      csv: nameOfRow,
    },
    number('count', isChecks ? 'Checks' : 'Verifications'),
    {
      ...number('refused', isChecks ? 'Blocked' : 'Refused'),
      cell: (row) => (
        <>
          <span class={`number ${isHot(row) ? 'hot' : ''}`}>{count(row.refused)}</span>
          <small title="Of its own">{row.refused > 0 && percent(row.refused, row.count)}</small>
        </>
      ),
    },
    ...(isChecks ? [] : [number('spentCredits', 'Credits', true)]),
  ];
  return columns;
}
