import { manages } from '../../operation.ts';
import { Fields } from '../schemas.ts';
import { ofKey } from './keyById.ts';
import { changeRoles, input, output } from './keyRoles.ts';

export const setRoles = manages({
  name: 'keys.setRoles',
  summary: 'Replace the roles of a key.',
  input: Fields(input(0)),
  output,
  errors: ['key_not_found', 'role_not_found'],
  needs: { api: ['update_key'], rbac: ['add_role_to_key', 'remove_role_from_key'] },
  ...ofKey,

  handle: (input, context) => changeRoles('set', input, context),
});
