-- The number of records of a workspace, of all kinds (src/domain/records.ts). Keys and overrides are in one list per
-- API and namespace, so they are counted in two fields of the workspace: `key_records` (with deleted keys until their
-- record is removed) and `override_records`. A field is the number plus one, as all stored data has it.

local function records_of(workspace)
  local sum = 0
  for _, count in ipairs(redis.call('HMGET', workspace, 'key_records', 'override_records')) do
    sum = sum + (tonumber(count) or 1) - 1
  end
  local lists, hash = name_of.record_lists(workspace)
  for _, list in ipairs(lists) do
    sum = sum + redis.call('ZCARD', list)
  end
  return sum + redis.call('HLEN', hash)
end

-- Whether `more` records can be created in a workspace with a limit of `records_max`; 0 is no limit.
local function has_room_for_records(workspace, more, records_max)
  return more == 0 or records_max == 0 or records_of(workspace) + more <= records_max
end

-- Ends the script with an error (read in src/redis/connection.ts) if `more` records would be too many. Call it before
-- the first write.
local function require_room(workspace, actor, more)
  -- The whole of it is decoded by `audit` only, as that takes some microseconds.
  local records_max = tonumber(string.match(actor, '"recordsMax":(%d+)'))
  if not has_room_for_records(workspace, more, records_max) then error({ err = 'RECORDS ' .. records_max }) end
end

-- Updates a count in the script that makes the change. `field` is 'key_records' or 'override_records'.
local function add_records(workspace, field, change)
  if change ~= 0 then redis.call('HINCRBY', workspace, field, change) end
end
