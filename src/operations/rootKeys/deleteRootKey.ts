import { manages } from '../../operation.ts';
import { Empty, Fields, RootKeyId } from '../schemas.ts';
import { lastRootKey, rootKeyRefused } from './grantList.ts';

export const deleteRootKey = manages({
  name: 'rootKeys.deleteRootKey',
  summary: 'Delete a root key, effective with the next request.',
  description: lastRootKey,
  input: Fields({ rootKeyId: RootKeyId }),
  output: Empty,
  errors: ['root_key_not_found', 'precondition_failed'],
  needs: { root_key: ['delete_root_key'] },

  async handle({ rootKeyId }, { store, caller, actor }) {
    const result = await store.rootKeys.delete(caller.workspaceId, rootKeyId, actor);
    if (result.refused) throw rootKeyRefused(result);
    return {};
  },
});
