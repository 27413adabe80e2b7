import { useEffect, useRef, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { useAddress, useInAddress, useTyped } from '../address.ts';
import { Failure } from '../api.ts';
import { count, isoOf, milliseconds, timeOfDay } from '../format.ts';
import {
  Badge,
  Button,
  Card,
  CustomerLink,
  Empty,
  Head,
  LacksScreen,
  Outcome,
  outcomes,
  Problem,
  SelectField,
  TextField,
  wordOf,
} from '../parts/basic.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { type Column, Table } from '../parts/table.tsx';
import { may } from '../session.ts';
import { type Decision, listen } from '../tail.ts';

const rowsMax = 200;
/** A stream is opened when typing has paused for so long. */
const typingMs = 400;

interface Row extends Decision {
  number: number;
}

/** A check of a namespace has no outcome. */
const outcomeOf = ({ outcome, passed }: Decision): string => outcome ?? (passed ? 'VALID' : 'RATE_LIMITED');

const columns: Column<Row>[] = [
  {
    name: 'Time, UTC',
    cell: ({ time }) => <span class="number">{timeOfDay(time)}</span>,
    csv: ({ time }) => isoOf(time),
  },
  { name: 'Outcome', cell: (row) => <Outcome outcome={outcomeOf(row)} />, csv: outcomeOf },
  {
    name: 'Key or identifier',
    cell: ({ keyId, name, namespace, identifier }) =>
      keyId ? (
        <Link href={`/keys/${keyId}`} title={keyId}>
          {name ?? <code>{keyId}</code>}
        </Link>
      ) : (
        namespace && `${namespace}: ${identifier}`
      ),
    csv: ({ keyId, identifier }) => keyId ?? identifier,
  },
  {
    name: 'Customer',
    cell: ({ externalId }) => externalId && <CustomerLink externalId={externalId} />,
    csv: ({ externalId }) => externalId,
    isWide: true,
  },
  { name: 'Limit', cell: ({ ratelimit }) => ratelimit, csv: ({ ratelimit }) => ratelimit },
  {
    name: 'Tags',
    cell: ({ tags = [] }) => tags.map((tag) => <Badge key={tag}>{tag}</Badge>),
    csv: ({ tags = [] }) => tags.join(' '),
    isWide: true,
  },
  {
    name: 'Latency',
    cell: ({ latencyMs, source }) =>
      source === 'lease' ? <Badge>local</Badge> : <span class="number">{milliseconds(latencyMs)}</span>,
    csv: ({ latencyMs }) => latencyMs,
    isNumber: true,
    isWide: true,
  },
];

/** The decisions that arrive, newest first; while paused they are counted only. */
function useTail(filter: object, isPaused: boolean) {
  const [missed, setMissed] = useState(0);
  const [state, setState] = useState<'connecting' | 'live' | Failure>('connecting');
  const paused = useRef(isPaused);
  paused.current = isPaused;
  const id = JSON.stringify(filter);
  const [shown, setShown] = useState<{ id: string; rows: readonly Row[] }>({ id, rows: [] });
  // Those of another filter say nothing about this one.
  const rows = shown.id === id ? shown.rows : [];
  useEffect(() => {
    setShown({ id, rows: [] });
    setState('connecting');
    let number = 0;
    let waiting: Row[] = [];
    // Drawn a few times a second, however many arrive.
    const timer = setInterval(() => {
      if (waiting.length === 0 || paused.current) return;
      const arrived = waiting.reverse();
      waiting = [];
      setMissed(0);
      setShown((before) => ({ id, rows: [...arrived, ...before.rows].slice(0, rowsMax) }));
    }, 200);
    const stop = listen(filter, {
      open: () => setState('live'),
      decision: (decision) => {
        waiting.push({ ...decision, number: number++ });
        if (waiting.length > rowsMax) waiting.shift();
        if (paused.current) setMissed((count) => count + 1);
      },
      failed: setState,
    });
    return () => {
      clearInterval(timer);
      stop();
    };
  }, [id]);
  return { rows, missed, state };
}

export function Live() {
  const [{ outcome: named }, set] = useAddress({ outcome: '' });
  const outcome = outcomes.find((name) => name === named) ?? '';
  const key = useTyped('key', typingMs);
  const owner = useTyped('customer', typingMs);
  const [isPaused, setPaused] = useState(false);
  const filter = {
    ...(outcome && { outcome }),
    ...(key.settled && { keyId: key.settled }),
    ...(owner.settled && { externalId: owner.settled }),
  };
  const { rows, missed, state } = useTail(filter, isPaused);
  // Until a decision arrives, nothing is known of these texts.
  const isFound = rows.length > 0 || undefined;
  useInAddress(key, isFound);
  useInAddress(owner, isFound);
  const failure = state instanceof Failure ? state : undefined;
  if (!may('api', 'read_analytics')) return <LacksScreen title="Live" grant="api.*.read_analytics" />;
  return (
    <>
      <Head title="Live">
        <Badge tone={state === 'live' && !isPaused ? 'good' : ''}>
          {state === 'live' ? (isPaused ? `Paused, ${count(missed)} since` : 'Live') : 'Connecting'}
        </Badge>
        <CsvButton name="live" columns={columns} rows={rows} />
        <Button onClick={() => setPaused(!isPaused)} aria-pressed={isPaused}>
          {isPaused ? 'Go on' : 'Pause'}
        </Button>
      </Head>
      <Card>
        <div class="bar">
          <SelectField
            label="Outcome"
            value={outcome}
            set={(outcome) => set({ outcome })}
            options={[['', 'All'], ...outcomes.map((name) => [name, wordOf(name)] as const)]}
          />
          <TextField label="Key id" value={key.text} set={key.setText} placeholder="key_…" />
          <TextField label="Customer" value={owner.text} set={owner.setText} placeholder="externalId" />
        </div>
        {rows[0] && rows[0].sample > 1 && (
          <p class="quiet" role="status">
            Sampled: one in {count(rows[0].sample)} decisions is in the list.
          </p>
        )}
        <Problem failure={failure} />
        {rows.length > 0 && (
          <Table label="Decisions" columns={columns} rows={rows} idOf={({ number }) => `${number}`} />
        )}
        {rows.length === 0 && !failure && (
          <Empty title="Nothing has happened since you opened this screen">
            <p class="quiet">Verifications and limit checks appear here as they are decided, by any server.</p>
          </Empty>
        )}
      </Card>
    </>
  );
}
