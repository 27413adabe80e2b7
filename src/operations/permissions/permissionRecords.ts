import { recordOperations } from '../recordOperations.ts';
import { Permission, PermissionRef, Role, RoleRef } from '../schemas.ts';

export const permissions = recordOperations({
  kind: 'permission',
  ref: PermissionRef,
  item: Permission,
  roomOf: (store) => store.permissions,
});

export const roles = recordOperations({ kind: 'role', ref: RoleRef, item: Role, roomOf: (store) => store.roles });
