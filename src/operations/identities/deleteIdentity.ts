import { identities } from './identityRecords.ts';

export const deleteIdentity = identities.delete({
  name: 'identities.deleteIdentity',
  summary: 'Delete an identity. Its keys stay valid but lose its metadata and limits.',
  problems: true,
});
