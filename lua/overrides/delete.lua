#!lua flags=allow-oom
-- Delete the override for exactly this identifier, also the former one that a temporary one keeps.
--
-- derives  namespaces, overrides and their lists, the audit stream
-- ARGV[1]  namespace   name or id
-- ARGV[2]  identifier
-- returns  1, or 0 when there is no such override

local workspace, name, identifier, actor, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3], now_ms(ARGV[4])
local namespace = find_namespace(workspace, name)
local override = namespace and read_override(workspace, namespace, identifier, now)
if not override then return 0 end
override_records.remove(workspace, namespace, identifier, override.id16)
audit(workspace, now, actor, 'override', 'rlor_' .. override.id16, {
  { 'namespace', namespace.name },
  { 'identifier', identifier },
  { 'limit', override.limit },
  { 'duration', quota_periods.audited(override.duration) },
  { 'until', override.ends },
})
return 1
