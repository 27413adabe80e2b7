import { permissionsOperation } from './keyPermissions.ts';

export const addPermissions = permissionsOperation('add', {
  name: 'keys.addPermissions',
  summary: 'Add direct permissions to a key. Unknown permissions are created if the caller may create permissions.',
  errors: ['key_not_found', 'too_many_records'],
  needs: { api: ['update_key'], rbac: ['add_permission_to_key'] },
});
