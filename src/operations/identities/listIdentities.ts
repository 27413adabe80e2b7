import Type from 'typebox';
import { Int } from '../schemas.ts';
import { identities } from './identityRecords.ts';

export const listIdentities = identities.list({
  name: 'identities.listIdentities',
  summary: 'List identities in order of creation, optionally those whose id or externalId contains a string.',
  filters: {
    creditsBelow: Type.Optional(Int({ minimum: 0, description: 'Identities with a balance below this number.' })),
  },
});
