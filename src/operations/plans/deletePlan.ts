import Type from 'typebox';
import { ApiError, notFound } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { invalid } from '../rules.ts';
import { Fields, may, PlanId } from '../schemas.ts';

export const deletePlan = manages({
  name: 'plans.deletePlan',
  summary: 'Delete a plan that no key and no identity has, or give them another plan first.',
  input: Fields({
    planId: PlanId,
    replaceWith: Type.Optional({ ...PlanId, description: 'Another plan, which its keys and identities get.' }),
  }),
  output: Type.Object({
    left: may.int(
      'With `replaceWith`, after five seconds: number of keys and identities that still have the plan. It was not deleted; the same request continues.',
    ),
  }),
  errors: ['plan_not_found', 'precondition_failed'],
  needs: { plan: ['delete_plan'] },
  check({ planId, replaceWith }) {
    if (planId === replaceWith) throw invalid('body.replaceWith', 'must be another plan');
  },

  async handle({ planId, replaceWith }, { store, caller, actor }) {
    const refused = await store.plans.delete(caller.workspaceId, planId, replaceWith, actor);
    if (!refused) return {};
    if (refused.refused === 'more') return { left: refused.left };
    if (refused.refused === 'plan_not_found') throw notFound('plan', refused.name);
    const users = `The plan ${JSON.stringify(planId)} is used: keys: ${refused.keys}, identities: ${refused.identities}.`;
    throw new ApiError('precondition_failed', `${users} Name another one for them with replaceWith.`);
  },
});
