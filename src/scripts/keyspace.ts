// All records in Redis: the type, content and expiry of each name that src/redis/names.ts and lua/include/nameOf.lua
// make. A test checks that Redis has no others.

import { keyRecordFields } from './layout.ts';

export interface KeyspaceEntry {
  /**
   * The name after `tg:{ws_…}`. `<api8>` is the last eight characters of an API's id, `<id16>` an id without prefix.
   */
  name: string;
  type: 'hash' | 'zset' | 'string' | 'list' | 'set' | 'stream';
  holds: string;
  /** All possible fields, if they are a fixed set; `<n>` is a number. */
  fields?: readonly string[];
  /** Earlier versions wrote it, and it is still read. */
  isOld?: true;
  /** Data of versions before this one has none. */
  since?: number;
  /**
   * When Redis expires it. `once …:` means only after that event. Without it, an operation or the sweeper removes the
   * record.
   */
  expires?: string;
}

export const keyspace: readonly KeyspaceEntry[] = [
  {
    name: '',
    type: 'hash',
    holds:
      'the workspace: name, created, protectApis, sequence and last (for ids and versions), rbac (version of all roles and permissions), permissions and roles (their last numbers), key_records and override_records (one more than their number), wildcards (number of overrides with a `*`), import (during its import, the id of the export), summed (since version 6 the first day with sums of usage by customer; 0 for all), daysTo (the last day that the days of any key may have)',
  },
  {
    name: ':data',
    type: 'hash',
    holds:
      'the place of the migration of the stored data, if data of an earlier version was migrated (lua/include/migration.lua)',
    fields: ['run', 'fence', 'at', 'done'],
    since: 5,
  },
  { name: ':rk:<digest>', type: 'hash', holds: 'a root key: id, name, start, grants, enabled, expires, created, used' },
  { name: ':rks', type: 'zset', holds: 'root keys in order: id16, digest' },
  {
    name: ':rkfull',
    type: 'set',
    holds: 'digests of the admin root keys: enabled, without expiry, with the grant `*`',
  },
  { name: ':apis', type: 'zset', holds: 'APIs in order: id16' },
  { name: ':api:<api8>', type: 'hash', holds: 'an API: id, name, created' },
  {
    name: ':keys:<api8>',
    type: 'zset',
    holds: 'keys of an API in order: the first 16 of the key id (packed in 12 bytes, see lua/include/ids.lua), digest',
  },
  {
    name: ':kd:<api8>',
    type: 'zset',
    holds: 'deleted keys of an API in order, until their record is removed: as in :keys',
  },
  {
    name: ':ke:<api8>',
    type: 'zset',
    holds:
      'the index of keys by expiry: keys of an API that have an expiry and are not deleted, by their expiry: the first 16 of the key id (packed)',
    since: 5,
  },
  {
    name: ':sb:<api8>',
    type: 'zset',
    holds: 'bounds of the leaves of the index of starts, in order: bytes of an entry (lua/include/starts.lua)',
  },
  {
    name: ':sl:<api8>:<bound>',
    type: 'list',
    holds: 'a leaf of the index of starts, from a bound on: start, a zero byte, the first 16 of the key id (packed)',
  },
  {
    name: ':da:<api8>',
    type: 'hash',
    holds: 'a deleted API that can be restored, as :api (lua/include/deletedRecords.lua)',
    since: 6,
  },
  { name: ':das', type: 'zset', holds: 'deleted APIs that can be restored, in order: id16', since: 6 },
  {
    name: ':di:<id16>',
    type: 'hash',
    holds: 'a deleted identity that can be restored, as :i, without `key`',
    since: 7,
  },
  {
    name: ':dis',
    type: 'zset',
    holds: 'deleted identities that can be restored, in order: id16, externalId',
    since: 7,
  },
  {
    name: ':dq',
    type: 'zset',
    holds:
      'deleted records that can be restored: letter of the kind, its member as in :das and :dis, by the time of their removal',
    since: 6,
  },
  { name: ':dead', type: 'list', holds: 'deleted APIs (api8) that cannot be restored, whose keys are not removed yet' },
  {
    name: ':k:<digest>',
    type: 'hash',
    holds:
      'a key: state (packed), leases of its units (`leased`, packed), the fields that keyRecordFields of src/scripts/layout.ts describes, its holds in buckets (`holds` and `holds<n>`, lua/include/holdList.lua), `shifted` after a step back of the clock (packed, lua/include/windowLog.lua), and `formerLink` to a deleted identity that can be restored (lua/include/relinking.lua). Servers of earlier commits had leases in a field `leases`, which is ignored',
    fields: ['state', 'leased', 'holds', 'holds<n>', 'shifted', 'formerLink', ...Object.keys(keyRecordFields)],
  },
  { name: ':refill', type: 'zset', holds: 'digests by the time of their next refill' },
  {
    name: ':holds',
    type: 'zset',
    holds: 'digests of keys with holds by the time at which the next of these expires or is forgotten',
    since: 6,
  },
  {
    name: ':hs:<key24>:<hour>',
    type: 'string',
    holds:
      'holds of a key that were settled or charged in an hour, each SETTLED_HOLD of src/scripts/layout.ts, so that a settlement can be repeated; limited in bytes. The latest may be in field `holds` of the key',
    expires: 'after three hours',
    since: 6,
  },
  { name: ':purge', type: 'zset', holds: 'digests of deleted keys by the time at which their record may be removed' },
  {
    name: ':i:<externalId>',
    type: 'hash',
    holds:
      'an identity: state (packed: id, version, limits with their windows), leases of its units (packed), meta, key (one of its keys, as in :ik), held (until when holds of its keys may give units back, Unix milliseconds), credits (its balance, packed), `shifted` as of a key, `relinked` while it is being restored (lua/include/relinking.lua)',
  },
  { name: ':identities', type: 'zset', holds: 'identities in order: id16, externalId' },
  {
    name: ':ik:<id16>',
    type: 'zset',
    holds:
      'keys of an identity by API, in order: api8, then the first 16 of the key id. Without the one in its record; with it after the identity was deleted',
    expires: 'once its identity was deleted for good: a month after the usage retention',
  },
  { name: ':ns', type: 'hash', holds: 'namespaces: name to id16, then `e` and `w` for the kinds of overrides it has' },
  { name: ':nsid', type: 'hash', holds: 'namespaces: id16 to name' },
  { name: ':nsl', type: 'zset', holds: 'namespaces in order: id16' },
  {
    name: ':ov:<id16>',
    type: 'hash',
    holds:
      'overrides of a namespace: identifier to id16, limit, duration, created; of a temporary one also its end and the former one (packed)',
  },
  {
    name: ':ove',
    type: 'zset',
    holds: 'overrides that no longer exist after their end: id16 of the namespace, identifier, by their end',
    since: 6,
  },
  {
    name: ':ovu:<id16>',
    type: 'zset',
    holds: 'those of a namespace: identifier, by their end',
    since: 6,
  },
  {
    name: ':ends',
    type: 'zset',
    holds:
      'the index of temporary limits and overrides, by their end (lua/include/limitList.lua): `k`, the key (24) and the name of its limit; `i`, the identity (id16) and the name; `o`, the namespace and the override (id16 of each)',
    since: 6,
  },
  { name: ':ovl:<id16>', type: 'zset', holds: 'overrides in order: id16, identifier' },
  { name: ':ovw:<id16>', type: 'zset', holds: 'overrides with a `*`, most literal characters first: id16, identifier' },
  {
    name: ':w:<owner>:<duration>:<name>',
    type: 'string',
    holds:
      'a window (lua/include/windowLog.lua) that is not in a state: of a namespace (owner is its id16, name the identifier), an ad hoc limit (owner is the key), or a removed limit of a key or identity',
    expires: 'a duration and a minute after the last charge',
  },
  {
    name: ':lw:<owner>:<duration>:<name>',
    type: 'string',
    holds: 'leases of units of the window :w of this name, which is of a namespace (lua/decide/notedLeases.lua)',
    expires: 'as :w, after the last lease',
  },
  {
    name: ':wo:<owner>',
    type: 'zset',
    holds:
      'counters of a key or identity (duration and name as in :w) by the time at which they may have expired; at most 1000',
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
    name: ':leases',
    type: 'hash',
    holds:
      'the servers that may hold leases: session to `registered` of src/scripts/layout.ts; at most 64. `longest`: the longest term of any so far',
  },
  {
    name: ':audit',
    type: 'stream',
    holds:
      'management changes: time, rootKeyId, operation, type, id, requestId, address, changes (JSON); limited in number and size',
  },
  {
    name: ':ua:<api8>:<day>',
    type: 'hash',
    holds:
      'usage of an API: hour and outcome to count, `s` before it for credits spent; tags: bytes of the counts by tag; import: id of an export and number of the last part of the counts by tag that was imported',
    expires: 'after the usage retention',
  },
  {
    name: ':uk:<key24>',
    type: 'string',
    holds:
      'the log of a key: its usage by hour (lua/include/usage.lua) since the sweeper rolled it up; the current hour is in its state',
    expires: 'after the usage retention',
  },
  {
    name: ':uh:<key24>',
    type: 'string',
    holds: 'the days of a key: its usage by day, and by hour of the last days (src/usage/days.ts)',
    expires: 'after the usage retention',
  },
  {
    name: ':ux:<api8>:<day>',
    type: 'list',
    holds: 'keys of an API (the first 16 of the id) that were used on this day; a key may be repeated',
    expires: 'a month after the usage retention; the sweeper removes it earlier',
  },
  {
    name: ':uw:<api8>:<week>',
    type: 'list',
    holds: 'the same of a week, without the days that the sweeper has not rolled up',
    expires: 'a month after the usage retention',
  },
  {
    name: ':sm:<api8>:<month>:<bound>',
    type: 'hash',
    holds:
      "sums of usage by customer, of an API in a month (since 1970), from a bound on: externalId ('' for keys without an identity) to its days (lua/include/usageSums.lua); limited in number",
    expires: 'after the usage retention',
    since: 6,
  },
  {
    name: ':sc:<api8>:<month>',
    type: 'zset',
    holds: 'bounds of all of these but the first, in order',
    expires: 'after the usage retention',
    since: 6,
  },
  {
    name: ':rollup',
    type: 'zset',
    holds:
      'what the sweeper has to roll up, by the time at which it may: `k`, api8 and day of a list of used keys, `t` of counts by tag, `i`, id16 and day of counts by identifier',
  },
  { name: ':rolled', type: 'hash', holds: 'members of :rollup to the number of keys that were rolled up' },
  {
    name: ':rh:<hour>',
    type: 'string',
    holds:
      'recent refusals of verifications: rows, each with its length (notedRefusal and notedMore of src/scripts/layout.ts); limited in bytes',
    expires: 'an hour after REFUSAL_HOURS',
  },
  {
    name: ':rf:<day>',
    type: 'list',
    isOld: true,
    holds: 'the same (notedRefusal only) of a day',
    expires: 'after two days',
  },
  {
    name: ':uz:<api8>',
    type: 'zset',
    holds: 'deleted keys of an API (without `key_`) whose usage is kept, by the hour of deletion',
    expires: 'after the usage retention without another',
  },
  {
    name: ':ui:<externalId>',
    type: 'zset',
    holds: 'former keys (24) and deleted identities (16) of this externalId, by the hour of the change',
    expires: 'after the usage retention without another',
  },
  {
    name: ':ut:<api8>:<day>',
    type: 'hash',
    holds:
      "usage by tag: hour (`--` for the whole day), outcome, key, externalId and tag to count, without a tag to what several tags repeat; '' to the steps of its roll-up",
    expires: 'after the usage retention',
  },
  {
    name: ':tags:<api8>',
    type: 'set',
    holds: 'tags that an API counts, limited in number',
    expires: 'after the usage retention without a tagged verification',
  },
  {
    name: ':ul:<id16>:<day>',
    type: 'hash',
    holds:
      'usage of a namespace: hour and p (passed) or b (blocked) to count; import: as in :ua, of the counts by identifier',
    expires: 'after the usage retention',
  },
  { name: ':ud:<id16>:<day>', type: 'hash', holds: 'the same by identifier', expires: 'after the usage retention' },
  {
    name: ':un:<id16>:<day>',
    type: 'hash',
    holds: 'identifiers that are counted separately, and their number in a field with an empty name; limited in number',
    expires: 'after the usage retention',
  },
];
