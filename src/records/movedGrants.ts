// The permissions and roles of keys that are moved to another workspace. Keys have lists of their numbers, and the
// numbers of two workspaces differ. What the other workspace lacks is created there by its slug or name.

import type { Actor } from '../domain/caller.ts';
import { chunks } from '../redis/chunks.ts';
import { orStoreError } from '../redis/connection.ts';
import {
  permissionNumbersKey,
  permissionSlugsKey,
  roleNamesKey,
  roleNumbersKey,
  workspaceKey,
} from '../redis/names.ts';
import type { StoreContext } from '../scripts/context.ts';
import type { openRbac, Role } from './rbac.ts';

type Rbac = ReturnType<typeof openRbac>;
type Kind = 'permission' | 'role';

/** Numbers or names that one command reads. */
const step = 500;

/** The numbers in a list such as `,3,17,`. */
const numbersIn = (list: string): string[] => list.split(',').filter((number) => number !== '');

const hashesOf = (kind: Kind) =>
  kind === 'permission'
    ? { names: permissionSlugsKey, numbers: permissionNumbersKey }
    : { names: roleNamesKey, numbers: roleNumbersKey };

export function openMovedGrants({ redis }: StoreContext, { permissions, roles }: Rbac, actor: Actor) {
  async function fieldsOf(hash: string, fields: readonly string[]): Promise<Map<string, string>> {
    const found = new Map<string, string>();
    for (const some of chunks(fields, step)) {
      const values = await orStoreError(redis.hmget(hash, ...some));
      for (const [index, value] of values.entries()) if (value !== null) found.set(some[index]!, value);
    }
    return found;
  }

  async function createPermission(from: string, to: string, slug: string) {
    const permission = await permissions.find(from, slug);
    if (!permission) return;
    const { id, name, description } = permission;
    const keptId = id.slice('perm_'.length);
    // Undefined if the id is used by another permission there, or another process has created it.
    const created = await permissions.create(to, { slug, name, description, keptId }, actor);
    if (created === undefined) await permissions.create(to, { slug, name, description }, actor);
  }

  async function createRole(from: string, to: string, name: string) {
    const role = await roles.find(from, name);
    if (!role) return;
    const slugs = slugsOf(role);
    await ensure('permission', from, to, slugs);
    const { id, description } = role;
    const keptId = id.slice('role_'.length);
    const created = await roles.create(to, { name, description, permissions: slugs, keptId }, true, actor);
    if ('refused' in created) await roles.create(to, { name, description, permissions: slugs }, true, actor);
  }

  /** The numbers in the other workspace by slug or name; those that are missing there are created. */
  async function ensure(kind: Kind, from: string, to: string, names: readonly string[]): Promise<Map<string, string>> {
    const hash = hashesOf(kind).numbers(workspaceKey(to));
    const found = await fieldsOf(hash, names);
    const missing = names.filter((name) => !found.has(name));
    if (missing.length === 0) return found;
    for (const name of missing) await (kind === 'permission' ? createPermission : createRole)(from, to, name);
    return fieldsOf(hash, names);
  }

  return {
    /**
     * Converts lists of numbers of one workspace to those of another. What was deleted has no number in the result.
     */
    async convert(kind: Kind, from: string, to: string, lists: readonly string[]): Promise<(list: string) => string> {
      const numbers = [...new Set(lists.flatMap(numbersIn))];
      const names = await fieldsOf(hashesOf(kind).names(workspaceKey(from)), numbers);
      const there = await ensure(kind, from, to, [...new Set(names.values())]);
      const numberOf = (number: string) => there.get(names.get(number) ?? '');
      return (list) => {
        const converted = numbersIn(list)
          .map(numberOf)
          .filter((number) => number !== undefined);
        return converted.length === 0 ? '' : `,${converted.join(',')},`;
      };
    },

    /** Names of the roles in these lists that both workspaces have with other permissions. */
    async differing(from: string, to: string, lists: readonly string[]): Promise<string[]> {
      const numbers = [...new Set(lists.flatMap(numbersIn))];
      const names = await fieldsOf(roleNamesKey(workspaceKey(from)), numbers);
      const differing: string[] = [];
      for (const name of new Set(names.values())) {
        const [role, other] = [await roles.find(from, name), await roles.find(to, name)];
        const isSameName = role?.name === name && other?.name === name;
        if (isSameName && !isSame(slugsOf(role), slugsOf(other))) differing.push(name);
      }
      return differing.sort();
    },

    /** How many permissions and roles a move may create at most: those of the first workspace. */
    async created(from: string): Promise<number> {
      const workspace = workspaceKey(from);
      const lengths = [permissionNumbersKey(workspace), roleNumbersKey(workspace)].map((hash) => redis.hlen(hash));
      const [permissionCount, roleCount] = await orStoreError(Promise.all(lengths));
      return permissionCount! + roleCount!;
    },
  };
}

const slugsOf = ({ permissions }: Role): string[] => permissions.map(({ slug }) => slug).sort();
const isSame = (one: readonly string[], other: readonly string[]) => one.join('\n') === other.join('\n');
