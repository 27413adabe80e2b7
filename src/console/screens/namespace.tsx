import { useState } from 'preact/hooks';
import { overrideColumns } from '../../domain/columns.ts';
import { call, type Failure } from '../api.ts';
import { ago, count, duration, isoOf, moment, periodText, unitsOf } from '../format.ts';
import { usePages } from '../pages.ts';
import { Badge, Button, Card, Empty, Head, LacksScreen, PeriodChoice, Problem, TextField } from '../parts/basic.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { Act } from '../parts/dialog.tsx';
import { formerOf } from '../parts/lasting.tsx';
import { SetOverride } from '../parts/overrideForm.tsx';
import { type Column, List, shared } from '../parts/table.tsx';
import { Top } from '../parts/top.tsx';
import { usePeriod } from '../period.ts';
import type { Override } from '../records.ts';
import { may } from '../session.ts';
import { LimitChart, useLimits } from './rateLimits.tsx';

type Acting = { kind: 'set'; override?: Override } | { kind: 'delete'; override: Override } | undefined;

export function Namespace({ namespace }: { namespace: string }) {
  const period = usePeriod();
  const [acting, setActing] = useState<Acting>();
  const limits = useLimits(namespace, period);
  const mayRead = may('ratelimit', 'read_override');
  const listed = mayRead ? { namespace, limit: 50 } : undefined;
  const overrides = usePages<Override>('ratelimit.listOverrides', listed, 10_000, true);
  if (!mayRead) return <LacksScreen title={namespace} grant="ratelimit.*.read_override" />;
  const close = () => setActing(undefined);
  const mayChange = may('ratelimit', 'set_override');
  const columns: Column<Override>[] = [
    shared(overrideColumns, 'Identifier', {
      cell: ({ identifier }) => (
        <>
          <code>{identifier}</code> {identifier.includes('*') && <Badge>wildcard</Badge>}
        </>
      ),
    }),
    shared(overrideColumns, 'Limit'),
    {
      name: 'In any',
      cell: ({ period, anchor, duration: ms }) => (period ? periodText(period, anchor) : duration(ms)),
      csv: ({ period, duration: ms }) => period ?? ms,
    },
    shared(overrideColumns, 'Until', { cell: (row) => <Lasting override={row} /> }),
    shared(overrideColumns, 'Created', { isWide: true }),
    {
      name: 'Change',
      cell: (override) =>
        mayChange && (
          <span class="actions">
            <Button class="small" onClick={() => setActing({ kind: 'set', override })}>
              Edit
            </Button>
            <Button class="small" tone="danger" onClick={() => setActing({ kind: 'delete', override })}>
              Delete
            </Button>
          </span>
        ),
    },
  ];
  return (
    <>
      <Head title={namespace}>
        <PeriodChoice period={period} />
      </Head>
      <LimitChart data={limits} period={period} />
      {may('ratelimit', 'read_analytics') && (
        <Top title="Identifiers with most checks" of="identifiers" period={period} within={{ namespace }} />
      )}
      <Card
        title="Overrides"
        actions={
          <>
            <CsvButton name={`overrides-${namespace}`} columns={columns} of={overrides} />
            {mayChange && <Button onClick={() => setActing({ kind: 'set' })}>New override</Button>}
          </>
        }
      >
        <p class="quiet">
          An exact identifier comes first, then the most specific wildcard. <code>*</code> matches any characters.
        </p>
        <List
          label="Overrides"
          columns={columns}
          of={overrides}
          idOf={({ overrideId }) => overrideId}
          empty={<Empty title="There is no override" />}
        />
      </Card>
      <Tester namespace={namespace} />
      {acting?.kind === 'set' && <SetOverride namespace={namespace} override={acting.override} close={close} />}
      {acting?.kind === 'delete' && (
        <Act
          title={`Delete the override of ${acting.override.identifier}`}
          operation="ratelimits.deleteOverride"
          input={{ namespace, identifier: acting.override.identifier }}
          act="Delete"
          danger
          confirm={acting.override.identifier}
          close={close}
        >
          <p>The limit of the request, or a wildcard that matches, applies from the next check on.</p>
          {acting.override.former && (
            <p>The override that it replaced until its end ({unitsOf(acting.override.former)}) is deleted, too.</p>
          )}
        </Act>
      )}
    </>
  );
}

/** The end of an override, and what applies afterwards. */
function Lasting({ override }: { override: Override }) {
  const { until } = override;
  if (until === undefined) return <span class="quiet">always</span>;
  return (
    <>
      until{' '}
      <time dateTime={isoOf(until)} title={ago(until)}>
        {moment(until, { seconds: false })}
      </time>
      , <span class="quiet">then {formerOf(override)}</span>
    </>
  );
}

/** Which limit an identifier has: a check that charges nothing. */
function Tester({ namespace }: { namespace: string }) {
  const [identifier, setIdentifier] = useState('');
  const [found, setFound] = useState<{ limit: number; remaining: number; overrideId?: string; identifier: string }>();
  const [failure, setFailure] = useState<Failure>();
  if (!may('ratelimit', 'limit')) return null;
  const test = async (event: Event) => {
    event.preventDefault();
    try {
      // An unusual limit: if the response has another one, an override replaced it.
      const request = { namespace, identifier, limit: 1_000_000, duration: 60_000, cost: 0 };
      setFound({ ...(await call<{ limit: number; remaining: number }>('ratelimits.limit', request)), identifier });
      setFailure(undefined);
    } catch (cause) {
      setFailure(cause as Failure);
    }
  };
  return (
    <Card title="Which override applies?">
      <form class="bar" onSubmit={test}>
        <TextField label="Identifier" value={identifier} set={setIdentifier} placeholder="user_42" />
        <Button type="submit" disabled={identifier === ''}>
          Test
        </Button>
      </form>
      <p role="status">
        {found &&
          (found.overrideId ? (
            <>
              <code>{found.identifier}</code> has the override <code>{found.overrideId}</code>: {count(found.limit)}{' '}
              units, {count(found.remaining)} are left.
            </>
          ) : (
            <>
              <code>{found.identifier}</code> has no override: the limit of the request applies.
            </>
          ))}
      </p>
      <Problem failure={failure} />
    </Card>
  );
}
