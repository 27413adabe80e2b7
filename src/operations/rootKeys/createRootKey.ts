import Type from 'typebox';
import { createRootKeyString, digestOf } from '../../domain/keyString.ts';
import { manages } from '../../operation.ts';
import { Fields, KeyName, out, RootKeyExpires } from '../schemas.ts';
import { GrantList, parseGrants, rootKeyRefused } from './grantList.ts';

export const createRootKey = manages({
  name: 'rootKeys.createRootKey',
  summary:
    "Create a root key with some or all of the caller's grants. The response is the only place its string ever appears.",
  input: Fields({ name: Type.Optional(KeyName), permissions: GrantList, expires: Type.Optional(RootKeyExpires) }),
  output: Type.Object({
    rootKeyId: out.text('Id of the new root key.'),
    key: out.secret('The root key string. It is not stored.'),
  }),
  errors: ['too_many_records'],
  needs: { root_key: ['create_root_key'] },
  check({ permissions }) {
    parseGrants(permissions);
  },

  async handle({ name, permissions, expires }, { store, caller, actor }) {
    const { key, start } = createRootKeyString(caller.workspaceId);
    const request = { digest: digestOf(key), start, name, permissions: parseGrants(permissions), expires };
    const result = await store.rootKeys.create(caller.workspaceId, request, actor);
    if ('refused' in result) throw rootKeyRefused(result);
    return { ...result, key };
  },
});
