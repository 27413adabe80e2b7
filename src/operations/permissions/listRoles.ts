import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Cursor, Fields, PageSize, Role, Search } from '../schemas.ts';

export const listRoles = manages({
  name: 'permissions.listRoles',
  summary: 'List roles in order of creation, optionally those whose id, name or description contains a string.',
  input: Fields({
    limit: Type.Optional(PageSize(100)),
    cursor: Type.Optional(Cursor),
    search: Type.Optional(Search),
  }),
  output: Type.Array(Role),
  needs: { rbac: ['read_role'] },
  readsMuch: true,
  scope: () => '*',
  list: () => 'roles',
  listedIds: 'role',

  handle: ({ limit = 100, search }, { store, caller, after }) =>
    store.roles.list(caller.workspaceId, { after, count: limit, search }),
});
