// The largest of a kind in a period: keys, customers, tags, identifiers.

import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { call, useData } from '../api.ts';
import { customerPath, namespacePath } from '../paths.ts';
import type { Period } from '../period.ts';
import { Card, Count, Empty, Loaded } from './basic.tsx';
import { CsvButton } from './csv.tsx';
import { KeyName } from './keyName.tsx';
import { type Column, Table } from './table.tsx';

type Of = 'keys' | 'identities' | 'apis' | 'tags' | 'namespaces' | 'identifiers';

interface TopRow {
  apiId?: string;
  keyId?: string;
  externalId?: string;
  tag?: string;
  namespace?: string;
  identifier?: string;
  count: number;
  refused: number;
  spentCredits?: number;
}

const pathOf = ({ keyId, externalId, apiId, identifier, namespace }: TopRow): string | undefined => {
  if (keyId) return `/keys/${keyId}`;
  if (externalId) return customerPath(externalId);
  if (apiId) return `/apis/${apiId}`;
  return namespace && !identifier ? namespacePath(namespace) : undefined;
};

const nameOf = ({ keyId, externalId, apiId, tag, namespace, identifier }: TopRow): string =>
  keyId ?? externalId ?? (identifier && `${namespace}: ${identifier}`) ?? namespace ?? tag ?? apiId ?? '';

type By = 'count' | 'refused' | 'spentCredits';

export function Top(props: { title: string; of: Of; period: Period; within?: object; by?: By }) {
  const { title, of, period, within } = props;
  const [by, setBy] = useState<By>(props.by ?? 'count');
  const input = { of, by, start: period.start, end: period.end, limit: 10, ...within };
  const { data, ...rest } = useData<{ top: TopRow[] }>('analytics.getTop', input, 30_000);
  const isChecks = of === 'namespaces' || of === 'identifiers';
  const number = (name: string, amount: (row: TopRow) => number, isWide = false): Column<TopRow> => ({
    name,
    cell: (row) => <Count value={amount(row)} />,
    csv: amount,
    isNumber: true,
    isWide,
  });
  const columns: Column<TopRow>[] = [
    {
      name: 'Name',
      cell: (row) => {
        const path = pathOf(row);
        const name = row.keyId ? <KeyName keyId={row.keyId} /> : nameOf(row);
        return path ? <Link href={path}>{name}</Link> : name;
      },
      csv: nameOf,
    },
    number(isChecks ? 'Checks' : 'Verifications', (row) => row.count),
    number(isChecks ? 'Blocked' : 'Refused', (row) => row.refused),
    ...(isChecks ? [] : [number('Credits', (row) => row.spentCredits ?? 0, true)]),
  ];
  const rows = data?.top;
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
            <Table label={title} rows={top} idOf={nameOf} columns={columns} sorts={sorts} />
          )
        }
      </Loaded>
    </Card>
  );
}
