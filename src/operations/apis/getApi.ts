import { manages } from '../../operation.ts';
import { apiNotFound } from '../rules.ts';
import { Api, ApiId, Fields } from '../schemas.ts';

export const getApi = manages({
  name: 'apis.getApi',
  summary: 'Get an API.',
  input: Fields({ apiId: ApiId }),
  output: Api,
  errors: ['api_not_found'],
  needs: { api: ['read_api'] },
  scope: ({ apiId }) => apiId,

  async handle({ apiId }, { store, caller }) {
    const api = await store.apis.find(caller.workspaceId, apiId);
    if (!api) throw apiNotFound(apiId);
    return api;
  },
});
