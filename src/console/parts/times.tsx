// Times in forms, in UTC, and the field for one.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
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

const typed = (value: string) => {
  const ms = timeOfInput(value);
  return ms === undefined ? value : typedTime(ms);
};

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
  const [text, setText] = useState(typed(value));
  const given = useRef(value);
  const before = useRef(value);
  useEffect(() => {
    // A form that keeps times only has '' for a text that is none.
    const isOwn = value === given.current || (value === '' && given.current === noTime && before.current !== noTime);
    before.current = value;
    if (isOwn) return;
    // A button, Back or a link.
    given.current = value;
    setText(typed(value));
  }, [value]);
  useEffect(() => setText(isTimeInput(given.current) ? typed(given.current) : text), [isLocal()]);
  const type = (text: string) => {
    const ms = readTime(text, ahead);
    // What is typed gets into no address before it is a time.
    given.current = text.trim() === '' ? '' : ms === undefined ? noTime : inputTime(ms);
    setText(text);
    set(given.current);
  };
  const ms = timeOfInput(value);
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
      onBlur={() => setText(isTimeInput(given.current) ? typed(given.current) : text)}
    />
  );
  return (
    <Field
      label={`${label}, ${isLocal() ? 'local time' : 'UTC'}`}
      hint={hint}
      wrong={!isTimeInput(given.current) && `A time such as 14:03, ${example} or 2026-11-22 14:03.`}
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
