// Everything there is in Redis. Names are made in lua/include/names.lua, and here for what is read without a script: the
// workspaces, usage and the audit stream. A test checks that nothing else is ever left in Redis.
//
// The braces are the hash tag: all of a workspace lies in one slot, so one script may touch any of it.

/** The workspace itself, and the beginning of every name in it. */
export const workspaceKey = (workspaceId: string): string => `tg:{${workspaceId}}`;

/**
 * A name below a workspace that never exists. On Cluster a script is given it beside the workspace: while a slot is moved and its keys
 * lie on two nodes, Redis refuses a command of several names unless all of them are there. With the workspace's name alone
 * it would run the script on a part of the keys.
 */
export const absentKey = (workspace: string): string => `${workspace}:-`;

/** Every workspace id, by time of creation. Zset. The only names outside of a workspace: */
export const workspacesKey = 'tg:workspaces';
/** Held for seconds by whoever makes the first workspace. String, expires. */
export const setupKey = 'tg:setup';
/** The version of all data, see dataVersion.ts. String. */
export const dataVersionKey = 'tg:form';

// Below a workspace (its name as workspaceKey makes it), as lua/include/names.lua has them too.
export const auditKey = (workspace: string): string => `${workspace}:audit`;
export const apisKey = (workspace: string): string => `${workspace}:apis`;
export const apiKey = (workspace: string, apiId: string): string => `${workspace}:api:${apiId.slice(-8)}`;
export const keysKey = (workspace: string, apiId: string): string => `${workspace}:keys:${apiId.slice(-8)}`;
export const permissionSlugsKey = (workspace: string): string => `${workspace}:ps`;
export const namespaceNamesKey = (workspace: string): string => `${workspace}:nsid`;
export const formerKeysKey = (workspace: string, apiId: string): string => `${workspace}:uz:${apiId.slice(-8)}`;
export const formerMembersKey = (workspace: string, externalId: string): string => `${workspace}:ui:${externalId}`;
export const tagUsageKey = (workspace: string, apiId: string, day: string): string =>
  `${workspace}:ut:${apiId.slice(-8)}:${day}`;

export interface KeyspaceEntry {
  /** What follows `tg:{ws_…}`. `<api8>` is the last eight characters of an API's id, `<id16>` an id without prefix. */
  name: string;
  type: 'hash' | 'zset' | 'string' | 'list' | 'set' | 'stream';
  holds: string;
  /** Every field there may be, where they are always the same few. */
  fields?: readonly string[];
  /** When it goes by itself; otherwise it stays until an operation or the sweeper removes it. `once …:` from then on only. */
  expires?: string;
}

export const keyspace: readonly KeyspaceEntry[] = [
  {
    name: '',
    type: 'hash',
    holds:
      'the workspace: name, created, sequence and last (for ids and versions), rbac (version of all roles and permissions), permissions and roles (their last numbers), key_records and override_records (one more than there are), wildcards (how many overrides have a `*`)',
  },
  { name: ':rk:<digest>', type: 'hash', holds: 'a root key: id, name, start, grants, enabled, expires, created, used' },
  { name: ':rks', type: 'zset', holds: 'root keys in order: id16, digest' },
  { name: ':rkfull', type: 'set', holds: 'digests of the enabled, unexpiring root keys with the grant `*`' },
  { name: ':apis', type: 'zset', holds: 'APIs in order: id16' },
  { name: ':api:<api8>', type: 'hash', holds: 'an API: id, name, created' },
  {
    name: ':keys:<api8>',
    type: 'zset',
    holds: 'keys of an API in order: the first 16 of the key id (packed in 12 bytes, see lua/include/ids.lua), digest',
  },
  { name: ':dead', type: 'list', holds: 'deleted APIs (api8) whose keys wait to be removed' },
  {
    name: ':k:<digest>',
    type: 'hash',
    holds:
      'a key: state (packed, see src/store/layout.ts), start, created (unless it is the time in the id), updated, prefix, bytes (random bytes of its string, unless as many as by default; 0 unknown), name, meta, direct (permission numbers), roles (role numbers), migration',
    fields: 'state start created updated prefix bytes name meta direct roles migration'.split(' '),
  },
  { name: ':refill', type: 'zset', holds: 'digests by the time of their next refill' },
  { name: ':purge', type: 'zset', holds: 'digests of deleted keys by the time their record may go' },
  {
    name: ':i:<externalId>',
    type: 'hash',
    holds:
      'an identity: state (packed: id, version, limits with their windows), meta, key (one of its keys, as in :ik)',
  },
  { name: ':identities', type: 'zset', holds: 'identities in order: id16, externalId' },
  {
    name: ':ik:<id16>',
    type: 'zset',
    holds:
      'keys of an identity by API, in order: api8, then the first 16 of the key id. But for the one in its record: a key goes there where none is, and stays. All of them once the identity is deleted, as long as their usage is kept',
    expires: 'once its identity is deleted: a month after the usage retention',
  },
  { name: ':ns', type: 'hash', holds: 'namespaces: name to id16, then `e` and `w` for the kinds of overrides it has' },
  { name: ':nsid', type: 'hash', holds: 'namespaces: id16 to name' },
  {
    name: ':ov:<id16>',
    type: 'hash',
    holds: 'overrides of a namespace: identifier to id16, limit, duration, created (packed)',
  },
  { name: ':ovl:<id16>', type: 'zset', holds: 'overrides in order: id16, identifier' },
  { name: ':ovw:<id16>', type: 'zset', holds: 'those with a `*`, most literal characters first: id16, identifier' },
  {
    name: ':w:<owner>:<duration>:<name>',
    type: 'string',
    holds:
      'a window (lua/include/window.lua) that no record carries: of a namespace (owner id16, name the identifier), an ad hoc limit (owner the key), or a limit that a key or identity no longer has',
    expires: 'a duration and a minute after the last charge',
  },
  {
    name: ':wo:<owner>',
    type: 'zset',
    holds:
      'counters of a key or identity that go with it (duration and name as in :w), by when they may have expired; at most 1000',
    expires: 'a day after the last of them',
  },
  { name: ':pn', type: 'hash', holds: 'permissions: slug to number' },
  { name: ':ps', type: 'hash', holds: 'permissions: number to slug' },
  { name: ':permissions', type: 'zset', holds: 'permissions in order: id16, number' },
  { name: ':perm:<number>', type: 'hash', holds: 'a permission: id, slug, name, description' },
  { name: ':rn', type: 'hash', holds: 'roles: name to number' },
  { name: ':rs', type: 'hash', holds: 'roles: number to name' },
  { name: ':rp', type: 'hash', holds: 'roles: number to permission numbers' },
  { name: ':roles', type: 'zset', holds: 'roles in order: id16, number' },
  { name: ':role:<number>', type: 'hash', holds: 'a role: id, name, description' },
  {
    name: ':audit',
    type: 'stream',
    holds: 'management changes: time, rootKeyId, operation, type, id, requestId; bounded in number',
  },
  {
    name: ':ua:<api8>:<day>',
    type: 'hash',
    holds:
      'usage of an API: hour and outcome to count, `s` before it for credits spent; tags: bytes of the counts by tag',
    expires: 'after the usage retention',
  },
  {
    name: ':uk:<key24>:<month>',
    type: 'string',
    holds: 'usage of a key by hour (lua/include/usage.lua); the present hour is in its state',
    expires: 'after the usage retention',
  },
  {
    name: ':uz:<api8>',
    type: 'zset',
    holds: 'deleted keys of an API (without `key_`), whose usage can be asked for, by the hour they went',
    expires: 'after the usage retention without another',
  },
  {
    name: ':ui:<externalId>',
    type: 'zset',
    holds: 'keys (24) and deleted identities (16) that once were of this externalId, by the hour they went',
    expires: 'after the usage retention without another',
  },
  {
    name: ':ut:<api8>:<day>',
    type: 'hash',
    holds: 'usage by tag: hour, outcome, key, externalId and tag to count',
    expires: 'after the usage retention',
  },
  {
    name: ':tags:<api8>',
    type: 'set',
    holds: 'tags an API counts, bounded in number',
    expires: 'after the usage retention without a tagged verification',
  },
  {
    name: ':ul:<id16>:<day>',
    type: 'hash',
    holds: 'usage of a namespace: hour and p (passed) or b (blocked) to count',
    expires: 'after the usage retention',
  },
  { name: ':ud:<id16>:<day>', type: 'hash', holds: 'the same by identifier', expires: 'after the usage retention' },
  {
    name: ':un:<id16>:<day>',
    type: 'hash',
    holds: 'identifiers that are counted by themselves, and under an empty name how many they are; bounded in number',
    expires: 'after the usage retention',
  },
];
