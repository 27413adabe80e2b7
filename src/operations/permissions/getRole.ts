import { manages } from '../../operation.ts';
import { roleNotFound } from '../rules.ts';
import { Fields, Role, RoleRef } from '../schemas.ts';

export const getRole = manages({
  name: 'permissions.getRole',
  summary: 'Get a role by its id or name.',
  input: Fields({ role: RoleRef }),
  output: Role,
  errors: ['role_not_found'],
  needs: { rbac: ['read_role'] },
  readsMuch: true,
  scope: () => '*',

  async handle({ role }, { store, caller }) {
    const found = await store.roles.find(caller.workspaceId, role);
    if (!found) throw roleNotFound(role);
    return found;
  },
});
