import { manages } from '../../operation.ts';
import { Fields } from '../schemas.ts';
import { ofKey } from './keyById.ts';
import { changePermissions, input, output } from './keyPermissions.ts';

export const setPermissions = manages({
  name: 'keys.setPermissions',
  summary: 'Replace the direct permissions of a key.',
  input: Fields(input(0)),
  output,
  errors: ['key_not_found', 'too_many_records'],
  needs: { api: ['update_key'], rbac: ['add_permission_to_key', 'remove_permission_from_key'] },
  ...ofKey,

  handle: (input, context) => changePermissions('set', input, context),
});
