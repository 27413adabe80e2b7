// Keys that are chosen in a list, and the bar of what can be done to all of them.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Failure } from '../api.ts';
import { count } from '../format.ts';
import { type Paged, pagesOf } from '../pages.ts';
import { sumOf } from '../period.ts';
import type { Key } from '../records.ts';
import { may } from '../session.ts';
import { Button, Copy, Problem } from './basic.tsx';
import { CsvButton } from './csv.tsx';
import { type ActName, acts, ChangeMany, keysOf, useChanges } from './many.tsx';
import type { Column } from './table.tsx';

/** Their records are in the memory of the browser. */
const chosenMax = 20_000;
const none: ReadonlyMap<string, Key> = new Map();

/** The chosen keys of the lists of a screen. With another search or filter, `list`, none is: they are not displayed. */
export function useChosen(list = '') {
  const [{ keys, of }, setKeys] = useState({ keys: none, of: list });
  /** The last one that a click has chosen. */
  const last = useRef<string>();
  useChanges((change) =>
    setKeys((before) => ({ ...before, keys: new Map([...before.keys].map(([keyId, key]) => [keyId, change(key)])) })),
  );
  const set = (some: readonly Key[], isChosen: boolean) =>
    setKeys((before) => {
      const next = new Map(before.of === list ? before.keys : none);
      for (const key of some) {
        if (!isChosen) next.delete(key.keyId);
        else if (next.size < chosenMax) next.set(key.keyId, key);
      }
      return { keys: next, of: list };
    });
  return { keys: of === list ? keys : none, set, clear: () => setKeys({ keys: none, of: list }), last, list };
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
function useAll({ set, keys }: Chosen, of: Paged<Key> | undefined) {
  const [examined, setExamined] = useState<{ looked: number; total: number | undefined }>();
  const [failure, setFailure] = useState<Failure>();
  /** The number of all keys, once they were read. */
  const [whole, setWhole] = useState<number>();
  const reading = useRef<object>();
  const stop = () => {
    reading.current = undefined;
    setExamined(undefined);
  };
  useEffect(() => stop, []);
  useEffect(() => {
    if (keys.size === 0) setWhole(undefined);
  }, [keys.size]);
  // Keys that the indexes have found are displayed before the first page of the list.
  const { rows = [], pages = [], operation = '', input = {}, hasMore } = of ?? {};
  const { cursor, total } = pages.at(-1)?.pagination ?? {};
  const readAll = async (then: (() => void) | undefined) => {
    const self = {};
    reading.current = self;
    setFailure(undefined);
    set(rows, true);
    const ids = new Set(rows.map(({ keyId }) => keyId));
    let looked = sumOf(pages, ({ pagination }) => pagination?.looked ?? 0);
    setExamined({ looked, total });
    if (cursor) {
      for await (const { data, pagination } of pagesOf<Key>(operation, { ...input, limit: 100 }, cursor)) {
        if (reading.current !== self) return;
        for (const { keyId } of data) ids.add(keyId);
        set(data, true);
        looked += pagination?.looked ?? data.length;
        setExamined({ looked, total });
        if (ids.size >= chosenMax) break;
      }
    }
    if (ids.size < chosenMax) setWhole(ids.size);
    stop();
    then?.();
  };
  const begin = (then?: () => void) =>
    readAll(then).catch((cause) => {
      if (reading.current) setFailure(cause);
      stop();
    });
  const isAll = pages.length > 0 && (hasMore ? whole === keys.size : keys.size >= rows.length);
  const mayBegin = pages.length > 0 && !isAll && !examined && keys.size < chosenMax;
  // The number is known without a filter that leaves out some.
  const isKnown = pages.every(({ data, pagination }) => pagination?.looked === data.length);
  const size = hasMore ? (isKnown ? total : undefined) : rows.length;
  return { begin, mayBegin, size, isAll, examined, stop, failure };
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
  const { begin, mayBegin, size, isAll, examined, stop, failure } = useAll(chosen, of);
  useEffect(() => {
    if (asked) begin(() => setActing(asked.act));
  }, [asked]);
  const { keys, clear } = chosen;
  if (keys.size === 0 && !acting) return null;
  const [ids, rows] = [[...keys.keys()], [...keys.values()]];
  const notes = [keys.size >= chosenMax && 'the most at once', examined && `${count(examined.looked)} examined`];
  return (
    <section class="bulk" aria-label="Chosen keys">
      <div class="actions">
        <p role="status">
          {isAll && keys.size > 1 && 'All '}
          {[`${keysOf(keys.size)} chosen`, ...notes].filter(Boolean).join(', ')}
        </p>
        {examined && <progress aria-label="Examined" value={examined.looked} max={examined.total} />}
        {mayBegin && (
          <Button onClick={() => begin()}>{size === undefined ? 'All that match' : `All ${count(size)}`}</Button>
        )}
        <Button onClick={examined ? stop : clear}>{examined ? 'Stop' : 'Clear'}</Button>
      </div>
      <Problem failure={failure} />
      <div class="actions">
        {allowedActs(isDeleted).map((act) => (
          <Button
            key={act}
            {...(act === 'delete' && { tone: 'danger' })}
            disabled={examined !== undefined}
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
