#!lua flags=no-writes
-- Read an API.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  API record
-- ARGV[1]  api_id
-- returns  {name} | false

-- @include "include/names"

local workspace, api_id = KEYS[1], ARGV[1]
local stored = redis.call('HMGET', api_record(workspace, string.sub(api_id, -8)), 'id', 'name')
if stored[1] ~= api_id then return false end
return { stored[2] }
