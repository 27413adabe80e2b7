// How long the units of a limit or an override last: in any time, or in each period of the calendar.

import { defaultAnchor, type QuotaPeriod, quotaPeriods } from '../../domain/quota.ts';
import { type Amount, duration, readDuration } from '../format.ts';
import { SelectField, TextField } from './basic.tsx';
import { inputTime, TimeField, timeOfInput } from './times.tsx';

export interface Length {
  /** '' for any time of `text`. */
  period: QuotaPeriod | '';
  text: string;
  /** Where periods begin, as in a TimeField. */
  from: string;
  /** The former anchor, which may be within a minute. */
  anchor: number | undefined;
}

export function lengthOf(before: Omit<Amount, 'limit'> | undefined): Length {
  const { period = '', anchor } = before ?? {};
  const isDefault = period === '' || anchor === defaultAnchor(period);
  const text = before && period === '' ? duration(before.duration, 5) : '1 min';
  return { period, text, from: isDefault ? '' : inputTime(anchor), anchor };
}

/** "1 min 30 s" and the like; each part as in readDuration. */
function durationOf(text: string): number | undefined {
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

/** As requests have it; undefined while it is not complete. */
export function lengthGiven({ period, text, from, anchor: before }: Length) {
  if (period === '') {
    const ms = durationOf(text);
    return ms === undefined ? undefined : { duration: ms };
  }
  const anchor = from !== '' && from === inputTime(before) ? before : timeOfInput(from);
  if (from !== '' && anchor === undefined) return undefined;
  return { period, anchor };
}

export function LengthFields(props: {
  length: Length;
  set: (length: Length) => void;
  hint?: string;
  wrong?: string | false | undefined;
}) {
  const { length, set, hint, wrong } = props;
  return (
    <>
      <SelectField
        label="Per"
        value={length.period}
        set={(period) => set({ ...length, period: period as Length['period'] })}
        options={[['', 'any …'], ...quotaPeriods.map((period) => [period, period] as const)]}
      />
      {length.period === '' ? (
        <TextField
          label="In any"
          value={length.text}
          set={(text) => set({ ...length, text })}
          hint={hint}
          wrong={wrong}
          placeholder="10 s, 1 min, 1 h"
        />
      ) : (
        <TimeField
          label="Periods begin at"
          value={length.from}
          set={(from) => set({ ...length, from })}
          hint="Empty: midnight, Monday, the 1st."
        />
      )}
    </>
  );
}
