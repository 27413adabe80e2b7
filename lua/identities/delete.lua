#!lua flags=allow-oom
-- Delete an identity. Its keys stay valid without it: their links have its id, which no longer exists. It can be
-- restored for the retention time, unless it is `permanent`. The list of its keys is kept as long as their usage.
--
-- derives  identity record, list and list of keys, the deleted record, its list and queue, former members, the index of
--          ends, the audit stream
-- ARGV[1]  identity      its id or externalId
-- ARGV[2]  permanent     0 | 1
-- ARGV[3]  retention_ms  how long it can be restored
-- ARGV[4]  usage_retention_ms
-- returns  1, or 0 when there is no such identity

local workspace, wanted, permanent, retention_ms = KEYS[1], ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])
local usage_retention_ms, actor, now = tonumber(ARGV[4]), ARGV[5], now_ms(ARGV[6])
local external_id = external_id_for(workspace, wanted)
if not external_id then return 0 end
local record = name_of.identity_record(workspace, external_id)
local identity, meta = load_identity(record), identity_meta(record)
local id16, in_record = identity.id16, redis.call('HGET', record, 'key')
local list, plan16 = name_of.identity_keys(workspace, id16), plans.find(workspace, identity.plan_id)
local has_keys = in_record or redis.call('EXISTS', list) == 1
if permanent then
  erase_identity(workspace, record, id16, usage_retention_ms)
  redis.call('ZREM', name_of.identity_list(workspace), id16 .. external_id)
else
  deleted_records.put(workspace, 'i', id16 .. external_id, now + retention_ms)
  -- A key that is unlinked or deleted meanwhile is removed from the list.
  if in_record then
    redis.call('ZADD', list, 0, in_record)
    redis.call('HDEL', name_of.deleted_identity(workspace, id16), 'key')
  end
  if plan16 then redis.call('HSET', name_of.deleted_identity(workspace, id16), 'formerPlan', plan16) end
end
if has_keys then add_former(name_of.former_members(workspace, external_id), id16, now, usage_retention_ms) end
limit_list.note_ends(workspace, id16, identity.limits, {})
plans.unindex(workspace, identity.plan_id, id16)
audit(workspace, now, actor, 'identity', 'id_' .. id16, {
  { 'externalId', external_id },
  { 'meta', meta or nil },
  { 'permanent', nil, permanent or nil },
})
return 1
