import { permissions } from './permissionRecords.ts';

export const deletePermission = permissions.delete({
  name: 'permissions.deletePermission',
  summary:
    'Delete a permission by its id or slug, and remove it from all keys and roles, effective with the next verification.',
});
