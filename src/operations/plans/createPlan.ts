import Type from 'typebox';
import { alreadyExists } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { checkLimits, checkSlugs, metaText, requireRbac } from '../rules.ts';
import { Fields, out, PlanId } from '../schemas.ts';
import { planFields, planRefused, requirePlans } from './planFields.ts';

export const createPlan = manages({
  name: 'plans.createPlan',
  summary: 'Create a plan: limits, permissions, roles and metadata that keys and identities refer to.',
  input: Fields({ planId: PlanId, ...planFields }),
  output: Type.Object({ planId: out.text('Name of the plan.') }),
  errors: ['plan_already_exists', 'role_not_found', 'precondition_failed', 'too_many_records'],
  needs: { plan: ['create_plan'] },
  check({ ratelimits, meta }, context) {
    checkLimits(ratelimits);
    metaText(meta, context, 'meta');
  },

  async handle({ planId, ratelimits = [], permissions = [], roles = [], meta, ...others }, context) {
    const { store, caller, actor } = context;
    requirePlans(store);
    await checkSlugs(permissions, context);
    // A plan gives permissions as a role does.
    if (permissions.length > 0) requireRbac(caller, ['add_permission_to_role']);
    const mayCreatePermissions = caller.grants.holds('rbac', '*', 'create_permission');
    const text = metaText(meta, context, 'meta') ?? undefined;
    const plan = { ...others, planId, ratelimits, permissions, roles, meta: text, mayCreatePermissions };
    const refused = await store.plans.create(caller.workspaceId, plan, actor);
    if (!refused) return { planId };
    throw refused.refused === 'exists' ? alreadyExists('plan', planId) : planRefused(refused);
  },
});
