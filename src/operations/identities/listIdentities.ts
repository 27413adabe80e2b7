import { identities } from './identityRecords.ts';

export const listIdentities = identities.list({
  name: 'identities.listIdentities',
  summary: 'List identities in order of creation, optionally those whose id or externalId contains a string.',
});
