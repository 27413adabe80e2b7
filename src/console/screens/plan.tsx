import { useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { useData } from '../api.ts';
import { count } from '../format.ts';
import { usePages } from '../pages.ts';
import { Changes } from '../parts/audit.tsx';
import { Button, Card, Empty, Head, LacksScreen, Loaded } from '../parts/basic.tsx';
import { Act } from '../parts/dialog.tsx';
import { Units } from '../parts/lasting.tsx';
import { MetaRows } from '../parts/meta.tsx';
import { PlanField, usePlanForm } from '../parts/plan.tsx';
import { List, Table } from '../parts/table.tsx';
import type { Identity, Key, Plan } from '../records.ts';
import { may } from '../session.ts';
import { customersWithUse } from './customers.tsx';
import { Names } from './key.tsx';
import { keyColumns } from './keys.tsx';

export function PlanScreen({ planId }: { planId: string }) {
  const plan = useData<Plan>('plans.getPlan', { planId }, 10_000);
  if (!may('plan', 'read_plan')) return <LacksScreen title={planId} grant="plan.*.read_plan" />;
  return (
    <Loaded of={plan} lines={10} title={planId}>
      {(data) => <Screen data={data} />}
    </Loaded>
  );
}

function Screen({ data }: { data: Plan }) {
  const [acting, setActing] = useState<'edit' | 'delete'>();
  const [, go] = useLocation();
  const { planId, ratelimits, permissions, roles, meta } = data;
  const close = () => setActing(undefined);
  return (
    <>
      <Head title={planId}>
        {may('plan', 'update_plan') && <Button onClick={() => setActing('edit')}>Edit …</Button>}
        {may('plan', 'delete_plan') && (
          <Button tone="danger" onClick={() => setActing('delete')}>
            Delete …
          </Button>
        )}
      </Head>
      <div class="columns">
        <Card title="Limits">
          {ratelimits.length === 0 ? (
            <Empty title="It has no limit" />
          ) : (
            <Table
              label="Limits"
              rows={ratelimits}
              idOf={({ id }) => id}
              columns={[
                { name: 'Limit', cell: ({ name }) => name },
                { name: 'Units', cell: (row) => <Units limit={row} /> },
                { name: 'Checked', cell: (row) => (row.autoApply ? 'in every request' : 'when named') },
              ]}
            />
          )}
          <p class="quiet">{ownFirst}</p>
        </Card>
        <Card title="Permissions and roles">
          <Names title="Permissions" names={permissions} none="It has no permission." />
          <Names title="Roles" names={roles} none="It has no role." />
        </Card>
        <Card title="Metadata">
          {meta ? <MetaRows meta={meta} /> : <Empty title="It has none" />}
          <p class="quiet">Verifications return it, with the name of the plan.</p>
        </Card>
      </div>
      {may('identity', 'read_identity') && <CustomersOf data={data} />}
      {may('api', 'read_key') && <KeysOf data={data} />}
      {may('audit', 'read_audit') && <Changes filter={{ resource: { type: 'plan', id: planId } }} />}
      {acting === 'edit' && <EditPlan data={data} close={close} />}
      {acting === 'delete' && <DeletePlan data={data} close={close} done={() => go('/plans')} />}
    </>
  );
}

const ownFirst = 'A customer or a key that has its own limit of the same name uses its own.';

function CustomersOf({ data: { planId, identityCount } }: { data: Plan }) {
  const pages = usePages<Identity>('identities.listIdentities', { planId, limit: 25 }, 10_000);
  return (
    <Card title={`Customers (${count(identityCount)})`}>
      <List
        label="Customers"
        isCards
        columns={customersWithUse(pages.rows ?? []).filter(({ name }) => name !== 'Plan')}
        of={pages}
        idOf={({ id }) => id}
        empty={<Empty title="No customer has it" />}
      />
    </Card>
  );
}

function KeysOf({ data: { planId, keyCount } }: { data: Plan }) {
  const pages = usePages<Key>('keys.listKeys', { planId, order: 'desc', limit: 25 }, 10_000);
  return (
    <Card title={`Keys that have the plan themselves (${count(keyCount)})`}>
      <List
        label="Keys"
        isCards
        columns={keyColumns}
        of={pages}
        idOf={({ keyId }) => keyId}
        empty={<Empty title="No key has it: they have the plan of their customer" />}
      />
    </Card>
  );
}

interface PlanAct {
  data: Plan;
  close: () => void;
}

const many = (number: number, noun: string) => `${count(number)} ${noun}${number === 1 ? '' : 's'}`;
const usersOf = ({ identityCount, keyCount }: Plan) =>
  `${many(identityCount, 'customer')} and ${many(keyCount, 'key')}`;

function EditPlan({ data, close }: PlanAct) {
  const { input, isComplete, fields } = usePlanForm(data);
  return (
    <Act
      title={`Edit ${data.planId}`}
      operation="plans.updatePlan"
      input={{ planId: data.planId, ...input }}
      act="Save"
      ready={isComplete}
      isEdit
      edited={data.updatedAt}
      isPartial={!isComplete}
      close={close}
    >
      {fields}
      <p class="hint">It applies to {usersOf(data)} from the next verification on. Counts stay.</p>
    </Act>
  );
}

function DeletePlan({ data, close, done }: PlanAct & { done: () => void }) {
  const [replaceWith, setReplaceWith] = useState('');
  const { planId, keyCount, identityCount } = data;
  const isUsed = keyCount + identityCount > 0;
  return (
    <Act<{ left?: number }>
      title={`Delete ${planId}`}
      operation="plans.deletePlan"
      input={{ planId, ...(replaceWith && { replaceWith }) }}
      act="Delete"
      danger
      ready={!isUsed || replaceWith !== ''}
      confirm={planId}
      close={close}
      done={({ left }) => left === undefined && done()}
    >
      {isUsed ? (
        <>
          <p>Its {usersOf(data)} get another plan first. It cannot be restored. If some are left, repeat it.</p>
          <PlanField label="Their plan from then on" value={replaceWith} set={setReplaceWith} hint="It must exist." />
        </>
      ) : (
        <p>No customer and no key has it. It cannot be restored.</p>
      )}
    </Act>
  );
}
