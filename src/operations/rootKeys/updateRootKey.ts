import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Empty, Expires, Fields, KeyName, Nullable, RootKeyId } from '../schemas.ts';
import { checkGrants, GrantList, parseGrants, refuseRootKey } from './grantList.ts';

export const updateRootKey = manages({
  name: 'rootKeys.updateRootKey',
  summary:
    'Change a root key. Fields left out stay; null removes a name or an expiry. Counts from the next request on.',
  input: Fields({
    rootKeyId: RootKeyId,
    name: Type.Optional(Nullable(KeyName)),
    permissions: Type.Optional(GrantList),
    enabled: Type.Optional(Type.Boolean()),
    expires: Type.Optional(Nullable(Expires)),
  }),
  output: Empty,
  errors: ['root_key_not_found', 'precondition_failed'],
  needs: { root_key: ['update_root_key'] },
  scope: () => '*',
  check({ permissions }) {
    if (permissions) parseGrants(permissions);
  },

  async handle({ rootKeyId, permissions, ...changes }, { store, caller, actor }) {
    const grants = permissions && checkGrants(permissions, caller);
    const outcome = await store.rootKeys.update(
      caller.workspaceId,
      rootKeyId,
      { ...changes, permissions: grants },
      caller.grants,
      actor,
    );
    if (outcome !== 'updated') refuseRootKey(outcome);
    return {};
  },
});
