import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Empty, Fields, PermissionRef } from '../schemas.ts';

export const deletePermission = manages({
  name: 'permissions.deletePermission',
  summary:
    'Delete a permission by its id or slug, and remove it from all keys and roles, effective with the next verification.',
  input: Fields({ permission: PermissionRef }),
  output: Empty,
  errors: ['permission_not_found'],
  needs: { rbac: ['delete_permission'] },
  scope: () => '*',

  async handle({ permission }, { store, caller, actor }) {
    existing(await store.permissions.delete(caller.workspaceId, permission, actor), 'permission', permission);
    return {};
  },
});
