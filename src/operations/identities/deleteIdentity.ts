import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Empty, Fields, IdentityRef } from '../schemas.ts';
import { byIdentity } from './identityByRef.ts';

export const deleteIdentity = manages({
  name: 'identities.deleteIdentity',
  summary: 'Delete an identity. Its keys stay valid but lose its metadata and limits.',
  input: Fields({ identity: IdentityRef }),
  output: Empty,
  errors: ['identity_not_found'],
  needs: { identity: ['delete_identity'] },
  problems: true,
  ...byIdentity,

  async handle(_input, { store, caller, actor }, { id }) {
    existing(await store.identities.delete(caller.workspaceId, id, actor), 'identity');
    return {};
  },
});
