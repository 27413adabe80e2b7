import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Cursor, Fields, PageSize, Permission, Search } from '../schemas.ts';

export const listPermissions = manages({
  name: 'permissions.listPermissions',
  summary:
    'List permissions in order of creation, optionally those whose id, name, slug or description contains a string.',
  input: Fields({
    limit: Type.Optional(PageSize(100)),
    cursor: Type.Optional(Cursor),
    search: Type.Optional(Search),
  }),
  output: Type.Array(Permission),
  needs: { rbac: ['read_permission'] },
  readsMuch: true,
  scope: () => '*',
  list: () => 'permissions',
  listedIds: 'perm',

  handle: ({ limit = 100, search }, { store, caller, after }) =>
    store.permissions.list(caller.workspaceId, { after, count: limit, search }),
});
