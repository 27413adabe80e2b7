import { permissionsOperation } from './keyPermissions.ts';

export const removePermissions = permissionsOperation('remove', {
  name: 'keys.removePermissions',
  summary: 'Remove direct permissions from a key.',
  errors: ['key_not_found', 'permission_not_found'],
  needs: { api: ['update_key'], rbac: ['remove_permission_from_key'] },
});
