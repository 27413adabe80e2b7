// The grants of root keys (docs/contract.md §5). A grant is `<resource>.<id>.<action>`, where `*` is any id. The grant
// `*` alone grants everything. lua/include/rootGrants.lua has the same checks for decisions in Redis.

import { type RecordAction, type RecordResource, recordKinds } from './records.ts';

/** Actions that are not `<verb>_<kind of record>`. */
const otherActions = {
  api: ['verify_key', 'read_analytics'],
  ratelimit: ['limit', 'read_analytics'],
  rbac: [
    'add_permission_to_key',
    'remove_permission_from_key',
    'add_role_to_key',
    'remove_role_from_key',
    'add_permission_to_role',
    'remove_permission_from_role',
  ],
  audit: ['read_audit'],
  workspace: ['read_settings', 'update_settings'],
  system: ['read_status'],
} as const;

type OtherActions = typeof otherActions;
export type Resource = RecordResource | keyof OtherActions;
export type Action<R extends Resource = Resource> =
  | RecordAction<R>
  | (R extends keyof OtherActions ? OtherActions[R][number] : never);

/** All actions by resource. */
export const actions = {} as { readonly [R in Resource]: readonly Action<R>[] };
const all: Record<string, string[]> = actions as never;
for (const [name, { resource, actions: verbs }] of recordKinds)
  all[resource] = [...(all[resource] ?? []), ...verbs.map((verb) => `${verb}_${name}`)];
for (const [resource, others] of Object.entries(otherActions)) all[resource] = [...(all[resource] ?? []), ...others];

/** Whether grants of a resource may name one id instead of `*`. */
export const isScoped = (resource: Resource): boolean =>
  recordKinds.some(([, kind]) => kind.resource === resource && kind.isScope);
const aliases: Record<string, string> = { apis: 'api', ratelimits: 'ratelimit' };

const patternOf = (resource: Resource): string => {
  const names = [resource, ...Object.keys(aliases).filter((alias) => aliases[alias] === resource)];
  const id = isScoped(resource) ? '(?:\\*|[a-zA-Z0-9_]{3,255})' : '\\*';
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

export const isToRead = (action: string): boolean => action.startsWith('read_');

/** The grants of root keys for usual purposes. */
export const grantPresets = {
  /** Verifies keys and checks limits. */
  gateway: ['api.*.verify_key', 'ratelimit.*.limit', 'ratelimit.*.create_namespace'],
  /** Reads everything and changes nothing. */
  reader: Object.entries(actions).flatMap(([resource, all]) =>
    all.filter(isToRead).map((action) => `${resource}.*.${action}`),
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

  /** Returns the ids for which the action is granted, or of these only the one that is wanted; true for all. */
  idsFor(resource: Resource, action: string, wanted?: string): true | string[] {
    if (wanted !== undefined) return this.holds(resource, wanted, action) ? [wanted] : [];
    if (this.holds(resource, '*', action)) return true;
    const [head, tail] = [`${resource}.`, `.${action}`];
    return [...this.#set]
      .filter((g) => g.startsWith(head) && g.endsWith(tail))
      .map((g) => g.slice(head.length, -tail.length));
  }
}
