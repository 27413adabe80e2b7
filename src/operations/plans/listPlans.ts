import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Fields, searchFields } from '../schemas.ts';
import { PlanRecord, shownPlan } from './planFields.ts';

export const listPlans = manages({
  name: 'plans.listPlans',
  summary: 'List plans in order of creation, optionally those whose planId contains a string.',
  input: Fields(searchFields),
  output: Type.Array(PlanRecord),
  needs: { plan: ['read_plan'] },
  list: () => 'plans',
  listedIds: 'plan',

  async handle({ limit = 100, search }, { store, caller, after }) {
    const { items, next } = await store.plans.list(caller.workspaceId, { after, count: limit, search });
    return { items: items.map(shownPlan), next };
  },
});
