#!lua flags=no-writes
-- Of some keys, those that a filter matches. It ends early when the keys have large metadata or many permissions or limits, so that
-- Redis is not blocked.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  key, API and identity records, permissions, roles, the purge queue
-- ARGV[1]  digests    32 bytes each
-- ARGV[2]  filter     JSON of KeyFilter (src/store/keySearch.ts); `search` in lower case, `start` is ignored
-- ARGV[3]  wanted     limit of the keys to return
-- ARGV[4]  now_ms     '' for Redis's clock
-- returns  {{KeyReply (src/store/records.ts)…}, the number of keys that were examined, 0 if no key can match, else 1}

-- @include "include/clock"
-- @include "include/fields"
-- @include "include/identities"
-- @include "include/ids"
-- @include "include/keyRecords"
-- @include "include/names"
-- @include "include/reply"
-- @include "include/state"

local workspace, digests, filter, wanted, now =
  KEYS[1], ARGV[1], cjson.decode(ARGV[2]), tonumber(ARGV[3]), now_ms(ARGV[4])
local is_deleted = filter.deleted == true
-- What the script may read: a key counts as one, and each 500 bytes of metadata or lists as another.
local WORK_MAX = 3000

local permission = filter.permission and redis.call('HGET', permission_numbers(workspace), filter.permission)
local role = filter.role and redis.call('HGET', role_numbers(workspace), filter.role)
if filter.permission and not permission or filter.role and not role then return { {}, #digests / 32, 0 } end
permission, role = permission and ',' .. permission .. ',', role and ',' .. role .. ','

local names = { 'state' }
local function needs(condition, ...)
  for _, name in ipairs(condition and { ... } or {}) do
    names[#names + 1] = name
  end
end
needs(filter.unusedSince, 'created')
needs(filter.search, 'start', 'name', 'meta')
needs(permission or role, 'roles')
needs(permission, 'direct')

local work = 0
local function add_work(text) work = work + (text and #text / 500 or 0) end

local function contains(text) return text and string.find(string.lower(text), filter.search, 1, true) ~= nil end

-- Whether roles have the permission, by their numbers.
local roles_with = {}
local function role_has(number)
  if roles_with[number] == nil then
    local list = redis.call('HGET', role_permissions(workspace), number) or ''
    add_work(list)
    roles_with[number] = string.find(list, permission, 1, true) ~= nil
  end
  return roles_with[number]
end

local function is_permitted(direct, roles)
  if direct and string.find(direct, permission, 1, true) then return true end
  for number in string.gmatch(roles or '', '%d+') do
    if role_has(number) then return true end
  end
  return false
end

-- The filters, cheapest first. Each gets the state and the fields of the record by name.
local filters = {}
local function add_filter(value, matches)
  if value ~= nil and value ~= false then filters[#filters + 1] = matches end
end
add_filter(filter.enabled ~= nil, function(state) return state.enabled == filter.enabled end)
-- The list of an identity has its keys only, but deleted keys are in no such list.
add_filter(is_deleted and filter.externalId, function(state) return external_id_of(state.link) == filter.externalId end)
add_filter(filter.expiresBefore, function(state) return state.expires < filter.expiresBefore end)
add_filter(filter.unusedSince, function(state, fields)
  local used = state.last_used > 0 and state.last_used or tonumber(fields.created or time_in(state.id))
  return used < filter.unusedSince
end)
add_filter(filter.creditsBelow, function(state)
  apply_refill(state, now)
  return state.limited and state.balance < filter.creditsBelow
end)
add_filter(role, function(_, fields) return fields.roles and string.find(fields.roles, role, 1, true) ~= nil end)
add_filter(permission, function(_, fields) return is_permitted(fields.direct, fields.roles) end)
add_filter(
  filter.search,
  function(state, fields)
    return contains(fields.start)
      or contains(fields.name)
      or contains('key_' .. state.id)
      or contains(external_id_of(state.link)) and identity_of(workspace, state.link) ~= nil
      or contains(fields.meta)
  end
)

local function matches(record)
  if #filters == 0 then return true end
  local fields = read_fields(record, unpack(names))
  if not fields.state then return false end
  for _, value in pairs(fields) do
    add_work(value)
  end
  local state = read_state(fields.state)
  for _, is_match in ipairs(filters) do
    if not is_match(state, fields) then return false end
  end
  return true
end

local keys, examined, parts, count = {}, 0, 0, #digests / 32
while examined < count and #keys < wanted and parts < REPLY_PARTS_MAX and work < WORK_MAX do
  local digest = string.sub(digests, examined * 32 + 1, examined * 32 + 32)
  examined, work = examined + 1, work + 1
  if matches(key_record(workspace, digest)) then
    local record, state, api_id = load_key(workspace, digest, now, is_deleted)
    if record then
      local key, key_parts = key_reply(workspace, record, state, api_id)
      key.restorableUntil = is_deleted and redis.call('ZSCORE', purge_queue(workspace), digest)
      keys[#keys + 1], parts = named(key), parts + key_parts
    end
  end
end
return { keys, examined, 1 }
