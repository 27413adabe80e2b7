// What root keys may do (docs/contract.md §5). A grant is `<resource>.<id>.<action>`, `*` stands for any id, and the single
// grant `*` is everything. lua/include/grants.lua holds the same two questions for what Redis decides.

const rbacActions = [
  'create_permission',
  'read_permission',
  'delete_permission',
  'create_role',
  'read_role',
  'delete_role',
  'add_permission_to_key',
  'remove_permission_from_key',
  'add_role_to_key',
  'remove_role_from_key',
  'add_permission_to_role',
  'remove_permission_from_role',
] as const;

/** Every action there is, by resource. */
export const actions = {
  api: [
    'read_api',
    'create_api',
    'delete_api',
    'create_key',
    'read_key',
    'update_key',
    'delete_key',
    'verify_key',
    'read_analytics',
  ],
  ratelimit: ['limit', 'create_namespace', 'set_override', 'read_override', 'delete_override', 'read_analytics'],
  rbac: rbacActions,
  identity: ['create_identity', 'read_identity', 'update_identity', 'delete_identity'],
  root_key: ['create_root_key', 'read_root_key', 'update_root_key', 'delete_root_key'],
  audit: ['read_audit'],
} as const;

export type Resource = keyof typeof actions;
export type Action<R extends Resource = Resource> = (typeof actions)[R][number];

/** Resources whose grants may name one id instead of `*`. */
const scoped: readonly Resource[] = ['api', 'ratelimit', 'identity'];
const aliases: Record<string, string> = { apis: 'api', ratelimits: 'ratelimit' };

/** A grant in its one spelling, or undefined when it names no such resource or action. */
export function parseGrant(grant: string): string | undefined {
  if (grant === '*') return grant;
  const match = /^([a-z_]+)\.(\*|[a-zA-Z0-9_]{3,255})\.([a-z_]+)$/.exec(grant);
  if (!match) return undefined;
  const [, name, id, action] = match as unknown as [string, string, string, string];
  const resource = aliases[name] ?? name;
  if (!Object.hasOwn(actions, resource)) return undefined;
  if (!(actions[resource as Resource] as readonly string[]).includes(action)) return undefined;
  if (id !== '*' && !scoped.includes(resource as Resource)) return undefined;
  return `${resource}.${id}.${action}`;
}

/** The grants of a root key as stored: a line break, then each grant followed by one. */
export const grantsText = (grants: readonly string[]): string => `\n${[...new Set(grants)].join('\n')}\n`;

/** Bytes of a root key's grants as stored. Redis reads all of them for every batch that the root key takes part in. */
export const grantsBytesMax = 65_536;

/** Too many bytes of grants for one root key? They are ASCII. Root keys that were given more before go on working. */
export const areTooLong = (grants: readonly string[]): boolean => grantsText(grants).length > grantsBytesMax;

export class Grants {
  /** As stored, see grantsText. */
  readonly text: string;
  readonly #set: ReadonlySet<string>;

  constructor(text: string) {
    this.text = text;
    this.#set = new Set(text.split('\n').filter((grant) => grant !== ''));
  }

  /** May it do this to the resource with this id? `*` is a resource without an id, or one that is to be made. */
  holds(resource: Resource, id: string, action: string): boolean {
    return (
      this.#set.has('*') || this.#set.has(`${resource}.*.${action}`) || this.#set.has(`${resource}.${id}.${action}`)
    );
  }

  /** May it do this to any resource of the kind at all? */
  holdsAny(resource: Resource, action: string): boolean {
    if (this.holds(resource, '*', action)) return true;
    for (const grant of this.#set) if (grant.startsWith(`${resource}.`) && grant.endsWith(`.${action}`)) return true;
    return false;
  }

  /** For one resource and action: true for all ids, else the ids that are named. */
  idsFor(resource: Resource, action: string): true | string[] {
    if (this.holds(resource, '*', action)) return true;
    const [head, tail] = [`${resource}.`, `.${action}`];
    return [...this.#set]
      .filter((g) => g.startsWith(head) && g.endsWith(tail))
      .map((g) => g.slice(head.length, -tail.length));
  }
}
