-- Create an API, a container of keys.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  API record and list, the audit stream
-- ARGV[1]  name
-- ARGV[2]  actor      JSON, see include/audit
-- ARGV[3]  now_ms     '' for Redis's clock
-- returns  the API's id

-- @include "include/clock"
-- @include "include/names"
-- @include "include/ids"
-- @include "include/audit"

local workspace, name, actor, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])
local next_id = take_stamps(workspace, now, 1)
local id16 = next_id()
redis.call('HSET', api_record(workspace, string.sub(id16, 9)), 'id', 'api_' .. id16, 'name', name, 'created', int(now))
redis.call('ZADD', api_list(workspace), 0, id16)
audit(workspace, now, actor, 'api', 'api_' .. id16)
return 'api_' .. id16
