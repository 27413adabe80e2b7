-- Add namespaces that an earlier version created to the list of namespaces.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  namespace list
-- ARGV[1]  ids        16 characters each, without `rlns_`
-- returns  1

-- @include "include/names"

local workspace, ids = KEYS[1], ARGV[1]
for at = 1, #ids, 16 do
  redis.call('ZADD', namespace_list(workspace), 0, string.sub(ids, at, at + 15))
end
return 1
