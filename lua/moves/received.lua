-- End the move of an API in the workspace that it was moved to.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  the receipt, the keys that have arrived, the audit stream
-- ARGV[1]  api_id
-- ARGV[2]  from       the other workspace (ws_…)
-- ARGV[3]  actor      JSON, see include/audit
-- ARGV[4]  now_ms     '' for Redis's clock
-- returns  1, or 0 if it had ended

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/names"

local workspace, api_id, from, actor, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3], now_ms(ARGV[4])

local api8 = string.sub(api_id, -8)
local receipt = name_of.receipt(workspace, api8)
local stored = redis.call('HMGET', receipt, 'from', 'count')
if stored[1] ~= from then return 0 end
redis.call('UNLINK', receipt, name_of.arrived_keys(workspace, api8))
audit(workspace, now, actor, 'api', api_id, { { 'movedFrom', nil, from }, { 'keyCount', nil, tonumber(stored[2]) } })
return 1
