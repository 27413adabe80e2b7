// The form of an override: what applies to an identifier, and for how long.

import { useState } from 'preact/hooks';
import { count, duration } from '../format.ts';
import type { Override } from '../records.ts';
import { TextField } from './basic.tsx';
import { Act } from './dialog.tsx';
import { durationOf } from './keyForm.tsx';
import { LastingFields, lastingOf } from './lasting.tsx';

/** "10 in any 1 min". */
export const amountOf = ({ limit, duration: ms }: { limit: number; duration: number }): string =>
  `${count(limit)} in any ${duration(ms)}`;

export function SetOverride(props: { namespace: string; override: Override | undefined; close: () => void }) {
  const { namespace, override, close } = props;
  const [identifier, setIdentifier] = useState(override?.identifier ?? '');
  const [limit, setLimit] = useState(`${override?.limit ?? 100}`);
  const [text, setText] = useState(override ? duration(override.duration) : '1 min');
  const [lasting, setLasting] = useState(lastingOf(override));
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
      <LastingFields before={override} lasting={lasting} set={setLasting} amountOf={amountOf} />
    </Act>
  );
}
