import { permissions } from './permissionRecords.ts';

export const listPermissions = permissions.list({
  name: 'permissions.listPermissions',
  summary:
    'List permissions in order of creation, optionally those whose id, name, slug or description contains a string.',
});
