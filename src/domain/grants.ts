// The grants of root keys (docs/contract.md §5). A grant is `<resource>.<id>.<action>`, where `*` is any id. The grant
// `*` alone grants everything. lua/include/grants.lua has the same checks for decisions in Redis.

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

/** All actions by resource. */
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
  ratelimit: [
    'limit',
    'create_namespace',
    'read_namespace',
    'set_override',
    'read_override',
    'delete_override',
    'read_analytics',
  ],
  rbac: rbacActions,
  identity: ['create_identity', 'read_identity', 'update_identity', 'delete_identity'],
  root_key: ['create_root_key', 'read_root_key', 'update_root_key', 'delete_root_key'],
  audit: ['read_audit'],
  workspace: ['read_settings', 'update_settings'],
  system: ['read_status'],
} as const;

export type Resource = keyof typeof actions;
export type Action<R extends Resource = Resource> = (typeof actions)[R][number];

/** Resources whose grants may name one id instead of `*`. */
const scoped: readonly Resource[] = ['api', 'ratelimit', 'identity'];
const aliases: Record<string, string> = { apis: 'api', ratelimits: 'ratelimit' };

const patternOf = (resource: Resource): string => {
  const names = [resource, ...Object.keys(aliases).filter((alias) => aliases[alias] === resource)];
  const id = scoped.includes(resource) ? '(?:\\*|[a-zA-Z0-9_]{3,255})' : '\\*';
  return `(?:${names.join('|')})\\.${id}\\.(?:${actions[resource].join('|')})`;
};

/** The pattern of a grant. */
export const grantPattern = `^(?:\\*|${(Object.keys(actions) as Resource[]).map(patternOf).join('|')})$`;
const isGrant = new RegExp(grantPattern);

/** Returns a grant in canonical form; undefined if its resource or action is unknown. */
export function parseGrant(grant: string): string | undefined {
  if (!isGrant.test(grant)) return undefined;
  const [resource = '', ...rest] = grant.split('.');
  return [aliases[resource] ?? resource, ...rest].join('.');
}

/** The grants of root keys for usual purposes. */
export const grantPresets = {
  /** Verifies keys and checks limits. */
  gateway: ['api.*.verify_key', 'ratelimit.*.limit', 'ratelimit.*.create_namespace'],
  /** Reads everything and changes nothing. */
  reader: Object.entries(actions).flatMap(([resource, all]) =>
    all.filter((action) => action.startsWith('read_')).map((action) => `${resource}.*.${action}`),
  ),
  /** Everything. */
  admin: ['*'],
} as const satisfies Record<string, readonly string[]>;
export type GrantPreset = keyof typeof grantPresets;

/** Returns the stored form of grants: a line break before the first grant and after each. */
export const grantsText = (grants: readonly string[]): string => `\n${[...new Set(grants)].join('\n')}\n`;

/** Maximum bytes of the stored grants of a root key. Redis reads all of them for every batch with this root key. */
export const grantsBytesMax = 65_536;

/** Grants are ASCII. */
export const areTooLong = (grants: readonly string[]): boolean => grantsText(grants).length > grantsBytesMax;

export class Grants {
  readonly #set: ReadonlySet<string>;

  /** `text` is the stored form, see grantsText. */
  constructor(text: string) {
    this.#set = new Set(text.split('\n').filter((grant) => grant !== ''));
  }

  /** All of them, in canonical form. */
  get list(): string[] {
    return [...this.#set];
  }

  /** Whether the action is granted for this id. `*` is a resource without an id, or one to be created. */
  holds(resource: Resource, id: string, action: string): boolean {
    return (
      this.#set.has('*') || this.#set.has(`${resource}.*.${action}`) || this.#set.has(`${resource}.${id}.${action}`)
    );
  }

  /** Whether the action is granted for at least one id. */
  holdsAny(resource: Resource, action: string): boolean {
    if (this.holds(resource, '*', action)) return true;
    for (const grant of this.#set) if (grant.startsWith(`${resource}.`) && grant.endsWith(`.${action}`)) return true;
    return false;
  }

  /** Returns the ids for which the action is granted; true for all. */
  idsFor(resource: Resource, action: string): true | string[] {
    if (this.holds(resource, '*', action)) return true;
    const [head, tail] = [`${resource}.`, `.${action}`];
    return [...this.#set]
      .filter((g) => g.startsWith(head) && g.endsWith(tail))
      .map((g) => g.slice(head.length, -tail.length));
  }
}
