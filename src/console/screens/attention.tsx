import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { useAddress } from '../address.ts';
import { type Data, type Page, useData } from '../api.ts';
import { count, moment } from '../format.ts';
import { type Paged, usePages, usePagesAfter } from '../pages.ts';
import { ApiSelect } from '../parts/apiSelect.tsx';
import { Card, Empty, Head, LacksScreen } from '../parts/basic.tsx';
import { type Chosen, ChosenBar, chooseColumn, useChosen } from '../parts/chosen.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { Ending, EndingRootKeys } from '../parts/ending.tsx';
import { RecentRefusals } from '../parts/refusals.tsx';
import { List } from '../parts/table.tsx';
import { Top } from '../parts/top.tsx';
import { dayMs, fromNow, hourMs, periodOf } from '../period.ts';
import type { Key } from '../records.ts';
import { apiOfKeys, may, noneOfKeys } from '../session.ts';
import { keyColumns, readApiNames } from './keys.tsx';

/** The API, if one was chosen. */
type Of = { apiId?: string };
/** Rows of each list. */
const limit = 10;
const everyMs = 300_000;

interface Filters {
  creditsBelow: number;
  unusedSince: number;
  rerolledInUse: boolean;
}
type Found = Record<keyof Filters, { keys: Key[] } & NonNullable<Page<unknown>['pagination']>>;

export function Attention() {
  const period = periodOf('24h');
  const [below, setBelow] = useState('100');
  const [address, set] = useAddress({ api: '' });
  const api = apiOfKeys(address.api);
  const of = api ? { apiId: api } : {};
  const filters = {
    creditsBelow: Number(below),
    unusedSince: fromNow(-90 * dayMs),
    rerolledInUse: true,
  };
  const isAllowed = may('api', 'read_key');
  const found = useData<Found>('keys.getAttention', isAllowed ? { ...of, ...filters, limit } : undefined, everyMs);
  // Another number of credits does not load the other lists again.
  const last = useRef(found.data);
  last.current = found.data ?? last.current;
  const chosen = useChosen(api);
  if (!isAllowed) return <LacksScreen title="Attention" grant="api.*.read_key" />;
  const kept = { ...found, data: last.current };
  return (
    <>
      <Head title="Attention">
        <ApiSelect isBare value={api} set={(api) => set({ api })} none={noneOfKeys()} />
      </Head>
      <Expiring of={of} chosen={chosen} />
      {!api && <EndingRootKeys />}
      {!api && <Ending />}
      <Some
        title="Rotated, and still used"
        name="rotated"
        chosen={chosen}
        of={of}
        found={kept}
        by="rerolledInUse"
        value={filters.rerolledInUse}
        empty="No old key is used any more"
      />
      <Some
        title={`Fewer than ${count(filters.creditsBelow)} ${filters.creditsBelow === 1 ? 'credit' : 'credits'}`}
        name="low-credits"
        chosen={chosen}
        of={of}
        found={found}
        by="creditsBelow"
        value={filters.creditsBelow}
        empty="No key is short of credits"
        actions={
          // The number that counts as low depends on the cost of a verification.
          <ValueSelect label="Fewer than" value={below} set={setBelow} values={['1', '10', '100', '1000', '10000']} />
        }
      />
      <Some
        title="Unused for 90 days"
        name="unused"
        chosen={chosen}
        of={of}
        found={kept}
        by="unusedSince"
        value={filters.unusedSince}
        empty="Every key was used lately"
      />
      {may('api', 'read_analytics') && (
        <>
          <Top title="Most refused keys of 24 hours" of="keys" period={period} by="refused" within={of} />
          <RecentRefusals {...of} />
        </>
      )}
      <ChosenBar chosen={chosen} csv={keyColumns} prepare={readApiNames} />
    </>
  );
}

/** Days ahead, and the state of these keys in the list that can be searched. */
const searchStates: Record<string, string> = { 7: 'expiring-7', 30: 'expiring', 90: 'expiring-90' };
const daysAhead = Object.keys(searchStates);

/** Keys that expire, soonest first; then expired keys, latest first. */
function Expiring({ of, chosen }: { of: Of; chosen: Chosen }) {
  const [{ within }, set] = useAddress({ within: '30' });
  const days = daysAhead.includes(within) ? within : '30';
  // Changes once an hour, so that the lists stay.
  const [now, setNow] = useState(fromNow(0, 60_000));
  useEffect(() => {
    const timer = setInterval(() => setNow(fromNow(0, 60_000)), hourMs);
    return () => clearInterval(timer);
  }, []);
  const soon = { ...of, expiresAfter: now, expiresBefore: now + Number(days) * dayMs, limit };
  const expired = { ...of, expiresBefore: now, order: 'desc', limit };
  return (
    <>
      <KeyCard
        title={`Expiring within ${days} days`}
        name="expiring"
        chosen={chosen}
        of={usePages<Key>('keys.listKeys', soon, everyMs)}
        empty="No key expires soon"
        actions={
          <>
            <Link
              href={`/keys?${new URLSearchParams({ ...(of.apiId && { api: of.apiId }), state: searchStates[days]! })}`}
            >
              Search them
            </Link>
            <ValueSelect label="Within days" value={days} set={(within) => set({ within })} values={daysAhead} />
          </>
        }
      />
      <KeyCard
        title="Expired"
        name="expired"
        chosen={chosen}
        of={usePages<Key>('keys.listKeys', expired, everyMs)}
        empty="No key has expired"
      />
    </>
  );
}

function ValueSelect(props: { label: string; value: string; set: (value: string) => void; values: readonly string[] }) {
  const { label, value, set, values } = props;
  return (
    <select aria-label={label} value={value} onChange={(e) => set(e.currentTarget.value)}>
      {values.map((text) => (
        <option key={text} value={text}>
          {count(Number(text))}
        </option>
      ))}
    </select>
  );
}

interface SomeProps {
  of: Of;
  title: string;
  name: string;
  found: Data<Found>;
  by: keyof Filters;
  value: number | boolean;
  empty: string;
  actions?: ComponentChildren;
  chosen: Chosen;
}

/** The keys that one filter has found. */
function Some({ of, found, by, value, ...rest }: SomeProps) {
  const { keys, ...pagination } = found.data?.[by] ?? {};
  const first = { ...found, data: keys, pagination: keys && (pagination as Page<unknown>['pagination']) };
  return <KeyCard {...rest} of={usePagesAfter<Key>(first, 'keys.listKeys', { ...of, [by]: value, limit })} />;
}

interface KeyCardProps extends Pick<SomeProps, 'title' | 'name' | 'empty' | 'actions' | 'chosen'> {
  of: Paged<Key>;
}

function KeyCard({ title, name, of, empty, actions, chosen }: KeyCardProps) {
  return (
    <Card
      title={title}
      actions={
        <>
          {actions}
          <CsvButton name={name} columns={keyColumns} of={of} prepare={readApiNames} />
        </>
      }
    >
      <List
        label={title}
        isCards
        columns={[...chooseColumn(chosen, of.rows), ...keyColumns]}
        of={of}
        idOf={({ keyId }) => keyId}
        lines={2}
        empty={
          <Empty title={empty}>
            <p class="quiet">As of {moment(Date.now(), { seconds: false })}.</p>
          </Empty>
        }
      />
    </Card>
  );
}
