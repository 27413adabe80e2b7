import { useEffect, useRef, useState } from 'preact/hooks';
import { Link, useSearch } from 'wouter-preact';
import { call, type Failure, refresh, useData } from '../api.ts';
import { compact, count, isoOf } from '../format.ts';
import {
  Badge,
  Button,
  Card,
  Copy,
  CustomerLink,
  Empty,
  Head,
  LacksScreen,
  Problem,
  SelectField,
  Time,
  useSettled,
} from '../parts/basic.tsx';
import { Spark } from '../parts/chart.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { KeyLabel, KeyStart } from '../parts/keyName.tsx';
import { type Column, CsvButton, List, usePages } from '../parts/table.tsx';
import { byTime, countOf, lastSteps } from '../period.ts';
import type { Api, Key, UsageRow } from '../records.ts';
import { may } from '../session.ts';
import { RestoreKey } from './keyActs.tsx';

type State = '' | 'enabled' | 'disabled' | 'expiring' | 'deleted';
const states = [
  ['', 'Any state'],
  ['enabled', 'Enabled'],
  ['disabled', 'Disabled'],
  ['expiring', 'Expires within 30 days'],
  ['deleted', 'Deleted'],
] as const;

/** Rounded to the hour, so that the cached response is used again. */
const in30Days = () => (Math.floor(Date.now() / 3_600_000) + 720) * 3_600_000;

const filterOf = (state: State) =>
  ({
    '': {},
    enabled: { enabled: true },
    disabled: { enabled: false },
    expiring: { expiresBefore: in30Days() },
    deleted: { deleted: true },
  })[state];

export function stateOf(key: Key) {
  if (key.restorableUntil !== undefined) return <Badge tone="bad">Deleted</Badge>;
  if (!key.enabled) return <Badge>Disabled</Badge>;
  if (key.expires !== undefined && key.expires <= Date.now()) return <Badge tone="warn">Expired</Badge>;
  if (key.credits?.remaining === 0 || key.identity?.credits?.remaining === 0) return <Badge tone="warn">Used up</Badge>;
  return <Badge tone="good">Enabled</Badge>;
}

/** The credits of a key, else of its customer; undefined if it is unlimited. */
const creditsLeft = ({ credits, identity }: Key) => (credits ?? identity?.credits)?.remaining;

export const keyColumns: Column<Key>[] = [
  {
    name: 'Key',
    cell: (key) => (
      <>
        <Link href={`/keys/${key.keyId}`}>
          <KeyLabel of={key} />
        </Link>{' '}
        <KeyStart of={key} />
      </>
    ),
    csv: ({ start }) => start,
  },
  { name: 'Name', cell: ({ name }) => name, csv: ({ name }) => name, isCsvOnly: true },
  { name: 'Id', cell: ({ keyId }) => <code>{keyId}</code>, csv: ({ keyId }) => keyId, isCsvOnly: true },
  {
    name: 'Customer',
    cell: ({ externalId }) => externalId && <CustomerLink externalId={externalId} />,
    csv: ({ externalId }) => externalId,
  },
  { name: 'State', cell: stateOf, csv: ({ enabled }) => (enabled ? 'enabled' : 'disabled') },
  { name: 'Last used', cell: ({ lastUsedAt }) => <Time ms={lastUsedAt} />, csv: ({ lastUsedAt }) => isoOf(lastUsedAt) },
  {
    name: 'Expires',
    cell: ({ expires }) => (expires === undefined ? <span class="quiet">never</span> : <Time ms={expires} />),
    csv: ({ expires }) => isoOf(expires),
    isWide: true,
  },
  {
    name: 'Credits',
    cell: (key) => {
      const left = creditsLeft(key);
      return <span class="number">{left === undefined ? '∞' : count(left)}</span>;
    },
    csv: creditsLeft,
    isNumber: true,
    isWide: true,
  },
];
/** A deleted key has no screen. */
const deletedColumns: Column<Key>[] = [
  {
    name: 'Key',
    cell: (key) => (
      <>
        <KeyLabel of={key} /> <KeyStart of={key} />
      </>
    ),
  },
  ...keyColumns.slice(1, 5),
  {
    name: 'Can be restored until',
    cell: ({ restorableUntil }) => <Time ms={restorableUntil} />,
    csv: ({ restorableUntil }) => isoOf(restorableUntil),
  },
];

export function Keys() {
  const query = new URLSearchParams(useSearch());
  const [search, setSearch] = useState('');
  const [api, setApi] = useState(query.get('api') ?? '');
  const [state, setState] = useState<State>((query.get('state') as State) ?? '');
  const [chosen, setChosen] = useState<readonly string[]>([]);
  const [isActing, setActing] = useState(false);
  const [restored, setRestored] = useState<Key>();
  const input = useRef<HTMLInputElement>(null);
  const settled = useSettled(search.trim());
  useEffect(() => {
    if (query.has('search')) input.current?.focus();
  }, []);
  const apis = useData<Api[]>('apis.listApis', may('api', 'read_api') ? { limit: 100, order: 'desc' } : undefined);
  const filter = { ...(settled && { search: settled }), ...(api && { apiId: api }), ...filterOf(state) };
  const isFiltered = Object.keys(filter).length > 0;
  // The newest first, or the first to expire.
  const order = state === 'expiring' ? 'asc' : 'desc';
  // A search reads many keys.
  const pages = usePages<Key>('keys.listKeys', { ...filter, order, limit: pageSize }, isFiltered ? 60_000 : 10_000);
  if (!may('api', 'read_key')) return <LacksScreen title="Keys" grant="api.*.read_key" />;
  const toggle = (keyId: string, isChosen: boolean) =>
    setChosen(isChosen ? [...chosen, keyId] : chosen.filter((id) => id !== keyId));
  const choose: Column<Key> = {
    name: 'Choose',
    cell: ({ keyId, start }) => (
      <input
        type="checkbox"
        aria-label={`Choose ${start || keyId}`}
        checked={chosen.includes(keyId)}
        onChange={(e) => toggle(keyId, e.currentTarget.checked)}
      />
    ),
  };
  const spark: Column<Key> = {
    name: '7 days',
    cell: ({ keyId }) => <KeySpark keyId={keyId} of={sliceOf(pages.rows ?? [], keyId)} />,
    isWide: true,
  };
  const isDeleted = state === 'deleted';
  const columns = isDeleted
    ? [...deletedColumns, ...(may('api', 'create_key') ? [restoreColumn(setRestored)] : [])]
    : [...(may('api', 'update_key') ? [choose] : []), ...keyColumns, ...(may('api', 'read_analytics') ? [spark] : [])];
  return (
    <>
      <Head title="Keys">
        <CsvButton name="keys" columns={keyColumns} rows={pages.rows ?? []} />
        {chosen.length > 0 && <Button onClick={() => setActing(true)}>Disable {chosen.length} …</Button>}
        {may('api', 'create_key') && (
          <Link href={api ? `/new-key?api=${api}` : '/new-key'} class="button primary">
            New key
          </Link>
        )}
      </Head>
      <Card>
        <div class="bar">
          <div class="field grow">
            <label for="key-search">Search</label>
            <input
              id="key-search"
              ref={input}
              type="search"
              placeholder="Name, start of the key, id, customer, metadata"
              value={search}
              onInput={(e) => setSearch(e.currentTarget.value)}
            />
          </div>
          <SelectField
            label="API"
            value={api}
            set={setApi}
            options={[['', 'All APIs'], ...(apis.data ?? []).map(({ id, name }) => [id, name] as const)]}
          />
          <SelectField label="State" value={state} set={(value) => setState(value as State)} options={states} />
        </div>
        <List
          label="Keys"
          isCards
          columns={columns}
          of={pages}
          idOf={({ keyId }) => keyId}
          empty={<NoKeys isFiltered={isFiltered} />}
        />
      </Card>
      {restored && <RestoreKey data={restored} close={() => setRestored(undefined)} />}
      {isActing && (
        <DisableMany
          keyIds={chosen}
          close={(isDone) => {
            setActing(false);
            if (isDone) setChosen([]);
          }}
        />
      )}
    </>
  );
}

const restoreColumn = (restore: (key: Key) => void): Column<Key> => ({
  name: 'Restore',
  cell: (key) => (
    <Button class="small" onClick={() => restore(key)}>
      Restore …
    </Button>
  ),
});

const pageSize = 50;

/** The ids of the keys on the same page. */
function sliceOf(rows: readonly Key[], keyId: string): string[] {
  const first = Math.floor(rows.findIndex((row) => row.keyId === keyId) / pageSize) * pageSize;
  return rows.slice(first, first + pageSize).map((row) => row.keyId);
}

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
      <Spark values={byTime(period, rows, (row) => row.count)} label={label} />
      <span class="number">{compact(countOf(rows))}</span>
    </>
  );
}

const NoKeys = ({ isFiltered }: { isFiltered: boolean }) =>
  isFiltered ? (
    <Empty title="No key matches">
      <p class="quiet">Names, starts, ids, customers and metadata are searched.</p>
    </Empty>
  ) : (
    <Empty title="There is no key yet">
      <Link href="/new-key" class="button primary">
        Make one
      </Link>
    </Empty>
  );

/** Disables one after the other, so that after an error the rest can be repeated. */
function DisableMany({ keyIds, close }: { keyIds: readonly string[]; close: (isDone: boolean) => void }) {
  const [done, setDone] = useState(0);
  const [failure, setFailure] = useState<Failure>();
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    try {
      for (const keyId of keyIds.slice(done)) {
        await call('keys.updateKey', { keyId, enabled: false });
        setDone((count) => count + 1);
      }
      refresh();
      close(true);
    } catch (cause) {
      setFailure(cause as Failure);
      setBusy(false);
    }
  };
  return (
    <Dialog title={`Disable ${keyIds.length} keys`} close={() => close(false)}>
      <p>They are refused as DISABLED from the next verification on, until they are enabled again.</p>
      {(isBusy || done > 0) && (
        <p role="status">
          {done} of {keyIds.length} are disabled.
        </p>
      )}
      <Problem failure={failure} />
      <Copy text={keyIds.join('\n')} label="Copy their ids" />
      <footer class="dialog-foot">
        <Button onClick={() => close(false)}>Cancel</Button>
        <Button tone="danger" disabled={isBusy} onClick={run}>
          Disable
        </Button>
      </footer>
    </Dialog>
  );
}
