// The parts of a key's form: they are the same for a new key and for changes.

import { type NewLimit, slotDurationMax, slotsMax } from '../../domain/limit.ts';
import { count, duration } from '../format.ts';
import type { Credits, Ratelimit } from '../records.ts';
import { Button, Check, Field, SelectField, TextField } from './basic.tsx';
import { isComplete, type Lasting, LastingFields, lastingOf } from './lasting.tsx';
import { type Length, LengthFields, lengthGiven, lengthOf } from './length.tsx';
import { inputTime, TimeField } from './times.tsx';

export interface LimitDraft {
  name: string;
  limit: string;
  /** How long it lasts; of slots the text is that of their time. */
  length: Length;
  autoApply: boolean;
  isSlots: boolean;
  lasting: Lasting;
  /** Undefined for a new one. */
  before: Ratelimit | undefined;
}

export const newDraft = (name: string, limit: string): LimitDraft => ({
  name,
  limit,
  length: lengthOf(undefined),
  autoApply: true,
  isSlots: false,
  lasting: lastingOf(undefined),
  before: undefined,
});

export const draftOf = (before: Ratelimit): LimitDraft => ({
  name: before.name,
  limit: `${before.limit}`,
  length: lengthOf(before),
  autoApply: before.autoApply,
  isSlots: before.type === 'concurrency',
  lasting: lastingOf(before),
  before,
});

export const wholeOf = (text: string) =>
  /^\d+$/.test(text.replaceAll(',', '').trim()) ? Number(text.replaceAll(',', '')) : undefined;

/** A temporary limit is sent with its end, because editing its units would make it permanent. */
const limitOf = ({ name, limit, length, autoApply, isSlots, lasting, before }: LimitDraft): NewLimit => ({
  name: name.trim(),
  limit: wholeOf(limit) ?? 0,
  ...(lengthGiven(isSlots ? { ...length, period: '' } : length) ?? { duration: 0 }),
  autoApply,
  // Sent for a window, too: without a type, an existing limit keeps its own.
  type: isSlots ? 'concurrency' : length.period === '' ? 'window' : 'quota',
  ...(lasting.until !== undefined ? { until: lasting.until } : before?.until !== undefined && { until: null }),
});

/** A message for each field that is not complete. */
function missingIn(draft: LimitDraft) {
  const { name, limit, duration: ms = slotDurationMax } = limitOf(draft);
  const { isSlots } = draft;
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
  drafts.every((draft) => isComplete(draft.lasting) && !Object.values(missingIn(draft)).some(Boolean))
    ? drafts.map(limitOf)
    : undefined;

function OneLimit(props: {
  draft: LimitDraft;
  change: (changes: Partial<LimitDraft>) => void;
  remove: () => void;
  isOfPlan: boolean;
}) {
  const { draft, change, remove, isOfPlan } = props;
  const missing = missingIn(draft);
  return (
    <div class="fields limit">
      <TextField
        label="Name"
        value={draft.name}
        set={(name) => change({ name })}
        wrong={missing.name}
        placeholder="requests"
      />
      <SelectField
        label="Limits"
        value={draft.isSlots ? 'concurrency' : 'window'}
        set={(type) => change({ isSlots: type === 'concurrency' })}
        options={[
          ['window', 'units in a time'],
          ['concurrency', 'slots at once'],
        ]}
      />
      <TextField
        label={draft.isSlots ? 'Slots' : 'Units'}
        inputMode="numeric"
        value={draft.limit}
        set={(limit) => change({ limit })}
        wrong={missing.limit}
      />
      {draft.isSlots ? (
        <TextField
          label="Taken at most"
          value={draft.length.text}
          set={(text) => change({ length: { ...draft.length, text } })}
          wrong={missing.duration}
          placeholder="10 s, 1 min, 1 h"
        />
      ) : (
        <LengthFields length={draft.length} set={(length) => change({ length })} wrong={missing.duration} />
      )}
      {!isOfPlan && (
        <LastingFields
          before={draft.name === draft.before?.name ? draft.before : undefined}
          lasting={draft.lasting}
          set={(lasting) => change({ lasting })}
        />
      )}
      <Check label="Checked in every request" value={draft.autoApply} set={(autoApply) => change({ autoApply })} />
      <Button class="small" onClick={remove} aria-label={`Remove ${draft.name}`}>
        Remove
      </Button>
    </div>
  );
}

/** Limits of a plan have no end. */
export function LimitFields(props: {
  drafts: readonly LimitDraft[];
  set: (drafts: LimitDraft[]) => void;
  isOfPlan?: true;
}) {
  const { drafts, set, isOfPlan = false } = props;
  const change = (index: number, changes: Partial<LimitDraft>) =>
    set(drafts.map((draft, at) => (at === index ? { ...draft, ...changes } : draft)));
  return (
    <fieldset class="group">
      <legend>Limits</legend>
      {drafts.map((draft, index) => (
        <OneLimit
          key={index}
          draft={draft}
          isOfPlan={isOfPlan}
          change={(changes) => change(index, changes)}
          remove={() => set(drafts.filter((_, at) => at !== index))}
        />
      ))}
      <div>
        <Button class="small" onClick={() => set([...drafts, newDraft(drafts.length ? '' : 'requests', '100')])}>
          Add a limit
        </Button>
      </div>
    </fieldset>
  );
}

/** The owner of the key. */
export const CustomerField = ({ value, set }: { value: string; set: (value: string) => void }) => (
  <TextField
    label="Customer (externalId)"
    value={value}
    set={set}
    maxLength={255}
    pattern="[a-zA-Z0-9_.\-]*"
    title={customerHint}
    hint={customerHint}
    wrong={!/^[a-zA-Z0-9_.-]*$/.test(value) && `${customerHint}.`}
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
  const day = dayOf(refillDay);
  if (balance === undefined || (interval && !refilled) || (interval === 'monthly' && !day)) return undefined;
  if (!interval) return { remaining: balance };
  return {
    remaining: balance,
    refill: { interval, amount: refilled!, ...(interval === 'monthly' && { refillDay: day! }) },
  };
}

/** Undefined for a text that is no day of a month. */
function dayOf(text: string): number | undefined {
  const day = wholeOf(text);
  return day !== undefined && day >= 1 && day <= 31 ? day : undefined;
}

/**
 * The changes; undefined if there are none, or while the draft is not complete. A balance in a request is a new one,
 * without the debt and the open holds of the former balance.
 */
export function creditChangesOf(draft: CreditsDraft, initial: CreditsDraft) {
  const [credits, before] = [creditsOf(draft), creditsOf(initial)];
  if (JSON.stringify(credits) === JSON.stringify(before)) return undefined;
  if (!credits) return credits;
  const { remaining, refill = null } = credits;
  return {
    ...(remaining !== before?.remaining && { remaining }),
    ...(JSON.stringify(refill) !== JSON.stringify(before?.refill ?? null) && { refill }),
  };
}

export function CreditsFields(props: { draft: CreditsDraft; set: (draft: CreditsDraft) => void; none?: string }) {
  // `none` is the text for an empty balance.
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
          wrong={draft.remaining.trim() !== '' && wholeOf(draft.remaining) === undefined && 'A whole number.'}
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
            wrong={!wholeOf(draft.amount) && 'A whole number, at least 1.'}
            placeholder="credits"
          />
        )}
        {draft.interval === 'monthly' && (
          <TextField
            label="On day"
            inputMode="numeric"
            value={draft.refillDay}
            set={(refillDay) => set({ ...draft, refillDay })}
            wrong={!dayOf(draft.refillDay) && 'A day of the month, 1 to 31.'}
          />
        )}
      </div>
    </fieldset>
  );
}

export function ExpiryField({ value, set }: { value: string; set: (value: string) => void }) {
  const presets = [
    ['1 hour', 1 / 24],
    ['1 day', 1],
    ['7 days', 7],
    ['30 days', 30],
    ['90 days', 90],
    ['1 year', 365],
  ] as const;
  return (
    <TimeField label="Expires" value={value} set={set} hint="Empty: never." ahead>
      {presets.map(([text, days]) => (
        <Button key={text} class="small" onClick={() => set(inputTime(Date.now() + days * 86_400_000))}>
          {text}
        </Button>
      ))}
      {value && (
        <Button class="small" onClick={() => set('')}>
          Never
        </Button>
      )}
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
/** Whether a list can have the name: one with a space or a comma would be several. */
export const isListable = (name: string): boolean => namesOf(name)[0] === name;

/** JSON of an object; undefined while the text is not. */
export function metaOf(text: string): Record<string, unknown> | undefined {
  if (text.trim() === '') return {};
  try {
    const value = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

export const MetaField = ({ value, set }: { value: string; set: (value: string) => void }) => (
  <Field
    label="Metadata"
    hint="A JSON object. Verifications return it."
    wrong={metaOf(value) === undefined && 'This is no JSON object yet.'}
  >
    {(id) => (
      <textarea
        id={id}
        spellcheck={false}
        value={value}
        placeholder='{"seats": 5}'
        onInput={(e) => set(e.currentTarget.value)}
      />
    )}
  </Field>
);
