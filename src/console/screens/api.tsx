import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import { useData } from '../api.ts';
import { count, moment } from '../format.ts';
import { usePages } from '../pages.ts';
import { Changes } from '../parts/audit.tsx';
import { Button, Card, Empty, Head, Id, LacksScreen, Loaded, Time } from '../parts/basic.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { List } from '../parts/table.tsx';
import { Top } from '../parts/top.tsx';
import { Usage, useUsage } from '../parts/usage.tsx';
import { countOf, periodOf, usePeriod } from '../period.ts';
import type { Api, Key } from '../records.ts';
import { may } from '../session.ts';
import { NewRootKey } from './access.tsx';
import { DeleteApi, RenameApi } from './apis.tsx';
import { keyColumns, readApiNames } from './keys.tsx';

export function ApiScreen({ apiId }: { apiId: string }) {
  const mayRead = may('api', 'read_api', apiId);
  const api = useData<Api>('apis.getApi', mayRead ? { apiId } : undefined, 10_000);
  const period = usePeriod();
  // Sent at the same time as the request for the API, not after its response.
  useUsage(may('api', 'read_analytics', apiId) ? { apiId } : undefined, period);
  if (!mayRead) return <LacksScreen title="API" grant={`api.${apiId}.read_api`} />;
  return (
    <Loaded of={api} lines={10} title="API">
      {(api) => <Screen {...api} apiId={apiId} period={period} />}
    </Loaded>
  );
}

interface ScreenProps extends Api {
  apiId: string;
  period: ReturnType<typeof usePeriod>;
}

function Screen({ apiId, name, createdAt, keyCount, period }: ScreenProps) {
  const [acting, setActing] = useState<'rename' | 'delete' | 'access'>();
  const mayCount = may('api', 'read_analytics', apiId);
  const { data: today } = useUsage(mayCount ? { apiId } : undefined, periodOf('24h'), 30_000);
  const close = () => setActing(undefined);
  return (
    <>
      <Head title={name}>
        {may('api', 'create_key', apiId) && (
          <Link href={`/new-key?api=${apiId}`} class="button primary">
            New key
          </Link>
        )}
        {may('root_key', 'create_root_key') && <Button onClick={() => setActing('access')}>Give access …</Button>}
        {may('api', 'update_api', apiId) && <Button onClick={() => setActing('rename')}>Rename …</Button>}
        {may('api', 'delete_api', apiId) && (
          <Button tone="danger" onClick={() => setActing('delete')}>
            Delete …
          </Button>
        )}
      </Head>
      {mayCount && (
        <>
          <Usage of={{ apiId }} period={period} />
          <div class="columns">
            <Top title="Largest customers" of="identities" period={period} within={{ apiId }} />
            <Top title="Largest keys" of="keys" period={period} within={{ apiId }} />
          </div>
        </>
      )}
      <Card title="API">
        <dl>
          <dt>Id</dt>
          <dd>
            <Id id={apiId} />
          </dd>
          <dt>Keys</dt>
          <dd>{count(keyCount)}</dd>
          <dt>Created</dt>
          <dd>
            <Time ms={createdAt} /> <span class="quiet">{moment(createdAt)}</span>
          </dd>
        </dl>
      </Card>
      {may('api', 'read_key', apiId) && <Newest apiId={apiId} />}
      {may('audit', 'read_audit') && <Changes filter={{ resource: { type: 'api', id: apiId } }} />}
      {acting === 'access' && <NewRootKey apiId={apiId} close={close} />}
      {acting === 'rename' && <RenameApi apiId={apiId} name={name} close={close} />}
      {acting === 'delete' && (
        <DeleteApi apiId={apiId} name={name} keyCount={keyCount} used={today && countOf(today)} close={close} />
      )}
    </>
  );
}

/** Its newest keys; a link leads to the list that can be searched. */
function Newest({ apiId }: { apiId: string }) {
  const keys = usePages<Key>('keys.listKeys', { apiId, order: 'desc', limit: 10 }, 10_000);
  return (
    <Card
      title="Newest keys"
      actions={
        <>
          <Link href={`/keys?api=${apiId}`}>Search its keys</Link>
          <CsvButton name="keys" columns={keyColumns} of={keys} prepare={readApiNames} />
        </>
      }
    >
      <List
        label="Newest keys"
        isCards
        columns={keyColumns}
        of={keys}
        idOf={({ keyId }) => keyId}
        empty={<Empty title="It has no key" />}
      />
    </Card>
  );
}
