import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Empty, Fields, RoleRef } from '../schemas.ts';

export const deleteRole = manages({
  name: 'permissions.deleteRole',
  summary: 'Delete a role by its id or name, and remove it from all keys, effective with the next verification.',
  input: Fields({ role: RoleRef }),
  output: Empty,
  errors: ['role_not_found'],
  needs: { rbac: ['delete_role'] },
  scope: () => '*',

  async handle({ role }, { store, caller, actor }) {
    existing(await store.roles.delete(caller.workspaceId, role, actor), 'role', role);
    return {};
  },
});
