// Typed functions for the scripts of lua/permissions/ and lua/roles/.

import type { Actor } from '../domain/caller.ts';
import { chunks } from '../redis/chunks.ts';
import { orStoreError } from '../redis/connection.ts';
import { permissionNumbersKey, workspaceKey } from '../redis/names.ts';
import { refusal } from '../scripts/calls.ts';
import type { StoreContext } from '../scripts/context.ts';
import { type PageOf, readsOf, type SearchedPage } from './pages.ts';
import { fromNamed } from './records.ts';

export type Permission = ReturnType<typeof permissionOf>;

export interface Role {
  id: string;
  name: string;
  description?: string;
  permissions: Permission[];
}

/** A role of a key: without its permissions where the response would be too long with them. */
export type RoleOfKey = Omit<Role, 'permissions'> & Partial<Role>;

/** A permission as a named reply. */
interface PermissionReply {
  number: string;
  id: string;
  name: string;
  slug: string;
  description?: string;
}

/** A role as a named reply. */
interface RoleReply {
  id: string;
  name: string;
  description?: string;
  /** A list such as `,3,17,`. */
  permissionNumbers: string;
}

/** How many permissions are read in one step. */
const stepMax = 500;
/** A page of roles ends when its roles have this many permissions together, or this many bytes of them as JSON. */
const pageMax = { permissions: 5000, bytes: 2 * 1024 * 1024 };
/** All roles of a key are returned together. Roles beyond this many bytes of permissions are returned without them. */
const keyRolesBytesMax = 10 * 1024 * 1024;

const permissionOf = ({ id, name, slug, description }: PermissionReply) => ({
  id,
  name,
  slug,
  ...(description !== undefined && { description }),
});

const roleOf = ({ id, name, description }: RoleReply): RoleOfKey => ({
  id,
  name,
  ...(description !== undefined && { description }),
});

/** The numbers in a list such as `,3,17,`. */
const numbersIn = (list: string): string[] => list.split(',').filter((number) => number !== '');

export function openRbac({ redis, run }: StoreContext) {
  async function readPermissions(workspaceId: string, numbers: string): Promise<PermissionReply[]> {
    const replies = await run('permissions/read', workspaceId, { numbers });
    return replies.map(fromNamed<PermissionReply>);
  }

  const roleReplies = readsOf(run, 'role', fromNamed<RoleReply>);

  /** The permissions with these numbers, by number. */
  async function permissionsByNumber(
    workspaceId: string,
    numbers: readonly string[],
  ): Promise<Map<string, Permission>> {
    const found = new Map<string, Permission>();
    for (const some of chunks([...new Set(numbers)], stepMax)) {
      for (const permission of await readPermissions(workspaceId, some.join(','))) {
        found.set(permission.number, permissionOf(permission));
      }
    }
    return found;
  }

  async function permissionsOf(workspaceId: string, list: string): Promise<Permission[]> {
    const numbers = numbersIn(list);
    const found = await permissionsByNumber(workspaceId, numbers);
    return numbers.map((number) => found.get(number)).filter((permission) => permission !== undefined);
  }

  /**
   * Roles with their permissions: the first ones, until their permissions have more than `bytesMax` bytes of JSON, but
   * at least one role. A permission counts for every role that has it.
   */
  async function rolesWithin(workspaceId: string, replies: readonly RoleReply[], bytesMax: number): Promise<Role[]> {
    const cached = new Map<string, { permission: Permission; bytes: number }>();
    const roles: Role[] = [];
    let bytes = 0;
    for (const reply of replies) {
      const numbers = numbersIn(reply.permissionNumbers);
      const missing = numbers.filter((number) => !cached.has(number));
      for (const [number, permission] of await permissionsByNumber(workspaceId, missing)) {
        cached.set(number, { permission, bytes: Buffer.byteLength(JSON.stringify(permission)) });
      }
      const found = numbers.map((number) => cached.get(number)).filter((entry) => entry !== undefined);
      for (const entry of found) bytes += entry.bytes;
      if (bytes > bytesMax && roles.length > 0) break;
      roles.push({ ...roleOf(reply), permissions: found.map(({ permission }) => permission) });
    }
    return roles;
  }

  /** Changes the fields that are given; null and '' remove a description. Undefined when there is none. */
  const updateOf =
    (kind: 'permission' | 'role') => async (workspaceId: string, reference: string, changes: object, actor: Actor) => {
      const given = { kindName: kind, request: JSON.stringify({ ...changes, reference }), actor };
      const [outcome, reply] = await run('permissions/update', workspaceId, given);
      if (outcome === 'updated') return fromNamed<Permission>(reply);
      return outcome === 'exists' ? outcome : undefined;
    };

  const permissions = {
    /** Returns the id of the new permission; undefined when the slug or the kept id (without `perm_`) exists. */
    async create(
      workspaceId: string,
      permission: { slug: string; name: string; description?: string | undefined; keptId?: string | undefined },
      actor: Actor,
    ) {
      return (
        (await run('permissions/create', workspaceId, { request: JSON.stringify(permission), actor })) ?? undefined
      );
    },

    /** The slugs that no permission has. */
    async unknownOf(workspaceId: string, slugs: readonly string[]): Promise<string[]> {
      const numbers = await orStoreError(redis.hmget(permissionNumbersKey(workspaceKey(workspaceId)), ...slugs));
      return slugs.filter((_, index) => numbers[index] === null);
    },

    ...readsOf(run, 'permission', (reply) => permissionOf(fromNamed(reply))),

    update: updateOf('permission'),

    /** False when there is no such permission. */
    delete: async (workspaceId: string, idOrSlug: string, actor: Actor): Promise<boolean> =>
      (await run('permissions/delete', workspaceId, { idOrSlug, actor })) === 1,

    /** The permissions in a list of numbers (`,3,17,`). */
    ofNumbers: permissionsOf,
  };

  const roles = {
    async create(
      workspaceId: string,
      role: {
        name: string;
        description?: string | undefined;
        permissions: readonly string[];
        /** The id in an export, without `role_`. */
        keptId?: string | undefined;
      },
      mayCreatePermissions: boolean,
      actor: Actor,
    ) {
      const request = JSON.stringify({ ...role, mayCreatePermissions });
      const [outcome, detail = ''] = await run('roles/create', workspaceId, { request, actor });
      return outcome === 'created' ? { roleId: detail } : refusal(outcome, detail);
    },

    async find(workspaceId: string, idOrName: string): Promise<Role | undefined> {
      const reply = await roleReplies.find(workspaceId, idOrName);
      return reply && (await rolesWithin(workspaceId, [reply], keyRolesBytesMax))[0];
    },

    /** Returns the role without its permissions. */
    update: updateOf('role'),

    async list(workspaceId: string, page: SearchedPage): Promise<PageOf<Role>> {
      const found = await roleReplies.list(workspaceId, page);
      // The page ends early where roles have many permissions, because each role is returned with all of its
      // permissions.
      let [count, permissionCount] = [0, 0];
      while (count < found.items.length && permissionCount < pageMax.permissions) {
        permissionCount += numbersIn(found.items[count++]!.permissionNumbers).length;
      }
      const items = await rolesWithin(workspaceId, found.items.slice(0, count), pageMax.bytes);
      return { items, next: items.length < found.items.length ? items.at(-1)!.id : found.next };
    },

    /** False when there is no such role. */
    delete: async (workspaceId: string, idOrName: string, actor: Actor): Promise<boolean> =>
      (await run('roles/delete', workspaceId, { idOrName, actor })) === 1,

    async setPermissions(
      workspaceId: string,
      request: { roleId: string; permissions: readonly string[]; mayCreatePermissions: boolean },
      actor: Actor,
    ) {
      const given = { request: JSON.stringify(request), actor };
      const [outcome, detail = ''] = await run('roles/setPermissions', workspaceId, given);
      return outcome === 'set' ? permissionsOf(workspaceId, detail) : refusal(outcome, detail);
    },

    /** The roles in a list of numbers (`,3,17,`); see keyRolesBytesMax. */
    async ofNumbers(workspaceId: string, list: string): Promise<RoleOfKey[]> {
      const replies = (await run('roles/read', workspaceId, { numbers: list })).map(fromNamed<RoleReply>);
      const roles = await rolesWithin(workspaceId, replies, keyRolesBytesMax);
      return [...roles, ...replies.slice(roles.length).map(roleOf)];
    },
  };

  return { permissions, roles };
}
