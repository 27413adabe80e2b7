// Changes of a key, each a dialog with its request.

import { useRef, useState } from 'preact/hooks';
import { useData } from '../api.ts';
import { count, retention } from '../format.ts';
import { SelectField, TextField } from '../parts/basic.tsx';
import { EditCredits } from '../parts/credits.tsx';
import { Act } from '../parts/dialog.tsx';
import {
  AllowedIpsField,
  CustomerField,
  draftOf,
  ExpiryField,
  LimitFields,
  limitsOf,
  MetaField,
  metaOf,
  namesOf,
} from '../parts/keyForm.tsx';
import { nameOf } from '../parts/keyName.tsx';
import { NamesField } from '../parts/names.tsx';
import { PlanField, planOfKeyHint } from '../parts/plan.tsx';
import { SecretDialog } from '../parts/secret.tsx';
import { inputTime, isTimeInput, timeOfInput } from '../parts/times.tsx';
import { countOf, periodOf } from '../period.ts';
import type { Key, UsageRow } from '../records.ts';

interface KeyAct {
  data: Key;
  close: () => void;
}

export function EditDetails({ data: current, close }: KeyAct) {
  // As it was when the dialog opened: the screen reads it again while it is open.
  const [data] = useState(current);
  const [name, setName] = useState(data.name ?? '');
  const [customer, setCustomer] = useState(data.externalId ?? '');
  const [planId, setPlanId] = useState(data.planId ?? '');
  const [expires, setExpires] = useState(inputTime(data.expires));
  const [allowedIps, setAllowedIps] = useState((data.allowedIps ?? []).join(' '));
  const [meta, setMeta] = useState(data.meta ? JSON.stringify(data.meta, null, 2) : '');
  const metadata = metaOf(meta);
  const isExpiryChanged = expires !== inputTime(data.expires);
  const input = {
    keyId: data.keyId,
    ...(name !== (data.name ?? '') && { name: name || null }),
    ...(customer !== (data.externalId ?? '') && { externalId: customer || null }),
    ...(planId !== (data.planId ?? '') && { planId: planId || null }),
    ...(isExpiryChanged && isTimeInput(expires) && { expires: timeOfInput(expires) ?? null }),
    ...(namesOf(allowedIps).join() !== (data.allowedIps ?? []).join() && {
      allowedIps: allowedIps.trim() ? namesOf(allowedIps) : null,
    }),
    ...(JSON.stringify(metadata) !== JSON.stringify(data.meta ?? {}) && { meta: meta.trim() ? metadata : null }),
  };
  return (
    <Act
      title={`Edit ${nameOf(data)}`}
      operation="keys.updateKey"
      input={input}
      act="Save"
      // An expiry after the year 9999, which the field does not display, may stay.
      ready={metadata !== undefined && (!isExpiryChanged || isTimeInput(expires)) && Object.keys(input).length > 1}
      isPartial={metadata === undefined || (isExpiryChanged && !isTimeInput(expires))}
      close={close}
    >
      <TextField label="Name" value={name} set={setName} maxLength={255} />
      <CustomerField value={customer} set={setCustomer} />
      <PlanField value={planId} set={setPlanId} hint={planOfKeyHint} />
      <ExpiryField value={expires} set={setExpires} />
      <AllowedIpsField value={allowedIps} set={setAllowedIps} />
      <MetaField value={meta} set={setMeta} />
    </Act>
  );
}

export const EditKeyCredits = ({ data, close }: KeyAct) => (
  <EditCredits
    name={nameOf(data)}
    operation="keys.updateKey"
    reference={{ keyId: data.keyId }}
    credits={data.credits}
    close={close}
  />
);

export function EditLimits({ data, close }: KeyAct) {
  const [drafts, setDrafts] = useState((data.ratelimits ?? []).map(draftOf));
  const ratelimits = limitsOf(drafts);
  return (
    <Act
      title={`Limits of ${nameOf(data)}`}
      operation="keys.updateKey"
      input={{ keyId: data.keyId, ratelimits }}
      act="Save"
      ready={ratelimits !== undefined}
      isEdit
      edited={data.ratelimits}
      close={close}
    >
      <LimitFields drafts={drafts} set={setDrafts} />
    </Act>
  );
}

export function EditAccess({ data, close }: KeyAct) {
  const [before] = useState((data.roles ?? []).join(' '));
  const [roles, setRoles] = useState(before);
  const [permissions, setPermissions] = useState('');
  const input = {
    keyId: data.keyId,
    ...(roles !== before && { roles: namesOf(roles) }),
    ...(permissions.trim() && { permissions: namesOf(permissions) }),
  };
  return (
    <Act
      title={`Permissions of ${nameOf(data)}`}
      operation="keys.updateKey"
      input={input}
      act="Save"
      ready={Object.keys(input).length > 1}
      edited={data.roles}
      close={close}
    >
      <NamesField label="Roles" of="roles" value={roles} set={setRoles} hint="Names with spaces between them." />
      <NamesField
        label="Direct permissions"
        of="permissions"
        value={permissions}
        set={setPermissions}
        hint="They replace the direct ones. Empty: they stay as they are."
      />
    </Act>
  );
}

export function SwitchKey({ data: current, close }: KeyAct) {
  // As it was when the dialog opened: it may be disabled meanwhile, and a second press must not enable it.
  const [data] = useState(current);
  return (
    <Act
      title={data.enabled ? `Disable ${nameOf(data)}` : `Enable ${nameOf(data)}`}
      operation="keys.updateKey"
      input={{ keyId: data.keyId, enabled: !data.enabled }}
      act={data.enabled ? 'Disable' : 'Enable'}
      danger={data.enabled}
      close={close}
    >
      <p>
        {data.enabled
          ? 'Every verification that begins after this is refused as DISABLED, on every server.'
          : 'It is verified again immediately.'}
      </p>
    </Act>
  );
}

const graces = [
  ['0', 'at once'],
  ['3600000', 'in 1 hour'],
  ['86400000', 'in 1 day'],
  ['604800000', 'in 7 days'],
  ['2592000000', 'in 30 days'],
] as const;

export function Rotate({ data, close }: KeyAct) {
  const [grace, setGrace] = useState('86400000');
  const [made, setMade] = useState<{ keyId: string; key: string }>();
  if (made) return <Rotated old={data} made={made} close={close} />;
  return (
    <Act<{ keyId: string; key: string }>
      title={`Rotate ${nameOf(data)}`}
      operation="keys.rerollKey"
      input={{ keyId: data.keyId, expiration: Number(grace), credits: 'move' }}
      act="Make the new key"
      makesSecret
      // The dialog with the new key follows.
      close={() => {}}
      cancel={close}
      done={setMade}
    >
      <p>A new key with another string and the same settings replaces this one.</p>
      {data.credits && <p>Its credits move to the new key. Until this key expires, it is charged to them.</p>}
      <SelectField label="The old key expires" value={grace} set={setGrace} options={graces} />
    </Act>
  );
}

const timesOf = (times: number) => (times === 1 ? 'once' : `${count(times)} times`);

/** The new key, and how often the old one was used since. */
function Rotated({ old, made, close }: { old: Key; made: { keyId: string; key: string }; close: () => void }) {
  const { start, end } = periodOf('1h');
  const input = { keyId: old.keyId, start, end, granularity: 'hour' as const, groupBy: [] };
  const usage = useData<UsageRow[]>('analytics.getVerifications', input, 1000);
  const first = useRef<number>();
  const used = usage.data && countOf(usage.data);
  first.current ??= used;
  const since = used !== undefined && first.current !== undefined ? used - first.current : undefined;
  return (
    <SecretDialog title="The new key" text={made.key} label="Copy key" close={close}>
      <p role="status">
        {since === 0 && 'The old key was not used since.'}
        {since !== undefined && since > 0 && `The old key was used ${timesOf(since)} since. It works until it expires.`}
      </p>
    </SecretDialog>
  );
}

export const DeleteKey = ({ data, close, done }: KeyAct & { done: () => void }) => (
  <Act
    title={`Delete ${nameOf(data)}`}
    operation="keys.deleteKey"
    input={{ keyId: data.keyId }}
    act="Delete"
    danger
    confirm={data.name || data.start || data.keyId}
    close={close}
    done={done}
  >
    <p>It is unknown to every verification from now on. It can be restored for {retention}.</p>
  </Act>
);

export const RestoreKey = ({ data, close }: KeyAct) => (
  <Act
    title={`Restore ${nameOf(data)}`}
    operation="keys.restoreKey"
    input={{ keyId: data.keyId }}
    act="Restore"
    close={close}
  >
    <p>It is verified again immediately, with its settings, its balance and its history.</p>
  </Act>
);
