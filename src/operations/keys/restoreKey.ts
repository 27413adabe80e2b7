import { ApiError } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Empty, Fields, KeyId } from '../schemas.ts';
import { type FoundKey, scopeOfKey } from './keyById.ts';

export const notDeleted = () =>
  new ApiError('key_not_found', 'There is no such deleted key: it is not deleted, or its record was removed.');

export const restoreKey = manages({
  name: 'keys.restoreKey',
  summary: 'Restore a deleted key, effective with the next request.',
  input: Fields({ keyId: KeyId }),
  output: Empty,
  errors: ['key_not_found'],
  needs: { api: ['create_key', 'delete_key'] },
  async load({ keyId }, { store, caller }): Promise<FoundKey> {
    const found = await store.keys.findDeleted(caller.workspaceId, keyId);
    if (!found) throw notDeleted();
    return found;
  },
  scope: scopeOfKey,

  async handle({ keyId }, { store, caller, actor }) {
    if (!(await store.keys.restore(caller.workspaceId, keyId, actor))) throw notDeleted();
    return {};
  },
});
