import Type from 'typebox';
import { manages } from '../../operation.ts';
import { Fields, Permission, searchFields } from '../schemas.ts';

export const listPermissions = manages({
  name: 'permissions.listPermissions',
  summary:
    'List permissions in order of creation, optionally those whose id, name, slug or description contains a string.',
  input: Fields(searchFields),
  output: Type.Array(Permission),
  needs: { rbac: ['read_permission'] },
  readsMuch: true,
  scope: () => '*',
  list: () => 'permissions',
  listedIds: 'permission',

  handle: ({ limit = 100, search }, { store, caller, after }) =>
    store.permissions.list(caller.workspaceId, { after, count: limit, search }),
});
