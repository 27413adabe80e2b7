// The arguments and reply of each script, and calls of scripts by name. The build fails if a header in lua/ names other
// arguments (signatureCheck.ts).

import type { Actor } from '../domain/caller.ts';
import type { Argument, Scripts } from './scripts.ts';

/** A reply as Redis sends it: strings, numbers, and lists of these. */
export type Reply = string | number | null | Reply[];
/** A page: named replies (lua/include/fields.lua), and 1 if there are more. */
type PageReply = [replies: Reply[], more: 0 | 1];

/** Why a change was not made, and the name of what it is about; '' for none. */
interface Refused<Refusals extends string> {
  refused: Refusals;
  name: string;
}

export const refusal = <Refusal extends string>(refused: Refusal, name = ''): Refused<Refusal> => ({ refused, name });
/** The units of a window: index of its limit, from 1; ends of slices; units of each (lua/include/exported.lua). */
export type UsedUnits = [index: number, ends: string[], units: string[]];

export interface Signature<Names extends readonly string[], Returned> {
  names: Names;
  /** Strings in the reply are Buffers, because it has packed bytes. */
  isPacked: boolean;
  /** The outcomes that the header names. */
  outcomes?: readonly string[];
  /** Never set: it has the type of the reply. */
  returned?: Returned;
}

/** The arguments in the order of the header. `...name` is all further arguments. */
const takes = <const Names extends readonly string[]>(...names: Names) => ({
  returns: <Returned>(): Signature<Names, Returned> => ({ names, isPacked: false }),
  returnsPacked: <Returned>(): Signature<Names, Returned> => ({ names, isPacked: true }),
  /** Returns `done` and details, or one of the refusals and the name of what it is about. */
  decides: <const Done extends string, const Refusals extends readonly string[]>(
    done: Done,
    ...refusals: Refusals
  ): Signature<Names, [outcome: Done | Refusals[number], ...details: string[]]> => ({
    names,
    isPacked: false,
    outcomes: [done, ...refusals],
  }),
});

/** A limit cannot have these values (slots_refusal and keep_type of lua/include/limitList.lua). */
const limitShapeRefusals = ['slots_limit', 'slots_duration', 'quota_period', 'quota_duration', 'not_quota'] as const;

export const signatures = {
  'analytics/identityKeys': takes('externalId', 'id16', 'after', 'count').returns<[string[], string | null]>(),
  'analytics/keys': takes('keys', 'firstDay', 'bytesMax').returnsPacked<Buffer | 0>(),
  'analytics/plans': takes('rows').returns<string[]>(),
  'analytics/sums': takes('api8', 'month', 'from', 'upTo', 'bytesMax').returnsPacked<
    [next: Buffer | null, ...leaves: Buffer[][]]
  >(),
  'analytics/totals': takes('kind', 'ids', 'days', 'identifier').returns<(number | string | string[])[]>(),
  'analytics/used': takes('api8', 'kind', 'number', 'first', 'count').returnsPacked<Buffer>(),
  'apis/create': takes('name', 'keptId', 'createdMs', 'actor', 'now').returns<string | null>(),
  'apis/delete': takes('apiId', 'confirm', 'permanent', 'retentionMs', 'actor', 'now').decides(
    'deleted',
    'api_not_found',
    'protected',
  ),
  'apis/list': takes('after', 'count', 'order', 'deleted').returns<[...PageReply, all: number]>(),
  'apis/read': takes('apiId').returns<Reply>(),
  'apis/restore': takes('apiId', 'actor', 'now').decides('restored', 'api_not_found'),
  'apis/update': takes('apiId', 'name', 'actor', 'now').decides('updated', 'api_not_found'),
  'audit/import': takes('events', 'eventsMax', 'dryRun').returns<number>(),
  'data/beat': takes('server', 'versions', 'lifeMs', 'count', 'now').returns<[isRegistered: 0 | 1, ...string[]]>(),
  'data/claim': takes('holder', 'release', 'target', 'termMs', 'done', 'total', 'now').returns<
    [outcome: 'held' | 'busy' | 'migrated', fence: number, run: number, isChecked: 0 | 1]
  >(),
  'data/finish': takes('fence', 'outcome', 'release').returns<0 | 1>(),
  'holds/list': takes('keyId', 'after', 'count', 'now').returns<[holds: Reply[], more: 0 | 1, total: number] | null>(),
  'holds/units': takes('digest', 'bucket', 'now').returns<HeldUnits | null>(),
  'identities/create': takes('request', 'actor', 'now').returns<(string | null)[] | string>(),
  'identities/delete': takes('identity', 'permanent', 'retentionMs', 'usageRetentionMs', 'actor', 'now').returns<
    0 | 1
  >(),
  'identities/export': takes('after', 'count', 'now').returns<[[Reply, UsedUnits[], Reply[]][], more: 0 | 1]>(),
  'identities/list': takes('after', 'count', 'search', 'wanted', 'below', 'deleted', 'planId', 'now').returns<
    [unknown[], string, 0 | 1]
  >(),
  'identities/read': takes('identity', 'now').returns<Reply>(),
  'identities/restore': takes('identityId', 'continues', 'usageRetentionMs', 'actor', 'now').decides(
    'restored',
    'more',
    'identity_not_found',
    'identity_already_exists',
  ),
  'identities/update': takes('request', 'actor', 'now').returns<Reply>(),
  'identities/updateCredits': takes('identity', 'operation', 'value', 'actor', 'now').returns<
    ['updated', Reply] | ['identity_not_found' | 'unlimited' | 'too_large']
  >(),
  'keys/change': takes('request', 'actor', 'now').decides('changed', 'plan_not_found'),
  'keys/create': takes('request', 'digests', 'actor', 'now').decides(
    'created',
    'api_not_found',
    'role_not_found',
    'create_permission',
    'plan_not_found',
    'too_many_limits',
    'key_id_taken',
    'expired',
    'ended',
    'too_late',
  ),
  'keys/delete': takes('keyId', 'permanent', 'retentionMs', 'usageRetentionMs', 'actor', 'now').decides(
    'deleted',
    'key_not_found',
  ),
  'keys/expiriesOf': takes('keys').returnsPacked<Buffer>(),
  'keys/expiring': takes('expiresBefore', 'expiresAfter', 'order', 'count', 'sources').returnsPacked<unknown[]>(),
  'keys/explain': takes('keyId', 'item', 'view', 'now').returnsPacked<[figures: unknown, Buffer?, Buffer?]>(),
  'keys/export': takes('apiId', 'deleted', 'after', 'count', 'now').returnsPacked<
    [[Buffer, unknown, unknown, [Buffer, unknown][], unknown][], Buffer] | null
  >(),
  'keys/inspect': takes('keyId', 'digest', 'now').returnsPacked<[Buffer, unknown, (Buffer | number)[]]>(),
  'keys/list': takes('apiId', 'externalId', 'after', 'count', 'now').returns<[unknown[], string, 0 | 1] | null>(),
  'keys/next': takes('source', 'owner', 'start', 'order', 'count', 'sources').returnsPacked<unknown[]>(),
  'keys/read': takes('keyId', 'digest', 'deleted', 'now').returns<unknown>(),
  'keys/reroll': takes('keyId', 'digest', 'start', 'expiresIn', 'credits', 'awaits', 'actor', 'now').decides(
    'created',
    'key_not_found',
    'draws',
    'too_many_drawers',
    'leased',
  ),
  'keys/restore': takes('keyId', 'actor', 'now').decides('restored', 'key_not_found'),
  'keys/search': takes('keys', 'keyBytes', 'filters', 'now').returns<[number, ...[0 | 1, ...unknown[]][]]>(),
  'keys/setPermissions': takes('mode', 'request', 'actor', 'now').decides(
    'set',
    'key_not_found',
    'create_permission',
    'permission_not_found',
    'too_many',
  ),
  'keys/setRoles': takes('mode', 'request', 'actor', 'now').decides(
    'set',
    'key_not_found',
    'role_not_found',
    'too_many',
  ),
  'keys/started': takes('source', 'start', 'apis').returnsPacked<[ids: Buffer | null, total: number][]>(),
  'keys/update': takes('request', 'actor', 'now').decides(
    'updated',
    'key_not_found',
    'role_not_found',
    'create_permission',
    'plan_not_found',
    'refill_unlimited',
    'draws',
    'new_limit',
    'too_many_limits',
    ...limitShapeRefusals,
    'ended',
    'too_late',
    'type_of_former',
  ),
  'keys/updateCredits': takes('keyId', 'operation', 'value', 'awaits', 'actor', 'now').returns<
    ['updated', Reply] | ['draws', string] | ['key_not_found' | 'unlimited' | 'too_large' | 'leased']
  >(),
  'leases/deactivate': takes('holders').returns<unknown>(),
  'limits/temporary': takes('kinds', 'of', 'before', 'afterEnds', 'after', 'count', 'wanted', 'now').returns<
    [items: Reply[], lastEnds: string, last: string, more: 0 | 1]
  >(),
  'migrations/to5': takes('fence', 'run', 'count').returns<
    [outcome: 'more' | 'done' | 'fenced', done: number, micros: number]
  >(),
  'namespaces/create': takes('id16', 'name', 'actor', 'now').returns<0 | 1>(),
  'namespaces/list': takes('after', 'count', 'order', 'now').returns<[...PageReply, all: number]>(),
  'namespaces/read': takes('nameOrId').returns<Reply>(),
  'overrides/delete': takes('namespace', 'identifier', 'actor', 'now').returns<0 | 1>(),
  'overrides/list': takes('namespace', 'identifier', 'after', 'count', 'now').returns<
    [...PageReply, last: string] | null
  >(),
  'overrides/set': takes(
    'namespace',
    'identifier',
    'limit',
    'duration',
    'endsMs',
    'formerLimit',
    'formerDuration',
    'literals',
    'keptId',
    'createdMs',
    'actor',
    'now',
  ).decides('set', 'namespace_not_found', 'too_many', 'too_many_in_workspace', 'ended', 'too_late', 'exists'),
  'permissions/create': takes('request', 'actor', 'now').returns<string | null>(),
  'permissions/delete': takes('idOrSlug', 'actor', 'now').returns<0 | 1>(),
  'permissions/read': takes('numbers').returns<Reply[]>(),
  'permissions/update': takes('kindName', 'request', 'actor', 'now').returns<
    ['updated', Reply] | ['not_found' | 'exists']
  >(),
  'plans/create': takes('request', 'actor', 'now').decides(
    'created',
    'exists',
    'role_not_found',
    'create_permission',
    ...limitShapeRefusals,
  ),
  'plans/delete': takes('planId', 'replaceWith', 'actor', 'now').decides('deleted', 'plan_not_found', 'more', 'in_use'),
  'plans/update': takes('request', 'actor', 'now').decides(
    'updated',
    'plan_not_found',
    'role_not_found',
    'create_permission',
    ...limitShapeRefusals,
  ),
  'records/read': takes('kindName', 'reference', 'after', 'count', 'now').returns<PageReply>(),
  'roles/create': takes('request', 'actor', 'now').decides('created', 'exists', 'create_permission'),
  'roles/delete': takes('idOrName', 'actor', 'now').returns<0 | 1>(),
  'roles/read': takes('numbers').returns<Reply[]>(),
  'roles/setPermissions': takes('request', 'actor', 'now').decides('set', 'role_not_found', 'create_permission'),
  'rootKeys/authenticate': takes('digest', 'now').returns<
    ['ok' | 'unauthorized' | 'root_key_disabled' | 'root_key_expired', grants: string, id: string, lasts: string]
  >(),
  'rootKeys/create': takes('digest', 'request', 'actor', 'now').returns<[outcome: string, detail?: string]>(),
  'rootKeys/export': takes('after', 'count').returnsPacked<[[Buffer, unknown][], 0 | 1]>(),
  'rootKeys/import': takes('request', 'digests', 'actor', 'now').returns<('created' | 'exists' | 'id_taken')[]>(),
  'rootKeys/delete': takes('rootKeyId', 'actor', 'now').returns<[outcome: string, detail?: string]>(),
  'rootKeys/reroll': takes('rootKeyId', 'digest', 'start', 'expiresIn', 'actor', 'now').returns<
    [outcome: string, detail?: string]
  >(),
  'rootKeys/list': takes('after', 'count').returns<PageReply>(),
  'rootKeys/names': takes('...ids').returns<string[]>(),
  'rootKeys/update': takes('request', 'actor', 'now').returns<[outcome: string, detail?: string]>(),
  'sweep/count': takes().returns<number>(),
  'sweep/ended': takes('count', 'now').returns<number>(),
  'sweep/holds': takes('count', 'usageRetentionMs', 'dataVersion', 'now').returns<[count: number, lateMs: number]>(),
  'sweep/purge': takes('count', 'usageRetentionMs', 'now').returns<[count: number, lateMs: number]>(),
  'sweep/refill': takes('count', 'now').returns<[count: number, lateMs: number]>(),
  'sweep/requeue': takes('member', 'dueMs').returns<unknown>(),
  'sweep/rollCounts': takes('kind', 'id', 'day', 'retentionMs', '...fields').returns<unknown>(),
  'sweep/rolled': takes(
    'api8',
    'day',
    'position',
    'week',
    'dropMs',
    'retentionMs',
    'sums',
    'lastDay',
    'now',
    '...keys',
  ).returns<0 | 1>(),
  'sweep/rollup': takes('count', 'bytesMax', 'retentionMs', 'now').returnsPacked<unknown[]>(),
  'usage/keys': takes('api8', 'request', 'hourlyDays', 'retentionMs', 'now', '...days').returns<(0 | 1 | 2)[]>(),
  'usage/part': takes('kind', 'id', 'day', 'part', 'importId', 'names', 'keptMs', 'dryRun', 'now', '...counts').returns<
    0 | 1 | 2
  >(),
  'usage/refusals': takes('hour', 'offset', 'rows', 'keptMs', 'dryRun').returns<0 | 1>(),
  'usage/total': takes('kind', 'id', 'day', 'importId', 'keptMs', 'dryRun', '...counts').returns<0 | 1>(),
  'windows/export': takes('windows', 'now').returns<UsedUnits[]>(),
  'windows/import': takes('windows', 'dryRun', 'now').returns<(0 | 1)[]>(),
  'workspaces/advance': takes('lastMs').returns<unknown>(),
  'workspaces/create': takes('name', 'sequence', 'sums', 'now').returns<string>(),
  'workspaces/import': takes('request').returns<'created' | 'continued' | 'exists' | 'unfinished'>(),
  'workspaces/imported': takes('counts', 'actor', 'now').returns<unknown>(),
  'workspaces/status': takes('now').returns<Reply>(),
  'workspaces/update': takes('request', 'actor', 'now').returns<unknown>(),
} as const;

type Signatures = typeof signatures;
type ScriptName = keyof Signatures;
type NameIn<Name extends ScriptName> = Signatures[Name]['names'][number];
/**
 * The credits and units that open holds of a key hold (lua/include/heldUnits.lua). `bucket` is where the next step
 * begins; '' for none.
 */
export type HeldUnits = [
  credits: string,
  returned: string,
  units: [name: string, duration: string, sliceEnd: string, units: string][],
  bucket: string,
];

/** The arguments of a script by name, but for `now`. */
type Given<Name extends ScriptName> = {
  readonly [Each in Exclude<NameIn<Name>, 'now'> as Each extends `...${infer All}` ? All : Each]: Each extends 'actor'
    ? Actor
    : Each extends `...${string}`
      ? readonly Argument[]
      : Argument;
};
type Returned<Name extends ScriptName> = Signatures[Name] extends Signature<readonly string[], infer All> ? All : never;

/** Runs a script on a workspace. */
export type Run = <Name extends ScriptName>(
  name: Name,
  workspaceId: string,
  given: Given<Name>,
) => Promise<Returned<Name>>;

interface CallOptions {
  /** The time argument of scripts; '' is Redis's clock. */
  now: () => number | '';
  /** An actor as JSON, for lua/include/audit.lua. */
  actorText: (actor: Actor) => string;
}

export function openCalls(scripts: Scripts, { now, actorText }: CallOptions): Run {
  return (name, workspaceId, given) => {
    const { names, isPacked } = signatures[name] as Signature<readonly string[], unknown>;
    const values = given as Record<string, unknown>;
    const args = names.flatMap((each): Argument[] => {
      if (each === 'now') return [now()];
      if (each === 'actor') return [actorText(values.actor as Actor)];
      return each.startsWith('...') ? (values[each.slice(3)] as Argument[]) : [values[each] as Argument];
    });
    const reply = isPacked ? scripts.runPacked(name, workspaceId, args) : scripts.run(name, workspaceId, args);
    return reply as Promise<Returned<typeof name>>;
  };
}
