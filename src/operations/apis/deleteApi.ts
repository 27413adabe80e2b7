import { manages } from '../../operation.ts';
import { apiNotFound } from '../rules.ts';
import { ApiId, Empty, Fields } from '../schemas.ts';

export const deleteApi = manages({
  name: 'apis.deleteApi',
  summary: 'Delete an API and all its keys, effective with the next request.',
  input: Fields({ apiId: ApiId }),
  output: Empty,
  errors: ['api_not_found'],
  needs: { api: ['delete_api'] },
  scope: ({ apiId }) => apiId,

  async handle({ apiId }, { store, caller, actor }) {
    if (!(await store.apis.delete(caller.workspaceId, apiId, actor))) throw apiNotFound(apiId);
    return {};
  },
});
