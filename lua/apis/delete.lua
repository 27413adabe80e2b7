-- Delete an API. All its keys are invalid at once, because a verification reads the API's record. The sweeper removes
-- the records of the keys in steps.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  API record and list, key list, the index by expiry, the list of dead APIs, the audit stream
-- ARGV[1]  api_id
-- ARGV[2]  confirm    the name of the API, if the workspace protects APIs with keys; '' for none
-- ARGV[3]  actor      JSON, see include/audit
-- ARGV[4]  now_ms     '' for Redis's clock
-- returns  {'deleted'} | {'api_not_found'} | {'protected', its name}

-- @include "include/audit"
-- @include "include/clock"
-- @include "include/expiries"
-- @include "include/fields"
-- @include "include/names"

local workspace, api_id, confirm, actor, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3], now_ms(ARGV[4])
local api8 = string.sub(api_id, -8)
local api = read_fields(name_of.api_record(workspace, api8), 'id', 'name')
if api.id ~= api_id then return { 'api_not_found' } end
local key_count = redis.call('ZCARD', name_of.key_list(workspace, api8))
if key_count > 0 and confirm ~= api.name and redis.call('HGET', workspace, 'protectApis') == '1' then
  return { 'protected', api.name }
end
redis.call('UNLINK', name_of.api_record(workspace, api8))
redis.call('ZREM', name_of.api_list(workspace), string.sub(api_id, 5))
redis.call('RPUSH', name_of.dead_apis(workspace), api8)
remove_expiries(workspace, api8)
audit(workspace, now, actor, 'api', api_id, { { 'name', api.name }, { 'keyCount', key_count } })
return { 'deleted' }
