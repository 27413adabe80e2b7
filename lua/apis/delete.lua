-- Delete an API. All its keys are invalid at once, because a verification reads the API's record. The sweeper removes the records
-- of the keys in steps.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  API record and list, key list, the list of dead APIs, the audit stream
-- ARGV[1]  api_id
-- ARGV[2]  actor      JSON, see include/audit
-- ARGV[3]  now_ms     '' for Redis's clock
-- returns  1, or 0 when there is no such API

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/fields"
-- @include "include/names"

local workspace, api_id, actor, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])
local api8 = string.sub(api_id, -8)
local api = read_fields(api_record(workspace, api8), 'id', 'name')
if api.id ~= api_id then return 0 end
local key_count = redis.call('ZCARD', key_list(workspace, api8))
redis.call('UNLINK', api_record(workspace, api8))
redis.call('ZREM', api_list(workspace), string.sub(api_id, 5))
redis.call('RPUSH', dead_apis(workspace), api8)
audit(workspace, now, actor, 'api', api_id, { { 'name', api.name }, { 'keyCount', key_count } })
return 1
