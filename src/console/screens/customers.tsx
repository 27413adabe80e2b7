import { useState } from 'preact/hooks';
import { useInAddress, useTyped } from '../address.ts';
import { isoOf, unitsOf } from '../format.ts';
import { isFound, usePages } from '../pages.ts';
import { Button, Card, CustomerLink, Empty, Head, LacksScreen } from '../parts/basic.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { Act } from '../parts/dialog.tsx';
import { CustomerField, type LimitDraft, LimitFields, limitsOf, MetaField, metaOf } from '../parts/keyForm.tsx';
import { endTextOf } from '../parts/lasting.tsx';
import { type Column, List } from '../parts/table.tsx';
import { Top } from '../parts/top.tsx';
import { periodOf } from '../period.ts';
import type { Identity } from '../records.ts';
import { may } from '../session.ts';

const columns: Column<Identity>[] = [
  {
    name: 'Customer (externalId)',
    cell: ({ externalId }) => <CustomerLink externalId={externalId} />,
    csv: ({ externalId }) => externalId,
  },
  { name: 'Id', cell: ({ id }) => <code>{id}</code>, csv: ({ id }) => id, isWide: true },
  {
    name: 'Shared limits',
    cell: ({ ratelimits = [] }) => (
      <>
        {ratelimits
          .map((limit) => [`${limit.name}: ${unitsOf(limit)}`, endTextOf(limit)].filter(Boolean).join(', '))
          .join('; ')}
      </>
    ),
    csv: ({ ratelimits = [] }) =>
      ratelimits
        .map(
          ({ name, limit, duration: ms, type, until }) =>
            `${name} ${limit}${type ? ' slots' : ''}/${ms}${until === undefined ? '' : ` until ${isoOf(until)}`}`,
        )
        .join(' '),
  },
  {
    name: 'Metadata',
    cell: ({ meta = {} }) => Object.keys(meta).length > 0 && <code>{JSON.stringify(meta)}</code>,
    csv: ({ meta }) => meta && JSON.stringify(meta),
    isWide: true,
  },
];

export function Customers() {
  const search = useTyped('search');
  const { settled } = search;
  const [isNew, setNew] = useState(false);
  const period = periodOf('30d');
  const listed = { limit: 50, ...(settled && { search: settled }) };
  const mayRead = may('identity', 'read_identity');
  const pages = usePages<Identity>('identities.listIdentities', mayRead ? listed : undefined, 10_000, true);
  useInAddress(search, isFound(pages));
  if (!mayRead) return <LacksScreen title="Customers" grant="identity.*.read_identity" />;
  return (
    <>
      <Head title="Customers">
        <CsvButton name="customers" columns={columns} of={pages} />
        {may('identity', 'create_identity') && (
          <Button tone="primary" onClick={() => setNew(true)}>
            New customer
          </Button>
        )}
      </Head>
      {may('api', 'read_analytics') && <Top title="Largest customers of 30 days" of="identities" period={period} />}
      <Card>
        <div class="bar">
          <div class="field grow">
            <label for="customer-search">Search</label>
            <input
              id="customer-search"
              type="search"
              placeholder="externalId or id"
              value={search.text}
              onInput={(e) => search.setText(e.currentTarget.value)}
            />
          </div>
        </div>
        <List
          label="Customers"
          columns={columns}
          of={pages}
          idOf={({ id }) => id}
          empty={
            <Empty title={settled ? 'No customer matches' : 'There is no customer yet'}>
              <p class="quiet">A key with an externalId belongs to a customer, who is made with it.</p>
            </Empty>
          }
        />
      </Card>
      {isNew && <NewCustomer close={() => setNew(false)} />}
    </>
  );
}

function NewCustomer({ close }: { close: () => void }) {
  const [externalId, setExternalId] = useState('');
  const [meta, setMeta] = useState('');
  const [drafts, setDrafts] = useState<LimitDraft[]>([]);
  const [ratelimits, metadata] = [limitsOf(drafts), metaOf(meta)];
  return (
    <Act
      title="New customer"
      operation="identities.createIdentity"
      input={{ externalId, ratelimits, ...(meta.trim() && { meta: metadata }) }}
      act="Create"
      ready={externalId !== '' && ratelimits !== undefined && metadata !== undefined}
      isPartial={metadata === undefined}
      close={close}
    >
      <CustomerField value={externalId} set={setExternalId} />
      <LimitFields drafts={drafts} set={setDrafts} />
      <MetaField value={meta} set={setMeta} />
    </Act>
  );
}
