import Type from 'typebox';
import { manages } from '../../operation.ts';
import { ApiName, Fields, out } from '../schemas.ts';

export const createApi = manages({
  name: 'apis.createApi',
  summary: 'Create an API, a container for keys.',
  input: Fields({ name: ApiName }),
  output: Type.Object({ apiId: out.text('Id of the new API.') }),
  errors: ['too_many_records'],
  needs: { api: ['create_api'] },

  async handle({ name }, { store, caller, actor }) {
    return { apiId: await store.apis.create(caller.workspaceId, name, actor) };
  },
});
