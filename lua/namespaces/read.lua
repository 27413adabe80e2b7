#!lua flags=no-writes
-- Find a namespace, by name or id.
--
-- derives  namespace names and ids
-- ARGV[1]  name_or_id
-- returns  {id (without `rlns_`), name} as a named reply, or false when there is no such namespace

local workspace, name_or_id = KEYS[1], ARGV[1]
local namespace = find_namespace(workspace, name_or_id)
return namespace and named({ id = namespace.id16, name = namespace.name })
