import { rolesOperation } from './keyRoles.ts';

export const addRoles = rolesOperation('add', {
  name: 'keys.addRoles',
  summary: 'Add roles to a key.',
  errors: ['key_not_found', 'role_not_found'],
  needs: { api: ['update_key'], rbac: ['add_role_to_key'] },
});
