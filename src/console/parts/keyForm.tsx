// The parts of a key's form: they are the same for a new key and for changes.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { type LimitType, type NewLimit, slotDurationMax, slotsMax } from '../../domain/limit.ts';
import { count, duration, readDuration } from '../format.ts';
import type { Credits, Ratelimit } from '../records.ts';
import { Button, Check, Field, SelectField, TextField } from './basic.tsx';

export interface LimitDraft {
  name: string;
  limit: string;
  duration: string;
  autoApply: boolean;
  type: LimitType;
}

export const draftOf = ({ name, limit, duration: ms, autoApply, type }: Ratelimit): LimitDraft => ({
  name,
  limit: `${limit}`,
  duration: duration(ms),
  autoApply,
  type: type ?? 'window',
});

const wholeOf = (text: string) =>
  /^\d+$/.test(text.replaceAll(',', '').trim()) ? Number(text.replaceAll(',', '')) : undefined;
/** "1 min 30 s" and the like; each part as in readDuration. */
export function durationOf(text: string): number | undefined {
  const parts = text.match(/\d+(?:\.\d+)?\s*[a-z]*/g);
  if (!parts || parts.join('').replaceAll(' ', '') !== text.replaceAll(' ', '')) return undefined;
  let sum = 0;
  for (const part of parts) {
    const ms = readDuration(part);
    if (ms === undefined) return undefined;
    sum += ms;
  }
  return sum;
}

const limitOf = ({ name, limit, duration: text, autoApply, type }: LimitDraft): NewLimit => ({
  name: name.trim(),
  limit: wholeOf(limit) ?? 0,
  duration: durationOf(text) ?? 0,
  autoApply,
  // Also a window: without a type, an existing limit keeps the one it has.
  type,
});

/** What is missing in each field. */
function missingIn(draft: LimitDraft) {
  const { name, limit, duration: ms, type } = limitOf(draft);
  const isSlots = type === 'concurrency';
  return {
    name: name.length < 3 && 'At least 3 characters.',
    limit:
      (limit === 0 && 'A whole number, at least 1.') ||
      (isSlots && limit > slotsMax && `At most ${count(slotsMax)} slots.`),
    duration:
      (ms < 1000 && 'At least 1 s: 10 s, 1 min, 1 h.') ||
      (isSlots && ms > slotDurationMax && `At most ${duration(slotDurationMax)}.`),
  };
}

/** The limits of drafts; undefined while one of them is not complete. */
export const limitsOf = (drafts: readonly LimitDraft[]): NewLimit[] | undefined =>
  drafts.some((draft) => Object.values(missingIn(draft)).some(Boolean)) ? undefined : drafts.map(limitOf);

function OneLimit(props: { draft: LimitDraft; change: (changes: Partial<LimitDraft>) => void; remove: () => void }) {
  const { draft, change, remove } = props;
  const missing = missingIn(draft);
  return (
    <div class="fields">
      <TextField
        label="Name"
        value={draft.name}
        set={(name) => change({ name })}
        hint={missing.name}
        placeholder="requests"
      />
      <SelectField
        label="Limits"
        value={draft.type}
        set={(type) => change({ type: type as LimitType })}
        options={[
          ['window', 'units in a time'],
          ['concurrency', 'slots at once'],
        ]}
      />
      <TextField
        label={draft.type === 'window' ? 'Units' : 'Slots'}
        inputMode="numeric"
        value={draft.limit}
        set={(limit) => change({ limit })}
        hint={missing.limit}
      />
      <TextField
        label={draft.type === 'window' ? 'In any' : 'Taken at most'}
        value={draft.duration}
        set={(text) => change({ duration: text })}
        hint={missing.duration}
        placeholder="10 s, 1 min, 1 h"
      />
      <div class="field">
        <Check label="Checked in every request" value={draft.autoApply} set={(autoApply) => change({ autoApply })} />
        <Button class="small" onClick={remove}>
          Remove
        </Button>
      </div>
    </div>
  );
}

export function LimitFields({ drafts, set }: { drafts: readonly LimitDraft[]; set: (drafts: LimitDraft[]) => void }) {
  const change = (index: number, changes: Partial<LimitDraft>) =>
    set(drafts.map((draft, at) => (at === index ? { ...draft, ...changes } : draft)));
  return (
    <fieldset class="group">
      <legend>Limits</legend>
      {drafts.map((draft, index) => (
        <OneLimit
          key={index}
          draft={draft}
          change={(changes) => change(index, changes)}
          remove={() => set(drafts.filter((_, at) => at !== index))}
        />
      ))}
      <div>
        <Button
          class="small"
          onClick={() =>
            set([
              ...drafts,
              {
                name: drafts.length ? '' : 'requests',
                limit: '100',
                duration: '1 min',
                autoApply: true,
                type: 'window',
              },
            ])
          }
        >
          Add a limit
        </Button>
      </div>
    </fieldset>
  );
}

/** Whose key it is. */
export const CustomerField = ({ value, set }: { value: string; set: (value: string) => void }) => (
  <TextField
    label="Customer (externalId)"
    value={value}
    set={set}
    maxLength={255}
    pattern="[a-zA-Z0-9_.\-]*"
    title={customerHint}
    hint={customerHint}
    placeholder="customer_42"
  />
);
const customerHint = 'Your id of the customer: letters, digits, _ . and -';

export interface CreditsDraft {
  remaining: string;
  interval: '' | 'daily' | 'monthly';
  amount: string;
  refillDay: string;
}

export const creditsDraftOf = (credits: Credits | undefined): CreditsDraft => ({
  remaining: credits ? `${credits.remaining}` : '',
  interval: credits?.refill?.interval ?? '',
  amount: `${credits?.refill?.amount ?? ''}`,
  refillDay: `${credits?.refill?.refillDay ?? 1}`,
});

/** The credits of a draft: null without a balance, undefined while it is not complete. */
export function creditsOf({ remaining, interval, amount, refillDay }: CreditsDraft) {
  if (remaining.trim() === '') return null;
  const balance = wholeOf(remaining);
  const refilled = wholeOf(amount);
  if (balance === undefined || (interval && !refilled)) return undefined;
  if (!interval) return { remaining: balance };
  const day = interval === 'monthly' ? { refillDay: wholeOf(refillDay) ?? 1 } : {};
  return { remaining: balance, refill: { interval, amount: refilled!, ...day } };
}

/**
 * A balance that is sent is a new one, without the debt and the open holds of the one before. So only a changed one is
 * sent.
 */
export function creditChangesOf(draft: CreditsDraft, initial: CreditsDraft) {
  const credits = creditsOf(draft);
  if (!credits) return credits;
  const { remaining, refill = null } = credits;
  return { ...(draft.remaining !== initial.remaining && { remaining }), refill };
}

export function CreditsFields(props: { draft: CreditsDraft; set: (draft: CreditsDraft) => void; none?: string }) {
  // What an empty balance means.
  const { draft, set, none = 'unlimited' } = props;
  return (
    <fieldset class="group">
      <legend>Credits</legend>
      <div class="fields">
        <TextField
          label="Balance"
          inputMode="numeric"
          value={draft.remaining}
          set={(remaining) => set({ ...draft, remaining })}
          hint={draft.remaining.trim() !== '' && wholeOf(draft.remaining) === undefined && 'A whole number.'}
          placeholder={none}
        />
        <SelectField
          label="Refill"
          value={draft.interval}
          set={(interval) => set({ ...draft, interval: interval as CreditsDraft['interval'] })}
          options={[
            ['', 'never'],
            ['daily', 'every day, at 00:00 UTC'],
            ['monthly', 'every month'],
          ]}
        />
        {draft.interval && (
          <TextField
            label="To"
            inputMode="numeric"
            value={draft.amount}
            set={(amount) => set({ ...draft, amount })}
            hint={!wholeOf(draft.amount) && 'A whole number, at least 1.'}
            placeholder="credits"
          />
        )}
        {draft.interval === 'monthly' && (
          <TextField
            label="On day"
            inputMode="numeric"
            value={draft.refillDay}
            set={(refillDay) => set({ ...draft, refillDay })}
          />
        )}
      </div>
    </fieldset>
  );
}

/** A time in UTC as the field for one wants it. */
export const inputTime = (ms: number | undefined): string =>
  ms === undefined ? '' : new Date(ms).toISOString().slice(0, 16);
/** Undefined for no time, and for one with a year of more than four digits, which Date.parse does not read. */
export function timeOfInput(text: string): number | undefined {
  const ms = text === '' ? Number.NaN : Date.parse(`${text}Z`);
  return Number.isNaN(ms) ? undefined : ms;
}
/** Whether the field for a time is empty, or has one that timeOfInput reads. */
export const isTimeInput = (text: string): boolean => text === '' || timeOfInput(text) !== undefined;

/** The field for a time in UTC. */
export function TimeField(props: {
  label: string;
  value: string;
  set: (value: string) => void;
  hint?: string;
  children?: ComponentChildren;
}) {
  const { label, value, set, hint, children } = props;
  const input = (id: string) => (
    <input
      id={id}
      class={children ? 'grow' : undefined}
      type="datetime-local"
      max="9999-12-31T23:59"
      value={value}
      onInput={(e) => set(e.currentTarget.value)}
    />
  );
  return (
    <Field label={`${label}, UTC`} hint={isTimeInput(value) ? hint : 'A year of at most four digits.'}>
      {(id) =>
        children ? (
          <div class="bar">
            {input(id)}
            {children}
          </div>
        ) : (
          input(id)
        )
      }
    </Field>
  );
}

export function ExpiryField({ value, set }: { value: string; set: (value: string) => void }) {
  const presets = [
    ['30 days', 30],
    ['90 days', 90],
    ['1 year', 365],
  ] as const;
  return (
    <TimeField label="Expires" value={value} set={set} hint="Empty: never.">
      {presets.map(([text, days]) => (
        <Button key={text} class="small" onClick={() => set(inputTime(Date.now() + days * 86_400_000))}>
          {text}
        </Button>
      ))}
    </TimeField>
  );
}

/** The addresses that may use a key. */
export const AllowedIpsField = ({ value, set }: { value: string; set: (value: string) => void }) => (
  <TextField
    label="IP addresses that may use it"
    value={value}
    set={set}
    hint="Addresses and CIDR ranges with spaces between them. Empty: any address."
    placeholder="203.0.113.0/24 2001:db8::/32"
  />
);

/** Names in a list: one each line. */
export const namesOf = (text: string): string[] => [...new Set(text.split(/[\s,]+/).filter((name) => name !== ''))];

/** JSON of an object; undefined while it is not. */
export function metaOf(text: string): Record<string, unknown> | undefined {
  if (text.trim() === '') return {};
  try {
    const value = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

export function MetaField({ value, set }: { value: string; set: (value: string) => void }) {
  const [isLeft, setLeft] = useState(false);
  return (
    <Field
      label="Metadata"
      hint={
        isLeft && metaOf(value) === undefined
          ? 'This is no JSON object yet.'
          : 'A JSON object. Every verification returns it.'
      }
    >
      {(id) => (
        <textarea
          id={id}
          spellcheck={false}
          value={value}
          placeholder='{"plan": "pro"}'
          onInput={(e) => set(e.currentTarget.value)}
          onBlur={() => setLeft(true)}
        />
      )}
    </Field>
  );
}
