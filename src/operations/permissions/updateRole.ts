import Type from 'typebox';
import { alreadyExists, existing } from '../../errors.ts';
import { manages } from '../../operation.ts';
import { Description, Fields, NewRoleName, Nullable, optional, Role, RoleRef } from '../schemas.ts';

export const updateRole = manages({
  name: 'permissions.updateRole',
  summary:
    'Change the name or the description of a role. All keys and plans that have it keep it, effective with the next verification. Omitted fields are unchanged; null removes a description.',
  input: Fields({ role: RoleRef, ...optional({ name: NewRoleName, description: Nullable(Description) }) }),
  output: Type.Omit(Role, ['permissions'], { description: 'The role without its permissions.' }),
  errors: ['role_not_found', 'role_already_exists'],
  needs: { rbac: ['update_role'] },

  async handle({ role, ...changes }, { store, caller, actor }) {
    const result = await store.roles.update(caller.workspaceId, role, changes, actor);
    if (result === 'exists') throw alreadyExists('role', changes.name!);
    return existing(result, 'role', role);
  },
});
