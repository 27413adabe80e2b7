// Changes, newest first: of the workspace, of one resource, or by one root key.

import { dateTime } from '../format.ts';
import type { AuditEvent } from '../records.ts';
import { Empty } from './basic.tsx';
import { type Column, CsvButton, List, usePages } from './table.tsx';

/** The fields that changed, with their values before and after. Those of a new record are many, so they are folded. */
function Changed({ changes = [] }: AuditEvent) {
  const list = (
    <ul class="changes">
      {changes.map(({ field, before, after }) => (
        <li key={field}>
          {field}: <del>{before ?? '–'}</del> → <ins>{after ?? '–'}</ins>
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
  {
    name: 'Time, UTC',
    cell: ({ time }) => <span class="number">{dateTime(time)}</span>,
    csv: ({ time }) => new Date(time).toISOString(),
  },
  { name: 'Operation', cell: ({ operation }) => operation, csv: ({ operation }) => operation },
  {
    name: 'Resource',
    cell: ({ resource }) => <code>{resource.id}</code>,
    csv: ({ resource }) => resource.id,
  },
  { name: 'Changed', cell: Changed, csv: ({ changes }) => changes && JSON.stringify(changes) },
  {
    name: 'Root key',
    cell: ({ rootKeyId }) => <code>{rootKeyId}</code>,
    csv: ({ rootKeyId }) => rootKeyId,
    isWide: true,
  },
  { name: 'Address', cell: ({ address }) => address, csv: ({ address }) => address, isWide: true },
];

export function AuditTable({ filter, withCsv = false }: { filter: object; withCsv?: boolean }) {
  const pages = usePages<AuditEvent>('audit.listEvents', { ...filter, order: 'desc', limit: 25 }, 5000);
  return (
    <>
      {withCsv && (
        <div class="actions">
          <CsvButton name="audit" columns={columns} rows={pages.rows ?? []} />
        </div>
      )}
      <List
        label="Changes"
        columns={columns}
        of={pages}
        idOf={({ id }) => id}
        empty={<Empty title="Nothing was changed" />}
        lines={4}
      />
    </>
  );
}
