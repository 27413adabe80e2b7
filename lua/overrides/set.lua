-- Create or change the override for an identifier, in a namespace that is created if it does not exist.
--
-- KEYS[1]  workspace    `tg:{ws_…}`
-- derives  namespaces, overrides and their lists, the audit stream
-- ARGV[1]  namespace    name or id
-- ARGV[2]  identifier   each `*` matches any characters
-- ARGV[3]  limit        0 blocks completely
-- ARGV[4]  duration     milliseconds
-- ARGV[5]  literals     number of characters of the identifier that are not `*`
-- ARGV[6]  stars_max    limits of the wildcards of a namespace, see weight_of
-- ARGV[7]  searching_max
-- ARGV[8]  bytes_max
-- ARGV[9]  workspace_max limit of the wildcards of a workspace
-- ARGV[10] kept_id      the id of an override of an export, without `rlor_`: then an existing one is not changed; or ''
-- ARGV[11] created_ms   its time of creation, Unix milliseconds; '' for now
-- ARGV[12] actor        JSON, see include/audit
-- ARGV[13] now_ms       '' for Redis's clock
-- returns  {'set', override id without `rlor_`} | {'namespace_not_found'} | {'too_many'} | {'too_many_in_workspace'} |
--          {'exists'}, only with a kept id

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/ids"
-- @include "include/names"
-- @include "include/overrides"
-- @include "include/pages"
-- @include "include/records"

local workspace, name, identifier, limit, duration = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local literals, stars_max, searching_max, bytes_max =
  tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local workspace_max, kept_id, created, actor, now =
  tonumber(ARGV[9]), ARGV[10], tonumber(ARGV[11]), ARGV[12], now_ms(ARGV[13])

local namespace = find_namespace(workspace, name)
if not namespace and string.sub(name, 1, 5) == 'rlns_' then return { 'namespace_not_found' } end
local before = namespace and read_override(workspace, namespace, identifier)
if kept_id ~= '' and namespace then
  if before or rest_of_id(name_of.override_list(workspace, namespace.id16), '', kept_id) then return { 'exists' } end
end
local is_wild = string.find(identifier, '*', 1, true) ~= nil
local all, wild = 0, 0
if namespace then
  all, wild = count_overrides(workspace, namespace)
end
if not before then
  if is_wild then
    if (tonumber(redis.call('HGET', workspace, 'wildcards')) or 0) >= workspace_max then
      return { 'too_many_in_workspace' }
    end
    local patterns = wild > 0 and wildcard_patterns(workspace, namespace) or {}
    patterns[#patterns + 1] = identifier
    local stars, searching, bytes = weight_of(patterns)
    if stars > stars_max or searching > searching_max or bytes > bytes_max then return { 'too_many' } end
  end
  all, wild = all + 1, is_wild and wild + 1 or wild
end
require_room(workspace, actor, (before and 0 or 1) + (namespace and 0 or 1))

local next_id = take_stamps(workspace, now, 2)
namespace = namespace or create_namespace(workspace, name, next_id())
local id16 = before and before.id16 or kept_id ~= '' and kept_id or next_id()
local packed = struct.pack(OVERRIDE, id16, limit, duration, before and before.created or created or now)
redis.call('HSET', name_of.overrides(workspace, namespace.id16), identifier, packed)
redis.call('ZADD', name_of.override_list(workspace, namespace.id16), 0, id16 .. identifier)
if is_wild then
  redis.call('ZADD', name_of.wildcard_overrides(workspace, namespace.id16), -literals, id16 .. identifier)
end
update_kinds(workspace, namespace, all, wild)
if is_wild and not before then redis.call('HINCRBY', workspace, 'wildcards', 1) end
if not before then add_records(workspace, 'override_records', 1) end
audit(workspace, now, actor, 'override', 'rlor_' .. id16, {
  { 'namespace', before and namespace.name, namespace.name },
  { 'identifier', before and identifier, identifier },
  { 'limit', before and before.limit, limit },
  { 'duration', before and before.duration, duration },
})
return { 'set', id16 }
