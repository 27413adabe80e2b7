import { permissions } from './permissionRecords.ts';

export const getPermission = permissions.get({
  name: 'permissions.getPermission',
  summary: 'Get a permission by its id or slug.',
});
