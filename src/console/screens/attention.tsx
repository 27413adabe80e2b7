import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { count, dateTime } from '../format.ts';
import { Card, Empty, Head, LacksScreen } from '../parts/basic.tsx';
import { RecentRefusals } from '../parts/refusals.tsx';
import { CsvButton, List, usePages } from '../parts/table.tsx';
import { Top } from '../parts/top.tsx';
import { dayMs, hourMs, usePeriod } from '../period.ts';
import type { Key } from '../records.ts';
import { may } from '../session.ts';
import { keyColumns } from './keys.tsx';

/** Rounded to the hour, so that the cached response is used again. */
const fromNow = (ms: number) => Math.floor((Date.now() + ms) / hourMs) * hourMs;

export function Attention() {
  const period = usePeriod('24h');
  // One search after the other: each examines many keys, and together the first one would take as long as all.
  const [turn, setTurn] = useState(0);
  const at = (index: number) => ({ isTurn: turn >= index, done: () => setTurn((now) => Math.max(now, index + 1)) });
  if (!may('api', 'read_key')) return <LacksScreen title="Attention" grant="api.*.read_key" />;
  return (
    <>
      <Head title="Attention" />
      <Some
        {...at(0)}
        title="Expired, or expiring within 30 days"
        name="expiring"
        filter={{ expiresBefore: fromNow(30 * dayMs) }}
        empty="No key expires soon"
      />
      <Short {...at(1)} />
      <Some
        {...at(2)}
        title="Unused for 90 days"
        name="unused"
        filter={{ unusedSince: fromNow(-90 * dayMs) }}
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

interface Turn {
  isTurn: boolean;
  done: () => void;
}

/** Keys that are short of credits. How few is few depends on what a verification costs. */
function Short(turn: Turn) {
  const [below, setBelow] = useState('100');
  return (
    <Some
      {...turn}
      title={`Fewer than ${count(Number(below))} credits`}
      name="low-credits"
      filter={{ creditsBelow: Number(below) }}
      empty="No key is short of credits"
      actions={
        <select aria-label="Fewer than" value={below} onChange={(e) => setBelow(e.currentTarget.value)}>
          {['1', '10', '100', '1000', '10000'].map((text) => (
            <option key={text} value={text}>
              {count(Number(text))}
            </option>
          ))}
        </select>
      }
    />
  );
}

interface SomeProps extends Turn {
  actions?: ComponentChildren;
  title: string;
  name: string;
  filter: object;
  empty: string;
}

function Some({ isTurn, done, ...props }: SomeProps) {
  const pages = usePages<Key>('keys.listKeys', isTurn ? { ...props.filter, limit: 10 } : undefined, 300_000);
  const isDone = pages.rows !== undefined || pages.failure !== undefined;
  useEffect(() => {
    if (isDone) done();
  }, [isDone]);
  return (
    <Card
      title={props.title}
      actions={
        <>
          {props.actions}
          <CsvButton name={props.name} columns={keyColumns} rows={pages.rows ?? []} />
        </>
      }
    >
      <List
        label={props.title}
        columns={keyColumns}
        of={pages}
        idOf={({ keyId }) => keyId}
        lines={2}
        empty={
          <Empty title={props.empty}>
            <p class="quiet">As of {dateTime(Date.now(), { seconds: false })} UTC.</p>
          </Empty>
        }
      />
    </Card>
  );
}
