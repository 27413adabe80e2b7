import Type from 'typebox';
import { manages } from '../../operation.ts';
import { checkMilliseconds } from '../rules.ts';
import { Empty, Fields, KeyName, Nullable, OptionalFlag, RootKeyExpires, RootKeyId } from '../schemas.ts';
import { enabledDescription, GrantList, lastRootKey, parseGrants, rootKeyRefused } from './grantList.ts';

export const updateRootKey = manages({
  name: 'rootKeys.updateRootKey',
  summary:
    'Update a root key, effective with the next request. Omitted fields are unchanged; null removes a name or an expiry. ' +
    'A caller with an expiry can only rename or restrict a root key that outlasts it: fewer permissions, an earlier expiry, disabled.',
  description: lastRootKey,
  input: Fields({
    rootKeyId: RootKeyId,
    name: Type.Optional(Nullable(KeyName)),
    permissions: Type.Optional(GrantList),
    enabled: OptionalFlag(enabledDescription),
    expires: Type.Optional(Nullable(RootKeyExpires)),
  }),
  output: Empty,
  errors: ['root_key_not_found', 'precondition_failed'],
  needs: { root_key: ['update_root_key'] },
  check({ permissions, expires }) {
    checkMilliseconds({ expires });
    if (permissions) parseGrants(permissions);
  },

  async handle({ rootKeyId, permissions, ...changes }, { store, caller, actor }) {
    const request = { ...changes, permissions: permissions && parseGrants(permissions) };
    const result = await store.rootKeys.update(caller.workspaceId, rootKeyId, request, actor);
    if (result.refused) throw rootKeyRefused(result);
    return {};
  },
});
