import Type from 'typebox';
import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { checkLimits, checkSlugs, metaText, requireRbac } from '../rules.ts';
import { Fields, Meta, Nullable, PlanId } from '../schemas.ts';
import { PlanRecord, planFields, planRefused, requirePlans, shownPlan } from './planFields.ts';

export const updatePlan = manages({
  name: 'plans.updatePlan',
  summary:
    'Change a plan for all keys and identities that have it, effective with the next verification. Omitted fields are unchanged.',
  description:
    'A list replaces that of the plan. Units that were counted stay counted, by the name of the limit and its duration or period.',
  input: Fields({ planId: PlanId, ...planFields, meta: Type.Optional(Nullable(Meta)) }),
  output: PlanRecord,
  errors: ['plan_not_found', 'role_not_found', 'precondition_failed', 'too_many_records'],
  needs: { plan: ['update_plan'] },
  check({ ratelimits, meta }, context) {
    checkLimits(ratelimits);
    metaText(meta, context, 'meta');
  },

  async handle({ planId, meta, ...lists }, context) {
    const { store, caller, actor } = context;
    requirePlans(store);
    await checkSlugs(lists.permissions, context);
    if (lists.permissions) requireRbac(caller, ['add_permission_to_role', 'remove_permission_from_role']);
    const mayCreatePermissions = caller.grants.holds('rbac', '*', 'create_permission');
    const text = meta === undefined ? undefined : (metaText(meta, context, 'meta') ?? '');
    const changes = { planId, ...lists, meta: text, mayCreatePermissions };
    const refused = await store.plans.update(caller.workspaceId, changes, actor);
    if (refused) throw planRefused(refused);
    return shownPlan(existing(await store.plans.find(caller.workspaceId, planId), 'plan', planId));
  },
});
