-- Create an API that is moved here from another workspace, with its id, or continue to receive it.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  API record and list, key list, the list of dead APIs, the receipt, the audit stream
-- ARGV[1]  api_id
-- ARGV[2]  name        '' if it was closed in the other workspace, so it exists here
-- ARGV[3]  created_ms  its time of creation, Unix milliseconds
-- ARGV[4]  from        the other workspace (ws_…)
-- ARGV[5]  actor       JSON, see include/audit
-- ARGV[6]  now_ms      '' for Redis's clock
-- returns  {'received'} | {'exists'}

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/fields"
-- @include "include/names"
-- @include "include/records"

local workspace, api_id, name, created, from, actor, now =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], now_ms(ARGV[6])

local api8 = string.sub(api_id, -8)
local receipt, record = name_of.receipt(workspace, api8), name_of.api_record(workspace, api8)
local api = redis.call('HGET', record, 'id')
if redis.call('HGET', receipt, 'from') == from and api == api_id then return { 'received' } end
local is_taken = redis.call('EXISTS', record, name_of.key_list(workspace, api8), receipt) > 0
if is_taken or redis.call('LPOS', name_of.dead_apis(workspace), api8) or name == '' then return { 'exists' } end
require_room(workspace, actor, 1)

set_fields(record, { id = api_id, name = name, created = created })
redis.call('ZADD', name_of.api_list(workspace), 0, string.sub(api_id, 5))
redis.call('HSET', receipt, 'from', from, 'part', 0, 'count', 0)
audit(workspace, now, actor, 'api', api_id, { { 'name', nil, name }, { 'movesFrom', nil, from } })
return { 'received' }
