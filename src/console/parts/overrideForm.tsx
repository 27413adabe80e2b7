// The form of an override: what applies to an identifier, and for how long.

import { useState } from 'preact/hooks';
import type { Override } from '../records.ts';
import { TextField } from './basic.tsx';
import { Act } from './dialog.tsx';
import { isComplete, LastingFields, lastingOf } from './lasting.tsx';
import { LengthFields, lengthGiven, lengthOf } from './length.tsx';

const example = '10 s, 1 min, 1 h';

export function SetOverride(props: { namespace: string; override: Override | undefined; close: () => void }) {
  const { namespace, override, close } = props;
  const [identifier, setIdentifier] = useState(override?.identifier ?? '');
  const [limit, setLimit] = useState(`${override?.limit ?? 100}`);
  const [length, setLength] = useState(lengthOf(override));
  const [lasting, setLasting] = useState(lastingOf(override));
  const { until } = lasting;
  const lasts = lengthGiven(length);
  const input = { namespace, identifier, limit: Number(limit), ...lasts, ...(until !== undefined && { until }) };
  const hasAmount = /^\d+$/.test(limit) && lasts !== undefined;
  return (
    <Act
      title={override ? `Override of ${override.identifier}` : 'New override'}
      operation="ratelimits.setOverride"
      input={input}
      act="Save"
      ready={identifier !== '' && hasAmount && isComplete(lasting)}
      isEdit={override !== undefined}
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
        <TextField
          label="Limit"
          inputMode="numeric"
          value={limit}
          set={setLimit}
          hint="0 blocks every request."
          wrong={!/^\d+$/.test(limit) && 'A whole number.'}
        />
        <LengthFields length={length} set={setLength} hint={example} wrong={!lasts && `Such as ${example}.`} />
      </div>
      <LastingFields
        before={override}
        // Its identifier may have an override.
        ofNew="its permanent override, if it has one"
        lasting={lasting}
        set={setLasting}
      />
    </Act>
  );
}
