// Lists what ends soon: root keys in use within two weeks, temporary limits and overrides within one.

import { Link } from 'wouter-preact';
import { rootKeyColumns, temporaryColumns } from '../../domain/columns.ts';
import { moment, unitsOf } from '../format.ts';
import { usePages } from '../pages.ts';
import { namespacePath } from '../paths.ts';
import { dayMs, fromNow, hourMs } from '../period.ts';
import type { RootKey, Temporary } from '../records.ts';
import { may } from '../session.ts';
import { Card, CustomerLink, Empty } from './basic.tsx';
import { CsvButton } from './csv.tsx';
import { formerOf } from './lasting.tsx';
import { type Column, List, shared } from './table.tsx';

const days = 7;
const everyMs = 300_000;

/** The kinds, each with a grant that reading all of them needs. */
const kinds = [
  { kind: 'key', resource: 'api', actions: ['read_key', 'read_api'], what: 'Limits of keys' },
  { kind: 'identity', resource: 'identity', actions: ['read_identity'], what: 'Limits of customers' },
  { kind: 'override', resource: 'ratelimit', actions: ['read_override'], what: 'Overrides' },
] as const;
const lackedBy = ({ resource, actions }: (typeof kinds)[number]) =>
  actions.find((action) => !may(resource, action, '*'));

function Owner({ of: { keyId, keyName, externalId, namespace = '', identifier } }: { of: Temporary }) {
  if (externalId) return <CustomerLink externalId={externalId} />;
  if (keyId)
    return (
      <Link href={`/keys/${keyId}`} title={keyId}>
        {keyName ?? <code>{keyId}</code>}
      </Link>
    );
  return (
    <Link href={namespacePath(namespace)}>
      {namespace}: <code>{identifier}</code>
    </Link>
  );
}

const columns: Column<Temporary>[] = [
  shared(temporaryColumns, 'Ends'),
  shared(temporaryColumns, 'Kind', { isCsvOnly: true }),
  shared(temporaryColumns, 'Of', { cell: (row) => <Owner of={row} /> }),
  shared(temporaryColumns, 'Limit'),
  { name: 'Now', cell: unitsOf, csv: unitsOf },
  { name: 'Then', cell: formerOf, csv: formerOf },
];

const rootKeyCells: Column<RootKey>[] = [
  shared(rootKeyColumns, 'Expires'),
  shared(rootKeyColumns, 'Root key', { cell: ({ start }) => <code>{start}…</code> }),
  shared(rootKeyColumns, 'Name'),
  shared(rootKeyColumns, 'Id', { cell: ({ rootKeyId }) => <code>{rootKeyId}</code>, isWide: true }),
  shared(rootKeyColumns, 'Last used'),
];

/** Root keys that end soon, or have ended. */
export function EndingRootKeys() {
  const mayRead = may('root_key', 'read_root_key');
  const input = mayRead ? { ending: true, limit: 10 } : undefined;
  const pages = usePages<RootKey>('rootKeys.listRootKeys', input, everyMs);
  const title = 'Root keys in use that end within 14 days';
  if (!mayRead) return null;
  return (
    <Card title={title} actions={<CsvButton name="ending-root-keys" columns={rootKeyCells} of={pages} />}>
      <List
        label={title}
        isCards
        columns={rootKeyCells}
        of={pages}
        idOf={({ rootKeyId }) => rootKeyId}
        lines={1}
        empty={<Empty title="No root key that is in use ends soon" />}
      />
    </Card>
  );
}

export function Ending() {
  const title = `Temporary limits that end within ${days} days`;
  const readable = kinds.filter((one) => !lackedBy(one)).map(({ kind }) => kind);
  const input = { kinds: readable, before: fromNow(days * dayMs + hourMs), limit: 10 };
  const pages = usePages<Temporary>('ratelimits.listTemporary', readable.length > 0 ? input : undefined, everyMs);
  if (readable.length === 0) return null;
  return (
    <Card title={title} actions={<CsvButton name="temporary-limits" columns={columns} of={pages} />}>
      <List
        label={title}
        columns={columns}
        of={pages}
        idOf={(row) => `${row.kind} ${row.id ?? row.overrideId}`}
        lines={2}
        empty={
          <Empty title="No temporary limit ends soon">
            <p class="quiet">As of {moment(Date.now(), { seconds: false })}.</p>
          </Empty>
        }
      />
      {kinds.map((one) => {
        const action = lackedBy(one);
        return (
          action && (
            <p key={one.kind} class="quiet">
              {one.what} are left out: your root key lacks the grant <code>{`${one.resource}.*.${action}`}</code>.
            </p>
          )
        );
      })}
    </Card>
  );
}
