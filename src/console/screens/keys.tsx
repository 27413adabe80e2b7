import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { keyColumns as columns, creditsLeft, type KeyState, stateOf } from '../../domain/columns.ts';
import { timeMax } from '../../domain/time.ts';
import { useAddress, useInAddress, useTyped } from '../address.ts';
import { useData } from '../api.ts';
import { compact, count } from '../format.ts';
import { isFound, type Paged, pagesOf, slicesOf, usePages } from '../pages.ts';
import { ApiSelect } from '../parts/apiSelect.tsx';
import {
  Badge,
  Button,
  Card,
  CustomerLink,
  Empty,
  Head,
  LacksScreen,
  Problem,
  SearchField,
  SelectField,
  Time,
} from '../parts/basic.tsx';
import { Spark } from '../parts/chart.tsx';
import { ChosenBar, chooseColumn, useChosen } from '../parts/chosen.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { useIndexedKeys } from '../parts/found.ts';
import { KeyLabel, KeyStart } from '../parts/keyName.tsx';
import { useMetaColumn } from '../parts/meta.tsx';
import { type Column, List, type Sorts, shared } from '../parts/table.tsx';
import { byTime, countOf, dayMs, fromNow, lastSteps } from '../period.ts';
import type { Api, Key, UsageRow } from '../records.ts';
import { apiOfKeys, may, noneOfKeys } from '../session.ts';
import { RestoreKey } from './keyActs.tsx';

type Chosen = '' | 'enabled' | 'disabled' | 'expiring-7' | 'expiring' | 'expiring-90' | 'expired' | 'deleted';
const states = [
  ['', 'Any state'],
  ['enabled', 'Enabled'],
  ['disabled', 'Disabled'],
  ['expiring-7', 'Expires within 7 days'],
  ['expiring', 'Expires within 30 days'],
  ['expiring-90', 'Expires within 90 days'],
  ['expired', 'Expired'],
  ['deleted', 'Deleted'],
] as const;

const within = (days: number) => ({ expiresBefore: fromNow(days * dayMs), expiresAfter: fromNow(0) });
const filterOf = (state: Chosen) =>
  ({
    '': {},
    enabled: { enabled: true },
    disabled: { enabled: false },
    'expiring-7': within(7),
    expiring: within(30),
    'expiring-90': within(90),
    expired: { expiresBefore: fromNow(0) },
    deleted: { deleted: true },
  })[state];

const byCreation = [
  ['newest', 'Newest first'],
  ['oldest', 'Oldest first'],
] as const;
const byExpiry = [
  ['expiry', 'First to expire'],
  ['expiry-last', 'Last to expire'],
] as const;

/** Whether a state is one of expiry. Its keys have that order only. */
const isOfExpiry = (state: Chosen) => state.startsWith('exp');

/**
 * The orders in which the store lists the keys of a state, the usual one first. Deleted keys have no order of expiry.
 */
const ordersOf = (state: Chosen) =>
  isOfExpiry(state) ? byExpiry : state === 'deleted' ? byCreation : [...byCreation, ...byExpiry];
type Order = ReturnType<typeof ordersOf>[number][0];

/** The input for an order. Only keys that expire have an order of expiry. */
const inputOf = (order: Order, state: Chosen) => ({
  ...(order.startsWith('expiry') && !isOfExpiry(state) && { expiresBefore: timeMax }),
  order: order === 'newest' || order === 'expiry-last' ? 'desc' : 'asc',
});

/** The columns by which the store can sort these keys. */
function sortsOf({ state, order, setOrder }: KeyList): Sorts {
  const orders = ordersOf(state).map(([name]) => name as string);
  const sort = (asc: Order, desc: Order) => ({
    order: order === asc ? ('asc' as const) : order === desc ? ('desc' as const) : undefined,
    set: (to: 'asc' | 'desc') => setOrder(to === 'asc' ? asc : desc),
  });
  return {
    ...(orders.includes('newest') && { Created: sort('oldest', 'newest') }),
    ...(orders.includes('expiry') && { Expires: sort('expiry', 'expiry-last') }),
  };
}

const stateNames = {
  deleted: ['bad', 'Deleted'],
  disabled: ['', 'Disabled'],
  expired: ['warn', 'Expired'],
  used_up: ['warn', 'Used up'],
  enabled: ['good', 'Enabled'],
} as const satisfies Record<KeyState, readonly [tone: string, name: string]>;

export function State({ of }: { of: KeyState }) {
  const [tone, name] = stateNames[of];
  return <Badge tone={tone}>{name}</Badge>;
}

/** Names of APIs by id, for files. */
const apiNames = new Map<string, string>();

/** Reads the names of all APIs, if they may be read. */
export async function readApiNames() {
  if (!may('api', 'read_api', '*')) return;
  for await (const { data } of pagesOf<Api>('apis.listApis', { limit: 100 }))
    for (const { id, name } of data) apiNames.set(id, name);
}

const metaText = ({ meta }: Key) => meta && JSON.stringify(meta);

export const keyColumns: Column<Key>[] = [
  shared(columns, 'Key', {
    cell: (key) => (
      <>
        {/* A deleted key has no screen. */}
        {key.restorableUntil === undefined ? (
          <Link href={`/keys/${key.keyId}`}>
            <KeyLabel of={key} />
          </Link>
        ) : (
          <KeyLabel of={key} />
        )}{' '}
        <KeyStart of={key} />
      </>
    ),
  }),
  shared(columns, 'Name', { isCsvOnly: true }),
  shared(columns, 'Id', { isCsvOnly: true }),
  shared(columns, 'Customer', {
    cell: ({ externalId }) => externalId && <CustomerLink externalId={externalId} />,
  }),
  shared(columns, 'Plan', { isCsvOnly: true }),
  { name: 'API', cell: ({ apiId }) => apiId, csv: ({ apiId }) => apiNames.get(apiId), isCsvOnly: true },
  shared(columns, 'API id', { isCsvOnly: true }),
  shared(columns, 'State', { cell: (key) => <State of={stateOf(key, Date.now())} /> }),
  shared(columns, 'Created', { isWide: true }),
  shared(columns, 'Last used'),
  shared(columns, 'Expires', { isWide: true }),
  shared(columns, 'Credits', {
    cell: (key) => {
      const left = creditsLeft(key);
      return <span class="number">{left === undefined ? '∞' : count(left)}</span>;
    },
    isWide: true,
  }),
  ...(['Roles', 'Permissions'] as const).map((name): Column<Key> => {
    const text = (key: Key) => key[name === 'Roles' ? 'roles' : 'permissions']?.join(' ');
    return { name, cell: text, csv: text, isCsvOnly: true };
  }),
  { name: 'Metadata', cell: metaText, csv: metaText, isCsvOnly: true },
];
const restorable = shared(columns, 'Can be restored until', {
  // One that was just restored has none.
  cell: ({ restorableUntil }) => restorableUntil !== undefined && <Time ms={restorableUntil} />,
}) as Column<Key>;
const deletedColumns: Column<Key>[] = [
  ...keyColumns.filter(({ name }) => ['Key', 'Customer', 'State', 'Created'].includes(name)),
  restorable,
];

/** The filter and the order in the address, and the possible ones. */
function useKeyList() {
  const [address, set] = useAddress({ api: '', state: '', order: '', pages: '' });
  const state: Chosen = states.find(([name]) => name === address.state)?.[0] ?? '';
  const orders = ordersOf(state);
  const order: Order = orders.find(([name]) => name === address.order)?.[0] ?? orders[0]![0];
  const setOrder = (to: string) => set({ order: to === orders[0]![0] ? '' : to, pages: '' });
  return { api: apiOfKeys(address.api), state, orders, order, set, setOrder };
}

type KeyList = ReturnType<typeof useKeyList>;

/** The rows of the list below those that the indexes have found, which are there first. */
function withIndexed(list: Paged<Key>, indexed: readonly Key[]): Paged<Key> {
  if (indexed.length === 0) return list;
  const byId = new Map(list.rows?.map((key) => [key.keyId, key]));
  const first = indexed.map((key) => byId.get(key.keyId) ?? key);
  for (const { keyId } of indexed) byId.delete(keyId);
  const isWaiting = !list.rows && !list.failure;
  return { ...list, rows: [...first, ...byId.values()], ...(isWaiting && { hasMore: true, isSearching: true }) };
}

/** The verifications of the rows of each page. */
function sparkColumn(rows: readonly Key[]): Column<Key>[] {
  if (!may('api', 'read_analytics')) return [];
  const slices = slicesOf(
    rows.map(({ keyId }) => keyId),
    pageSize,
  );
  const cell = ({ keyId }: Key) => <KeySpark keyId={keyId} of={slices.get(keyId)!} />;
  return [{ name: '7 days', cell, isWide: true }];
}

export function Keys() {
  const search = useTyped('search');
  const list = useKeyList();
  const { api, state, order } = list;
  const [restored, setRestored] = useState<Key>();
  const filter = { ...(search.settled && { search: search.settled }), ...(api && { apiId: api }), ...filterOf(state) };
  const isFiltered = Object.keys(filter).length > 0;
  // A search reads many keys.
  const everyMs = isFiltered ? 60_000 : 10_000;
  const listed = { ...filter, ...inputOf(order, state), limit: pageSize };
  const mayRead = may('api', 'read_key');
  const found = usePages<Key>('keys.listKeys', mayRead ? listed : undefined, everyMs, true);
  useInAddress(search, isFound(found));
  const indexed = useIndexedKeys(mayRead && state === '' ? search.settled : '', api);
  const chosen = useChosen(`${search.settled} ${api} ${state}`);
  const pages = withIndexed(found, indexed.keys);
  const meta = useMetaColumn(pages.rows ?? []);
  if (!mayRead) return <LacksScreen title="Keys" grant="api.*.read_key" />;
  const isDeleted = state === 'deleted';
  const inFile = isDeleted ? [...keyColumns, restorable] : keyColumns;
  const columns = [
    ...chooseColumn(chosen, pages.rows, isDeleted),
    ...(isDeleted
      ? [...deletedColumns, ...restoreColumn(setRestored)]
      : [...keyColumns, ...meta.columns, ...sparkColumn(pages.rows ?? [])]),
  ];
  return (
    <>
      <Head title="Keys">
        <CsvButton name="keys" columns={inFile} of={found} prepare={readApiNames} />
        {may('api', 'create_key') && (
          <Link href={api ? `/new-key?api=${api}` : '/new-key'} class="button primary">
            New key
          </Link>
        )}
      </Head>
      <Card>
        <Filters search={search} list={list} more={!isDeleted && meta.choice} />
        <Problem failure={found.failure ? undefined : indexed.failure} />
        <List
          label="Keys"
          isCards
          columns={columns}
          of={pages}
          idOf={({ keyId }) => keyId}
          sorts={sortsOf(list)}
          empty={<NoKeys isFiltered={isFiltered || order.startsWith('expiry')} />}
        />
      </Card>
      <ChosenBar
        key={chosen.list}
        chosen={chosen}
        of={pages}
        isDeleted={isDeleted}
        csv={inFile}
        prepare={readApiNames}
      />
      {restored && <RestoreKey data={restored} close={() => setRestored(undefined)} />}
    </>
  );
}

/** The controls of search, filters and order. */
function Filters(props: { search: ReturnType<typeof useTyped>; list: KeyList; more: ComponentChildren }) {
  const { search, list, more } = props;
  const { api, state, orders, order, set, setOrder } = list;
  return (
    <>
      <div class="bar">
        <SearchField id="key-search" placeholder="Name, start of the key, id, customer, metadata" typed={search} />
        <ApiSelect value={api} set={(api) => set({ api, pages: '' })} none={noneOfKeys()} />
        <SelectField
          label="State"
          value={state}
          // Another state may have other orders.
          set={(state) => set({ state, order: '', pages: '' })}
          options={states}
        />
        <SelectField label="Order" value={order} set={setOrder} options={orders} />
        {more}
      </div>
      {order.startsWith('expiry') && !isOfExpiry(state) && (
        <p class="quiet">In order of expiry, only keys that expire are listed.</p>
      )}
    </>
  );
}

function restoreColumn(restore: (key: Key) => void): Column<Key>[] {
  if (!may('api', 'create_key') || !may('api', 'delete_key')) return [];
  const cell = (key: Key) =>
    key.restorableUntil !== undefined && (
      <Button class="small" onClick={() => restore(key)}>
        Restore …
      </Button>
    );
  return [{ name: 'Restore', cell }];
}

const pageSize = 50;

/** Verifications of a key by day. All rows of a page have the same input, so they share one request. */
function KeySpark({ keyId, of }: { keyId: string; of: readonly string[] }) {
  const period = lastSteps('day', 7);
  const input = { keyIds: of, start: period.start, end: period.end, granularity: 'day', groupBy: ['keyId'] };
  const { data } = useData<UsageRow[]>('analytics.getVerifications', input);
  const rows = data?.filter((row) => row.keyId === keyId);
  if (!rows?.length) return null;
  const label = `${count(countOf(rows))} verifications in 7 days`;
  return (
    <>
      <Spark values={byTime(period, rows, (row) => row.count)} label={label} isRunning />
      <span class="number">{compact(countOf(rows))}</span>
    </>
  );
}

const NoKeys = ({ isFiltered }: { isFiltered: boolean }) =>
  isFiltered ? (
    <Empty title="No key matches">
      <p class="quiet">Names, starts, ids, customers and metadata are searched, and whole key strings are found.</p>
    </Empty>
  ) : (
    <Empty title="There is no key yet">
      <Link href="/new-key" class="button primary">
        Make one
      </Link>
    </Empty>
  );
