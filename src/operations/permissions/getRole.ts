import { roles } from './permissionRecords.ts';

export const getRole = roles.get({
  name: 'permissions.getRole',
  summary: 'Get a role by its id or name.',
  readsMuch: true,
});
