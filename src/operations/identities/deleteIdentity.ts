import { OptionalFlag } from '../schemas.ts';
import { identities } from './identityRecords.ts';

export const deleteIdentity = identities.delete({
  name: 'identities.deleteIdentity',
  summary: 'Delete an identity. Its keys stay valid but lose its metadata, limits and credits.',
  problems: true,
  options: {
    permanent: OptionalFlag('Remove it at once: it cannot be restored.', false),
  },
});
