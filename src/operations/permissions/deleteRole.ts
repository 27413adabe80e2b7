import { roles } from './permissionRecords.ts';

export const deleteRole = roles.delete({
  name: 'permissions.deleteRole',
  summary: 'Delete a role by its id or name, and remove it from all keys, effective with the next verification.',
});
