import { useState } from 'preact/hooks';
import { rootKeyColumns as columns, stateOf } from '../../domain/columns.ts';
import { soonMs } from '../../domain/ending.ts';
import { actions, type GrantPreset, grantPresets } from '../../domain/grants.ts';
import { useAddress, useTyped } from '../address.ts';
import { useData } from '../api.ts';
import { ago, count } from '../format.ts';
import { usePages } from '../pages.ts';
import { ApiSelect } from '../parts/apiSelect.tsx';
import { Changes } from '../parts/audit.tsx';
import { Badge, Button, Card, Empty, Field, Head, Lacks, Problem, SelectField, TextField } from '../parts/basic.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { Act } from '../parts/dialog.tsx';
import { ExpiryField, namesOf } from '../parts/keyForm.tsx';
import { NamesField } from '../parts/names.tsx';
import { SecretDialog } from '../parts/secret.tsx';
import { type Column, List, shared } from '../parts/table.tsx';
import { isTimeInput, timeOfInput } from '../parts/times.tsx';
import { dayMs } from '../period.ts';
import type { Permission, Role, RootKey } from '../records.ts';
import { may } from '../session.ts';
import { State } from './keys.tsx';

export function Access() {
  return (
    <>
      <Head title="Access" />
      <RootKeys />
      <RolesTable />
      <Audit />
    </>
  );
}

type Acting = { kind: 'new' } | { kind: 'switch' | 'delete'; rootKey: RootKey } | undefined;

function RootKeyState({ of }: { of: RootKey }) {
  const state = stateOf(of, Date.now());
  if (state !== 'enabled' || of.expires === undefined || of.expires - Date.now() > soonMs) return <State of={state} />;
  return <Badge tone="warn">Ends {ago(of.expires)}</Badge>;
}

const rootKeyColumns: Column<RootKey>[] = [
  shared(columns, 'Root key', {
    cell: ({ start, name }) => (
      <div>
        <code>{start}…</code>
        <small>{name}</small>
      </div>
    ),
  }),
  shared(columns, 'Id', { cell: ({ rootKeyId }) => <code>{rootKeyId}</code>, isWide: true }),
  shared(columns, 'Grants', {
    cell: ({ permissions }) => (
      <span title={permissions.join('\n')}>
        {permissions.slice(0, 3).map((grant) => (
          <Badge key={grant}>{grant}</Badge>
        ))}
        {permissions.length > 3 && <span class="quiet"> and {permissions.length - 3} more</span>}
      </span>
    ),
    isText: true,
  }),
  shared(columns, 'State', { cell: (rootKey) => <RootKeyState of={rootKey} /> }),
  shared(columns, 'Last used'),
  shared(columns, 'Expires', { isWide: true }),
];

function RootKeys() {
  const [acting, setActing] = useState<Acting>();
  const mayRead = may('root_key', 'read_root_key');
  const pages = usePages<RootKey>('rootKeys.listRootKeys', mayRead ? { limit: 50 } : undefined, 10_000);
  const { data: me } = useData<{ rootKeyId: string }>('rootKeys.whoami', {});
  if (!mayRead) return <Lacks title="Root keys" grant="root_key.*.read_root_key" />;
  const close = () => setActing(undefined);
  const isMine = acting && acting.kind !== 'new' && acting.rootKey.rootKeyId === me?.rootKeyId;
  const columns: Column<RootKey>[] = [
    ...rootKeyColumns,
    {
      name: 'Change',
      cell: (rootKey) => (
        <span class="actions">
          {may('root_key', 'update_root_key') && (
            <Button class="small" onClick={() => setActing({ kind: 'switch', rootKey })}>
              {rootKey.enabled ? 'Disable' : 'Enable'}
            </Button>
          )}
          {may('root_key', 'delete_root_key') && (
            <Button class="small" tone="danger" onClick={() => setActing({ kind: 'delete', rootKey })}>
              Delete
            </Button>
          )}
        </span>
      ),
    },
  ];
  return (
    <Card
      title="Root keys"
      actions={
        <>
          <CsvButton name="root-keys" columns={rootKeyColumns} of={pages} />
          {may('root_key', 'create_root_key') && (
            <Button onClick={() => setActing({ kind: 'new' })}>New root key</Button>
          )}
        </>
      }
    >
      <List
        label="Root keys"
        isCards
        columns={columns}
        of={pages}
        idOf={({ rootKeyId }) => rootKeyId}
        empty={<Empty title="None" />}
      />
      {acting?.kind === 'new' && <NewRootKey close={close} />}
      {acting?.kind === 'switch' && (
        <Act
          title={`${acting.rootKey.enabled ? 'Disable' : 'Enable'} ${acting.rootKey.start}`}
          operation="rootKeys.updateRootKey"
          input={{ rootKeyId: acting.rootKey.rootKeyId, enabled: !acting.rootKey.enabled }}
          act={acting.rootKey.enabled ? 'Disable' : 'Enable'}
          danger={acting.rootKey.enabled}
          close={close}
        >
          <p>
            It takes effect with the next request.{acting.rootKey.enabled && ' A gateway that uses it stops at once.'}
          </p>
          {isMine && <p class="notice">{signsOut}</p>}
        </Act>
      )}
      {acting?.kind === 'delete' && (
        <Act
          title={`Delete ${acting.rootKey.start}`}
          operation="rootKeys.deleteRootKey"
          input={{ rootKeyId: acting.rootKey.rootKeyId }}
          act="Delete"
          danger
          confirm={acting.rootKey.start || acting.rootKey.rootKeyId}
          close={close}
        >
          <p>It cannot be restored. A gateway that uses it stops at once.</p>
          {isMine && <p class="notice">{signsOut}</p>}
        </Act>
      )}
    </Card>
  );
}

const signsOut = 'You are signed in with this root key: the console will sign out.';

/** The grants for a purpose; for one API, only grants that name an API. */
function grantsFor(purpose: GrantPreset, apiId: string): string {
  const all: readonly string[] = grantPresets[purpose];
  if (!apiId) return all.join('\n');
  const ofApis = purpose === 'admin' ? actions.api.map((action) => `api.*.${action}`) : all;
  // A new API has no id yet.
  return ofApis
    .filter((grant) => grant.startsWith('api.') && !grant.endsWith('.create_api'))
    .map((grant) => grant.replace('*', apiId))
    .join('\n');
}

export function NewRootKey({ apiId: first = '', close }: { apiId?: string; close: () => void }) {
  const [name, setName] = useState('');
  const [apiId, setApiId] = useState(first);
  const [template, setTemplate] = useState<GrantPreset>(first ? 'reader' : 'gateway');
  const [grants, setGrants] = useState(grantsFor(template, apiId));
  const [expires, setExpires] = useState('');
  const [made, setMade] = useState<{ key: string }>();
  if (made) return <SecretDialog title="The new root key" text={made.key} label="Copy root key" close={close} />;
  const choose = (purpose: GrantPreset, api: string) => {
    setTemplate(purpose);
    setApiId(api);
    setGrants(grantsFor(purpose, api));
  };
  const permissions = namesOf(grants);
  return (
    <Act<{ key: string }>
      title="New root key"
      operation="rootKeys.createRootKey"
      input={{ ...(name && { name }), permissions, ...(expires && { expires: timeOfInput(expires) }) }}
      act="Create"
      ready={permissions.length > 0 && isTimeInput(expires)}
      makesSecret
      close={() => {}}
      cancel={close}
      done={setMade}
    >
      <TextField label="Name" value={name} set={setName} maxLength={255} placeholder="gateway" />
      <SelectField
        label="For"
        value={template}
        set={(purpose) => choose(purpose as GrantPreset, apiId)}
        options={[
          ['gateway', apiId ? 'a gateway: verifies keys' : 'a gateway: verifies keys and checks limits'],
          ['reader', 'a reader: reads everything, changes nothing'],
          ['admin', 'an administrator: everything'],
        ]}
      />
      <ApiSelect
        value={apiId}
        set={(api) => choose(template, api)}
        none="All APIs, and what belongs to none"
        hint={apiId && 'Only this API and its keys. Customers, roles and rate limits belong to no API.'}
      />
      <Field label="Grants" hint="One each line: resource, id or *, action.">
        {(id) => (
          <textarea id={id} value={grants} spellcheck={false} onInput={(e) => setGrants(e.currentTarget.value)} />
        )}
      </Field>
      <ExpiryField value={expires} set={setExpires} />
    </Act>
  );
}

/** Which role has which permission. */
function RolesTable() {
  const mayRead = may('rbac', 'read_role') && may('rbac', 'read_permission');
  const roles = usePages<Role>('permissions.listRoles', mayRead ? { limit: 20 } : undefined, 30_000);
  const permissions = usePages<Permission>('permissions.listPermissions', mayRead ? { limit: 50 } : undefined, 30_000);
  const [isNew, setNew] = useState(false);
  if (!mayRead)
    return <Lacks title="Roles and their permissions" grant="rbac.*.read_role and rbac.*.read_permission" />;
  const columns: Column<Permission>[] = [
    { name: 'Permission', cell: ({ slug }) => <code>{slug}</code>, csv: ({ slug }) => slug },
    ...(roles.rows ?? []).map(
      ({ id, name, permissions: granted }): Column<Permission> => ({
        name,
        cell: (permission) => (granted.some((one) => one.id === permission.id) ? <span title={id}>✓</span> : null),
        csv: (permission) => (granted.some((one) => one.id === permission.id) ? 'yes' : ''),
      }),
    ),
  ];
  return (
    <Card
      title="Roles and their permissions"
      actions={
        <>
          <CsvButton name="roles" columns={columns} of={permissions} />
          {may('rbac', 'create_role') && <Button onClick={() => setNew(true)}>New role</Button>}
        </>
      }
    >
      <List
        label="Roles and permissions"
        columns={columns}
        of={permissions}
        idOf={({ id }) => id}
        empty={
          <Empty title="There is no permission yet">
            <p class="quiet">A key that names one makes it.</p>
          </Empty>
        }
        lines={3}
      />
      {roles.hasMore && (
        <p class="quiet">
          The first {count(roles.rows?.length ?? 0)} roles have a column.{' '}
          <Button class="small" onClick={roles.more}>
            More roles
          </Button>
        </p>
      )}
      <Problem failure={roles.failure} />
      {isNew && <NewRole close={() => setNew(false)} />}
    </Card>
  );
}

function NewRole({ close }: { close: () => void }) {
  const [name, setName] = useState('');
  const [slugs, setSlugs] = useState('');
  return (
    <Act
      title="New role"
      operation="permissions.createRole"
      input={{ name, permissions: namesOf(slugs) }}
      act="Create"
      ready={name !== ''}
      close={close}
    >
      <TextField label="Name" value={name} set={setName} maxLength={100} />
      <NamesField
        of="permissions"
        label="Permissions"
        value={slugs}
        set={setSlugs}
        placeholder="documents.read documents.write"
      />
    </Act>
  );
}

const ages = [
  ['1', '1 day'],
  ['7', '7 days'],
  ['30', '30 days'],
  ['365', '1 year'],
] as const;

/** The filter is in the address. */
function Audit() {
  const [operation, resource, rootKey] = [useTyped('operation'), useTyped('resource'), useTyped('by')];
  const [{ since }, set] = useAddress({ since: '7' });
  const days = ages.some(([age]) => age === since) ? since : '7';
  const [ofOperation, ofResource, byRootKey] = [operation.settled, resource.settled, rootKey.settled];
  if (!may('audit', 'read_audit')) return <Lacks title="Changes" grant="audit.*.read_audit" />;
  const filter = {
    ...(ofOperation && { operation: ofOperation }),
    ...(ofResource && { resource: { id: ofResource } }),
    ...(byRootKey && { rootKeyId: byRootKey }),
    start: Math.floor(Date.now() / dayMs - Number(days)) * dayMs,
  };
  return (
    <Changes filter={filter} typed={[operation, resource, rootKey]} withResource>
      <div class="bar">
        <TextField label="Operation" value={operation.text} set={operation.setText} placeholder="keys.updateKey" />
        <TextField label="Resource" value={resource.text} set={resource.setText} placeholder="key_…" />
        <TextField label="Root key" value={rootKey.text} set={rootKey.setText} placeholder="root_…" />
        <SelectField label="Since" value={days} set={(since) => set({ since })} options={ages} />
      </div>
    </Changes>
  );
}
