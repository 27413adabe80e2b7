import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Fields, PlanId } from '../schemas.ts';
import { PlanRecord, shownPlan } from './planFields.ts';

export const getPlan = manages({
  name: 'plans.getPlan',
  summary: 'Get a plan, with the numbers of keys and identities that have it.',
  input: Fields({ planId: PlanId }),
  output: PlanRecord,
  errors: ['plan_not_found'],
  needs: { plan: ['read_plan'] },

  handle: async ({ planId }, { store, caller }) =>
    shownPlan(existing(await store.plans.find(caller.workspaceId, planId), 'plan', planId)),
});
