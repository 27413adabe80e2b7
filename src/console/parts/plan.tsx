// The plan of a key or a customer: its limits where they apply, its choice in forms, and its own form.

import { useId, useState } from 'preact/hooks';
import { useSettled } from '../address.ts';
import { useData } from '../api.ts';
import type { Plan, Ratelimit } from '../records.ts';
import { may } from '../session.ts';
import { PlanLink, TextField } from './basic.tsx';
import { draftOf, LimitFields, limitsOf, MetaField, metaOf, namesOf, newDraft } from './keyForm.tsx';
import { NamesField } from './names.tsx';

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
  const id = useId();
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
        list={id}
        hint={hint}
        placeholder="pro"
      />
      <datalist id={id}>
        {(data ?? []).map(({ planId }) => (
          <option key={planId} value={planId} />
        ))}
      </datalist>
    </>
  );
}

const draftOfPlan = (plan: Plan | undefined) => ({
  limits: plan?.ratelimits.map(draftOf) ?? [newDraft('requests', '100')],
  permissions: plan?.permissions.join(' ') ?? '',
  roles: plan?.roles.join(' ') ?? '',
  meta: plan?.meta ? JSON.stringify(plan.meta, null, 2) : '',
});

/** The fields of a plan, and what was changed in them. `before` is undefined for a new one. */
export function usePlanForm(before?: Plan) {
  const [first] = useState(draftOfPlan(before));
  const [draft, setDraft] = useState(first);
  const set = (name: keyof typeof draft) => (value: unknown) => setDraft({ ...draft, [name]: value });
  const { limits, permissions, roles, meta } = draft;
  const [ratelimits, metadata] = [limitsOf(limits), metaOf(meta)];
  return {
    isComplete: ratelimits !== undefined && metadata !== undefined,
    input: {
      ...((limits !== first.limits || !before) && { ratelimits }),
      ...(permissions.trim() !== first.permissions && { permissions: namesOf(permissions) }),
      ...(roles.trim() !== first.roles && { roles: namesOf(roles) }),
      ...(meta.trim() !== first.meta && { meta: meta.trim() ? metadata : null }),
    },
    fields: (
      <>
        <LimitFields drafts={limits} set={set('limits')} isOfPlan />
        <NamesField label="Permissions" of="permissions" value={permissions} set={set('permissions')} />
        <NamesField label="Roles" of="roles" value={roles} set={set('roles')} hint="Names with spaces between them." />
        <MetaField value={meta} set={set('meta')} />
      </>
    ),
  };
}
