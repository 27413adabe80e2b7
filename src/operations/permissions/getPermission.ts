import { manages } from '../../operation.ts';
import { permissionNotFound } from '../rules.ts';
import { Fields, Permission, PermissionRef } from '../schemas.ts';

export const getPermission = manages({
  name: 'permissions.getPermission',
  summary: 'Get a permission by its id or slug.',
  input: Fields({ permission: PermissionRef }),
  output: Permission,
  errors: ['permission_not_found'],
  needs: { rbac: ['read_permission'] },
  scope: () => '*',

  async handle({ permission }, { store, caller }) {
    const found = await store.permissions.find(caller.workspaceId, permission);
    if (!found) throw permissionNotFound(permission);
    return found;
  },
});
