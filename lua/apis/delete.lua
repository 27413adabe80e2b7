#!lua flags=allow-oom
-- Delete an API. All its keys are invalid immediately, because a verification reads the API's record. It can be
-- restored for the retention time, with everything of it, unless it is `permanent`; then the sweeper removes the
-- records of the keys in steps.
--
-- derives  API record and list, the deleted record, its list and queue, key list, the index by expiry, the list of dead
--          APIs, the audit stream
-- ARGV[1]  api_id
-- ARGV[2]  confirm       the name of the API, if the workspace protects APIs with keys; '' for none
-- ARGV[3]  permanent     0 | 1
-- ARGV[4]  retention_ms  how long it can be restored
-- returns  {'deleted'} | {'api_not_found'} | {'protected', its name}

local workspace, api_id, confirm, permanent, retention_ms = KEYS[1], ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local actor, now = ARGV[5], now_ms(ARGV[6])
local api8, member = string.sub(api_id, -8), string.sub(api_id, 5)
local api = read_fields(name_of.api_record(workspace, api8), 'id', 'name')
if api.id ~= api_id then return { 'api_not_found' } end
local key_count = redis.call('ZCARD', name_of.key_list(workspace, api8))
if key_count > 0 and confirm ~= api.name and redis.call('HGET', workspace, 'protectApis') == '1' then
  return { 'protected', api.name }
end
if permanent then
  redis.call('UNLINK', name_of.api_record(workspace, api8))
  redis.call('ZREM', name_of.api_list(workspace), member)
  redis.call('RPUSH', name_of.dead_apis(workspace), api8)
  remove_expiries(workspace, api8)
else
  deleted_records.put(workspace, 'a', member, now + retention_ms)
end
audit(workspace, now, actor, 'api', api_id, {
  { 'name', api.name },
  { 'keyCount', key_count },
  { 'permanent', nil, permanent or nil },
})
return { 'deleted' }
