import Type from 'typebox';
import { manages } from '../../operation.ts';
import { KeyRecord } from '../keys/keyFields.ts';
import { apiNotFound, refusePlaintext } from '../rules.ts';
import { ApiId, ExternalId, Fields, OptionalFlag, Plaintext, pageFields } from '../schemas.ts';

export const listKeys = manages({
  name: 'apis.listKeys',
  summary: 'List the keys of an API in order of creation, optionally those of one externalId.',
  input: Fields({
    apiId: ApiId,
    ...pageFields,
    externalId: Type.Optional(ExternalId),
    decrypt: Type.Optional(Plaintext),
    revalidateKeysCache: OptionalFlag('Accepted and ignored: nothing is cached.'),
  }),
  output: Type.Array(KeyRecord),
  errors: ['api_not_found'],
  needs: { api: ['read_key', 'read_api'] },
  scope: ({ apiId }) => apiId,
  list: ({ apiId, externalId = '' }) => `keys:${apiId}:${externalId}`,
  listedIds: 'key',
  check: ({ decrypt }) => refusePlaintext({ decrypt }),

  async handle({ apiId, limit = 100, externalId }, { store, caller, after }) {
    const page = await store.keys.list(caller.workspaceId, { apiId, externalId, after, count: limit });
    if (!page) throw apiNotFound(apiId);
    return page;
  },
});
