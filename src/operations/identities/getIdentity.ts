import { identities } from './identityRecords.ts';

export const getIdentity = identities.get({
  name: 'identities.getIdentity',
  summary: 'Get an identity by its id or externalId.',
});
