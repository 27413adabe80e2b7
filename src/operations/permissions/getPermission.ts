import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
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
    return existing(await store.permissions.find(caller.workspaceId, permission), 'permission', permission);
  },
});
