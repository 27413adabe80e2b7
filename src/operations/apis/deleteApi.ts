import Type from 'typebox';
import { ApiError } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { apiNotFound } from '../rules.ts';
import { ApiId, Empty, Fields, OptionalFlag } from '../schemas.ts';

export const deleteApi = manages({
  name: 'apis.deleteApi',
  summary: 'Delete an API and all its keys, effective with the next request.',
  input: Fields({
    apiId: ApiId,
    confirm: Type.Optional(
      Type.String({
        maxLength: 256,
        description: 'Name of the API. Required if the workspace protects its APIs and this one has keys.',
      }),
    ),
    permanent: OptionalFlag('Remove it and its keys at once: it cannot be restored.', false),
  }),
  output: Empty,
  errors: ['api_not_found', 'precondition_failed'],
  needs: { api: ['delete_api'] },
  scope: ({ apiId }) => apiId,

  async handle({ apiId, confirm, permanent = false }, { store, caller, actor }) {
    const result = await store.apis.delete(caller.workspaceId, { apiId, confirm, permanent }, actor);
    if (result?.refused === 'api_not_found') throw apiNotFound(apiId);
    if (result?.refused === 'protected') {
      throw new ApiError(
        'precondition_failed',
        `The workspace protects its APIs, and this one has keys. To delete it, set confirm to its name, ${JSON.stringify(result.name)}.`,
      );
    }
    return {};
  },
});
