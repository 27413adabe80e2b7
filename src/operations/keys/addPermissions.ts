import { manages } from '../../operation.ts';
import { Fields } from '../schemas.ts';
import { ofKey } from './keyById.ts';
import { changePermissions, input, output } from './keyPermissions.ts';

export const addPermissions = manages({
  name: 'keys.addPermissions',
  summary: 'Add direct permissions to a key. Unknown permissions are created if the caller may create permissions.',
  input: Fields(input(1)),
  output,
  errors: ['key_not_found', 'too_many_records'],
  needs: { api: ['update_key'], rbac: ['add_permission_to_key'] },
  ...ofKey,

  handle: (input, context) => changePermissions('add', input, context),
});
