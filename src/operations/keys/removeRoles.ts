import { rolesOperation } from './keyRoles.ts';

export const removeRoles = rolesOperation('remove', {
  name: 'keys.removeRoles',
  summary: 'Remove roles from a key.',
  errors: ['key_not_found', 'role_not_found'],
  needs: { api: ['update_key'], rbac: ['remove_role_from_key'] },
});
