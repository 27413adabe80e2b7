import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Cursor, Fields, PageSize } from '../schemas.ts';

export const listRootKeys = manages({
  name: 'rootKeys.listRootKeys',
  summary: 'List root keys in order of creation.',
  input: Fields({ limit: Type.Optional(PageSize(100)), cursor: Type.Optional(Cursor) }),
  output: Type.Array(
    Type.Object({
      rootKeyId: Type.String(),
      name: Type.Optional(Type.String()),
      start: Type.String(),
      permissions: Type.Array(Type.String()),
      enabled: Type.Boolean(),
      expires: Type.Optional(Type.Integer()),
      createdAt: Type.Integer(),
      lastUsedAt: Type.Optional(Type.Integer()),
    }),
  ),
  needs: { root_key: ['read_root_key'] },
  scope: () => '*',
  list: () => 'rootKeys',
  listedIds: 'root',

  async handle({ limit = 100 }, { store, caller, after }) {
    const { rootKeys, more } = await store.rootKeys.list(caller.workspaceId, { after, count: limit });
    return { items: rootKeys, next: more ? rootKeys.at(-1)?.rootKeyId : undefined };
  },
});
