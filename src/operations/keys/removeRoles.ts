import { manages } from '../../operation.ts';
import { Fields } from '../schemas.ts';
import { ofKey } from './keyById.ts';
import { changeRoles, input, output } from './keyRoles.ts';

export const removeRoles = manages({
  name: 'keys.removeRoles',
  summary: 'Remove roles from a key.',
  input: Fields(input(1)),
  output,
  errors: ['key_not_found', 'role_not_found'],
  needs: { api: ['update_key'], rbac: ['remove_role_from_key'] },
  ...ofKey,

  handle: (input, context) => changeRoles('remove', input, context),
});
