-- Create or change the override for an identifier, in a namespace that is created if it does not exist. A temporary one
-- keeps the permanent one that it replaces as the former one, which is in force again when it ends.
--
-- derives  namespaces, overrides and their lists, the audit stream
-- ARGV[1]  namespace    name or id
-- ARGV[2]  identifier   each `*` matches any characters
-- ARGV[3]  limit        0 blocks completely
-- ARGV[4]  duration     milliseconds, or the code of a quota
-- ARGV[5]  ends_ms      Unix milliseconds; '' for a permanent one
-- ARGV[6]  former_limit of the former one of an export; '' for none, and for the one that is in force
-- ARGV[7]  former_duration
-- ARGV[8]  literals     number of characters of the identifier that are not `*`
-- ARGV[9]  kept_id      the id of an override of an export, without `rlor_`: then an existing one is not changed; or ''
-- ARGV[10] created_ms   its time of creation, Unix milliseconds; '' for now
-- returns  {'set', override id without `rlor_`} | {'namespace_not_found'} | {'too_many'} | {'too_many_in_workspace'} |
--          {'ended'} | {'too_late'}, only without a kept id | {'exists'}, only with a kept id

local workspace, name, identifier, limit, duration = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local ends, former_limit, former_duration = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local literals, kept_id, created, actor, now =
  tonumber(ARGV[8]), ARGV[9], tonumber(ARGV[10]), ARGV[11], now_ms(ARGV[12])

-- Limit of the ended overrides that one call removes.
local ENDED_MAX = 100

local namespace = find_namespace(workspace, name)
if not namespace and string.sub(name, 1, 5) == 'rlns_' then return { 'namespace_not_found' } end
local before = namespace and read_override(workspace, namespace, identifier, now)
if kept_id ~= '' and namespace then
  if before or rest_of_id(name_of.override_list(workspace, namespace.id16), '', kept_id) then return { 'exists' } end
end
if ends and ends <= now then
  if not former_limit then return { 'ended' } end
  limit, duration, ends = former_limit, former_duration, nil
end
if ends and kept_id == '' and ends > now + LASTS_MAX then return { 'too_late' } end
local former = former_limit and { limit = former_limit, duration = former_duration }
if before then former = not before.ends and before or before.former end

-- Overrides that have ended leave room for this one.
override_records.remove_ended(workspace, now, ENDED_MAX)
if namespace then override_records.remove_rest(workspace, namespace, identifier, now) end
local is_wild = string.find(identifier, '*', 1, true) ~= nil
local all, wild = 0, 0
if namespace then
  all, wild = override_records.count(workspace, namespace)
end
if not before then
  if is_wild then
    if (tonumber(redis.call('HGET', workspace, 'wildcards')) or 0) >= WILDCARDS_MAX then
      return { 'too_many_in_workspace' }
    end
    local patterns = wild > 0 and wildcard_patterns(workspace, namespace) or {}
    patterns[#patterns + 1] = identifier
    local stars, searching, bytes = override_records.weight_of(patterns)
    if stars > WILDCARD_STARS_MAX or searching > WILDCARD_SEARCHING_MAX or bytes > WILDCARD_BYTES_MAX then
      return { 'too_many' }
    end
  end
  all, wild = all + 1, is_wild and wild + 1 or wild
end
require_room(workspace, actor, (before and 0 or 1) + (namespace and 0 or 1))

local next_id = take_stamps(workspace, now, 2)
namespace = namespace or create_namespace(workspace, name, next_id())
local id16 = before and before.id16 or kept_id ~= '' and kept_id or next_id()
local packed = struct.pack(OVERRIDE, id16, limit, duration, before and before.created or created or now)
if ends then
  local kept = former or { limit = 0, duration = 0 }
  packed = packed .. struct.pack(OVERRIDE_END, ends, former and 1 or 0, kept.limit, kept.duration)
end
redis.call('HSET', name_of.overrides(workspace, namespace.id16), identifier, packed)
redis.call('ZADD', name_of.override_list(workspace, namespace.id16), 0, id16 .. identifier)
if is_wild then
  redis.call('ZADD', name_of.wildcard_overrides(workspace, namespace.id16), -literals, id16 .. identifier)
end
override_records.note_end(workspace, namespace, identifier, id16, ends, former)
override_records.update_kinds(workspace, namespace, all, wild)
if is_wild and not before then redis.call('HINCRBY', workspace, 'wildcards', 1) end
if not before then add_records(workspace, 'override_records', 1) end
audit(workspace, now, actor, 'override', 'rlor_' .. id16, {
  { 'namespace', before and namespace.name, namespace.name },
  { 'identifier', before and identifier, identifier },
  { 'limit', before and before.limit, limit },
  { 'duration', before and quota_periods.audited(before.duration), quota_periods.audited(duration) },
  { 'until', before and before.ends, ends },
})
return { 'set', id16 }
