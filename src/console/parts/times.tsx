// Times in UTC, and the field for one.

import type { ComponentChildren } from 'preact';
import { ago, dateTime } from '../format.ts';
import { Field } from './basic.tsx';

/** A time in UTC in the format of the field. */
export const inputTime = (ms: number | undefined): string =>
  ms === undefined ? '' : new Date(ms).toISOString().slice(0, 16);
/** Undefined for an empty text, and for a year of more than four digits, which Date.parse does not read. */
export function timeOfInput(text: string): number | undefined {
  const ms = text === '' ? Number.NaN : Date.parse(`${text}Z`);
  return Number.isNaN(ms) ? undefined : ms;
}
/** Whether the field for a time is empty or contains a time that timeOfInput reads. */
export const isTimeInput = (text: string): boolean => text === '' || timeOfInput(text) !== undefined;

/** The field for a time in UTC. */
export function TimeField(props: {
  label: string;
  value: string;
  set: (value: string) => void;
  hint?: string;
  children?: ComponentChildren;
}) {
  const { label, value, set, children } = props;
  const ms = timeOfInput(value);
  // A browser displays the field in the order of its language.
  const hint = ms === undefined ? props.hint : `${dateTime(ms, { seconds: false })} UTC, ${ago(ms)}`;
  const input = (id: string) => (
    <input
      id={id}
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
