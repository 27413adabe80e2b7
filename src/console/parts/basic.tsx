// Small parts that all screens share.

import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { Outcome as Verified } from '../../domain/verification.ts';
import { curlOf, type Failure } from '../api.ts';
import { ago, count, dateTime, moment, timeSpan } from '../format.ts';
import { customerPath, planPath } from '../paths.ts';
import { endsOf, periods, type usePeriod } from '../period.ts';
import type { Ratelimit } from '../records.ts';
import { currentSignIn } from '../session.ts';
import { visible } from '../visibleText.ts';
import { localTime } from '../zone.ts';

const words: Record<Verified, string> = {
  VALID: 'Valid',
  RATE_LIMITED: 'Rate limited',
  USAGE_EXCEEDED: 'Usage exceeded',
  INSUFFICIENT_PERMISSIONS: 'Lacks permission',
  DISABLED: 'Disabled',
  EXPIRED: 'Expired',
  NOT_FOUND: 'Not found',
  FORBIDDEN: 'Address not allowed',
};
export const wordOf = (outcome: string): string => words[outcome as Verified] ?? outcome;

export const Outcome = ({ outcome }: { outcome: string }) => (
  <span class={`badge outcome-${outcome}`} title={outcome}>
    {wordOf(outcome)}
  </span>
);

export const Badge = ({ tone = '', children }: { tone?: string; children: ComponentChildren }) => (
  <span class={`badge ${tone}`}>{children}</span>
);

export const Time = ({ ms }: { ms: number | undefined }) =>
  ms === undefined ? (
    <span class="quiet">never</span>
  ) : (
    <time dateTime={new Date(ms).toISOString()} title={moment(ms)}>
      {ago(ms)}
    </time>
  );

/** A cell with a time in UTC, and the local time below it if that is chosen. */
export const UtcTime = ({ ms }: { ms: number }) => (
  <>
    <span class="number">{dateTime(ms)}</span>
    {localTime(ms) && <small>{localTime(ms)}</small>}
  </>
);

export const Count = ({ value }: { value: number }) => <span class="number">{count(value)}</span>;

type ButtonProps = Omit<JSX.ButtonHTMLAttributes, 'icon'> & { tone?: 'primary' | 'danger' | 'plain' };
export const Button = ({ tone, class: more, ...props }: ButtonProps) => (
  <button type="button" {...props} class={`button ${tone ?? ''} ${more ?? ''}`} />
);

export const CustomerLink = ({ externalId }: { externalId: string }) => (
  <Link href={customerPath(externalId)}>{externalId}</Link>
);

export const PlanLink = ({ planId }: { planId: string }) => <Link href={planPath(planId)}>{planId}</Link>;

/** Returns whether the text was copied. */
async function copyText(text: string, within: Element): Promise<boolean> {
  const isCopied = await navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  );
  if (isCopied) return true;
  // Browsers have no clipboard for a page that another machine serves without TLS. A dialog keeps the focus in it.
  const area = document.createElement('textarea');
  area.value = text;
  within.append(area);
  area.select();
  const isCopiedSo = document.execCommand('copy');
  area.remove();
  return isCopiedSo;
}

interface CopyProps {
  text: string;
  label?: string | undefined;
  /** Called when it is copied. */
  done?: (() => void) | undefined;
}
/** A button that copies a text and confirms it. */
export function Copy({ text, label = 'Copy', done }: CopyProps) {
  const [result, setResult] = useState<string>();
  const copy = async ({ currentTarget }: { currentTarget: Element }) => {
    const isCopied = await copyText(text, currentTarget.parentElement!);
    setResult(isCopied ? 'Copied' : 'Not copied: select the text');
    setTimeout(() => setResult(undefined), isCopied ? 1500 : 5000);
    if (isCopied) done?.();
  };
  return (
    <Button class="small" onClick={copy} aria-live="polite">
      {result ?? label}
    </Button>
  );
}

/** An id that can be copied. */
export const Id = ({ id }: { id: string }) => (
  <span class="id">
    <code>{id}</code>
    <Copy text={id} />
  </span>
);

export const Empty = ({ title, children }: { title: string; children?: ComponentChildren }) => (
  <div class="empty">
    <p class="empty-title">{title}</p>
    {children}
  </div>
);

/** An error of an operation. Its request id finds it in the log. */
export function Problem({ failure, retry }: { failure: Failure | undefined; retry?: () => unknown }) {
  if (!failure) return null;
  const { message, fields } = failure;
  // The message names the first field.
  const isNamed = fields.length === 1 && !fields[0]!.fix && message.startsWith(fields[0]!.location);
  return (
    <div class="problem" role="alert">
      <p>{message}</p>
      {fields.length > 0 && !isNamed && (
        <ul>
          {fields.map(({ location, message, fix }) => (
            <li key={location}>
              <code>{location}</code> {message}. {fix}
            </li>
          ))}
        </ul>
      )}
      <p class="quiet">
        {failure.code} {failure.requestId && <code>{failure.requestId}</code>}
      </p>
      {retry && <Button onClick={() => retry()}>Try again</Button>}
    </div>
  );
}

/** A placeholder for data that has not arrived, as high as the data will be, so that nothing moves. */
export const Waiting = ({ lines = 3 }: { lines?: number }) => (
  <div class="waiting" role="status" aria-busy="true" aria-label="Loading">
    {Array.from({ length: lines }, (_, index) => (
      <div class="waiting-line" key={index} />
    ))}
  </div>
);

/** Data, or its error, or a placeholder. */
export function Loaded<T>(props: {
  of: { data: T | undefined; failure: Failure | undefined; reload: () => unknown };
  lines?: number;
  /** The title of a screen, displayed until there is data. */
  title?: string;
  children: (data: T) => ComponentChildren;
}) {
  const { data, failure, reload } = props.of;
  if (data !== undefined) return <>{props.children(data)}</>;
  return (
    <>
      {props.title && <Head title={props.title} />}
      {failure ? <Problem failure={failure} retry={reload} /> : <Waiting lines={props.lines ?? 3} />}
    </>
  );
}

/** What is wrong with the text of a field; empty if nothing is. */
type Wrong = string | false | undefined;
interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  wrong?: Wrong;
  children: (id: string) => ComponentChildren;
}
let fieldNumber = 0;
/** A labelled control with its hint, or with what is wrong. */
export function Field({ label, hint, wrong, children }: FieldProps) {
  const id = useRef(`field-${++fieldNumber}`).current;
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const control = box.current!.querySelector('input, select, textarea');
    const marks = { 'aria-invalid': 'true', 'aria-describedby': `${id}-wrong` };
    for (const [name, value] of Object.entries(marks))
      wrong ? control?.setAttribute(name, value) : control?.removeAttribute(name);
  }, [!wrong]);
  return (
    <div class="field" ref={box}>
      <label for={id}>{label}</label>
      {children(id)}
      {wrong ? (
        <p class="hint wrong" id={`${id}-wrong`}>
          {wrong}
        </p>
      ) : (
        hint && <p class="hint">{hint}</p>
      )}
    </div>
  );
}

/** How many fields of the form are wrong, with a jump to the first. It is below them, so that they are drawn before. */
export function WrongFields() {
  const ref = useRef<HTMLDivElement>(null);
  const [found, setFound] = useState(0);
  const wrongOnes = () => ref.current!.closest('form')!.querySelectorAll<HTMLElement>('.field:has(> .wrong)');
  useLayoutEffect(() => setFound(wrongOnes().length));
  const jump = () => wrongOnes()[0]?.querySelector<HTMLElement>('input, select, textarea')?.focus();
  return (
    <div ref={ref} class="wrong" role="status">
      {found > 0 && (
        <Button class="small" onClick={jump}>
          {found === 1 ? '1 field is wrong' : `${found} fields are wrong`}: go to the first
        </Button>
      )}
    </div>
  );
}

export interface TextFieldProps extends Omit<JSX.InputHTMLAttributes<HTMLInputElement>, 'label'> {
  label: string;
  hint?: ComponentChildren;
  wrong?: Wrong;
  value: string;
  set: (value: string) => void;
}
export const TextField = ({ label, hint, wrong, set, ...props }: TextFieldProps) => (
  <Field
    label={label}
    wrong={wrong}
    hint={visible(props.value) === props.value ? hint : `With what is not visible: ${props.value}`}
  >
    {(id) => (
      <input
        id={id}
        type="text"
        autocomplete="off"
        spellcheck={false}
        {...props}
        onInput={(e) => set(e.currentTarget.value)}
      />
    )}
  </Field>
);

interface SearchProps {
  id: string;
  placeholder: string;
  typed: { text: string; setText: (text: string) => void };
}
/** The search of a list. */
export const SearchField = ({ id, placeholder, typed }: SearchProps) => (
  <div class="field grow">
    <label for={id}>Search</label>
    <input
      id={id}
      type="search"
      placeholder={placeholder}
      value={typed.text}
      onInput={(e) => typed.setText(e.currentTarget.value)}
    />
  </div>
);

interface SelectProps {
  label: string;
  hint?: ComponentChildren;
  wrong?: Wrong;
  value: string;
  set: (value: string) => void;
  options: readonly (readonly [value: string, text: string])[];
}
export const SelectField = ({ label, hint, wrong, value, set, options }: SelectProps) => (
  <Field label={label} hint={hint} wrong={wrong}>
    {(id) => (
      <select id={id} value={value} onChange={(e) => set(e.currentTarget.value)}>
        {options.map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </select>
    )}
  </Field>
);

export const Check = ({ label, value, set }: { label: string; value: boolean; set: (value: boolean) => void }) => (
  <label class="check">
    <input type="checkbox" checked={value} onChange={(e) => set(e.currentTarget.checked)} />
    {label}
  </label>
);

/** One of a few choices, as a row of buttons. */
export function Choice<T extends string>(props: {
  label: string;
  value: T;
  set: (value: T) => void;
  options: readonly (readonly [T, string])[];
}) {
  return (
    <div class="choice" role="radiogroup" aria-label={props.label}>
      {props.options.map(([value, text]) => (
        <label key={value} class={value === props.value ? 'chosen' : ''}>
          <input
            type="radio"
            name={props.label}
            checked={value === props.value}
            onChange={() => props.set(value)}
            class="hidden"
          />
          {text}
        </label>
      ))}
    </div>
  );
}

/** The choice of the period of a screen. A period that was selected in a chart follows those of the list. */
export function PeriodChoice({ period }: { period: ReturnType<typeof usePeriod> }) {
  const own = endsOf(period.name);
  return (
    <Choice
      label="Period"
      value={period.name}
      set={period.setName}
      options={own ? [...periods, [period.name, `${timeSpan(...own)} UTC`]] : periods}
    />
  );
}

/** The request of an act, as a command to copy. */
export function AsCurl({ operation, input }: { operation: string; input: object }) {
  const text = curlOf(operation, input);
  return (
    <details class="curl">
      <summary>Request</summary>
      <div class="snippet">
        <pre>{text}</pre>
        <Copy text={text} label="Copy as curl" />
      </div>
    </details>
  );
}

interface SnippetProps extends CopyProps {
  /** Copied in place of the text. */
  copied?: string;
}
/** A text to copy. */
export function Snippet({ text, copied = text, label, done }: SnippetProps) {
  // The whole text may be selected and copied as well.
  const note = () => getSelection()?.toString().includes(text) && done?.();
  return (
    <div class="snippet">
      <pre onCopy={note}>{text}</pre>
      <Copy text={copied} label={label} done={done} />
    </div>
  );
}

/** The variable that copied commands use. Only its beginning is displayed. */
export function SetRootKey() {
  const { rootKey } = currentSignIn()!;
  return (
    <Snippet
      text={`export ROOT_KEY=${rootKey.slice(0, 9)}…`}
      copied={`export ROOT_KEY=${rootKey}`}
      label="Copy in full"
    />
  );
}

export const Card = (props: {
  title?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
  class?: string;
}) => (
  <section class={`card ${props.class ?? ''}`}>
    {(props.title || props.actions) && (
      <header class="card-head">
        <h2>{props.title}</h2>
        <div class="actions">{props.actions}</div>
      </header>
    )}
    {props.children}
  </section>
);

/** The head of a screen. It names the page, too. */
export function Head({ title, children }: { title: string; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${visible(title)} · Tollgate`;
  }, [title]);
  return (
    <header class="head">
      <h1>{title}</h1>
      <div class="actions">{children}</div>
    </header>
  );
}

/** A bar for how full something is, with its figures as text. */
export function Gauge({ used, of, label, what }: { used: number; of: number; label: string; what?: string }) {
  const part = of === 0 ? 1 : Math.min(1, Math.max(0, used / of));
  const tone = part >= 1 ? 'full' : part >= 0.8 ? 'high' : '';
  return (
    <div class="gauge">
      <meter class={tone} min={0} max={1} value={part} aria-label={label} />
      <span class="number">
        {count(used)} of {count(of)} {what}
      </span>
    </div>
  );
}

/** How full a limit is. */
export function LimitGauge({
  used,
  limit,
}: {
  used: number;
  limit: Pick<Ratelimit, 'name' | 'limit' | 'type' | 'period'>;
}) {
  const what = limit.type === 'concurrency' ? 'slots' : limit.period && `this ${limit.period}`;
  return <Gauge used={used} of={limit.limit} label={`${limit.name} used`} {...(what && { what })} />;
}

/** Displayed in place of an action that the root key may not take. */
export const Lacks = ({ title, grant }: { title?: string; grant: string }) => (
  <Card title={title}>
    <Empty title="Your root key may not do this">
      <p class="quiet">
        It lacks the grant <code>{grant}</code>.
      </p>
    </Empty>
  </Card>
);

/** Displayed in place of a screen that the root key may not use. */
export const LacksScreen = ({ title, grant }: { title: string; grant: string }) => (
  <>
    <Head title={title} />
    <Lacks grant={grant} />
  </>
);
