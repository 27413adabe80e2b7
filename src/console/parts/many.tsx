// Many keys at once: what is done to them, request by request, and how it is taken back.

import { useEffect, useRef, useState } from 'preact/hooks';
import { call, type Failure, refresh } from '../api.ts';
import { count, retention } from '../format.ts';
import { change } from '../pages.ts';
import { dayMs } from '../period.ts';
import type { ChangedKeys, KeyChange } from '../records.ts';
import { redraw } from '../redraw.ts';
import { onSignIn } from '../session.ts';
import { Button, Problem } from './basic.tsx';
import { Act } from './dialog.tsx';
import { ExpiryField } from './keyForm.tsx';
import { PlanField, planOfKeyHint } from './plan.tsx';
import { inputTime, isTimeInput, timeOfInput } from './times.tsx';

export const keysOf = (number: number): string => (number === 1 ? '1 key' : `${count(number)} keys`);

const list = 'keys.listKeys';
const changeKeys = 'keys.changeKeys';
/** Keys of a request. */
const atOnce = 100;
interface Request {
  keyIds: string[];
  change: KeyChange;
}

/** A request for each hundred keys with the same value. */
function requestsOf(wanted: readonly { keyId: string; change: KeyChange }[]): Request[] {
  const open = new Map<string, Request>();
  const requests: Request[] = [];
  for (const { keyId, change } of wanted) {
    const value = JSON.stringify(change);
    let request = open.get(value);
    if (!request || request.keyIds.length === atOnce) {
      request = { keyIds: [], change };
      open.set(value, request);
      requests.push(request);
    }
    request.keyIds.push(keyId);
  }
  return requests;
}

/** Changes of keys, which can be stopped, and go on after an error. The last ones have a message. */
class Run {
  done = 0;
  isGoing = false;
  isStopped = false;
  failure: Failure | undefined;
  /** Whether the server may have done the next request: its response was lost. */
  isLost = false;
  /** Keys that had the value when their request was repeated. */
  #unsure = 0;
  readonly changed: ChangedKeys['changed'] = [];
  readonly failed: ChangedKeys['failed'] = [];
  readonly #requests: Request[];
  readonly #title: string;
  readonly total: number;

  constructor(title: string, requests: Request[]) {
    this.#title = title;
    this.#requests = requests;
    this.total = requests.reduce((sum, { keyIds }) => sum + keyIds.length, 0);
  }

  /** Takes the response of the next request. */
  #take({ changed, unchanged, failed }: ChangedKeys) {
    const request = this.#requests.shift()!;
    this.done += request.keyIds.length;
    this.changed.push(...changed);
    this.failed.push(...failed);
    if (this.isLost) this.#unsure += unchanged.length;
    this.isLost = false;
    const [[field, value] = ['', null]] = Object.entries(request.change);
    for (const keyId of [...changed.map(({ keyId }) => keyId), ...unchanged]) {
      // Until when a deleted one can be restored is known when the list is loaded again.
      if (field === 'deleted') change(keyId, { restorableUntil: value ? 0 : undefined });
      else change(keyId, { [field]: value ?? undefined });
    }
  }

  /** Sends requests until the end, Stop or an error, but at least one. `sent` is called after the first. */
  async go(sent?: () => void) {
    this.failure = undefined;
    this.isGoing = true;
    try {
      do {
        redraw();
        this.#take(await call<ChangedKeys>(changeKeys, this.#requests[0]!));
        sent?.();
      } while (this.#requests[0] && !this.isStopped);
    } catch (cause) {
      this.failure = cause as Failure;
      this.isLost ||= this.failure.status === 0 || this.failure.status >= 500;
    }
    this.isGoing = false;
    refresh(this.isLost ? undefined : list);
    redraw();
    sent?.();
  }

  stop = () => {
    this.isStopped = true;
  };

  /** Keys of which it is not known whether this changed them. */
  get unsure(): number {
    return this.#unsure + (this.isLost ? this.#requests[0]!.keyIds.length : 0);
  }

  get text(): string {
    const { unsure } = this;
    const unchanged = this.done - this.changed.length - this.failed.length - this.#unsure;
    const parts = [
      `${this.#title} ${keysOf(this.changed.length)}.`,
      unchanged > 0 && `${keysOf(unchanged)} needed no change.`,
      unsure > 0 && `It is not known whether ${keysOf(unsure)} changed. Undo leaves out what is not known.`,
      this.isStopped && this.done < this.total && `Stopped after ${count(this.done)} of ${count(this.total)}.`,
    ];
    return parts.filter(Boolean).join(' ');
  }
}

let last: Run | undefined;
function display(run: Run | undefined) {
  last = run;
  redraw();
}
// Ids belong to a workspace.
onSignIn(() => {
  last?.stop();
  last = undefined;
});

/** Returns after the first request. */
function begin(run: Run): Promise<void> {
  if (last?.isGoing) last.stop();
  last = run;
  return new Promise((resolve) => run.go(resolve));
}

/** Sets each changed key to the value that it had. */
const undo = ({ changed }: Run) =>
  begin(new Run('Undone for', requestsOf(changed.map(({ keyId, before }) => ({ keyId, change: before })))));

const undoSeconds = 10;

/**
 * What was done to many keys. It stays while it is under the pointer or has the focus, or names failures or a number of
 * keys that may have changed.
 */
export function Done() {
  const place = useRef<HTMLDivElement>(null);
  const run = last;
  const { isGoing = false, failure, failed = [], changed = [], done = 0, total = 0 } = run ?? {};
  const isBrief = run !== undefined && !isGoing && !failure && failed.length + run.unsure === 0;
  useEffect(() => {
    if (!isBrief) return undefined;
    let left = undoSeconds;
    const timer = setInterval(() => {
      if (!place.current?.matches(':hover, :focus-within') && --left <= 0) display(undefined);
    }, 1000);
    return () => clearInterval(timer);
  }, [run, isBrief]);
  return (
    <div class={run ? 'message' : 'hidden'} ref={place}>
      {/* A screen reader reads what appears in a place that was there. */}
      <p role="status">{run && (isGoing ? `${count(done)} of ${count(total)}` : run.text)}</p>
      {isGoing && <progress aria-label="Changed keys" value={done} max={total} />}
      {failed.length > 0 && (
        <details>
          <summary>{keysOf(failed.length)} could not be changed</summary>
          <pre>{failed.map(({ keyId, message }) => `${keyId} ${message}`).join('\n')}</pre>
        </details>
      )}
      <Problem failure={failure} retry={() => run!.go()} />
      {isGoing && <Button onClick={run!.stop}>Stop</Button>}
      {changed.length > 0 && !isGoing && <Button onClick={() => undo(run!)}>Undo</Button>}
      {run && !isGoing && (
        <Button tone="plain" aria-label="Close" onClick={() => display(undefined)}>
          ✕
        </Button>
      )}
    </div>
  );
}

interface Kind {
  /** The button, and the beginning of the title unless there is one. */
  name: string;
  title?: string;
  /** The beginning of the message. */
  done: string;
  text: string;
  /** Undefined if a field of the dialog has it. */
  change?: KeyChange;
  danger?: boolean;
}
const backAgain = 'They are verified again immediately.';
const disabled = 'They are refused as DISABLED from the next verification on, until they are enabled again.';
const deleted = `They are unknown to every verification from now on. They can be restored for ${retention}.`;
export const acts = {
  enable: { name: 'Enable', done: 'Enabled', text: backAgain, change: { enabled: true } },
  disable: { name: 'Disable', done: 'Disabled', text: disabled, change: { enabled: false }, danger: true },
  expire: { name: 'Expire', done: 'Changed the expiry of', text: 'From then on they are refused as EXPIRED.' },
  plan: { name: 'Set', title: 'Plan of', done: 'Changed the plan of', text: 'It applies immediately. Counts stay.' },
  delete: { name: 'Delete', done: 'Deleted', text: deleted, change: { deleted: true }, danger: true },
  restore: { name: 'Restore', done: 'Restored', text: backAgain, change: { deleted: false } },
} as const satisfies Record<string, Kind>;
export type ActName = keyof typeof acts;

/** The change; undefined while the field has no time. */
function changeOf(act: ActName, field: string): KeyChange | undefined {
  if (act === 'plan') return { planId: field || null };
  if (act !== 'expire') return acts[act].change;
  return isTimeInput(field) ? { expires: timeOfInput(field) ?? null } : undefined;
}

/**
 * Changes keys after a confirmation: the first hundred before the dialog closes, the others behind the message. Leaving
 * the dialog meanwhile is Stop.
 */
export function ChangeMany({ act, chosen, close }: { act: ActName; chosen: readonly string[]; close: () => void }) {
  const [keyIds] = useState(chosen);
  const { name, title = name, done, text, danger = false }: Kind = acts[act];
  const [field, setField] = useState(act === 'expire' ? inputTime(Date.now() + 7 * dayMs) : '');
  const sending = useRef<Run>();
  useEffect(() => () => sending.current?.stop(), []);
  const change = changeOf(act, field);
  const requests = change ? requestsOf(keyIds.map((keyId) => ({ keyId, change }))) : [];
  return (
    <Act
      title={`${title} ${keysOf(keyIds.length)}`}
      operation={changeKeys}
      input={requests[0] ?? {}}
      act={name}
      danger={danger}
      confirm={act === 'delete' ? `${keyIds.length}` : undefined}
      ready={change !== undefined && !last?.isGoing}
      displayed={list}
      close={close}
      send={async () => {
        const before = last;
        const run = new Run(done, requests);
        sending.current = run;
        await begin(run);
        sending.current = undefined;
        if (!run.failure || run.isLost || run.isStopped) return;
        // What the server refused can be corrected in the form.
        display(before);
        throw run.failure;
      }}
    >
      <p>{text}</p>
      {act === 'expire' && <ExpiryField value={field} set={setField} />}
      {act === 'plan' && <PlanField value={field} set={setField} hint={planOfKeyHint} />}
      {requests.length > 1 && <p class="quiet">A request for each {atOnce} of them.</p>}
    </Act>
  );
}
