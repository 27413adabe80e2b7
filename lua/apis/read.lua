#!lua flags=no-writes
-- Read an API.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  API record
-- ARGV[1]  api_id
-- returns  {name} as a named reply, or false when there is no such API

-- @include "include/fields"
-- @include "include/names"

local workspace, api_id = KEYS[1], ARGV[1]
local api = read_fields(name_of.api_record(workspace, string.sub(api_id, -8)), 'id', 'name')
if api.id ~= api_id then return false end
return named({ name = api.name })
