import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Fields, Role, searchFields } from '../schemas.ts';

export const listRoles = manages({
  name: 'permissions.listRoles',
  summary: 'List roles in order of creation, optionally those whose id, name or description contains a string.',
  input: Fields(searchFields),
  output: Type.Array(Role),
  needs: { rbac: ['read_role'] },
  readsMuch: true,
  scope: () => '*',
  list: () => 'roles',
  listedIds: 'role',

  handle: ({ limit = 100, search }, { store, caller, after }) =>
    store.roles.list(caller.workspaceId, { after, count: limit, search }),
});
