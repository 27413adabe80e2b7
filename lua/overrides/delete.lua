-- Delete the override for exactly this identifier.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  namespaces, overrides and their lists, the audit stream
-- ARGV[1]  namespace   name or id
-- ARGV[2]  identifier
-- ARGV[3]  actor       JSON, see include/audit
-- ARGV[4]  now_ms      '' for Redis's clock
-- returns  1, or 0 when there is no such override

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/names"
-- @include "include/overrides"
-- @include "include/records"

local workspace, name, identifier, actor, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3], now_ms(ARGV[4])
local namespace = find_namespace(workspace, name)
local override = namespace and read_override(workspace, namespace, identifier)
if not override then return 0 end
local is_wild = string.find(identifier, '*', 1, true) ~= nil
local all, wild = count_overrides(workspace, namespace)
redis.call('HDEL', name_of.overrides(workspace, namespace.id16), identifier)
redis.call('ZREM', name_of.override_list(workspace, namespace.id16), override.id16 .. identifier)
redis.call('ZREM', name_of.wildcard_overrides(workspace, namespace.id16), override.id16 .. identifier)
add_records(workspace, 'override_records', -1)
update_kinds(workspace, namespace, all - 1, is_wild and wild - 1 or wild)
if is_wild then redis.call('HINCRBY', workspace, 'wildcards', -1) end
audit(workspace, now, actor, 'override', 'rlor_' .. override.id16, {
  { 'namespace', namespace.name },
  { 'identifier', identifier },
  { 'limit', override.limit },
  { 'duration', override.duration },
})
return 1
