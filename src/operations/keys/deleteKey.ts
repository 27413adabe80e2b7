import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Empty, Fields, KeyId, OptionalFlag } from '../schemas.ts';
import { ofKey } from './keyById.ts';

export const deleteKey = manages({
  name: 'keys.deleteKey',
  summary: 'Delete a key, effective with the next request.',
  input: Fields({
    keyId: KeyId,
    permanent: OptionalFlag('Delete the record at once. The same key string can then be imported again.', false),
  }),
  output: Empty,
  errors: ['key_not_found'],
  needs: { api: ['delete_key'] },
  ...ofKey,

  async handle({ keyId, permanent = false }, { store, caller, actor }) {
    existing(await store.keys.delete(caller.workspaceId, { keyId, permanent }, actor), 'key');
    return {};
  },
});
