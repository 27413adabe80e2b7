import { useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { useData } from '../api.ts';
import { count, retention } from '../format.ts';
import { type Paged, usePages } from '../pages.ts';
import { Button, Card, Copy, Empty, Head, Id, LacksScreen, Loaded } from '../parts/basic.tsx';
import { ChosenBar, chooseColumn, useChosen } from '../parts/chosen.tsx';
import { CreditsCard, EditCredits } from '../parts/credits.tsx';
import { Act } from '../parts/dialog.tsx';
import { draftOf, LimitFields, limitsOf, MetaField, metaOf } from '../parts/keyForm.tsx';
import { Units } from '../parts/lasting.tsx';
import { type ActName, acts } from '../parts/many.tsx';
import { MetaRows } from '../parts/meta.tsx';
import { PlanField, PlanOf, placedLimits, usePlan } from '../parts/plan.tsx';
import { OwedBy, usePrices } from '../parts/prices.tsx';
import { RecentRefusals } from '../parts/refusals.tsx';
import { List, Table } from '../parts/table.tsx';
import { Usage, useUsage } from '../parts/usage.tsx';
import { useUsedNow } from '../parts/usedNow.tsx';
import { lastMonths, monthOf, usePeriod } from '../period.ts';
import type { Identity, Key } from '../records.ts';
import { may } from '../session.ts';
import { keyColumns, readApiNames } from './keys.tsx';

export function Customer({ externalId }: { externalId: string }) {
  const identity = useData<Identity>('identities.getIdentity', { identity: externalId }, 10_000);
  const period = usePeriod('30d');
  // Sent at the same time as the request for the identity, not after its response.
  useUsage(may('api', 'read_analytics') ? { externalId } : undefined, period);
  if (!may('identity', 'read_identity')) return <LacksScreen title={externalId} grant="identity.*.read_identity" />;
  return (
    <Loaded of={identity} lines={10} title={externalId}>
      {(data) => <Screen data={data} period={period} />}
    </Loaded>
  );
}

const columns = keyColumns.filter(({ name }) => name !== 'Customer');
type Editing = 'meta' | 'credits' | 'limits';

const ownFirst = 'A key that has its own limit of the same name uses its own.';

function Screen({ data, period }: { data: Identity; period: ReturnType<typeof usePeriod> }) {
  const [acting, setActing] = useState<Editing | 'delete'>();
  const [, go] = useLocation();
  const { externalId, planId } = data;
  const ratelimits = placedLimits('identity', data.ratelimits, usePlan(planId));
  const keys = usePages<Key>('keys.listKeys', { externalId, order: 'desc', limit: 25 }, 10_000);
  // A key with its own limit of the same name does not use that of the customer.
  const isShared = ({ name }: { name: string }) => ratelimits.some((shared) => shared.name === name);
  const keyOfShared = keys.rows?.find((key) => !key.ratelimits?.some(isShared));
  const usedNow = useUsedNow(keyOfShared?.keyId, ratelimits);
  const edit = (what: Editing) =>
    may('identity', 'update_identity') && (
      <Button class="small" onClick={() => setActing(what)}>
        Edit
      </Button>
    );
  const close = () => setActing(undefined);
  return (
    <>
      <Head title={externalId}>
        <Copy text={location.href} label="Copy link" />
        {may('identity', 'delete_identity') && (
          <Button tone="danger" onClick={() => setActing('delete')}>
            Delete …
          </Button>
        )}
      </Head>
      <div class="columns">
        <Card title="Customer" actions={edit('meta')}>
          <dl>
            <dt>Id</dt>
            <dd>
              <Id id={data.id} />
            </dd>
            <dt>Plan</dt>
            <dd>
              <PlanOf planId={planId} />
            </dd>
            <dt>Keys</dt>
            <dd>{count(data.keyCount)}</dd>
            <OwedNow externalId={externalId} />
            <dt>Metadata</dt>
            <dd>
              <MetaRows meta={data.meta} />
            </dd>
          </dl>
        </Card>
        <CreditsCard title="Credits that all keys share" credits={data.credits} edit={edit('credits')}>
          {data.credits ? (
            <p class="quiet">A verification charges them together with the credits of the key, or neither.</p>
          ) : (
            <Empty title="It has none" />
          )}
        </CreditsCard>
        <Card title="Limits that all keys share" actions={edit('limits')}>
          {ratelimits.length === 0 ? (
            <Empty title="It has no limit" />
          ) : (
            <>
              <Table
                label="Limits"
                rows={ratelimits}
                idOf={({ id }) => id}
                columns={[
                  {
                    name: 'Limit',
                    cell: ({ name, planId }) => (
                      <>
                        {name}
                        {planId && <small>of the plan {planId}</small>}
                      </>
                    ),
                  },
                  { name: 'Units', cell: (row) => <Units limit={row} /> },
                  { name: 'Used now', cell: usedNow },
                  { name: 'Checked', cell: (row) => (row.autoApply ? 'in every request' : 'when named') },
                ]}
              />
              <p class="quiet">{ownFirst}</p>
            </>
          )}
        </Card>
      </div>
      <KeysOf externalId={externalId} keys={keys} />
      {may('api', 'read_analytics') && (
        <>
          <Usage of={{ externalId }} period={period} title="Verifications of all keys" />
          <RecentRefusals externalId={externalId} />
        </>
      )}
      {acting === 'meta' && <EditCustomer data={data} close={close} />}
      {acting === 'credits' && <EditSharedCredits data={data} close={close} />}
      {acting === 'limits' && <EditLimits data={data} close={close} />}
      {acting === 'delete' && (
        <Act
          title={`Delete ${externalId}`}
          operation="identities.deleteIdentity"
          input={{ identity: data.id }}
          act="Delete"
          danger
          confirm={externalId}
          close={close}
          done={() => go('/customers')}
        >
          <p>
            Its keys stay, without an owner and without the limits and credits that they shared. It can be restored with
            them for {retention}.
          </p>
        </Act>
      )}
    </>
  );
}

/** What it owes for this month until now; nothing without prices. */
function OwedNow({ externalId }: { externalId: string }) {
  if (!usePrices() || !may('api', 'read_analytics')) return null;
  return (
    <>
      <dt>Owes this month</dt>
      <dd>
        <OwedBy externalId={externalId} of={[externalId]} period={monthOf(lastMonths()[0]!)} />
      </dd>
    </>
  );
}

function KeysOf({ externalId, keys }: { externalId: string; keys: Paged<Key> }) {
  const chosen = useChosen(externalId);
  const [asked, setAsked] = useState<{ act: ActName }>();
  const { rows = [], hasMore } = keys;
  const act = !hasMore && rows.every(({ enabled }) => !enabled) ? 'enable' : 'disable';
  return (
    <>
      <Card
        title="Keys"
        actions={
          <>
            {rows.length > 0 && may('api', 'update_key') && (
              <Button onClick={() => setAsked({ act })}>{acts[act].name} all keys …</Button>
            )}
            {may('api', 'create_key') && (
              <Link href={`/new-key?customer=${encodeURIComponent(externalId)}`} class="button">
                New key
              </Link>
            )}
          </>
        }
      >
        <List
          label="Keys"
          isCards
          columns={[...chooseColumn(chosen, rows), ...columns]}
          of={keys}
          idOf={({ keyId }) => keyId}
          empty={<Empty title="It has no key" />}
        />
      </Card>
      <ChosenBar chosen={chosen} of={keys} asked={asked} csv={keyColumns} prepare={readApiNames} />
    </>
  );
}

function EditCustomer({ data, close }: { data: Identity; close: () => void }) {
  // As it was when the dialog opened.
  const [first] = useState({ planId: data.planId ?? '', meta: JSON.stringify(data.meta ?? {}) });
  const [planId, setPlanId] = useState(first.planId);
  const [text, setText] = useState(data.meta ? JSON.stringify(data.meta, null, 2) : '');
  const meta = metaOf(text);
  return (
    <Act
      title={`Edit ${data.externalId}`}
      operation="identities.updateIdentity"
      input={{
        identity: data.id,
        ...(planId !== first.planId && { planId: planId || null }),
        ...(JSON.stringify(meta) !== first.meta && { meta }),
      }}
      act="Save"
      ready={meta !== undefined}
      isEdit
      isPartial={meta === undefined}
      close={close}
    >
      <PlanField value={planId} set={setPlanId} />
      <MetaField value={text} set={setText} />
    </Act>
  );
}

const EditSharedCredits = ({ data, close }: { data: Identity; close: () => void }) => (
  <EditCredits
    name={data.externalId}
    operation="identities.updateIdentity"
    reference={{ identity: data.id }}
    credits={data.credits}
    none="none"
    close={close}
  />
);

function EditLimits({ data, close }: { data: Identity; close: () => void }) {
  const [drafts, setDrafts] = useState((data.ratelimits ?? []).map(draftOf));
  const ratelimits = limitsOf(drafts);
  return (
    <Act
      title={`Limits of ${data.externalId}`}
      operation="identities.updateIdentity"
      input={{ identity: data.id, ratelimits }}
      act="Save"
      ready={ratelimits !== undefined}
      isEdit
      edited={data.ratelimits}
      close={close}
    >
      <LimitFields drafts={drafts} set={setDrafts} />
      <p class="hint">{ownFirst}</p>
    </Act>
  );
}
