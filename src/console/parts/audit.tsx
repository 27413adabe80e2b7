// Changes: of the workspace, of one resource, or by one root key.

import type { ComponentChildren } from 'preact';
import { Link } from 'wouter-preact';
import { eventColumns } from '../../domain/columns.ts';
import { useInAddress, type useTyped } from '../address.ts';
import { duration, moment } from '../format.ts';
import { isFound, usePages } from '../pages.ts';
import type { AuditEvent } from '../records.ts';
import { Card, Empty, UtcTime } from './basic.tsx';
import { CsvButton } from './csv.tsx';
import { type Column, List, shared, useOrder } from './table.tsx';

/** A value as it is displayed elsewhere: times in UTC, durations with their unit, keys as links. */
function Value({ field, text }: { field: string; text: string | undefined }) {
  if (text === undefined) return <>–</>;
  if (field === 'expires' || field === 'until') return <>{moment(Number(text))}</>;
  if (isKeyId(text)) return <Resource id={text} />;
  return (
    <>
      {text
        .replaceAll(/\b(\d+) ms\b/g, (_, ms) => duration(Number(ms)))
        .replaceAll(/, until (\d{13})\b/g, (_, ms) => `, until ${moment(Number(ms))}`)}
    </>
  );
}

const isKeyId = (id: string) => id.startsWith('key_');
const Resource = ({ id }: { id: string }) =>
  isKeyId(id) ? (
    <Link href={`/keys/${id}`}>
      <code>{id}</code>
    </Link>
  ) : (
    <code>{id}</code>
  );

/** The fields that changed, with their values before and after. A new record has many fields, so they are folded. */
function Changed({ changes = [] }: AuditEvent) {
  const list = (
    <ul class="changes">
      {changes.map(({ field, before, after }) => (
        <li key={field}>
          {field}:{' '}
          {before !== undefined && (
            <>
              <del>
                <Value field={field} text={before} />
              </del>{' '}
              →{' '}
            </>
          )}
          <ins>
            <Value field={field} text={after} />
          </ins>
        </li>
      ))}
    </ul>
  );
  if (changes.length <= 2) return list;
  return (
    <details>
      <summary>{changes.length} fields</summary>
      {list}
    </details>
  );
}

const columns: Column<AuditEvent>[] = [
  shared(eventColumns, 'Time, UTC', { cell: ({ time }) => <UtcTime ms={time} /> }),
  shared(eventColumns, 'Operation'),
  shared(eventColumns, 'Resource', { cell: ({ resource }) => <Resource id={resource.id} /> }),
  { name: 'Changed', cell: Changed, csv: ({ changes }) => changes && JSON.stringify(changes), isText: true },
  shared(eventColumns, 'Root key', {
    cell: ({ rootKeyId, rootKeyName, address }) => (
      <>
        {rootKeyName ? <span title={rootKeyId}>{rootKeyName}</span> : <code>{rootKeyId}</code>}
        <small>{address}</small>
      </>
    ),
    isWide: true,
  }),
  shared(eventColumns, 'Name of the root key', { isCsvOnly: true }),
  shared(eventColumns, 'Address', { isCsvOnly: true }),
];
const ofResource = columns.filter(({ name }) => name !== 'Resource');

/** The table, below controls of its filter. Its order is in the address. */
export function Changes(props: {
  filter: object;
  /** Texts of the filter, always as many, which get into the address. */
  typed?: readonly ReturnType<typeof useTyped>[];
  withResource?: boolean;
  children?: ComponentChildren;
}) {
  const { filter, typed = [], withResource = false, children } = props;
  const { order, sorts } = useOrder('Time, UTC');
  const pages = usePages<AuditEvent>('audit.listEvents', { ...filter, order, limit: 25 }, 5000);
  for (const text of typed) useInAddress(text, isFound(pages));
  return (
    <Card title="Changes" actions={<CsvButton name="audit" columns={columns} of={pages} />}>
      {children}
      <List
        label="Changes"
        columns={withResource ? columns : ofResource}
        of={pages}
        idOf={({ id }) => id}
        sorts={sorts}
        empty={<Empty title="Nothing was changed" />}
        lines={4}
      />
    </Card>
  );
}
