// Shared by keys.addRoles, removeRoles and setRoles.

import Type from 'typebox';
import { type ManageContext, manages } from '../../operation.ts';
import { rolesMax } from '../../records/keys.ts';
import type { RoleOfKey } from '../../records/rbac.ts';
import { invalid, refusalError } from '../rules.ts';
import { Fields, KeyId, out, Role, RoleName } from '../schemas.ts';
import { type KeyPartsOperation, type Mode, ofKey } from './keyById.ts';

const input = (minItems: 0 | 1) => ({
  keyId: KeyId,
  roles: Type.Array(RoleName, {
    minItems,
    maxItems: rolesMax,
    description: `Names of roles. A key has at most ${rolesMax}.`,
  }),
});
const { permissions, ...fields } = Role.properties;
const output = out.objects(
  'All roles of the key after the call. In a response above 10 MB, `permissions` is left out; use permissions.getRole.',
  { ...fields, permissions: Type.Optional(permissions) },
);

async function change(
  mode: Mode,
  { keyId, roles }: { keyId: string; roles: string[] },
  { store, caller, actor }: ManageContext,
): Promise<RoleOfKey[]> {
  const result = await store.keys.setRoles(caller.workspaceId, mode, { keyId, roles }, actor);
  if (!('refused' in result)) return store.roles.ofNumbers(caller.workspaceId, result.numbers);
  const { refused, name } = result;
  throw refused === 'too_many'
    ? invalid('body.roles', `would leave the key with more than ${rolesMax} roles`)
    : refusalError({ refused, name });
}

/** Makes the operation of a mode; `declared` has its remaining fields. */
export const rolesOperation = <const Name extends string>(mode: Mode, declared: KeyPartsOperation<Name>) =>
  manages({
    ...declared,
    input: Fields(input(mode === 'set' ? 0 : 1)),
    output,
    ...ofKey,

    handle: (input, context) => change(mode, input, context),
  });
