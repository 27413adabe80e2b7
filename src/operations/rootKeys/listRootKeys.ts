import Type from 'typebox';
import { manages } from '../../operation.ts';
import { CreatedAt, ExpiresAt, Fields, pageFields } from '../schemas.ts';

export const listRootKeys = manages({
  name: 'rootKeys.listRootKeys',
  summary: 'List root keys in order of creation.',
  input: Fields({ ...pageFields }),
  output: Type.Array(
    Type.Object({
      rootKeyId: Type.String({ description: 'Id of the root key.' }),
      name: Type.Optional(Type.String({ description: 'Name for people.' })),
      start: Type.String({ description: 'First characters of the root key string.' }),
      permissions: Type.Array(Type.String(), { description: 'Its grants.' }),
      enabled: Type.Boolean({ description: 'False: every request with it gets 403.' }),
      expires: Type.Optional(ExpiresAt),
      createdAt: CreatedAt,
      lastUsedAt: Type.Optional(Type.Integer({ description: 'Time of its last use in Unix milliseconds.' })),
    }),
  ),
  needs: { root_key: ['read_root_key'] },
  scope: () => '*',
  list: () => 'rootKeys',
  listedIds: 'root_key',

  async handle({ limit = 100 }, { store, caller, after }) {
    const { rootKeys, more } = await store.rootKeys.list(caller.workspaceId, { after, count: limit });
    return { items: rootKeys, next: more ? rootKeys.at(-1)?.rootKeyId : undefined };
  },
});
