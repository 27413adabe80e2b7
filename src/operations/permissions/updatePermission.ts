import { alreadyExists, existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Description, Fields, NewSlug, Nullable, optional, Permission, PermissionRef, Text } from '../schemas.ts';

export const updatePermission = manages({
  name: 'permissions.updatePermission',
  summary:
    'Change a permission. All keys, roles and plans that have it keep it under its new slug, effective with the next verification. Omitted fields are unchanged; null removes a description.',
  input: Fields({
    permission: PermissionRef,
    ...optional({ slug: NewSlug, name: Text(1, 512, 'Name for people.'), description: Nullable(Description) }),
  }),
  output: Permission,
  errors: ['permission_not_found', 'permission_already_exists'],
  needs: { rbac: ['update_permission'] },

  async handle({ permission, ...changes }, { store, caller, actor }) {
    const result = await store.permissions.update(caller.workspaceId, permission, changes, actor);
    if (result === 'exists') throw alreadyExists('permission', changes.slug!);
    return existing(result, 'permission', permission);
  },
});
