import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { stateOf } from '../../domain/columns.ts';
import { useData } from '../api.ts';
import { count, moment } from '../format.ts';
import { Changes } from '../parts/audit.tsx';
import { Badge, Button, Card, CustomerLink, Empty, Head, Id, LacksScreen, Loaded, Time } from '../parts/basic.tsx';
import { CreditsCard } from '../parts/credits.tsx';
import { Holds } from '../parts/holds.tsx';
import { KeyName, nameOf } from '../parts/keyName.tsx';
import { Units } from '../parts/lasting.tsx';
import { MetaRows } from '../parts/meta.tsx';
import { type PlacedLimit, PlanOf, placedLimits, usePlan } from '../parts/plan.tsx';
import { Table } from '../parts/table.tsx';
import { Usage, useUsage } from '../parts/usage.tsx';
import { useUsedNow } from '../parts/usedNow.tsx';
import { usePeriod } from '../period.ts';
import type { Api, Key } from '../records.ts';
import { may } from '../session.ts';
import { DeleteKey, EditAccess, EditDetails, EditKeyCredits, EditLimits, Rotate, SwitchKey } from './keyActs.tsx';
import { State } from './keys.tsx';

type Acting = 'details' | 'credits' | 'limits' | 'access' | 'switch' | 'rotate' | 'delete' | undefined;

export function KeyScreen({ keyId }: { keyId: string }) {
  const key = useData<Key>('keys.getKey', { keyId }, 5000);
  const period = usePeriod('7d');
  // Sent at the same time as the request for the key, not after its response.
  useUsage(may('api', 'read_analytics') ? { keyId } : undefined, period);
  if (!may('api', 'read_key')) return <LacksScreen title="Key" grant="api.*.read_key" />;
  return (
    <Loaded of={key} lines={10} title="Key">
      {(data) => <Screen data={data} period={period} />}
    </Loaded>
  );
}

function Screen({ data, period }: { data: Key; period: ReturnType<typeof usePeriod> }) {
  const [acting, setActing] = useState<Acting>();
  const [, go] = useLocation();
  const { keyId } = data;
  const close = () => setActing(undefined);
  const mayChange = may('api', 'update_key', data.apiId);
  const edit = (what: Acting) =>
    mayChange && (
      <Button class="small" onClick={() => setActing(what)}>
        Edit
      </Button>
    );
  return (
    <>
      <Head title={nameOf(data)}>
        <State of={stateOf(data, Date.now())} />
        <Link href={`/why/${keyId}`} class="button">
          Explain
        </Link>
        <Link href={`/live?key=${keyId}`} class="button">
          Live
        </Link>
        <Acts data={data} mayChange={mayChange} set={setActing} />
      </Head>
      {may('api', 'read_analytics', data.apiId) && <Usage of={{ keyId }} period={period} />}
      <div class="columns">
        <Card title="Key" actions={edit('details')}>
          <Details data={data} />
        </Card>
        <CreditsCard credits={data.credits} edit={edit('credits')}>
          <CreditsOfKey data={data} />
        </CreditsCard>
        <LimitsCard data={data} edit={edit('limits')} />
        <Card title="Permissions and roles" actions={edit('access')}>
          <Names title="Permissions, with those of roles" names={data.permissions} none="It has no permission." />
          <Names title="Roles" names={data.roles} none="It has no role." />
          <OfPlan planId={data.planId} />
          {data.identity?.planId !== data.planId && <OfPlan planId={data.identity?.planId} />}
        </Card>
      </div>
      <Holds keyId={keyId} />
      {may('audit', 'read_audit') && <Changes filter={{ resource: { type: 'key', id: keyId } }} />}
      {acting === 'details' && <EditDetails data={data} close={close} />}
      {acting === 'credits' && <EditKeyCredits data={data} close={close} />}
      {acting === 'limits' && <EditLimits data={data} close={close} />}
      {acting === 'access' && <EditAccess data={data} close={close} />}
      {acting === 'switch' && <SwitchKey data={data} close={close} />}
      {acting === 'rotate' && <Rotate data={data} close={close} />}
      {acting === 'delete' && <DeleteKey data={data} close={close} done={() => go('/keys')} />}
    </>
  );
}

function Acts({ data, mayChange, set }: { data: Key; mayChange: boolean; set: (what: Acting) => void }) {
  const { apiId, enabled } = data;
  return (
    <>
      {may('api', 'create_key', apiId) && <Button onClick={() => set('rotate')}>Rotate …</Button>}
      {mayChange && <Button onClick={() => set('switch')}>{enabled ? 'Disable …' : 'Enable …'}</Button>}
      {may('api', 'delete_key', apiId) && (
        <Button tone="danger" onClick={() => set('delete')}>
          Delete …
        </Button>
      )}
    </>
  );
}

/** The name of the API, where it may be read. */
function ApiOf({ apiId }: { apiId: string }) {
  const { data } = useData<Api>('apis.getApi', may('api', 'read_api', apiId) ? { apiId } : undefined);
  return data ? <Link href={`/apis/${apiId}`}>{data.name}</Link> : <Id id={apiId} />;
}

const Details = ({ data }: { data: Key }) => (
  <dl>
    <dt>Id</dt>
    <dd>
      <Id id={data.keyId} />
    </dd>
    <dt>Starts with</dt>
    <dd>{data.start ? <code>{data.start}</code> : <span class="quiet">unknown: an imported key</span>}</dd>
    <dt>API</dt>
    <dd>
      <ApiOf apiId={data.apiId} />
    </dd>
    <dt>Customer</dt>
    <dd>{data.externalId ? <CustomerLink externalId={data.externalId} /> : <span class="quiet">none</span>}</dd>
    <dt>Plan</dt>
    <dd>
      <PlanOf planId={data.planId} />
    </dd>
    {data.identity?.planId !== undefined && (
      <>
        <dt>Plan of the customer</dt>
        <dd>
          <PlanOf planId={data.identity.planId} />
        </dd>
      </>
    )}
    <dt>Created</dt>
    <dd>
      <Time ms={data.createdAt} /> <span class="quiet">{moment(data.createdAt)}</span>
    </dd>
    <dt>Last used</dt>
    <dd>
      <Time ms={data.lastUsedAt} />
    </dd>
    {data.successor && (
      <>
        <dt>Replaced by</dt>
        <dd>
          <Link href={`/keys/${data.successor}`}>
            <KeyName keyId={data.successor} />
          </Link>
        </dd>
      </>
    )}
    <dt>Expires</dt>
    <dd>
      {data.expires === undefined ? (
        'never'
      ) : (
        <>
          <Time ms={data.expires} /> <span class="quiet">{moment(data.expires)}</span>
        </>
      )}
    </dd>
    <dt>IP addresses</dt>
    <dd>{data.allowedIps ? <code>{data.allowedIps.join(' ')}</code> : <span class="quiet">any</span>}</dd>
    <dt>Metadata</dt>
    <dd>
      <MetaRows meta={data.meta} />
    </dd>
  </dl>
);

/** Each limit, and how full it is now. */
function LimitsCard({ data, edit }: { data: Key; edit: ComponentChildren }) {
  const { identity } = data;
  const own = placedLimits('key', data.ratelimits, usePlan(data.planId));
  const shared = placedLimits('identity', identity?.ratelimits, usePlan(identity?.planId));
  const limits = [...own, ...shared];
  const usedNow = useUsedNow(data.keyId, limits);
  return (
    <Card title="Limits" actions={edit}>
      {limits.length === 0 ? (
        <Empty title="It has no limit" />
      ) : (
        <Table
          label="Limits"
          rows={limits}
          idOf={({ id, of }) => `${of} ${id}`}
          columns={[
            {
              name: 'Limit',
              cell: (row) => (
                <>
                  {row.name}
                  <small>{notesOf(row, own)}</small>
                </>
              ),
            },
            { name: 'Units', cell: (row) => <Units limit={row} /> },
            { name: 'Used now', cell: usedNow },
          ]}
        />
      )}
    </Card>
  );
}

/** Notes on a limit: its owner, and when it is checked. */
function notesOf({ name, of, planId, autoApply }: PlacedLimit, own: readonly PlacedLimit[]): string {
  const isOwn = of === 'key';
  if (!isOwn && own.some((one) => one.name === name)) return 'of the customer: not used, the key has its own';
  const notes = [
    planId !== undefined && `of the plan ${planId}`,
    !isOwn && 'of the customer, shared by all its keys',
    !autoApply && 'checked when named',
  ];
  return notes.filter(Boolean).join('; ');
}

export const Names = ({ title, names, none }: { title: string; names: string[] | undefined; none: string }) => (
  <div>
    <h3>{title}</h3>
    {names?.length ? (
      <ul class="names">
        {names.map((name) => (
          <li key={name}>
            <Badge>{name}</Badge>
          </li>
        ))}
      </ul>
    ) : (
      <p class="quiet">{none}</p>
    )}
  </div>
);

/** The permissions and roles that a plan adds. */
function OfPlan({ planId }: { planId: string | undefined }) {
  const plan = usePlan(planId);
  if (!plan) return null;
  return (
    <Names title={`Of the plan ${plan.planId}`} names={[...plan.permissions, ...plan.roles]} none="It adds none." />
  );
}

/** The credits of a key: its own, those of its customer, or those of its successor. */
function CreditsOfKey({ data: { credits, identity, drawsOn } }: { data: Key }) {
  const shared = identity?.credits;
  if (drawsOn)
    return (
      <p class="quiet">
        They are those of{' '}
        <Link href={`/keys/${drawsOn}`}>
          <KeyName keyId={drawsOn} />
        </Link>
        , to which they were moved.
      </p>
    );
  if (shared)
    return (
      <p class="quiet">
        Verifications charge the credits of its customer, <CustomerLink externalId={identity.externalId} />, too:{' '}
        {count(shared.remaining)} left.
      </p>
    );
  return credits ? null : (
    <Empty title="Unlimited">
      <p class="quiet">Verifications of this key charge no credits.</p>
    </Empty>
  );
}
