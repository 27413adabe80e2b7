-- The number of records of a workspace: APIs, keys, identities, namespaces, overrides, permissions, roles and root keys. Keys and
-- overrides are in one list per API and namespace, so they are counted in two fields of the workspace: `key_records` (with deleted
-- keys until their record is removed) and `override_records`. A workspace of an earlier version has no such fields: the records
-- are counted when the next one is created, or by the sweeper's first count, and not updated before. A field is the number plus
-- one, so that the reply of HINCRBY shows whether the field existed, without a read.

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

-- Whether `more` records can be created in a workspace with a limit of `records_max`; 0 is no limit.
local function has_room_for_records(workspace, more, records_max)
  return more == 0 or records_max == 0 or records_of(workspace) + more <= records_max
end

-- Counts keys and overrides of a workspace that has no counts yet.
local function count_records(workspace)
  if redis.call('HEXISTS', workspace, 'key_records') == 1 then return end
  local keys, all_overrides = redis.call('ZCARD', purge_queue(workspace)) + 1, 1
  for _, api8 in ipairs(redis.call('LRANGE', dead_apis(workspace), 0, -1)) do
    keys = keys + redis.call('ZCARD', key_list(workspace, api8))
  end
  for _, id16 in ipairs(redis.call('ZRANGE', api_list(workspace), 0, -1)) do
    keys = keys + redis.call('ZCARD', key_list(workspace, string.sub(id16, 9)))
  end
  -- The id (16), followed by further characters if the namespace has overrides.
  for _, namespace in ipairs(redis.call('HVALS', namespace_ids(workspace))) do
    if #namespace > 16 then
      all_overrides = all_overrides + redis.call('ZCARD', override_list(workspace, string.sub(namespace, 1, 16)))
    end
  end
  set_fields(workspace, { key_records = keys, override_records = all_overrides })
end

-- Ends the script with an error (read in src/store/redis.ts) if `more` records would be too many. Call it before the first write.
local function require_room(workspace, actor, more)
  -- The whole of it is decoded by `audit` only, as that takes some microseconds.
  local records_max = tonumber(string.match(actor, '"recordsMax":(%d+)'))
  if more > 0 and records_max > 0 then count_records(workspace) end
  if not has_room_for_records(workspace, more, records_max) then error({ err = 'RECORDS ' .. records_max }) end
end

-- Updates a count in the script that makes the change. `field` is 'key_records' or 'override_records'.
local function add_records(workspace, field, change)
  if change ~= 0 and redis.call('HINCRBY', workspace, field, change) == change then
    redis.call('HDEL', workspace, field)
  end
end
