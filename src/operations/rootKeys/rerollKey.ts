import { createRootKeyString, digestOf } from '../../domain/keyString.ts';
import { ApiError } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { checkExpiration, Expiration } from '../keys/rerollKey.ts';
import { Fields, Nullable, RootKeyId } from '../schemas.ts';
import { NewKey } from './createKey.ts';
import { rootKeyRefused } from './grantList.ts';

export const rerollKey = manages({
  name: 'rootKeys.rerollKey',
  summary:
    'Replace a root key: create one with a new string and the same name, grants, state and expiry, and let the old one expire.',
  description:
    'The caller must have all grants of the root key, and must not expire before it. `expiration: null` leaves the expiry of the old root key as it is.',
  input: Fields({ keyId: RootKeyId, expiration: Nullable(Expiration) }),
  output: NewKey,
  errors: ['root_key_not_found', 'too_many_records'],
  needs: { root_key: ['create_root_key', 'update_root_key'] },
  check: ({ expiration }) => checkExpiration(expiration ?? 0),

  async handle({ keyId, expiration }, { store, caller, actor }) {
    const { key, start } = createRootKeyString(caller.workspaceId);
    const request = { digest: digestOf(key), start, expiresIn: expiration ?? ('' as const) };
    const result = await store.rootKeys.reroll(caller.workspaceId, keyId, request, actor);
    if (!('refused' in result)) return { keyId: result.rootKeyId, key };
    if (result.refused !== 'outlives') throw rootKeyRefused(result);
    const detail = 'The calling root key expires before the other one, and cannot make one that lasts as long.';
    throw new ApiError('insufficient_permissions', detail);
  },
});
