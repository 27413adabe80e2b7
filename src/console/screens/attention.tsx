import type { ComponentChildren } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { type Data, type Page, useData } from '../api.ts';
import { count, dateTime } from '../format.ts';
import { usePagesAfter } from '../pages.ts';
import { Card, Empty, Head, LacksScreen } from '../parts/basic.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { Ending } from '../parts/ending.tsx';
import { RecentRefusals } from '../parts/refusals.tsx';
import { List } from '../parts/table.tsx';
import { Top } from '../parts/top.tsx';
import { dayMs, fromNow, periodOf } from '../period.ts';
import type { Key } from '../records.ts';
import { may } from '../session.ts';
import { keyColumns, readApiNames } from './keys.tsx';

/** Of each list. */
const limit = 10;
const everyMs = 300_000;

interface Filters {
  expiresBefore: number;
  creditsBelow: number;
  unusedSince: number;
  rerolledInUse: boolean;
}
type Found = Record<keyof Filters, { keys: Key[] } & NonNullable<Page<unknown>['pagination']>>;

export function Attention() {
  const period = periodOf('24h');
  const [below, setBelow] = useState('100');
  const filters = {
    expiresBefore: fromNow(30 * dayMs),
    creditsBelow: Number(below),
    unusedSince: fromNow(-90 * dayMs),
    rerolledInUse: true,
  };
  const isAllowed = may('api', 'read_key');
  const found = useData<Found>('keys.getAttention', isAllowed ? { ...filters, limit } : undefined, everyMs);
  // With another number of credits, the other lists stay.
  const last = useRef(found.data);
  last.current = found.data ?? last.current;
  if (!isAllowed) return <LacksScreen title="Attention" grant="api.*.read_key" />;
  const kept = { ...found, data: last.current };
  return (
    <>
      <Head title="Attention" />
      <Some
        title="Expired, or expiring within 30 days"
        name="expiring"
        found={kept}
        by="expiresBefore"
        value={filters.expiresBefore}
        empty="No key expires soon"
      />
      <Ending />
      <Some
        title="Rotated, and still used"
        name="rotated"
        found={kept}
        by="rerolledInUse"
        value={filters.rerolledInUse}
        empty="No old key is used any more"
      />
      <Some
        title={`Fewer than ${count(filters.creditsBelow)} ${filters.creditsBelow === 1 ? 'credit' : 'credits'}`}
        name="low-credits"
        found={found}
        by="creditsBelow"
        value={filters.creditsBelow}
        empty="No key is short of credits"
        actions={
          // How few is few depends on what a verification costs.
          <select aria-label="Fewer than" value={below} onChange={(e) => setBelow(e.currentTarget.value)}>
            {['1', '10', '100', '1000', '10000'].map((text) => (
              <option key={text} value={text}>
                {count(Number(text))}
              </option>
            ))}
          </select>
        }
      />
      <Some
        title="Unused for 90 days"
        name="unused"
        found={kept}
        by="unusedSince"
        value={filters.unusedSince}
        empty="Every key was used lately"
      />
      {may('api', 'read_analytics') && (
        <>
          <Top title="Most refused keys of 24 hours" of="keys" period={period} by="refused" />
          <RecentRefusals />
        </>
      )}
    </>
  );
}

interface SomeProps {
  title: string;
  name: string;
  found: Data<Found>;
  by: keyof Filters;
  value: number | boolean;
  empty: string;
  actions?: ComponentChildren;
}

/** The keys that one filter has found. */
function Some({ title, name, found, by, value, empty, actions }: SomeProps) {
  const { keys, ...pagination } = found.data?.[by] ?? {};
  const first = { ...found, data: keys, pagination: keys && (pagination as Page<unknown>['pagination']) };
  const pages = usePagesAfter<Key>(first, 'keys.listKeys', { [by]: value, limit });
  return (
    <Card
      title={title}
      actions={
        <>
          {actions}
          <CsvButton name={name} columns={keyColumns} of={pages} prepare={readApiNames} />
        </>
      }
    >
      <List
        label={title}
        columns={keyColumns}
        of={pages}
        idOf={({ keyId }) => keyId}
        lines={2}
        empty={
          <Empty title={empty}>
            <p class="quiet">As of {dateTime(Date.now(), { seconds: false })} UTC.</p>
          </Empty>
        }
      />
    </Card>
  );
}
