-- Create an API, a container of keys.
--
-- derives  API record and list, the deleted record, key list, the list of dead APIs, the audit stream
-- ARGV[1]  name
-- ARGV[2]  kept_id     the id of an exported API, without `api_`; '' for a new id
-- ARGV[3]  created_ms  its time of creation, Unix milliseconds; '' for now
-- returns  the API's id, or false when an API has the kept id, or a deleted one that was not removed yet

local workspace, name, kept_id, created, actor, now =
  KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], now_ms(ARGV[5])

-- Whether an API has these last 8 characters, or a deleted one that was not removed yet.
local function is_taken(api8)
  local records = redis.call(
    'EXISTS',
    name_of.api_record(workspace, api8),
    name_of.deleted_api(workspace, api8),
    name_of.key_list(workspace, api8)
  )
  return records > 0 or redis.call('LPOS', name_of.dead_apis(workspace), api8)
end

-- A new id. An imported API may have the next number, and so may many after it.
local function new_id(stamps)
  local next_id, _, reserve = take_stamps(workspace, now, stamps, true)
  for _ = 1, stamps do
    local id16 = next_id()
    if not is_taken(string.sub(id16, 9)) then
      reserve()
      return id16
    end
  end
  return new_id(16 * stamps)
end

if kept_id ~= '' and is_taken(string.sub(kept_id, 9)) then return false end
require_room(workspace, actor, 1)
local id16 = kept_id ~= '' and kept_id or new_id(1)
set_fields(
  name_of.api_record(workspace, string.sub(id16, 9)),
  { id = 'api_' .. id16, name = name, created = int(created or now) }
)
redis.call('ZADD', name_of.api_list(workspace), 0, id16)
audit(workspace, now, actor, 'api', 'api_' .. id16, { { 'name', nil, name } })
return 'api_' .. id16
