import Type from 'typebox';
import { alreadyExists } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { checkSlugs, refusalError, requireRbac } from '../rules.ts';
import { Description, Fields, NewRoleName, out, Slugs } from '../schemas.ts';

export const createRole = manages({
  name: 'permissions.createRole',
  summary: 'Create a role, optionally with permissions.',
  input: Fields({
    name: NewRoleName,
    description: Type.Optional(Description),
    permissions: Type.Optional(Slugs('Permissions of the role.')),
  }),
  output: Type.Object({ roleId: out.text('Id of the new role.') }),
  errors: ['role_already_exists', 'too_many_records'],
  needs: { rbac: ['create_role'] },

  async handle({ name, description, permissions = [] }, context) {
    const { store, caller, actor } = context;
    await checkSlugs(permissions, context);
    if (permissions.length > 0) requireRbac(caller, ['add_permission_to_role']);
    const mayCreatePermissions = caller.grants.holds('rbac', '*', 'create_permission');
    const role = { name, description, permissions };
    const result = await store.roles.create(caller.workspaceId, role, mayCreatePermissions, actor);
    if ('roleId' in result) return result;
    const { refused } = result;
    throw refused === 'exists' ? alreadyExists('role', name) : refusalError({ ...result, refused });
  },
});
