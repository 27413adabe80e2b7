import Type from 'typebox';
import { manages } from '../../operation.ts';
import { apiNotFound } from '../rules.ts';
import { ApiId, Fields } from '../schemas.ts';

export const getApi = manages({
  name: 'apis.getApi',
  summary: 'Get an API.',
  input: Fields({ apiId: ApiId }),
  output: Type.Object({
    id: Type.String({ description: 'Id of the API.' }),
    name: Type.String({ description: 'Name of the API.' }),
  }),
  errors: ['api_not_found'],
  needs: { api: ['read_api'] },
  scope: ({ apiId }) => apiId,

  async handle({ apiId }, { store, caller }) {
    const api = await store.apis.find(caller.workspaceId, apiId);
    if (!api) throw apiNotFound(apiId);
    return api;
  },
});
