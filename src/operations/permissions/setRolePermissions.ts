import Type from 'typebox';
import { manages } from '../../operation.ts';
import { checkSlugs, refusalError } from '../rules.ts';
import { Fields, Permission, RoleRef, Slugs } from '../schemas.ts';

export const setRolePermissions = manages({
  name: 'permissions.setRolePermissions',
  summary: 'Replace the permissions of a role, effective with the next verification.',
  input: Fields({
    roleId: RoleRef,
    permissions: Slugs('All permissions of the role.'),
  }),
  output: Type.Array(Permission, { description: 'All permissions of the role after the call.' }),
  errors: ['role_not_found', 'too_many_records'],
  needs: { rbac: ['add_permission_to_role', 'remove_permission_from_role'] },

  async handle({ roleId, permissions }, context) {
    const { store, caller, actor } = context;
    await checkSlugs(permissions, context);
    const mayCreatePermissions = caller.grants.holds('rbac', '*', 'create_permission');
    const result = await store.roles.setPermissions(
      caller.workspaceId,
      { roleId, permissions, mayCreatePermissions },
      actor,
    );
    if (Array.isArray(result)) return result;
    throw refusalError(result);
  },
});
