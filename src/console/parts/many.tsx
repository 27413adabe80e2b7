// Many keys at once: what is done to them, request by request, and how it is taken back.

import { useEffect, useReducer, useRef, useState } from 'preact/hooks';
import { call, type Failure, refresh } from '../api.ts';
import { count, retention } from '../format.ts';
import { changeRows } from '../pages.ts';
import { dayMs } from '../period.ts';
import type { ChangedKeys, Key, KeyChange } from '../records.ts';
import { onSignIn } from '../session.ts';
import { AsCurl, Button, Problem, TextField, WrongFields } from './basic.tsx';
import { Dialog } from './dialog.tsx';
import { ExpiryField } from './keyForm.tsx';
import { PlanField, planOfKeyHint } from './plan.tsx';
import { inputTime, isTimeInput, timeOfInput } from './times.tsx';

export const keysOf = (number: number): string => (number === 1 ? '1 key' : `${count(number)} keys`);

/** Draws a component again. */
const useDraw = () => useReducer((number: number) => number + 1, 0)[1] as () => void;

/** Keys outside of the lists of pages.ts. */
const displays = new Set<(change: (key: Key) => Key) => void>();

/** Calls `display` with each change of keys while the component is displayed. */
export function useChanges(display: (change: (key: Key) => Key) => void) {
  useEffect(() => {
    displays.add(display);
    return () => void displays.delete(display);
  }, []);
}

/** The key after a change. Until when a deleted one can be restored is known when the list is loaded again. */
function changedTo(key: Key, { after }: ChangedKeys['changed'][number]): Key {
  const [[field, value] = ['', null]] = Object.entries(after);
  if (field !== 'deleted') return { ...key, [field]: value ?? undefined };
  return { ...key, restorableUntil: value ? 0 : undefined } as Key;
}

/** Keys of a request. */
const atOnce = 100;

/** Changes of keys, a request for each hundred with the same value. It can be stopped, and goes on after an error. */
class Run {
  readonly #requests: { keyIds: string[]; change: KeyChange }[] = [];
  readonly total: number;
  /** Keys whose response has arrived. */
  done = 0;
  isStopped = false;
  readonly changed: ChangedKeys['changed'] = [];
  readonly failed: ChangedKeys['failed'] = [];

  constructor(wanted: readonly { keyId: string; change: KeyChange }[]) {
    this.total = wanted.length;
    const open = new Map<string, string[]>();
    for (const { keyId, change } of wanted) {
      const value = JSON.stringify(change);
      let keyIds = open.get(value);
      if (!keyIds || keyIds.length === atOnce) {
        keyIds = [];
        open.set(value, keyIds);
        this.#requests.push({ keyIds, change });
      }
      keyIds.push(keyId);
    }
  }

  async go(draw: () => void) {
    try {
      while (this.#requests.length > 0 && !this.isStopped) {
        const request = this.#requests[0]!;
        const { changed, failed } = await call<ChangedKeys>('keys.changeKeys', request);
        this.#requests.shift();
        this.done += request.keyIds.length;
        this.changed.push(...changed);
        this.failed.push(...failed);
        const byId = new Map(changed.map((one) => [one.keyId, one]));
        const change = (key: Key) => (byId.has(key.keyId) ? changedTo(key, byId.get(key.keyId)!) : key);
        changeRows('keys.listKeys', change);
        for (const display of displays) display(change);
        draw();
      }
    } finally {
      refresh('keys.listKeys');
    }
  }

  stop = () => {
    this.isStopped = true;
  };
}

const Progress = ({ of }: { of: Run }) => (
  <div class="actions">
    <progress aria-label="Changed keys" value={of.done} max={of.total} />
    <span class="number" role="status">
      {count(of.done)} of {count(of.total)}
    </span>
    <Button onClick={of.stop}>Stop</Button>
  </div>
);

// ---- The message, and Undo

interface Message {
  text: string;
  failed: ChangedKeys['failed'];
  /** What Undo takes back. */
  changed: ChangedKeys['changed'];
  undo?: Run;
  failure?: Failure;
}
let message: Message | undefined;
let drawMessage = () => {};
function say(next: Message | undefined) {
  message = next;
  drawMessage();
}
// Ids belong to a workspace.
onSignIn(() => {
  message?.undo?.stop();
  say(undefined);
});

function messageOf(run: Run, done: string): Message {
  const unchanged = run.done - run.changed.length - run.failed.length;
  const parts = [
    `${done} ${keysOf(run.changed.length)}.`,
    unchanged > 0 && `${keysOf(unchanged)} needed no change.`,
    run.done < run.total && `It was stopped after ${count(run.done)} of ${count(run.total)}.`,
  ];
  return { text: parts.filter(Boolean).join(' '), failed: run.failed, changed: run.changed };
}

/** Sets each changed key to the value that it had. After an error it goes on where it was. */
async function undo({ failure: _, ...of }: Message) {
  const run = of.undo ?? new Run(of.changed.map(({ keyId, before }) => ({ keyId, change: before })));
  say({ ...of, undo: run });
  // Not after a change of the workspace.
  const sayIfThere = (next: Message) => message?.undo === run && say(next);
  await run
    .go(() => sayIfThere({ ...of, undo: run }))
    .then(
      () => sayIfThere({ ...messageOf(run, 'Undone for'), changed: [] }),
      (failure) => sayIfThere({ ...of, undo: run, failure }),
    );
}

const undoSeconds = 10;

/** What was done to many keys. It stays while it is under the pointer or has the focus, or names failures. */
export function Done() {
  drawMessage = useDraw();
  const place = useRef<HTMLDivElement>(null);
  const { text, failed = [], changed = [], undo: run, failure } = message ?? {};
  const isUndoing = run !== undefined && !failure;
  useEffect(() => {
    const shown = message;
    if (!shown || shown.undo || (failed.length > 0 && changed.length === 0)) return undefined;
    let left = undoSeconds;
    const timer = setInterval(() => {
      if (place.current?.matches(':hover, :focus-within') || --left > 0) return;
      say(failed.length > 0 ? { ...shown, changed: [] } : undefined);
    }, 1000);
    return () => clearInterval(timer);
  }, [message]);
  return (
    <div class={message ? 'message' : 'hidden'} ref={place}>
      {/* A screen reader reads what appears in a place that was there. */}
      <p role="status">{text}</p>
      {failed.length > 0 && (
        <details>
          <summary>{keysOf(failed.length)} could not be changed</summary>
          <pre>{failed.map(({ keyId, message }) => `${keyId} ${message}`).join('\n')}</pre>
        </details>
      )}
      <Problem failure={failure} retry={() => undo(message!)} />
      {isUndoing && <Progress of={run} />}
      {changed.length > 0 && !run && <Button onClick={() => undo(message!)}>Undo</Button>}
      {message && !isUndoing && (
        <Button tone="plain" aria-label="Close" onClick={() => say(undefined)}>
          ✕
        </Button>
      )}
    </div>
  );
}

// ---- The dialog

interface Act {
  /** The button, and the beginning of the title unless there is one. */
  name: string;
  title?: string;
  /** The beginning of the message. */
  done: string;
  text: string;
  /** Undefined if a field of the dialog has it. */
  change?: KeyChange;
  isDangerous?: true;
}
const backAgain = 'They are verified again at once.';
const disabled = 'They are refused as DISABLED from the next verification on, until they are enabled again.';
const deleted = `They are unknown to every verification from now on. They can be restored for ${retention}.`;
export const acts = {
  enable: { name: 'Enable', done: 'Enabled', text: backAgain, change: { enabled: true } },
  disable: { name: 'Disable', done: 'Disabled', text: disabled, change: { enabled: false }, isDangerous: true },
  expire: { name: 'Expire', done: 'Changed the expiry of', text: 'From then on they are refused as EXPIRED.' },
  plan: { name: 'Set', title: 'Plan of', done: 'Changed the plan of', text: 'It applies at once. Counts stay.' },
  delete: { name: 'Delete', done: 'Deleted', text: deleted, change: { deleted: true }, isDangerous: true },
  restore: { name: 'Restore', done: 'Restored', text: backAgain, change: { deleted: false } },
} as const satisfies Record<string, Act>;
export type ActName = keyof typeof acts;

const spans = [
  ['1 hour', 1 / 24],
  ['1 day', 1],
  ['7 days', 7],
  ['30 days', 30],
] as const;

/** The change; undefined while the field has no time. */
function changeOf(act: ActName, field: string): KeyChange | undefined {
  if (act === 'plan') return { planId: field || null };
  if (act !== 'expire') return acts[act].change;
  return isTimeInput(field) ? { expires: timeOfInput(field) ?? null } : undefined;
}

/** Changes keys after a confirmation, with progress. Rows display each response at once. */
export function ChangeMany({ act, chosen, close }: { act: ActName; chosen: readonly string[]; close: () => void }) {
  const [keyIds] = useState(chosen);
  const { name, title = name, done, text, isDangerous }: Act = acts[act];
  const [field, setField] = useState(act === 'expire' ? inputTime(Date.now() + 7 * dayMs) : '');
  const [run, setRun] = useState<Run>();
  const [failure, setFailure] = useState<Failure>();
  const draw = useDraw();
  const running = useRef<Run>();
  // A screen that is left stops it.
  useEffect(() => () => running.current?.stop(), []);
  const change = changeOf(act, field);
  const isBusy = run !== undefined && !failure;
  const mayRun = change && (act !== 'delete' || field.replaceAll(/\D/g, '') === `${keyIds.length}`) && !isBusy;
  const end = () => {
    close();
    const { current } = running;
    if (current && current.done > 0) say(messageOf(current, done));
  };
  const go = async (event: Event) => {
    event.preventDefault();
    if (!mayRun) return;
    running.current = run ?? new Run(keyIds.map((keyId) => ({ keyId, change })));
    setRun(running.current);
    setFailure(undefined);
    await running.current.go(draw).then(end, (cause) => {
      setFailure(cause);
      // The field can be changed as long as no key was.
      if (running.current!.done === 0) setRun(undefined);
    });
  };
  return (
    <Dialog title={`${title} ${keysOf(keyIds.length)}`} close={isBusy ? undefined : end}>
      <form onSubmit={go}>
        <p>{text}</p>
        {!run && act === 'expire' && <ExpiryField value={field} set={setField} spans={spans} />}
        {!run && act === 'plan' && <PlanField value={field} set={setField} hint={planOfKeyHint} />}
        {!run && act === 'delete' && (
          <TextField label={`Type ${keyIds.length} to confirm`} value={field} set={setField} inputMode="numeric" />
        )}
        {run && <Progress of={run} />}
        <Problem failure={failure} />
        {change && <AsCurl operation="keys.changeKeys" input={{ keyIds: keyIds.slice(0, atOnce), change }} />}
        {keyIds.length > atOnce && <p class="quiet">A request for each {atOnce} of them.</p>}
        <footer class="dialog-foot">
          <WrongFields />
          <Button onClick={end} disabled={isBusy}>
            {run ? 'Close' : 'Cancel'}
          </Button>
          <Button type="submit" tone={isDangerous ? 'danger' : 'primary'} disabled={!mayRun}>
            {failure ? 'Try again' : name}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}
