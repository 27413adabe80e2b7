import { ApiError } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Empty, Fields, IdentityId } from '../schemas.ts';

export const restoreIdentity = manages({
  name: 'identities.restoreIdentity',
  summary: 'Restore a deleted identity with its keys, limits and credits, effective with the next request.',
  input: Fields({ identityId: IdentityId }),
  output: Empty,
  errors: ['identity_not_found', 'identity_already_exists'],
  needs: { identity: ['create_identity', 'delete_identity'] },
  scope: ({ identityId }) => identityId,

  async handle({ identityId }, { store, caller, actor }) {
    const result = await store.identities.restore(caller.workspaceId, identityId, actor);
    if (result?.refused === 'identity_not_found')
      throw new ApiError(
        'identity_not_found',
        'There is no such deleted identity: it is not deleted, or it was removed.',
      );
    if (result)
      throw new ApiError(
        'identity_already_exists',
        `Another identity has the externalId ${JSON.stringify(result.name)} since: ${result.otherId}. Delete it first.`,
      );
    return {};
  },
});
