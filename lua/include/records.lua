-- How many records a workspace has: APIs, keys, identities, namespaces, overrides, permissions, roles and root keys. Keys and
-- overrides are in as many lists as there are APIs and namespaces, so they are counted in the workspace's fields `key_records`
-- (deleted ones as long as their record stays) and `override_records`. A workspace that an earlier version made has no such fields:
-- what is there is counted when something is next made, or by the sweeper's first count; nothing is added up before. The fields
-- hold one more than there are, so that a field that was not there shows by what HINCRBY returns, and nothing has to be read.

-- @include "include/fields"
-- @include "include/names"

local function records_of(workspace)
  local sum = 0
  for _, count in ipairs(redis.call('HMGET', workspace, 'key_records', 'override_records')) do
    sum = sum + (tonumber(count) or 1) - 1
  end
  local lists, hash = record_lists(workspace)
  for _, list in ipairs(lists) do
    sum = sum + redis.call('ZCARD', list)
  end
  return sum + redis.call('HLEN', hash)
end

-- May so many records be added where a workspace has at most `records_max`? 0 is no bound.
local function has_room_for_records(workspace, more, records_max)
  return more == 0 or records_max == 0 or records_of(workspace) + more <= records_max
end

-- Counts keys and overrides where that was not done yet.
local function count_records(workspace)
  if redis.call('HEXISTS', workspace, 'key_records') == 1 then return end
  local keys, all_overrides = redis.call('ZCARD', purge_queue(workspace)) + 1, 1
  for _, api8 in ipairs(redis.call('LRANGE', dead_apis(workspace), 0, -1)) do
    keys = keys + redis.call('ZCARD', key_list(workspace, api8))
  end
  for _, id16 in ipairs(redis.call('ZRANGE', api_list(workspace), 0, -1)) do
    keys = keys + redis.call('ZCARD', key_list(workspace, string.sub(id16, 9)))
  end
  -- Sixteen characters of the id, and more where it has overrides.
  for _, namespace in ipairs(redis.call('HVALS', namespace_ids(workspace))) do
    if #namespace > 16 then
      all_overrides = all_overrides + redis.call('ZCARD', override_list(workspace, string.sub(namespace, 1, 16)))
    end
  end
  set_fields(workspace, { key_records = keys, override_records = all_overrides })
end

-- Ends the script where so many more records are too many (src/store/redis.ts has the error): before its first write.
local function require_room(workspace, actor, more)
  local records_max = cjson.decode(actor).recordsMax
  if more > 0 and records_max > 0 then count_records(workspace) end
  if not has_room_for_records(workspace, more, records_max) then error({ err = 'RECORDS ' .. records_max }) end
end

-- Brings a count in step with a change, in the script that makes it. `field` is 'key_records' or 'override_records'.
local function add_records(workspace, field, change)
  if change ~= 0 and redis.call('HINCRBY', workspace, field, change) == change then
    redis.call('HDEL', workspace, field)
  end
end
