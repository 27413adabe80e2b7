import { manages } from '../../operation.ts';
import { apiNotFound } from '../rules.ts';
import { ApiId, ApiName, Empty, Fields } from '../schemas.ts';

export const updateApi = manages({
  name: 'apis.updateApi',
  summary: 'Rename an API.',
  input: Fields({ apiId: ApiId, name: ApiName }),
  output: Empty,
  errors: ['api_not_found'],
  needs: { api: ['update_api'] },
  scope: ({ apiId }) => apiId,

  async handle({ apiId, name }, { store, caller, actor }) {
    if (!(await store.apis.rename(caller.workspaceId, { apiId, name }, actor))) throw apiNotFound(apiId);
    return {};
  },
});
