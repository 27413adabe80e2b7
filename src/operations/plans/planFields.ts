// The fields of a plan, as callers send and read them.

import type { Static } from 'typebox';
import Type from 'typebox';
import { type ApiError, notFound } from '../../errors.ts';
import type { Plan } from '../../records/plans.ts';
import type { Store } from '../../store.ts';
import { limitRefused, plansSince, refusalError, requireData } from '../rules.ts';
import {
  CreatedAt,
  Meta,
  MetaText,
  may,
  out,
  PlanId,
  PlanLimit,
  planLimitsMax,
  Ratelimit,
  RoleName,
  Slug,
} from '../schemas.ts';

export const planFields = {
  ratelimits: Type.Optional(
    Type.Array(PlanLimit, {
      maxItems: planLimitsMax,
      description: 'Limits that each key, or each identity for all its keys, has by the plan, each of another name.',
    }),
  ),
  permissions: Type.Optional(
    Type.Array(Slug, { maxItems: 100, description: 'Permissions that keys have by the plan. Created if unknown.' }),
  ),
  roles: Type.Optional(
    Type.Array(RoleName, { maxItems: 20, description: 'Names of roles that keys have by the plan.' }),
  ),
  meta: Type.Optional(Meta),
};

export const PlanRecord = out.object('A plan: limits, permissions and roles that keys and identities refer to.', {
  planId: PlanId,
  ratelimits: Type.Array(Ratelimit, { description: 'Limits of the plan.' }),
  permissions: Type.Array(Type.String(), { description: 'Permissions of the plan.' }),
  roles: Type.Array(Type.String(), { description: 'Names of the roles of the plan.' }),
  meta: Type.Optional(MetaText),
  createdAt: CreatedAt,
  updatedAt: may.int('Time of the last change in Unix milliseconds.'),
  keyCount: out.int('Number of keys that have the plan themselves.'),
  identityCount: out.int('Number of identities that have the plan.'),
});

/** Callers know a plan by its planId. */
export const shownPlan = ({ id: _id, ...plan }: Plan): Static<typeof PlanRecord> => plan;

export const requirePlans = (store: Pick<Store, 'dataVersion'>) => requireData(store, plansSince, 'a plan');

type Refused = NonNullable<Awaited<ReturnType<Store['plans']['create' | 'update']>>>;

/** The error for a plan that was not created or changed. */
export function planRefused({ refused, name }: Refused): ApiError {
  switch (refused) {
    case 'exists':
      throw new Error('planRefused: a plan that exists');
    case 'plan_not_found':
      return notFound('plan', name);
    case 'role_not_found':
    case 'create_permission':
      return refusalError({ refused, name });
    default:
      return limitRefused(refused, {}, name);
  }
}
