#!lua flags=no-writes
-- Read an API.
--
-- derives  API record, its key list
-- ARGV[1]  api_id
-- returns  ApiReply (src/records/apis.ts), or false when there is no such API

local workspace, api_id = KEYS[1], ARGV[1]
local api8 = string.sub(api_id, -8)
local api = read_fields(name_of.api_record(workspace, api8), 'id', 'name', 'created')
if api.id ~= api_id then return false end
api.keyCount = redis.call('ZCARD', name_of.key_list(workspace, api8))
return named(api)
