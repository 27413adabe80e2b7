// Keys that are chosen in a list, and the bar of what can be done to all of them.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Failure } from '../api.ts';
import { count } from '../format.ts';
import { asChanged, type Paged, pagesOf } from '../pages.ts';
import { sumOf } from '../period.ts';
import type { Key } from '../records.ts';
import { may } from '../session.ts';
import { Button, Copy, Problem } from './basic.tsx';
import { CsvButton } from './csv.tsx';
import { type ActName, acts, ChangeMany, keysOf } from './many.tsx';
import type { Column } from './table.tsx';

/** Their records are in the memory of the browser. */
const chosenMax = 20_000;
/** A record, and when it was chosen. `isAll`: the whole list was read, and no box changed since. */
const none = { keys: new Map<string, { key: Key; at: number }>(), isAll: false };

/** The chosen keys of the lists of a screen. With another search or filter, `list`, none is: they are not displayed. */
export function useChosen(list = '') {
  const [state, setState] = useState({ ...none, list });
  /** The last one that a click has chosen. */
  const last = useRef<string>();
  const set = (some: readonly Key[], isChosen: boolean, isAll = false) =>
    setState((before) => {
      const keys = new Map(before.list === list ? before.keys : none.keys);
      for (const key of some) {
        if (!isChosen) keys.delete(key.keyId);
        else if (keys.size < chosenMax) keys.set(key.keyId, { key, at: performance.now() });
      }
      return { keys, isAll, list };
    });
  const { keys, isAll } = state.list === list ? state : none;
  return { keys, isAll, set, clear: () => setState({ ...none, list }), last, list };
}
export type Chosen = ReturnType<typeof useChosen>;

/** What the grants allow. */
function allowedActs(isDeleted: boolean): ActName[] {
  const mayDelete = may('api', 'delete_key');
  if (isDeleted) return mayDelete && may('api', 'create_key') ? ['restore'] : [];
  const updates = ['enable', 'disable', 'expire', 'plan'] as const;
  return [...(may('api', 'update_key') ? updates : []), ...(mayDelete ? (['delete'] as const) : [])];
}

/** A box for each key, and one for all that are displayed. Shift takes all up to the last one. */
export function chooseColumn({ keys, set, last }: Chosen, rows: readonly Key[] = [], isDeleted = false): Column<Key>[] {
  if (allowedActs(isDeleted).length === 0) return [];
  const number = rows.filter(({ keyId }) => keys.has(keyId)).length;
  const isAll = number > 0 && number === rows.length;
  const toggle = (key: Key, isChosen: boolean, isRange: boolean) => {
    const at = rows.findIndex(({ keyId }) => keyId === key.keyId);
    const from = isRange ? rows.findIndex(({ keyId }) => keyId === last.current) : -1;
    last.current = key.keyId;
    set(from < 0 ? [key] : rows.slice(Math.min(at, from), Math.max(at, from) + 1), isChosen);
  };
  const head = (
    <input
      type="checkbox"
      aria-label="Choose all that are displayed"
      checked={isAll}
      indeterminate={number > 0 && !isAll}
      onClick={() => set(rows, !isAll)}
    />
  );
  const cell = (key: Key) => (
    <input
      type="checkbox"
      aria-label={`Choose ${key.start || key.keyId}`}
      checked={keys.has(key.keyId)}
      onClick={(e) => toggle(key, e.currentTarget.checked, e.shiftKey)}
    />
  );
  return [{ name: 'Choose', isMark: true, head, cell }];
}

/** Reads the rest of a list, and chooses its keys. */
function useAll({ set, keys, isAll: isRead }: Chosen, of: Paged<Key> | undefined) {
  const [looked, setLooked] = useState<number>();
  const [failure, setFailure] = useState<Failure>();
  const reading = useRef(0);
  const stop = () => {
    reading.current++;
    setLooked(undefined);
  };
  useEffect(() => stop, []);
  // Keys that the indexes have found are displayed before the first page of the list.
  const { rows = [], pages = [], operation = '', input = {}, hasMore = false } = of ?? {};
  const { cursor, total } = pages.at(-1)?.pagination ?? {};
  const begin = async (then?: () => void) => {
    const self = ++reading.current;
    let [number, examined] = [rows.length, sumOf(pages, ({ pagination }) => pagination?.looked ?? 0)];
    setFailure(undefined);
    setLooked(examined);
    set(rows, true, !cursor);
    try {
      for await (const page of cursor ? pagesOf<Key>(operation, { ...input, limit: 100 }, cursor) : []) {
        if (reading.current !== self) return;
        examined += page.pagination?.looked ?? page.data.length;
        setLooked(examined);
        number += page.data.length;
        set(page.data, true, !page.pagination?.hasMore && number <= chosenMax);
        if (number >= chosenMax) break;
      }
      then?.();
    } catch (cause) {
      if (reading.current === self) setFailure(cause as Failure);
    }
    stop();
  };
  const isAll = pages.length > 0 && (isRead || (!hasMore && keys.size >= rows.length));
  const mayBegin = pages.length > 0 && !isAll && looked === undefined && keys.size < chosenMax;
  // These filters leave out keys of the total.
  const size = !hasMore ? rows.length : 'search' in input || 'enabled' in input ? undefined : total;
  return { begin, mayBegin, size, isAll, looked, total, stop, failure };
}

interface BarProps {
  chosen: Chosen;
  /** The list, if there is one: all of its keys can be chosen. */
  of?: Paged<Key>;
  isDeleted?: boolean;
  /** What a button of the screen does to all keys of the list. */
  asked?: { act: ActName } | undefined;
  csv: Parameters<typeof CsvButton<Key>>[0]['columns'];
  prepare: () => Promise<void>;
}
const labels: Partial<Record<ActName, string>> = { expire: 'Expire in …', plan: 'Plan …' };

/** At the bottom of the window, while keys are chosen. */
export function ChosenBar({ chosen, of, isDeleted = false, asked, csv, prepare }: BarProps) {
  const [acting, setActing] = useState<ActName>();
  const { begin, mayBegin, size, isAll, looked, total, stop, failure } = useAll(chosen, of);
  useEffect(() => {
    if (asked) begin(() => setActing(asked.act));
  }, [asked]);
  const { keys, clear } = chosen;
  if (keys.size === 0 && !acting) return null;
  const ids = [...keys.keys()];
  const rows = [...keys.values()].map(({ key, at }) => asChanged(key, at));
  const isReading = looked !== undefined;
  const notes = [keys.size >= chosenMax && 'the most at once', isReading && `${count(looked)} examined`];
  return (
    <section class="bulk" aria-label="Chosen keys">
      <div class="actions">
        <p role="status">
          {isAll && keys.size > 1 && 'All '}
          {[`${keysOf(keys.size)} chosen`, ...notes].filter(Boolean).join(', ')}
        </p>
        {isReading && <progress aria-label="Examined" value={looked} max={total} />}
        {mayBegin && (
          <Button onClick={() => begin()}>{size === undefined ? 'All that match' : `All ${count(size)}`}</Button>
        )}
        <Button onClick={isReading ? stop : clear}>{isReading ? 'Stop' : 'Clear'}</Button>
      </div>
      <Problem failure={failure} />
      <div class="actions">
        {allowedActs(isDeleted).map((act) => (
          <Button
            key={act}
            {...(act === 'delete' && { tone: 'danger' })}
            disabled={isReading}
            onClick={() => setActing(act)}
          >
            {labels[act] ?? `${acts[act].name} …`}
          </Button>
        ))}
        <Copy text={ids.join('\n')} label="Copy ids" />
        <CsvButton
          name="chosen-keys"
          columns={csv}
          rows={rows}
          read={async function* () {
            yield { data: rows };
          }}
          prepare={prepare}
        />
      </div>
      {acting && <ChangeMany act={acting} chosen={ids} close={() => setActing(undefined)} />}
    </section>
  );
}
