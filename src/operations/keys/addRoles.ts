import { manages } from '../../operation.ts';
import { Fields } from '../schemas.ts';
import { ofKey } from './keyById.ts';
import { changeRoles, input, output } from './keyRoles.ts';

export const addRoles = manages({
  name: 'keys.addRoles',
  summary: 'Add roles to a key.',
  input: Fields(input(1)),
  output,
  errors: ['key_not_found', 'role_not_found'],
  needs: { api: ['update_key'], rbac: ['add_role_to_key'] },
  ...ofKey,

  handle: (input, context) => changeRoles('add', input, context),
});
