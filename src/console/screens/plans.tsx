import { useState } from 'preact/hooks';
import { planColumns } from '../../domain/columns.ts';
import { useInAddress, useTyped } from '../address.ts';
import { unitsOf } from '../format.ts';
import { isFound, usePages } from '../pages.ts';
import { Button, Card, Empty, Head, LacksScreen, PlanLink, SearchField, TextField } from '../parts/basic.tsx';
import { CsvButton } from '../parts/csv.tsx';
import { Act } from '../parts/dialog.tsx';
import { usePlanForm } from '../parts/plan.tsx';
import { type Column, List, shared } from '../parts/table.tsx';
import type { Plan } from '../records.ts';
import { may } from '../session.ts';

const limitsText = ({ ratelimits }: Plan) => ratelimits.map((limit) => `${limit.name}: ${unitsOf(limit)}`).join('; ');
const namesText = (names: readonly string[]) => names.join(' ');

const columns: Column<Plan>[] = [
  shared(planColumns, 'Plan', { cell: ({ planId }) => <PlanLink planId={planId} /> }),
  { name: 'Limits', cell: limitsText, csv: limitsText, isText: true },
  ...(['permissions', 'roles'] as const).map((field): Column<Plan> => {
    const text = (plan: Plan) => namesText(plan[field]);
    const name = field === 'roles' ? 'Roles' : 'Permissions';
    return { name, cell: text, csv: text, isWide: true, isText: true };
  }),
  shared(planColumns, 'Customers'),
  shared(planColumns, 'Keys'),
  shared(planColumns, 'Created', { isCsvOnly: true }),
  shared(planColumns, 'Changed', { isWide: true }),
];

export function Plans() {
  const search = useTyped('search');
  const [isNew, setNew] = useState(false);
  const mayRead = may('plan', 'read_plan');
  const input = { limit: 50, ...(search.settled && { search: search.settled }) };
  const pages = usePages<Plan>('plans.listPlans', mayRead ? input : undefined, 10_000, true);
  useInAddress(search, isFound(pages));
  if (!mayRead) return <LacksScreen title="Plans" grant="plan.*.read_plan" />;
  return (
    <>
      <Head title="Plans">
        <CsvButton name="plans" columns={columns} of={pages} />
        {may('plan', 'create_plan') && (
          <Button tone="primary" onClick={() => setNew(true)}>
            New plan
          </Button>
        )}
      </Head>
      <Card>
        <div class="bar">
          <SearchField id="plan-search" placeholder="planId" typed={search} />
        </div>
        <List
          label="Plans"
          isCards
          columns={columns}
          of={pages}
          idOf={({ planId }) => planId}
          empty={
            <Empty title={search.settled ? 'No plan matches' : 'There is no plan yet'}>
              <p class="quiet">
                A plan has the limits, permissions and roles of a tier. Customers and keys refer to it.
              </p>
            </Empty>
          }
        />
      </Card>
      {isNew && <NewPlan close={() => setNew(false)} />}
    </>
  );
}

const planIdHint = 'Your name of the tier: letters, digits, _ . and -';

function NewPlan({ close }: { close: () => void }) {
  const [planId, setPlanId] = useState('');
  const { input, isComplete, fields } = usePlanForm();
  return (
    <Act
      title="New plan"
      operation="plans.createPlan"
      input={{ planId, ...input }}
      act="Create"
      ready={planId !== '' && isComplete}
      isPartial={!isComplete}
      close={close}
    >
      <TextField
        label="Plan (planId)"
        value={planId}
        set={setPlanId}
        maxLength={64}
        pattern="[a-zA-Z0-9_.\-]*"
        title={planIdHint}
        hint={planIdHint}
        placeholder="pro"
      />
      {fields}
    </Act>
  );
}
