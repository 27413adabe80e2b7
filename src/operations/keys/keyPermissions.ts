// Shared by keys.addPermissions, removePermissions and setPermissions.

import Type from 'typebox';
import { type ManageContext, manages } from '../../operation.ts';
import { permissionsMax } from '../../records/keys.ts';
import type { Permission as PermissionRecord } from '../../records/rbac.ts';
import { checkSlugs, invalid, refusalError } from '../rules.ts';
import { Fields, KeyId, Permission, Slug } from '../schemas.ts';
import { type KeyPartsOperation, type Mode, ofKey } from './keyById.ts';

const input = (minItems: 0 | 1) => ({
  keyId: KeyId,
  permissions: Type.Array(Slug, {
    minItems,
    maxItems: permissionsMax,
    description: `Permissions. A key has at most ${permissionsMax} direct ones.`,
  }),
});
const output = Type.Array(Permission, { description: 'All direct permissions of the key after the call.' });

async function change(
  mode: Mode,
  { keyId, permissions }: { keyId: string; permissions: string[] },
  context: ManageContext,
): Promise<PermissionRecord[]> {
  const { store, caller, actor } = context;
  if (mode !== 'remove') await checkSlugs(permissions, context);
  const mayCreatePermissions = caller.grants.holds('rbac', '*', 'create_permission');
  const request = { keyId, permissions, mayCreatePermissions };
  const result = await store.keys.setPermissions(caller.workspaceId, mode, request, actor);
  if (!('refused' in result)) return store.permissions.ofNumbers(caller.workspaceId, result.numbers);
  const { refused, name } = result;
  throw refused === 'too_many'
    ? invalid('body.permissions', `would leave the key with more than ${permissionsMax} direct permissions`)
    : refusalError({ refused, name });
}

/** Makes the operation of a mode; `declared` has its remaining fields. */
export const permissionsOperation = <const Name extends string>(mode: Mode, declared: KeyPartsOperation<Name>) =>
  manages({
    ...declared,
    input: Fields(input(mode === 'set' ? 0 : 1)),
    output,
    ...ofKey,

    handle: (input, context) => change(mode, input, context),
  });
