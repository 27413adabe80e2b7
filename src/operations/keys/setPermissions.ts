import { permissionsOperation } from './keyPermissions.ts';

export const setPermissions = permissionsOperation('set', {
  name: 'keys.setPermissions',
  summary: 'Replace the direct permissions of a key.',
  errors: ['key_not_found', 'too_many_records'],
  needs: { api: ['update_key'], rbac: ['add_permission_to_key', 'remove_permission_from_key'] },
});
