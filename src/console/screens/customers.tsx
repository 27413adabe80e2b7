import { useState } from 'preact/hooks';
import { identityColumns } from '../../domain/columns.ts';
import { useAddress, useInAddress, useTyped } from '../address.ts';
import { useData } from '../api.ts';
import { count, isoOf, unitsOf } from '../format.ts';
import { isFound, slicesOf, usePages } from '../pages.ts';
import {
  Button,
  Card,
  Choice,
  CustomerLink,
  Empty,
  Head,
  LacksScreen,
  PlanLink,
  SearchField,
} from '../parts/basic.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { Act } from '../parts/dialog.tsx';
import { CustomerField, type LimitDraft, LimitFields, limitsOf, MetaField, metaOf } from '../parts/keyForm.tsx';
import { endTextOf } from '../parts/lasting.tsx';
import { useMetaColumn } from '../parts/meta.tsx';
import { PlanField } from '../parts/plan.tsx';
import { type Column, List, shared } from '../parts/table.tsx';
import { Top } from '../parts/top.tsx';
import { countOf, lastSteps, periodOf } from '../period.ts';
import type { Identity, UsageRow } from '../records.ts';
import { may } from '../session.ts';

const columns: Column<Identity>[] = [
  shared(identityColumns, 'Customer', { cell: ({ externalId }) => <CustomerLink externalId={externalId} /> }),
  shared(identityColumns, 'Id', { cell: ({ id }) => <code>{id}</code>, isWide: true }),
  shared(identityColumns, 'Plan', { cell: ({ planId }) => planId && <PlanLink planId={planId} /> }),
  shared(identityColumns, 'Keys'),
  shared(identityColumns, 'Credits', { isWide: true }),
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
          ({ name, limit, duration: ms, type, period, until }) =>
            `${name} ${limit}${type === 'concurrency' ? ' slots' : ''}/${period ?? ms}${until === undefined ? '' : ` until ${isoOf(until)}`}`,
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

/** A deleted customer has no screen. */
const deletedColumns = (restore: (customer: Identity) => void): Column<Identity>[] => [
  shared(identityColumns, 'Customer'),
  ...columns.slice(1),
  shared(identityColumns, 'Can be restored until'),
  {
    name: 'Restore',
    cell: (customer) =>
      may('identity', 'create_identity', customer.id) &&
      may('identity', 'delete_identity', customer.id) && (
        <Button class="small" onClick={() => restore(customer)}>
          Restore …
        </Button>
      ),
  },
];

const states = [
  ['', 'All'],
  ['deleted', 'Deleted'],
] as const;

const pageSize = 50;

interface UsedProps {
  externalId: string;
  of: readonly string[];
  amount: (rows: readonly UsageRow[]) => number;
}

/** A number of the verifications of a customer in 7 days. */
function Used({ externalId, of, amount }: UsedProps) {
  const { start, end } = lastSteps('day', 7);
  const input = { externalIds: of, start, end, granularity: 'total', groupBy: ['externalId', 'outcome'] };
  const { data } = useData<UsageRow[]>('analytics.getVerifications', input);
  return data && <span class="number">{count(amount(data.filter((row) => row.externalId === externalId)))}</span>;
}

const refusedOf = (rows: readonly UsageRow[]) => countOf(rows) - countOf(rows, 'VALID');

function usedColumns(rows: readonly Identity[]): Column<Identity>[] {
  const slices = slicesOf(
    rows.map(({ externalId }) => externalId),
    pageSize,
  );
  const column = (name: string, amount: UsedProps['amount']): Column<Identity> => ({
    name,
    cell: ({ externalId }) => <Used externalId={externalId} of={slices.get(externalId)!} amount={amount} />,
    isNumber: true,
  });
  return [column('7 days', countOf), column('Refused', refusedOf)];
}

/** The columns of customers with those of their use, if that may be read. */
export const customersWithUse = (rows: readonly Identity[]): Column<Identity>[] => {
  const used = may('api', 'read_analytics') ? usedColumns(rows) : [];
  return [...columns.slice(0, 4), ...used, ...columns.slice(4)];
};

export function Customers() {
  const search = useTyped('search');
  const { settled } = search;
  const [isNew, setNew] = useState(false);
  const [restored, setRestored] = useState<Identity>();
  const [{ state }, setState] = useAddress({ state: '', pages: '' });
  const isDeleted = state === 'deleted';
  const period = periodOf('30d');
  const listed = { limit: pageSize, ...(settled && { search: settled }), ...(isDeleted && { deleted: true }) };
  const mayRead = may('identity', 'read_identity');
  const mayCount = may('api', 'read_analytics');
  const pages = usePages<Identity>('identities.listIdentities', mayRead ? listed : undefined, 10_000, true);
  useInAddress(search, isFound(pages));
  const meta = useMetaColumn(pages.rows ?? []);
  // The column that was chosen is in place of all metadata.
  const chosen = (all: Column<Identity>[]) =>
    meta.columns.length > 0 ? [...all.filter(({ name }) => name !== 'Metadata'), ...meta.columns] : all;
  if (!mayRead) return <LacksScreen title="Customers" grant="identity.*.read_identity" />;
  return (
    <>
      <Head title="Customers">
        <CsvButton name="customers" columns={isDeleted ? deletedColumns(setRestored) : columns} of={pages} />
        {may('identity', 'create_identity') && (
          <Button tone="primary" onClick={() => setNew(true)}>
            New customer
          </Button>
        )}
      </Head>
      {mayCount && <Top title="Largest customers of 30 days" of="identities" period={period} />}
      <Card>
        <div class="bar">
          <SearchField id="customer-search" placeholder="externalId or id" typed={search} />
          <Choice
            label="State"
            value={isDeleted ? 'deleted' : ''}
            set={(to) => setState({ state: to, pages: '' })}
            options={states}
          />
          {meta.choice}
        </div>
        <List
          label="Customers"
          isCards
          columns={chosen(isDeleted ? deletedColumns(setRestored) : customersWithUse(pages.rows ?? []))}
          of={pages}
          idOf={({ id }) => id}
          empty={
            isDeleted ? (
              <Empty title={settled ? 'No deleted customer matches' : 'No deleted customer can be restored'} />
            ) : (
              <Empty title={settled ? 'No customer matches' : 'There is no customer yet'}>
                <p class="quiet">A key with an externalId belongs to a customer, who is made with it.</p>
              </Empty>
            )
          }
        />
      </Card>
      {restored && <RestoreCustomer customer={restored} close={() => setRestored(undefined)} />}
      {isNew && <NewCustomer close={() => setNew(false)} />}
    </>
  );
}

const RestoreCustomer = ({ customer, close }: { customer: Identity; close: () => void }) => (
  <Act
    title={`Restore ${customer.externalId}`}
    operation="identities.restoreIdentity"
    input={{ identityId: customer.id }}
    act="Restore"
    close={close}
  >
    <p>Its keys are its own again, with the limits and credits that they share, and their counts.</p>
  </Act>
);

function NewCustomer({ close }: { close: () => void }) {
  const [externalId, setExternalId] = useState('');
  const [planId, setPlanId] = useState('');
  const [meta, setMeta] = useState('');
  const [drafts, setDrafts] = useState<LimitDraft[]>([]);
  const [ratelimits, metadata] = [limitsOf(drafts), metaOf(meta)];
  return (
    <Act
      title="New customer"
      operation="identities.createIdentity"
      input={{ externalId, ...(planId && { planId }), ratelimits, ...(meta.trim() && { meta: metadata }) }}
      act="Create"
      ready={externalId !== '' && ratelimits !== undefined && metadata !== undefined}
      isPartial={metadata === undefined}
      close={close}
    >
      <CustomerField value={externalId} set={setExternalId} />
      <PlanField value={planId} set={setPlanId} />
      <LimitFields drafts={drafts} set={setDrafts} />
      <MetaField value={meta} set={setMeta} />
    </Act>
  );
}
