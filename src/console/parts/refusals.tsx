// Recent refusals, of one key or of all.

import { Link } from 'wouter-preact';
import { useData } from '../api.ts';
import { count, dateTime, duration } from '../format.ts';
import type { Refusals } from '../records.ts';
import { Badge, Card, Count, CustomerLink, Empty, Loaded, Outcome } from './basic.tsx';
import { KeyName } from './keyName.tsx';
import { type Column, CsvButton, Table } from './table.tsx';

/** Rows may be equal, so each has its number. */
interface Row extends Refusals {
  number: number;
}

const limitOf = ({ ratelimit, limit, duration: ms, source, outcome }: Row) =>
  ratelimit === undefined
    ? source === 'lease' && outcome === 'RATE_LIMITED' && <Badge>local</Badge>
    : `${ratelimit}: ${count(limit!)} in any ${duration(ms!)}`;

const columns: Column<Row>[] = [
  {
    name: 'Time, UTC',
    cell: ({ time }) => <span class="number">{dateTime(time)}</span>,
    csv: ({ time }) => new Date(time).toISOString(),
  },
  { name: 'Outcome', cell: ({ outcome }) => <Outcome outcome={outcome} />, csv: ({ outcome }) => outcome },
  {
    name: 'Key',
    cell: ({ keyId }) => (
      <Link href={`/keys/${keyId}`}>
        <KeyName keyId={keyId} />
      </Link>
    ),
    csv: ({ keyId }) => keyId,
  },
  {
    name: 'Customer',
    cell: ({ externalId }) => externalId && <CustomerLink externalId={externalId} />,
    csv: ({ externalId }) => externalId,
    isWide: true,
  },
  { name: 'Limit', cell: limitOf, csv: ({ ratelimit }) => ratelimit },
  { name: 'Refusals', cell: (row) => <Count value={row.count} />, csv: (row) => row.count, isNumber: true },
  {
    name: 'Tags',
    cell: ({ tags = [] }) => tags.map((tag) => <Badge key={tag}>{tag}</Badge>),
    csv: ({ tags = [] }) => tags.join(' '),
    isWide: true,
  },
];
const ofOwner = ({ name }: Column<Row>) => name !== 'Key' && name !== 'Customer';

export function RecentRefusals({ keyId }: { keyId?: string }) {
  const title = 'Recent refusals';
  const { data, ...rest } = useData<Refusals[]>(
    'analytics.listRefusals',
    { ...(keyId && { keyId }), limit: 20 },
    30_000,
  );
  const rows = data?.map((row, number) => ({ ...row, number }));
  const displayed = keyId ? columns.filter(ofOwner) : columns;
  return (
    <Card title={title} actions={<CsvButton name="refusals" columns={columns} rows={rows ?? []} />}>
      <Loaded of={{ ...rest, data: rows }} lines={3}>
        {(refusals) =>
          refusals.length === 0 ? (
            <Empty title="Nothing was refused in the last 24 hours" />
          ) : (
            <>
              <Table label={title} rows={refusals} idOf={({ number }) => String(number)} columns={displayed} />
              <p class="quiet">
                Where a key is refused often, a row has several refusals. Its time is that of the last one.
              </p>
            </>
          )
        }
      </Loaded>
    </Card>
  );
}
