-- Create an API that is moved here from another workspace, with its id, or continue to receive it, also after it was
-- deleted here meanwhile and the sweeper has removed its keys.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  API record and list, key list, the list of dead APIs, the receipt, the audit stream
-- ARGV[1]  api_id
-- ARGV[2]  name        '' if it was closed in the other workspace, so all its keys have arrived here
-- ARGV[3]  created_ms  its time of creation, Unix milliseconds
-- ARGV[4]  from        the other workspace (ws_…)
-- ARGV[5]  actor       JSON, see include/audit
-- ARGV[6]  now_ms      '' for Redis's clock
-- returns  {'received'} | {'exists'}

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/fields"
-- @include "include/moves"
-- @include "include/names"

local workspace, api_id, name, created, from, actor, now =
  KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], now_ms(ARGV[6])

local api8 = string.sub(api_id, -8)
local receives = moves.receives(workspace, api_id, from)
if receives == 'receiving' or receives == 'again' and name == '' then return { 'received' } end
if not receives or name == '' then return { 'exists' } end

set_fields(name_of.api_record(workspace, api8), { id = api_id, name = name, created = created })
redis.call('ZADD', name_of.api_list(workspace), 0, string.sub(api_id, 5))
if receives == 'new' then redis.call('HSET', name_of.receipt(workspace, api8), 'from', from, 'part', 0, 'count', 0) end
audit(workspace, now, actor, 'api', api_id, { { 'name', nil, name }, { 'movesFrom', nil, from } })
return { 'received' }
