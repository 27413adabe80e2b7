import Type from 'typebox';
import { identities } from './identityRecords.ts';

export const deleteIdentity = identities.delete({
  name: 'identities.deleteIdentity',
  summary: 'Delete an identity. Its keys stay valid but lose its metadata, limits and credits.',
  problems: true,
  options: {
    permanent: Type.Optional(
      Type.Boolean({ default: false, description: 'Remove it at once: it cannot be restored.' }),
    ),
  },
});
