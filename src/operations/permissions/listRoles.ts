import { roles } from './permissionRecords.ts';

export const listRoles = roles.list({
  name: 'permissions.listRoles',
  summary: 'List roles in order of creation, optionally those whose id, name or description contains a string.',
});
