// The open holds of a key: what verifications reserved and callers have not settled yet.

import { holdColumns } from '../../domain/columns.ts';
import { count } from '../format.ts';
import { usePages } from '../pages.ts';
import type { OpenHold } from '../records.ts';
import { Badge, Card, Copy, Count, Empty } from './basic.tsx';
import { CsvButton } from './csv.tsx';
import { type Column, List, shared } from './table.tsx';

const unitsOf = ({ ratelimits, slots = [] }: OpenHold) =>
  [
    ...ratelimits.map(({ name, cost }) => `${name}: ${count(cost)}`),
    ...slots.map(({ name, cost }) => `${name}: ${count(cost)} ${cost === 1 ? 'slot' : 'slots'}`),
  ].join(', ');

const columns: Column<OpenHold>[] = [
  shared(holdColumns, 'Hold', {
    // Without the id of the key, which all holds share: the rest would be cut off.
    cell: ({ id }) => (
      <span class="id">
        <code title={id}>…{id.slice('hold_'.length + 24)}</code>
        <Copy text={id} />
      </span>
    ),
  }),
  shared(holdColumns, 'Since'),
  shared(holdColumns, 'Until'),
  shared(holdColumns, 'Then', {
    cell: ({ onExpiry }) => <Badge>{onExpiry === 'charge' ? 'spent' : 'given back'}</Badge>,
    isWide: true,
  }),
  shared(holdColumns, 'Credits', {
    cell: ({ credits }) => (credits === undefined ? <span class="quiet">unlimited</span> : <Count value={credits} />),
  }),
  { name: 'Units', cell: unitsOf, csv: unitsOf, isText: true },
];

/** The first to expire first. It needs the grant that displays the key. */
export function Holds({ keyId }: { keyId: string }) {
  const pages = usePages<OpenHold>('keys.listHolds', { keyId, limit: 25 }, 5000);
  return (
    <Card title="Open holds" actions={<CsvButton name="holds" columns={columns} of={pages} />}>
      <List
        label="Open holds"
        columns={columns}
        of={pages}
        idOf={({ id }) => id}
        empty={
          <Empty title="No open holds">
            <p class="quiet">Nothing is reserved: every hold was settled, released or has expired.</p>
          </Empty>
        }
        lines={3}
      />
    </Card>
  );
}
