// The form of an override: what applies to an identifier, and for how long.

import { useState } from 'preact/hooks';
import { dateTime, duration, unitsOf } from '../format.ts';
import { dayMs, hourMs } from '../period.ts';
import type { Override } from '../records.ts';
import { SelectField, TextField } from './basic.tsx';
import { Act } from './dialog.tsx';
import { durationOf, inputTime, TimeField, timeOfInput } from './keyForm.tsx';

const spans: Record<string, number> = { hour: hourMs, day: dayMs, week: 7 * dayMs };

/** How long it applies, and when that ends: of a span, from when it was chosen. */
interface Lasting {
  choice: string;
  until: number | undefined;
}

/** What applies when a temporary override ends. Of a new one it is not known: its identifier may have an override. */
function afterwards(override: Override | undefined): string {
  if (!override) return 'its permanent override, if it has one';
  const kept = override.until === undefined ? override : override.former;
  return kept ? unitsOf(kept) : 'none';
}

function LastingFields(props: { override: Override | undefined; lasting: Lasting; set: (lasting: Lasting) => void }) {
  const { override, lasting, set } = props;
  const { choice, until } = lasting;
  const before = override?.until;
  const choose = (next: string) => {
    const span = spans[next];
    set({ choice: next, until: next === 'keep' ? before : span === undefined ? undefined : Date.now() + span });
  };
  return (
    <>
      <SelectField
        label="Applies"
        value={choice}
        set={choose}
        options={[
          ...(before === undefined
            ? []
            : ([['keep', `until ${dateTime(before, { seconds: false })} UTC, as before`]] as const)),
          ['always', 'always'],
          ['hour', 'for 1 hour'],
          ['day', 'for 1 day'],
          ['week', 'for 7 days'],
          ['time', 'until …'],
        ]}
        hint={
          choice === 'always'
            ? override?.former && `Replaces ${unitsOf(override.former)}, too.`
            : until !== undefined && `Until ${dateTime(until)} UTC, then ${afterwards(override)}.`
        }
      />
      {choice === 'time' && (
        <TimeField
          label="Until"
          value={inputTime(until)}
          set={(text) => set({ choice, until: timeOfInput(text) })}
          hint="At most 366 days ahead."
        />
      )}
    </>
  );
}

export function SetOverride(props: { namespace: string; override: Override | undefined; close: () => void }) {
  const { namespace, override, close } = props;
  const [identifier, setIdentifier] = useState(override?.identifier ?? '');
  const [limit, setLimit] = useState(`${override?.limit ?? 100}`);
  const [text, setText] = useState(override ? duration(override.duration) : '1 min');
  const before = override?.until;
  const [lasting, setLasting] = useState<Lasting>({ choice: before === undefined ? 'always' : 'keep', until: before });
  const ms = durationOf(text);
  const { choice, until } = lasting;
  const input = { namespace, identifier, limit: Number(limit), duration: ms, ...(until !== undefined && { until }) };
  const isComplete = identifier !== '' && /^\d+$/.test(limit) && ms !== undefined;
  return (
    <Act
      title={override ? `Override of ${override.identifier}` : 'New override'}
      operation="ratelimits.setOverride"
      input={input}
      act="Save"
      ready={isComplete && (choice === 'always' || until !== undefined)}
      close={close}
    >
      {!override && (
        <TextField
          label="Identifier"
          value={identifier}
          set={setIdentifier}
          hint="Or a wildcard, such as user_*."
          placeholder="user_42"
        />
      )}
      <div class="fields">
        <TextField label="Limit" inputMode="numeric" value={limit} set={setLimit} hint="0 blocks every request." />
        <TextField label="In any" value={text} set={setText} hint="10 s, 1 min, 1 h" />
      </div>
      <LastingFields override={override} lasting={lasting} set={setLasting} />
    </Act>
  );
}
