import Type from 'typebox';
import { Int, OptionalFlag, PlanId } from '../schemas.ts';
import { identities } from './identityRecords.ts';

export const listIdentities = identities.list({
  name: 'identities.listIdentities',
  summary:
    'List identities, or deleted ones, in order of creation, optionally those whose id or externalId contains a string.',
  filters: {
    creditsBelow: Type.Optional(Int(0, 'Identities with a balance below this number.')),
    planId: Type.Optional(PlanId),
    deleted: OptionalFlag('With true only deleted identities that can be restored.'),
  },
});
