import { useEffect, useRef, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { outcomes } from '../../domain/columns.ts';
import { useAddress, useInAddress, useTyped } from '../address.ts';
import { Failure } from '../api.ts';
import { count, milliseconds, percent, timeOfDay } from '../format.ts';
import { ApiSelect } from '../parts/apiSelect.tsx';
import {
  Badge,
  Button,
  Card,
  CustomerLink,
  Empty,
  Head,
  LacksScreen,
  Outcome,
  Problem,
  SelectField,
  TextField,
  wordOf,
} from '../parts/basic.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { type Column, column, Table } from '../parts/table.tsx';
import { sumOf } from '../period.ts';
import type { Decision } from '../records.ts';
import { may } from '../session.ts';
import { listen } from '../tail.ts';
import { localTime } from '../zone.ts';

const rowsMax = 200;
/** A stream is opened after this pause in typing. */
const typingMs = 400;

interface Row extends Decision {
  number: number;
}

/** A check of a namespace has no outcome. */
const outcomeOf = ({ outcome, passed }: Decision): string => outcome ?? (passed ? 'VALID' : 'RATE_LIMITED');

const columns: Column<Row>[] = [
  column('Time, UTC', 'time', ({ time }) => time, {
    cell: ({ time }) => (
      <span class="number">
        {timeOfDay(time)}
        {localTime(time)}
      </span>
    ),
  }),
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
  column('Customer', 'text', ({ externalId }) => externalId, {
    cell: ({ externalId }) => externalId && <CustomerLink externalId={externalId} />,
    isWide: true,
  }),
  column('Plan', 'text', ({ planId }) => planId, { isCsvOnly: true }),
  column('Limit', 'text', ({ ratelimit }) => ratelimit),
  column('Tags', 'text', ({ tags = [] }) => tags.join(' '), {
    cell: ({ tags = [] }) => tags.map((tag) => <Badge key={tag}>{tag}</Badge>),
    isWide: true,
  }),
  column('Latency', 'count', ({ latencyMs }) => latencyMs, {
    cell: ({ latencyMs, source }) =>
      source === 'lease' ? <Badge>local</Badge> : <span class="number">{milliseconds(latencyMs)}</span>,
    isWide: true,
  }),
];

/** The rate is the mean of this many seconds. */
const rateSeconds = 10;

/** Decisions a second, and the share that was refused; undefined until the first second is over. */
interface Rate {
  all: number;
  refused: number;
}

/** Whether a decision has the text in its names, ids, tags or its outcome. */
function hasText(decision: Decision, text: string): boolean {
  const { keyId, name, externalId, planId, tags = [], ratelimit, namespace, identifier } = decision;
  const names = [keyId, name, externalId, planId, ...tags, ratelimit, namespace, identifier];
  const texts = [wordOf(outcomeOf(decision)), ...names];
  return texts.some((one) => one?.toLowerCase().includes(text.toLowerCase()));
}

/** Counts decisions by the second. Each second, `set` gets their mean over the last ones. */
function rateOf(set: (rate: Rate) => void) {
  const next = () => ({ all: 0, refused: 0, from: performance.now() });
  let seconds = [next()];
  const timer = setInterval(() => {
    // A browser calls this less often for a tab that is not displayed.
    const passed = (performance.now() - seconds.at(-1)!.from) / 1000;
    const mean = (name: keyof Rate) => sumOf(seconds, (one) => one[name]) / passed;
    set({ all: mean('all'), refused: mean('refused') });
    seconds = [next(), ...seconds].slice(0, rateSeconds);
  }, 1000);
  return {
    add(decision: Decision) {
      seconds[0]!.all += decision.sample;
      if (outcomeOf(decision) !== 'VALID') seconds[0]!.refused += decision.sample;
    },
    stop: () => clearInterval(timer),
  };
}

/** The decisions that contain the text, newest first; while paused they are only counted. */
function useTail(filter: object, text: string, isPaused: boolean) {
  const [missed, setMissed] = useState(0);
  const [state, setState] = useState<'connecting' | 'live' | Failure>('connecting');
  const [rate, setRate] = useState<Rate>();
  const paused = useRef(isPaused);
  paused.current = isPaused;
  const wanted = useRef(text);
  wanted.current = text;
  const id = JSON.stringify(filter);
  const [shown, setShown] = useState<{ id: string; rows: readonly Row[] }>({ id, rows: [] });
  // Rows of another filter are not displayed.
  const rows = shown.id === id ? shown.rows.filter((row) => hasText(row, text)) : [];
  useEffect(() => {
    setShown({ id, rows: [] });
    setState('connecting');
    setRate(undefined);
    const rating = rateOf(setRate);
    let number = 0;
    let waiting: Row[] = [];
    // Drawn a few times a second, independent of how many arrive.
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
        if (!hasText(decision, wanted.current)) return;
        rating.add(decision);
        waiting.push({ ...decision, number: number++ });
        if (waiting.length > rowsMax) waiting.shift();
        if (paused.current) setMissed((count) => count + 1);
      },
      failed: setState,
    });
    return () => {
      clearInterval(timer);
      rating.stop();
      stop();
    };
  }, [id]);
  return { rows, missed, state, rate };
}

/** Rows do not move under a pointer, nor under the focus. */
const Decisions = ({ rows, setRead }: { rows: readonly Row[]; setRead: (isRead: boolean) => void }) => (
  <div
    class="decisions"
    onPointerEnter={({ pointerType }) => setRead(pointerType === 'mouse')}
    onPointerLeave={() => setRead(false)}
    onFocusIn={() => setRead(true)}
    onFocusOut={() => setRead(false)}
  >
    {rows.length > 0 && <Table label="Decisions" columns={columns} rows={rows} idOf={({ number }) => `${number}`} />}
  </div>
);

export function Live() {
  const [{ outcome: named, api }, set] = useAddress({ outcome: '', api: '' });
  const outcome = outcomes.find((name) => name === named) ?? '';
  const key = useTyped('key', typingMs);
  const owner = useTyped('customer', typingMs);
  const [text, setText] = useState('');
  const [isPaused, setPaused] = useState(false);
  const [isRead, setRead] = useState(false);
  const filter = {
    ...(api && { apiId: api }),
    ...(outcome && { outcome }),
    ...(key.settled && { keyId: key.settled }),
    ...(owner.settled && { externalId: owner.settled }),
  };
  const { rows, missed, state, rate } = useTail(filter, text.trim(), isPaused || isRead);
  // Whether the texts match anything is unknown until a decision arrives.
  const isFound = rows.length > 0 || undefined;
  useInAddress(key, isFound);
  useInAddress(owner, isFound);
  const failure = state instanceof Failure ? state : undefined;
  if (!may('api', 'read_analytics')) return <LacksScreen title="Live" grant="api.*.read_analytics" />;
  return (
    <>
      <Head title="Live">
        {rate && (
          <span class="quiet number">
            {rate.all.toFixed(1)} a second, {percent(rate.refused, rate.all)} refused
          </span>
        )}
        <Badge tone={state === 'live' && !isPaused && !isRead ? 'good' : ''}>
          {state === 'live' ? (isPaused || isRead ? `Paused, ${count(missed)} since` : 'Live') : 'Connecting'}
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
          <ApiSelect value={api} set={(api) => set({ api })} none="All APIs" />
          <TextField label="Key id" value={key.text} set={key.setText} placeholder="key_…" />
          <TextField label="Customer" value={owner.text} set={owner.setText} placeholder="externalId" />
          <TextField label="Tag or text" value={text} set={setText} placeholder="eu-west" />
        </div>
        {rows[0] && rows[0].sample > 1 && (
          <p class="quiet" role="status">
            Sampled: one in {count(rows[0].sample)} decisions is in the list.
          </p>
        )}
        <Problem failure={failure} />
        <Decisions rows={rows} setRead={setRead} />
        {rows.length === 0 && !failure && (
          <Empty title="Nothing has happened since you opened this screen">
            <p class="quiet">Verifications and limit checks appear here as they are decided, by any server.</p>
          </Empty>
        )}
      </Card>
    </>
  );
}
