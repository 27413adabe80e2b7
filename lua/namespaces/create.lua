-- Create a namespace of an export with its id. One whose name or id exists is skipped.
--
-- derives  namespaces and their list, the audit stream
-- ARGV[1]  id16       without `rlns_`
-- ARGV[2]  name
-- returns  1, or 0 when the name or the id exists

local workspace, id16, name, actor, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3], now_ms(ARGV[4])
if find_namespace(workspace, name) or find_namespace(workspace, 'rlns_' .. id16) then return 0 end
require_room(workspace, actor, 1)
create_namespace(workspace, name, id16)
audit(workspace, now, actor, 'namespace', 'rlns_' .. id16, { { 'name', nil, name } })
return 1
