import { manages } from '../../operation.ts';
import { roleNotFound } from '../rules.ts';
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
    if (!(await store.roles.delete(caller.workspaceId, role, actor))) throw roleNotFound(role);
    return {};
  },
});
