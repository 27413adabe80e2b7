// APIs: all of them, deleted ones, and the dialogs that create, rename, delete and restore one.

import { useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { apiColumns } from '../../domain/columns.ts';
import { useAddress, useInAddress, useTyped } from '../address.ts';
import { call, useData } from '../api.ts';
import { count, retention } from '../format.ts';
import { isFound, usePages } from '../pages.ts';
import { useApiName } from '../parts/apiSelect.tsx';
import { Button, Card, Choice, Count, Empty, Head, LacksScreen, SearchField, TextField } from '../parts/basic.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { Act } from '../parts/dialog.tsx';
import { type Column, List, shared, Table, useOrder } from '../parts/table.tsx';
import { countOf, lastSteps } from '../period.ts';
import type { Api, UsageRow } from '../records.ts';
import { may, namedApis } from '../session.ts';

const named: Column<Api>[] = [
  shared(apiColumns, 'Name', { cell: ({ id, name }) => <Link href={`/apis/${id}`}>{name}</Link> }),
  shared(apiColumns, 'Id', { cell: ({ id }) => <code>{id}</code>, isWide: true }),
  shared(apiColumns, 'Keys'),
];
const created = shared(apiColumns, 'Created', { isWide: true }) as Column<Api>;
export const columns = [...named, created];

const states = [
  ['', 'All'],
  ['deleted', 'Deleted'],
] as const;

/** A deleted API has no screen. */
const deletedColumns = (restore: (api: Api) => void): Column<Api>[] => [
  shared(apiColumns, 'Name'),
  ...columns.slice(1),
  shared(apiColumns, 'Can be restored until'),
  {
    name: 'Restore',
    cell: (api) =>
      may('api', 'create_api', api.id) &&
      may('api', 'delete_api', api.id) && (
        <Button class="small" onClick={() => restore(api)}>
          Restore …
        </Button>
      ),
  },
];

type Amount = (rows: readonly UsageRow[]) => number;

const usedInput = (more: object) => ({ ...lastDays(), granularity: 'total', ...more });
function lastDays() {
  const { start, end } = lastSteps('day', 7);
  return { start, end };
}

/** A number of the verifications of an API in 7 days. The numbers of a list arrive one after the other. */
function Used({ apiId, amount }: { apiId: string; amount: Amount }) {
  const input = usedInput({ apiId, groupBy: ['outcome'] });
  const { data, failure } = useData<UsageRow[]>('analytics.getVerifications', input, 0, true);
  return data ? <Count value={amount(data)} /> : failure && <span title={failure.message}>–</span>;
}

/** The usage of all APIs, for a file. */
let usedRows: readonly UsageRow[] = [];
async function readUsed() {
  const input = usedInput({ groupBy: ['apiId', 'outcome'] });
  usedRows = may('api', 'read_analytics') ? await call<UsageRow[]>('analytics.getVerifications', input) : [];
}

const usedColumn = (name: string, amount: Amount): Column<Pick<Api, 'id'>> => ({
  name,
  cell: ({ id }) => <Used apiId={id} amount={amount} />,
  csv: ({ id }) => amount(usedRows.filter(({ apiId }) => apiId === id)),
  isNumber: true,
});
const usedColumns = [
  usedColumn('7 days', countOf),
  usedColumn('Refused', (rows) => countOf(rows) - countOf(rows, 'VALID')),
];

export function Apis() {
  const search = useTyped('search');
  const { settled } = search;
  const { order, sorts } = useOrder('Created');
  const [isNew, setNew] = useState(false);
  const [restored, setRestored] = useState<Api>();
  const [{ state }, setState] = useAddress({ state: '', pages: '' });
  const isDeleted = state === 'deleted';
  const usage = may('api', 'read_analytics', '*') ? usedColumns : [];
  const mayRead = may('api', 'read_api', '*');
  const listed = { order, limit: 50, ...(settled && { search: settled }), ...(isDeleted && { deleted: true }) };
  const pages = usePages<Api>('apis.listApis', mayRead ? listed : undefined, 10_000, true);
  useInAddress(search, isFound(pages));
  if (!mayRead) return <SomeApis />;
  const all = isDeleted ? deletedColumns(setRestored) : [...named, ...usage, created];
  return (
    <>
      <Head title="APIs">
        <CsvButton name="apis" columns={all} of={pages} prepare={readUsed} />
        {may('api', 'create_api', '*') && (
          <Button tone="primary" onClick={() => setNew(true)}>
            New API
          </Button>
        )}
      </Head>
      <Card>
        <div class="bar">
          <SearchField id="api-search" placeholder="Name or id" typed={search} />
          <Choice
            label="State"
            value={isDeleted ? 'deleted' : ''}
            set={(to) => setState({ state: to, pages: '' })}
            options={states}
          />
        </div>
        <List
          label="APIs"
          columns={all}
          of={pages}
          idOf={({ id }) => id}
          sorts={sorts}
          empty={
            isDeleted ? (
              <Empty title={settled ? 'No deleted API matches' : 'No deleted API can be restored'} />
            ) : (
              <Empty title={settled ? 'No API matches' : 'There is no API yet'}>
                <p class="quiet">An API contains keys. A root key may be restricted to one.</p>
              </Empty>
            )
          }
        />
      </Card>
      {restored && <RestoreApi api={restored} close={() => setRestored(undefined)} />}
      {isNew && <NewApi close={() => setNew(false)} />}
    </>
  );
}

const ApiLink = ({ apiId }: { apiId: string }) => <Link href={`/apis/${apiId}`}>{useApiName(apiId, true)}</Link>;

/** The APIs that the grants name, if not all may be read. */
function SomeApis() {
  const ids = namedApis('read_api');
  if (ids.length === 0) return <LacksScreen title="APIs" grant="api.*.read_api" />;
  const mayCount = (id: string) => may('api', 'read_analytics', id);
  return (
    <>
      <Head title="APIs" />
      <Card>
        <Table
          label="APIs"
          rows={ids.map((id) => ({ id }))}
          idOf={({ id }) => id}
          columns={[
            { name: 'Name', cell: ({ id }) => <ApiLink apiId={id} /> },
            { name: 'Id', cell: ({ id }) => <code>{id}</code>, isWide: true },
            ...usedColumns.map((column) => ({
              ...column,
              cell: (row: { id: string }) => mayCount(row.id) && column.cell(row),
            })),
          ]}
        />
        <p class="quiet">Your root key names these APIs. There may be others.</p>
      </Card>
    </>
  );
}

const nameField = { label: 'Name', maxLength: 256, placeholder: 'payments', hint: 'At least three characters.' };
const isName = (name: string) => [...name].length >= 3;

function NewApi({ close }: { close: () => void }) {
  const [name, setName] = useState('');
  const [, go] = useLocation();
  return (
    <Act<{ apiId: string }>
      title="New API"
      operation="apis.createApi"
      input={{ name }}
      act="Create"
      ready={isName(name)}
      close={close}
      done={({ apiId }) => go(`/apis/${apiId}`)}
    >
      <TextField {...nameField} value={name} set={setName} />
    </Act>
  );
}

export function RenameApi({ apiId, name: before, close }: { apiId: string; name: string; close: () => void }) {
  const [name, setName] = useState(before);
  return (
    <Act
      title={`Rename ${before}`}
      operation="apis.updateApi"
      input={{ apiId, name }}
      act="Rename"
      ready={isName(name) && name !== before}
      close={close}
    >
      <TextField {...nameField} value={name} set={setName} />
      <p class="hint">Its id, its keys and its usage stay.</p>
    </Act>
  );
}

/** `used` in 24 hours is undefined if it may not be read. */
export function DeleteApi(props: {
  apiId: string;
  name: string;
  keyCount: number;
  used: number | undefined;
  close: () => void;
}) {
  const { apiId, name, keyCount, used, close } = props;
  const [, go] = useLocation();
  const keys = keyCount === 1 ? 'Its key' : `Its ${count(keyCount)} keys`;
  return (
    <Act
      title={`Delete ${name}`}
      operation="apis.deleteApi"
      input={{ apiId, confirm: name }}
      act="Delete"
      danger
      confirm={name}
      close={close}
      done={() => go('/apis')}
    >
      <p>
        {keyCount > 0 && `${keys} ${keyCount === 1 ? 'returns' : 'return'} NOT_FOUND from the next request on. `}
        It can be restored with everything of it for {retention}.
      </p>
      {used !== undefined && used > 0 && (
        <p class="notice">
          It is in use: {count(used)} {used === 1 ? 'verification' : 'verifications'} in the last 24 hours.
        </p>
      )}
      <p>Customers, their shared limits and credits, roles and permissions stay.</p>
    </Act>
  );
}

const RestoreApi = ({ api: { id, name }, close }: { api: Api; close: () => void }) => (
  <Act title={`Restore ${name}`} operation="apis.restoreApi" input={{ apiId: id }} act="Restore" close={close}>
    <p>Its keys are verified again immediately, with their settings, balances, counts and history.</p>
  </Act>
);
