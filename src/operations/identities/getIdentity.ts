import { manages } from '../../operation.ts';
import { Fields, IdentityRef, ListedIdentity } from '../schemas.ts';
import { byIdentity } from './identityByRef.ts';

export const getIdentity = manages({
  name: 'identities.getIdentity',
  summary: 'Get an identity by its id or externalId.',
  input: Fields({ identity: IdentityRef }),
  output: ListedIdentity,
  errors: ['identity_not_found'],
  needs: { identity: ['read_identity'] },
  ...byIdentity,

  handle: async (_input, _context, identity) => identity,
});
