import { rolesOperation } from './keyRoles.ts';

export const setRoles = rolesOperation('set', {
  name: 'keys.setRoles',
  summary: 'Replace the roles of a key.',
  errors: ['key_not_found', 'role_not_found'],
  needs: { api: ['update_key'], rbac: ['add_role_to_key', 'remove_role_from_key'] },
});
