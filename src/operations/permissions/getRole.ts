import { existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
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
    return existing(await store.roles.find(caller.workspaceId, role), 'role', role);
  },
});
