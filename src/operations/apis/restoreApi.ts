import { ApiError } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { ApiId, Empty, Fields } from '../schemas.ts';

export const restoreApi = manages({
  name: 'apis.restoreApi',
  summary:
    'Restore a deleted API with all its keys but those that were deleted before it, effective with the next request.',
  input: Fields({ apiId: ApiId }),
  output: Empty,
  errors: ['api_not_found'],
  needs: { api: ['create_api', 'delete_api'] },
  scope: ({ apiId }) => apiId,

  async handle({ apiId }, { store, caller, actor }) {
    if (await store.apis.restore(caller.workspaceId, apiId, actor)) return {};
    throw new ApiError('api_not_found', 'There is no such deleted API: it is not deleted, or it was removed.');
  },
});
