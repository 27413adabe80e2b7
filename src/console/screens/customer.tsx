import { useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { useData } from '../api.ts';
import { count, duration } from '../format.ts';
import { Button, Card, Empty, Head, Id, Lacks, Loaded, PeriodChoice } from '../parts/basic.tsx';
import { Act } from '../parts/dialog.tsx';
import { draftOf, LimitFields, limitsOf, MetaField, metaOf } from '../parts/keyForm.tsx';
import { List, Table, usePages } from '../parts/table.tsx';
import { UsageChart, UsageFigures, useUsage } from '../parts/usage.tsx';
import { usePeriod } from '../period.ts';
import type { Identity, Key } from '../records.ts';
import { may } from '../session.ts';
import { keyColumns } from './keys.tsx';

export function Customer({ externalId }: { externalId: string }) {
  const identity = useData<Identity>('identities.getIdentity', { identity: externalId }, 10_000);
  const period = usePeriod('30d');
  // Sent at the same time as the request for the identity, not after its response.
  useUsage(may('api', 'read_analytics') ? { externalId } : undefined, period);
  if (!may('identity', 'read_identity')) return <Lacks grant="identity.*.read_identity" />;
  return (
    <Loaded of={identity} lines={10}>
      {(data) => <Screen data={data} period={period} />}
    </Loaded>
  );
}

function Screen({ data, period }: { data: Identity; period: ReturnType<typeof usePeriod> }) {
  const [acting, setActing] = useState<'edit' | 'delete'>();
  const [, go] = useLocation();
  const { externalId, ratelimits = [] } = data;
  const keys = usePages<Key>('keys.listKeys', { externalId, order: 'desc', limit: 25 }, 10_000);
  return (
    <>
      <Head title={externalId}>
        {may('identity', 'update_identity') && <Button onClick={() => setActing('edit')}>Edit …</Button>}
        {may('identity', 'delete_identity') && (
          <Button tone="danger" onClick={() => setActing('delete')}>
            Delete …
          </Button>
        )}
      </Head>
      {may('api', 'read_analytics') && (
        <>
          <UsageFigures of={{ externalId }} period={period} />
          <Card
            title={`Verifications of all keys by ${period.granularity}, UTC`}
            actions={<PeriodChoice period={period} />}
          >
            <UsageChart of={{ externalId }} period={period} title="Verifications by outcome" />
          </Card>
        </>
      )}
      <div class="columns">
        <Card title="Customer">
          <dl>
            <dt>Id</dt>
            <dd>
              <Id id={data.id} />
            </dd>
            <dt>Metadata</dt>
            <dd>{data.meta ? <code>{JSON.stringify(data.meta)}</code> : <span class="quiet">none</span>}</dd>
          </dl>
        </Card>
        <Card title="Limits that all keys share">
          {ratelimits.length === 0 ? (
            <Empty title="It has no limit" />
          ) : (
            <Table
              label="Limits"
              rows={ratelimits}
              idOf={({ id }) => id}
              columns={[
                { name: 'Limit', cell: ({ name }) => name },
                { name: 'Units', cell: (row) => `${count(row.limit)} in any ${duration(row.duration)}` },
                { name: 'Checked', cell: (row) => (row.autoApply ? 'in every request' : 'when named') },
              ]}
            />
          )}
        </Card>
      </div>
      <Card
        title="Keys"
        actions={
          may('api', 'create_key') && (
            <Link href={`/new-key?owner=${encodeURIComponent(externalId)}`} class="button">
              New key
            </Link>
          )
        }
      >
        <List
          label="Keys"
          columns={keyColumns}
          of={keys}
          idOf={({ keyId }) => keyId}
          empty={<Empty title="It has no key" />}
        />
      </Card>
      {acting === 'edit' && <Edit data={data} close={() => setActing(undefined)} />}
      {acting === 'delete' && (
        <Act
          title={`Delete ${externalId}`}
          operation="identities.deleteIdentity"
          input={{ identity: data.id }}
          act="Delete"
          danger
          confirm={externalId}
          close={() => setActing(undefined)}
          done={() => go('/customers')}
        >
          <p>Its keys stay, without an owner and without the limits that they shared.</p>
        </Act>
      )}
    </>
  );
}

function Edit({ data, close }: { data: Identity; close: () => void }) {
  const [drafts, setDrafts] = useState((data.ratelimits ?? []).map(draftOf));
  const [meta, setMeta] = useState(data.meta ? JSON.stringify(data.meta, null, 2) : '');
  const [ratelimits, metadata] = [limitsOf(drafts), metaOf(meta)];
  return (
    <Act
      title={`Edit ${data.externalId}`}
      operation="identities.updateIdentity"
      input={{ identity: data.id, ratelimits, meta: metadata }}
      act="Save"
      ready={ratelimits !== undefined && metadata !== undefined}
      close={close}
    >
      <LimitFields drafts={drafts} set={setDrafts} />
      <MetaField value={meta} set={setMeta} />
    </Act>
  );
}
