// Recent refusals, of one key or of all.

import { Link } from 'wouter-preact';
import { refusalColumns } from '../../domain/columns.ts';
import { useAddress } from '../address.ts';
import { useData } from '../api.ts';
import { count, dateTime, moment, unitsOf } from '../format.ts';
import { usePages } from '../pages.ts';
import { hourMs } from '../period.ts';
import type { Refusals } from '../records.ts';
import { Badge, Card, CustomerLink, Empty, Outcome, PlanLink, Time, UtcTime } from './basic.tsx';
import { CsvButton } from './csv.tsx';
import { isListable } from './keyForm.tsx';
import { KeyName } from './keyName.tsx';
import { type Column, List, shared } from './table.tsx';
import { TimeField, timeOfInput } from './times.tsx';

const limitOf = ({ ratelimit, limit = 0, duration = 0, source, outcome, ...rest }: Refusals) =>
  ratelimit === undefined
    ? source === 'lease' && outcome === 'RATE_LIMITED' && <Badge>local</Badge>
    : `${ratelimit}: ${unitsOf({ ...rest, limit, duration })}`;

const costOf = ({ cost, remaining, of }: Refusals) =>
  cost !== undefined &&
  `${count(cost)}${remaining === undefined ? '' : `, ${count(remaining)} left${of ? ' of the customer' : ''}`}`;

/**
 * The screen that repeats the refused request, and the name of its link. Undefined for a plain request, for a query
 * that is known in part only, and for a limit whose name does not fit into a field of that screen.
 */
export function againOf({ keyId, permissions, permissionsCut, ratelimit, cost, outcome }: Refusals) {
  if (permissionsCut) return undefined;
  const isLimited = outcome === 'RATE_LIMITED' && ratelimit !== undefined;
  if (isLimited && !isListable(ratelimit)) return undefined;
  const query = new URLSearchParams({
    ...(permissions && { permissions }),
    ...(isLimited && { limits: cost === undefined ? ratelimit : `${ratelimit}=${cost}` }),
    ...(outcome === 'USAGE_EXCEEDED' && cost !== undefined && { cost: `${cost}` }),
  });
  if (query.size === 0) return undefined;
  const what = permissions ? 'query' : isLimited ? 'limit' : 'cost';
  return { path: `/why/${keyId}?${query}`, name: `Ask with this ${what}` };
}

/** A path to another list of refusals: with the period of this one. */
export function withPeriod(path: string, query = new URLSearchParams()): string {
  const here = new URLSearchParams(location.search);
  for (const name of ['from', 'to']) if (here.has(name)) query.set(name, here.get(name)!);
  return query.size > 0 ? `${path}?${query}` : path;
}

const AgainLink = ({ path, name }: NonNullable<ReturnType<typeof againOf>>) => {
  const [start = '', query] = path.split('?');
  return <Link href={withPeriod(start, new URLSearchParams(query))}>{name}</Link>;
};

const columns: Column<Refusals>[] = [
  shared(refusalColumns, 'Time, UTC', { cell: ({ time }) => <UtcTime ms={time} /> }),
  shared(refusalColumns, 'Outcome', {
    cell: (row) => {
      const again = againOf(row);
      return (
        <div>
          <Outcome outcome={row.outcome} />
          {again && (
            <small>
              <AgainLink {...again} />
            </small>
          )}
        </div>
      );
    },
  }),
  shared(refusalColumns, 'Key', {
    cell: ({ keyId }) => (
      <Link href={`/keys/${keyId}`}>
        <KeyName keyId={keyId} />
      </Link>
    ),
  }),
  shared(refusalColumns, 'Customer', {
    cell: ({ externalId }) => externalId && <CustomerLink externalId={externalId} />,
    isWide: true,
  }),
  shared(refusalColumns, 'Plan', { cell: ({ planId }) => planId && <PlanLink planId={planId} />, isWide: true }),
  shared(refusalColumns, 'Permissions asked', {
    cell: (row) => {
      const asked = refusalColumns['Permissions asked'].value(row, Date.now());
      return asked && <code>{asked}</code>;
    },
    isText: true,
  }),
  shared(refusalColumns, 'Limit', { cell: limitOf }),
  shared(refusalColumns, 'Cost', { cell: costOf, isNumber: false }),
  shared(refusalColumns, 'Left', { isCsvOnly: true }),
  shared(refusalColumns, 'Refusals'),
  shared(refusalColumns, 'Tags', {
    cell: ({ tags = [] }) => tags.map((tag) => <Badge key={tag}>{tag}</Badge>),
    isWide: true,
  }),
];

type Paged = ReturnType<typeof usePages<Refusals>>;
type Hour = NonNullable<NonNullable<Paged['pages'][number]['pagination']>['counted']>[number];

/**
 * The hours of all pages that have refusals without a row. An hour on two pages is the same on both, or newer on the
 * first.
 */
function hoursWithout(pages: Paged['pages']): Hour[] {
  const hours = new Map<number, Hour>();
  for (const hour of pages.flatMap(({ pagination }) => pagination?.counted ?? []))
    if (!hours.has(hour.time)) hours.set(hour.time, hour);
  return [...hours.values()].filter(({ refused, listed }) => refused !== listed);
}

const hoursMax = 5;

/** States how many refusals have no row, by hour. */
function Without({ hours }: { hours: readonly Hour[] }) {
  if (hours.length === 0) return null;
  const sentenceOf = ({ time, refused, listed }: Hour) => {
    const period = `${dateTime(time, { seconds: false })} to ${dateTime(time + hourMs, { seconds: false }).slice(11)} UTC`;
    return refused === undefined
      ? `${period}: details of some refusals may have been left out.`
      : `${period}: ${count(refused)} ${refused === 1 ? 'refusal' : 'refusals'}; details of ${count(refused - listed)} were left out.`;
  };
  return (
    <div class="notice">
      <ul class="plain">
        {hours.slice(0, hoursMax).map((hour) => (
          <li key={hour.time}>{sentenceOf(hour)}</li>
        ))}
        {hours.length > hoursMax && <li>{count(hours.length - hoursMax)} earlier hours have some, too.</li>}
      </ul>
      Details are left out under load, and where a key is refused often. Every refusal is counted.
    </div>
  );
}

const minuteMs = 60_000;

/** The last refusal of a key, if the answer on the screen is about another request. */
export function LastRefusal({ keyId, path }: { keyId: string; path: string }) {
  const { data } = useData<Refusals[]>('analytics.listRefusals', { keyId, limit: 20 });
  const last = data?.[0];
  const again = last && againOf(last);
  if (!again || again.path === path) return null;
  return (
    <p class="notice">
      <span>
        It was refused <Time ms={last.time} />: <Outcome outcome={last.outcome} />
        {last.permissions && (
          <>
            {' '}
            for <code>{last.permissions}</code>
          </>
        )}
        . That request was another one. <AgainLink {...again} />
      </span>
    </p>
  );
}

/** One row for a key, an outcome and its reason, and a minute: that of the last refusal, with their number. */
function byMinute(rows: readonly Refusals[]): (Refusals & { id: string })[] {
  const found = new Map<string, Refusals & { id: string }>();
  for (const row of rows) {
    const { time, keyId, outcome, permissions = '', ratelimit = '' } = row;
    const id = [Math.floor(time / minuteMs), keyId, outcome, ratelimit, permissions].join(' ');
    const last = found.get(id);
    found.set(id, last ? { ...last, count: last.count + row.count } : { ...row, id });
  }
  return [...found.values()];
}

interface RefusalsOf {
  apiId?: string;
  keyId?: string;
  externalId?: string;
}

/** The period is in the address. */
export function RecentRefusals(of: RefusalsOf) {
  const { keyId, externalId } = of;
  const title = 'Recent refusals';
  const [{ from, to }, set] = useAddress({ from: '', to: '' });
  const [start, last] = [timeOfInput(from), timeOfInput(to)];
  // The minute of the end is included.
  const end = last === undefined ? undefined : last + minuteMs;
  const input = {
    ...of,
    ...(start !== undefined && { start }),
    ...(end !== undefined && { end }),
    // Those of a busy key share few rows.
    limit: 50,
  };
  const paged = usePages<Refusals>('analytics.listRefusals', input, 30_000);
  const rows = paged.rows && byMinute(paged.rows);
  const hours = hoursWithout(paged.pages);
  const since = paged.pages[0]?.pagination?.since;
  const hasTags = rows?.some(({ tags = [] }) => tags.length > 0);
  const hasPlans = rows?.some(({ planId }) => planId !== undefined);
  const known = [keyId && 'Key', (keyId ?? externalId) && 'Customer', !hasPlans && 'Plan', !hasTags && 'Tags'];
  const displayed = columns.filter(({ name }) => !known.includes(name));
  const nothing =
    start === undefined && end === undefined
      ? hours.length > 0
        ? 'Details of the refusals were left out'
        : `Nothing was refused since ${moment(since ?? 0)}`
      : // What was left out is counted by the hour, of which the period may be a part.
        `${hours.length > 0 ? 'No refusal with details' : 'Nothing was refused'} in this period`;
  return (
    <Card title={title} actions={<CsvButton name="refusals" columns={columns} of={paged} />}>
      <div class="bar">
        <TimeField label="From" value={from} set={(from) => set({ from }, true)} />
        <TimeField label="To" value={to} set={(to) => set({ to }, true)} />
      </div>
      <List
        label={title}
        isCards
        columns={displayed}
        of={{ ...paged, rows, pages: [] }}
        idOf={({ id }) => id}
        empty={<Empty title={nothing} />}
        lines={3}
      />
      <Without hours={hours} />
      {rows?.some((row) => row.count > 1) && (
        <p class="quiet">Repeated refusals of a minute share a row, which has the time of the last one.</p>
      )}
    </Card>
  );
}
