import Type from 'typebox';
import { alreadyExists } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Description, Fields, NewSlug, out, Text } from '../schemas.ts';

export const createPermission = manages({
  name: 'permissions.createPermission',
  summary: 'Create a permission.',
  input: Fields({
    name: Text(1, 512, 'Name for people.'),
    slug: NewSlug,
    description: Type.Optional(Description),
  }),
  output: Type.Object({ permissionId: out.text('Id of the new permission.') }),
  errors: ['permission_already_exists', 'too_many_records'],
  needs: { rbac: ['create_permission'] },

  async handle(permission, { store, caller, actor }) {
    const permissionId = await store.permissions.create(caller.workspaceId, permission, actor);
    if (!permissionId) throw alreadyExists('permission', permission.slug);
    return { permissionId };
  },
});
