// For how long a limit or an override applies, in forms and tables.

import { useState } from 'preact/hooks';
import { type Amount, moment, unitsOf } from '../format.ts';
import { dayMs, hourMs } from '../period.ts';
import type { Ratelimit } from '../records.ts';
import { SelectField } from './basic.tsx';
import { inputTime, TimeField, timeOfInput } from './times.tsx';

/** A limit or an override as it was before a change. */
type Before = (Amount & Pick<Ratelimit, 'type'> & { until?: number; former?: Amount }) | undefined;

const spans: Record<string, number> = { hour: hourMs, day: dayMs, week: 7 * dayMs };

/** How long it applies, and its end: a span begins when it is chosen. */
export interface Lasting {
  choice: string;
  until: number | undefined;
}

export const lastingOf = (before: Before): Lasting =>
  before?.until === undefined ? { choice: 'always', until: undefined } : { choice: 'keep', until: before.until };

export const isComplete = ({ choice, until }: Lasting): boolean => choice === 'always' || until !== undefined;

/** `ofNew` describes what applies after a new temporary limit ends. */
export function LastingFields(props: {
  before: Before;
  ofNew?: string;
  lasting: Lasting;
  set: (lasting: Lasting) => void;
}) {
  const { before, ofNew = 'none', lasting, set } = props;
  const { choice, until } = lasting;
  // A limit that was renamed in the form keeps its end, and is a new one otherwise.
  const end = before?.until ?? (choice === 'keep' ? until : undefined);
  const choose = (next: string) => {
    const span = spans[next];
    set({ choice: next, until: next === 'keep' ? end : span === undefined ? undefined : Date.now() + span });
  };
  const [typed, setTyped] = useState('');
  const textOf = (amount: Amount | undefined) =>
    amount ? unitsOf({ ...amount, ...(before?.type && { type: before.type }) }) : 'none';
  const then = before ? textOf(before.until === undefined ? before : before.former) : ofNew;
  return (
    <>
      <SelectField
        label="Applies"
        value={choice}
        set={choose}
        options={[
          ...(end === undefined ? [] : ([['keep', `until ${moment(end, { seconds: false })}, as before`]] as const)),
          ['always', 'always'],
          ['hour', 'for 1 hour'],
          ['day', 'for 1 day'],
          ['week', 'for 7 days'],
          ['time', 'until …'],
        ]}
        hint={
          choice === 'always'
            ? before?.former && `Replaces ${textOf(before.former)}, too.`
            : until !== undefined && `Until ${moment(until)}, then ${then}.`
        }
      />
      {choice === 'time' && (
        <TimeField
          label="Until"
          value={timeOfInput(typed) === until ? typed : inputTime(until)}
          set={(text) => {
            setTyped(text);
            set({ choice, until: timeOfInput(text) });
          }}
          hint="At most 366 days ahead."
          ahead
        />
      )}
    </>
  );
}

/** The permanent limit or override that applies after a temporary one. */
export const formerOf = ({ former, type }: Pick<NonNullable<Before>, 'former' | 'type'>): string =>
  former ? unitsOf({ ...former, ...(type && { type }) }) : 'none';

type Limit = Amount & Pick<Ratelimit, 'type' | 'until' | 'former'>;

/** When a temporary limit ends, and what applies then; '' for a permanent one. */
export const endTextOf = (limit: Limit): string =>
  limit.until === undefined ? '' : `until ${moment(limit.until)}, then ${formerOf(limit)}`;

/** The units of a limit, and its end. */
export const Units = ({ limit }: { limit: Limit }) => (
  <>
    {unitsOf(limit)}
    {limit.until !== undefined && <small>{endTextOf(limit)}</small>}
  </>
);
