-- Restore a deleted API with its keys: a verification finds its record again, and nothing else of it was changed.
--
-- derives  API record and list, the deleted record, its list and queue, key list, the audit stream
-- ARGV[1]  api_id
-- returns  {'restored'} | {'api_not_found'} when there is no such deleted API, or an API has its id

local workspace, api_id, actor, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])
local api8 = string.sub(api_id, -8)
local api = read_fields(name_of.deleted_api(workspace, api8), 'id', 'name')
-- An import by a server of an earlier version may have used the id again.
if api.id ~= api_id or redis.call('EXISTS', name_of.api_record(workspace, api8)) == 1 then
  return { 'api_not_found' }
end
local key_count = redis.call('ZCARD', name_of.key_list(workspace, api8))
deleted_records.restore(workspace, 'a', string.sub(api_id, 5))
audit(workspace, now, actor, 'api', api_id, { { 'name', nil, api.name }, { 'keyCount', nil, key_count } })
return { 'restored' }
