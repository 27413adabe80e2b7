// The plan of a key or a customer: its limits where they apply, and its choice in forms.

import { useSettled } from '../address.ts';
import { useData } from '../api.ts';
import type { Plan, Ratelimit } from '../records.ts';
import { may } from '../session.ts';
import { PlanLink, TextField } from './basic.tsx';

/** A plan, if there is one and the root key may read it. */
export const usePlan = (planId: string | undefined): Plan | undefined =>
  useData<Plan>('plans.getPlan', planId !== undefined && may('plan', 'read_plan') ? { planId } : undefined, 10_000)
    .data;

/** A limit of a key, with the place that it is from. */
export interface PlacedLimit extends Ratelimit {
  of: 'key' | 'identity';
  planId?: string;
}

/** The own limits of a key or a customer, and those of its plan that have other names. */
export const placedLimits = (
  of: PlacedLimit['of'],
  own: readonly Ratelimit[] | undefined = [],
  plan: Plan | undefined,
): PlacedLimit[] => [
  ...own.map((limit) => ({ ...limit, of })),
  ...(plan?.ratelimits ?? [])
    .filter(({ name }) => !own.some((one) => one.name === name))
    .map((limit) => ({ ...limit, of, planId: plan!.planId })),
];

/** The plan, and a note if its limits cannot be displayed. */
export const PlanOf = ({ planId }: { planId: string | undefined }) =>
  planId === undefined ? (
    <span class="quiet">none</span>
  ) : (
    <>
      <PlanLink planId={planId} />
      {!may('plan', 'read_plan') && <div class="quiet">Your root key may not read its limits.</div>}
    </>
  );

interface PlanFieldProps {
  label?: string;
  value: string;
  set: (planId: string) => void;
  hint?: string;
}

const planHint = 'Its limits, permissions and roles apply. Empty: none.';
export const planOfKeyHint = 'Of this key alone, in place of that of its customer. Empty: none.';

/** Suggests the plans that exist. */
export function PlanField({ label = 'Plan', value, set, hint = planHint }: PlanFieldProps) {
  const search = useSettled(value);
  const { data } = useData<Plan[]>(
    'plans.listPlans',
    may('plan', 'read_plan') ? { limit: 20, ...(search && { search }) } : undefined,
  );
  return (
    <>
      <TextField
        label={label}
        value={value}
        set={(text) => set(text.trim())}
        maxLength={64}
        list="plans"
        hint={hint}
        placeholder="pro"
      />
      <datalist id="plans">
        {(data ?? []).map(({ planId }) => (
          <option key={planId} value={planId} />
        ))}
      </datalist>
    </>
  );
}
