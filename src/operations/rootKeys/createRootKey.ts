import Type from 'typebox';
import { createRootKeyString, digestOf } from '../../domain/keyString.ts';
import { manages } from '../../operation.ts';
import { Expires, Fields, KeyName } from '../schemas.ts';
import { checkGrants, GrantList, parseGrants } from './grantList.ts';

export const createRootKey = manages({
  name: 'rootKeys.createRootKey',
  summary: 'Create a root key that may do some of what the caller may. Its string is in the answer and nowhere else.',
  input: Fields({ name: Type.Optional(KeyName), permissions: GrantList, expires: Type.Optional(Expires) }),
  output: Type.Object({ rootKeyId: Type.String(), key: Type.String() }),
  needs: { root_key: ['create_root_key'] },
  scope: () => '*',
  check({ permissions }) {
    parseGrants(permissions);
  },

  async handle({ name, permissions, expires }, { store, caller, actor }) {
    const grants = checkGrants(permissions, caller);
    const { key, start } = createRootKeyString(caller.workspaceId);
    const request = { digest: digestOf(key), start, name, permissions: grants, expires };
    return { rootKeyId: await store.rootKeys.create(caller.workspaceId, request, actor), key };
  },
});
