import { manages } from '../../operation.ts';
import { Fields } from '../schemas.ts';
import { ofKey } from './keyById.ts';
import { changePermissions, input, output } from './keyPermissions.ts';

export const removePermissions = manages({
  name: 'keys.removePermissions',
  summary: 'Remove direct permissions from a key.',
  input: Fields(input(1)),
  output,
  errors: ['key_not_found', 'permission_not_found'],
  needs: { api: ['update_key'], rbac: ['remove_permission_from_key'] },
  ...ofKey,

  handle: (input, context) => changePermissions('remove', input, context),
});
