// The typed faces of lua/permissions/ and lua/roles/.

import type { Actor } from '../domain/caller.ts';
import { chunks } from './chunks.ts';
import type { StoreContext } from './context.ts';
import { type PageOf, searchPages } from './pages.ts';

export interface Permission {
  id: string;
  name: string;
  slug: string;
  description?: string;
}

export interface Role {
  id: string;
  name: string;
  description?: string;
  permissions: Permission[];
}

/** A role among those of a key: without its permissions where an answer would be too long with them. */
export type RoleOfKey = Omit<Role, 'permissions'> & Partial<Role>;

type PermissionRow = [id: string, name: string, slug: string, description: string | null];
type RoleRow = [id: string, name: string, description: string | null, numbers: string];

/** How many permissions are read in one step. */
const stepMax = 500;
/** A page of roles ends when its roles have so many permissions in all, or bytes of these as JSON. */
const pageMax = { permissions: 5000, bytes: 2 * 1024 * 1024 };
/** The roles of a key are answered all at once: beyond so many bytes without their permissions. */
const answerBytesMax = 10 * 1024 * 1024;

const readPermission = ([id, name, slug, description]: PermissionRow): Permission => ({
  id,
  name,
  slug,
  ...(description !== null && { description }),
});

const readRole = ([id, name, description]: RoleRow): RoleOfKey => ({
  id,
  name,
  ...(description !== null && { description }),
});

/** `,3,17,` as its numbers. */
export const numbersIn = (list: string): string[] => list.split(',').filter((number) => number !== '');

export function openRbac({ scripts, now, actorText }: StoreContext) {
  /** The permissions with these numbers, by number. */
  async function describe(workspaceId: string, numbers: readonly string[]): Promise<Map<string, Permission>> {
    const found = new Map<string, Permission>();
    for (const some of chunks([...new Set(numbers)], stepMax)) {
      const rows = (await scripts.run('permissions/read', workspaceId, ['', some.join(',')])) as [
        string,
        PermissionRow,
      ][];
      for (const [number, row] of rows) found.set(number, readPermission(row));
    }
    return found;
  }

  async function permissionsOf(workspaceId: string, list: string): Promise<Permission[]> {
    const numbers = numbersIn(list);
    const found = await describe(workspaceId, numbers);
    return numbers.map((number) => found.get(number)).filter((permission) => permission !== undefined);
  }

  /**
   * Roles with their permissions, as many of the first as have at most `bytesMax` of these in all, but at least one. Each
   * permission is shown in every role that has it.
   */
  async function rolesWithin(workspaceId: string, rows: readonly RoleRow[], bytesMax: number): Promise<Role[]> {
    const known = new Map<string, { permission: Permission; bytes: number }>();
    const roles: Role[] = [];
    let bytes = 0;
    for (const row of rows) {
      const numbers = numbersIn(row[3]);
      const unknown = numbers.filter((number) => !known.has(number));
      for (const [number, permission] of await describe(workspaceId, unknown)) {
        known.set(number, { permission, bytes: Buffer.byteLength(JSON.stringify(permission)) });
      }
      const found = numbers.map((number) => known.get(number)).filter((entry) => entry !== undefined);
      for (const entry of found) bytes += entry.bytes;
      if (bytes > bytesMax && roles.length > 0) break;
      roles.push({ ...readRole(row), permissions: found.map(({ permission }) => permission) });
    }
    return roles;
  }

  const permissions = {
    /** Its id; undefined when the slug exists. */
    async create(
      workspaceId: string,
      permission: { slug: string; name: string; description?: string | undefined },
      actor: Actor,
    ) {
      const args = [JSON.stringify(permission), actorText(actor), now()];
      return ((await scripts.run('permissions/create', workspaceId, args)) as string | null) ?? undefined;
    },

    async find(workspaceId: string, idOrSlug: string): Promise<Permission | undefined> {
      const rows = (await scripts.run('permissions/read', workspaceId, [idOrSlug, ''])) as [string, PermissionRow][];
      return rows[0] && readPermission(rows[0][1]);
    },

    /** A page in order of creation, of those that contain `search` if that is given. `after` is a permission id. */
    list(
      workspaceId: string,
      page: { after?: string | undefined; count: number; search?: string | undefined },
    ): Promise<PageOf<Permission>> {
      return searchPages(page, async (after, count) => {
        const args = [after?.slice('perm_'.length) ?? '', count];
        const [rows, more] = (await scripts.run('permissions/list', workspaceId, args)) as [PermissionRow[], 0 | 1];
        return { items: rows.map(readPermission), more: more === 1 };
      });
    },

    /** False when there is no such permission. */
    delete: async (workspaceId: string, idOrSlug: string, actor: Actor): Promise<boolean> =>
      (await scripts.run('permissions/delete', workspaceId, [idOrSlug, actorText(actor), now()])) === 1,

    /** Those in a list of numbers as other scripts answer it. */
    ofNumbers: permissionsOf,
  };

  const roles = {
    async create(
      workspaceId: string,
      role: { name: string; description?: string | undefined; permissions: readonly string[] },
      mayCreatePermissions: boolean,
      actor: Actor,
    ): Promise<{ roleId: string } | { refused: 'exists' } | { refused: 'create_permission'; name: string }> {
      const args = [JSON.stringify({ ...role, mayCreatePermissions }), actorText(actor), now()];
      const [outcome, about] = (await scripts.run('roles/create', workspaceId, args)) as [string, string];
      if (outcome === 'created') return { roleId: about };
      return outcome === 'exists' ? { refused: outcome } : { refused: 'create_permission', name: about };
    },

    async find(workspaceId: string, idOrName: string): Promise<Role | undefined> {
      const rows = (await scripts.run('roles/read', workspaceId, [idOrName, ''])) as RoleRow[];
      return (await rolesWithin(workspaceId, rows, answerBytesMax))[0];
    },

    /** A page in order of creation, of those that contain `search` if that is given. `after` is a role id. */
    async list(
      workspaceId: string,
      page: { after?: string | undefined; count: number; search?: string | undefined },
    ): Promise<PageOf<Role>> {
      const found = await searchPages(page, async (after, count) => {
        const args = [after?.slice('role_'.length) ?? '', count];
        const [rows, more] = (await scripts.run('roles/list', workspaceId, args)) as [RoleRow[], 0 | 1];
        return {
          items: rows.map((row) => ({ id: row[0], name: row[1], description: row[2], row })),
          more: more === 1,
        };
      });
      // Ends early where roles have many permissions: each is shown whole in each of them.
      let [kept, shown] = [0, 0];
      while (kept < found.items.length && shown < pageMax.permissions) {
        shown += numbersIn(found.items[kept++]!.row[3]).length;
      }
      const rows = found.items.slice(0, kept).map(({ row }) => row);
      const items = await rolesWithin(workspaceId, rows, pageMax.bytes);
      return { items, next: items.length < found.items.length ? items.at(-1)!.id : found.next };
    },

    /** False when there is no such role. */
    delete: async (workspaceId: string, idOrName: string, actor: Actor): Promise<boolean> =>
      (await scripts.run('roles/delete', workspaceId, [idOrName, actorText(actor), now()])) === 1,

    async setPermissions(
      workspaceId: string,
      request: { roleId: string; permissions: readonly string[]; mayCreatePermissions: boolean },
      actor: Actor,
    ): Promise<Permission[] | { refused: 'role_not_found' } | { refused: 'create_permission'; name: string }> {
      const args = [JSON.stringify(request), actorText(actor), now()];
      const [outcome, about] = (await scripts.run('roles/setPermissions', workspaceId, args)) as [string, string];
      if (outcome === 'set') return permissionsOf(workspaceId, about);
      return outcome === 'role_not_found' ? { refused: outcome } : { refused: 'create_permission', name: about };
    },

    /** Those in a list of numbers as other scripts answer it; see answerBytesMax. */
    async ofNumbers(workspaceId: string, list: string): Promise<RoleOfKey[]> {
      const rows = (await scripts.run('roles/read', workspaceId, ['', list])) as RoleRow[];
      const roles = await rolesWithin(workspaceId, rows, answerBytesMax);
      return [...roles, ...rows.slice(roles.length).map(readRole)];
    },
  };

  return { permissions, roles };
}
