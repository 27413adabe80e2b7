// Times in forms, in UTC, and the field for one.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { ago, moment } from '../format.ts';
import { isLocal, readTime, typedTime } from '../zone.ts';
import { Field } from './basic.tsx';

/** A time in UTC as forms and addresses have it. */
export const inputTime = (ms: number | undefined): string =>
  ms === undefined ? '' : new Date(ms).toISOString().slice(0, 16);
/** Undefined for an empty text, and for one that is no time. */
export function timeOfInput(text: string): number | undefined {
  const ms = text === '' ? Number.NaN : Date.parse(`${text}Z`);
  return Number.isNaN(ms) ? undefined : ms;
}
/** Whether the field for a time is empty or contains a time that timeOfInput reads. */
export const isTimeInput = (text: string): boolean => text === '' || timeOfInput(text) !== undefined;

/** The value of a field with a text that is no time. */
const noTime = '?';

/**
 * The field for a time in UTC, or in the local zone if that is chosen. It takes `14:03` and `yesterday 14:03`, too, and
 * displays which time that is. `ahead`: a time without a day is the next one.
 */
export function TimeField(props: {
  label: string;
  value: string;
  set: (value: string) => void;
  hint?: string;
  ahead?: true;
  children?: ComponentChildren;
}) {
  const { label, value, set, ahead = false, children } = props;
  /** What is typed, as long as the value follows from it: a button, Back or a link change the value as well. */
  const [own, setOwn] = useState({ text: '', value });
  const [ms, isTime] = [timeOfInput(value), isTimeInput(value)];
  const text = own.value === value && own.text ? own.text : ms === undefined ? '' : typedTime(ms);
  const type = (text: string) => {
    const ms = readTime(text, ahead);
    // What is typed gets into no address before it is a time.
    const value = text.trim() === '' ? '' : ms === undefined ? noTime : inputTime(ms);
    setOwn({ text, value });
    set(value);
  };
  const hint = ms === undefined ? props.hint : `${moment(ms, { seconds: false })}, ${ago(ms)}`;
  const example = `${ahead ? 'tomorrow' : 'yesterday'} 14:03`;
  const input = (id: string) => (
    <input
      id={id}
      type="text"
      class="time"
      autocomplete="off"
      spellcheck={false}
      placeholder={`14:03, ${example}`}
      value={text}
      onInput={(e) => type(e.currentTarget.value)}
      onBlur={() => isTime && setOwn({ text: '', value })}
    />
  );
  return (
    <Field
      label={`${label}, ${isLocal() ? 'local time' : 'UTC'}`}
      hint={hint}
      wrong={!isTime && `A time such as 14:03, ${example} or 2026-11-22 14:03.`}
    >
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
