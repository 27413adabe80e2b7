#!lua flags=no-writes
-- Of some keys, those that a filter matches. It ends early when the keys have large metadata or many permissions or limits, so that
-- Redis is not blocked.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  key, API and identity records, permissions, roles, the purge queue
-- ARGV[1]  keys       of each its digest (32 bytes); or its packed id and the last 8 characters of the id of its API, if it is
--                     returned only when its string begins with filter.start
-- ARGV[2]  key_bytes  the length of each: 32 or 20
-- ARGV[3]  filter     JSON of KeyFilter (src/store/keySearch.ts); `search` in lower case
-- ARGV[4]  wanted     limit of the keys to return
-- ARGV[5]  now_ms     '' for Redis's clock
-- returns  {{KeyReply (src/store/records.ts)…}, the number of keys that were examined, 0 if no key can match, else 1}

-- @include "include/clock"
-- @include "include/fields"
-- @include "include/identities"
-- @include "include/ids"
-- @include "include/keyRecords"
-- @include "include/names"
-- @include "include/reply"
-- @include "include/starts"
-- @include "include/state"

local workspace, given, key_bytes, filter, wanted, now =
  KEYS[1], ARGV[1], tonumber(ARGV[2]), cjson.decode(ARGV[3]), tonumber(ARGV[4]), now_ms(ARGV[5])
local is_deleted = filter.deleted == true
-- What the script may read: a key counts as one, and each 500 bytes of metadata or lists as another.
local WORK_MAX = 3000

local permission = filter.permission and redis.call('HGET', permission_numbers(workspace), filter.permission)
local role = filter.role and redis.call('HGET', role_numbers(workspace), filter.role)
if filter.permission and not permission or filter.role and not role then return { {}, #given / key_bytes, 0 } end
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

local bits = KEY_FLAGS
local function has_flag(packed, name)
  local bit = bits[name]
  return string.byte(packed, KEY_FIXED_FLAGS_AT) % (bit + bit) >= bit
end

-- The filters, cheapest first. Each gets the packed state and the fields of the record by name. Those that most keys fail read only
-- their part of the state: making a table of every state would take most of the time.
local filters = {}
local function add_filter(value, matches)
  if value ~= nil and value ~= false then filters[#filters + 1] = matches end
end
add_filter(filter.enabled ~= nil, function(packed) return has_flag(packed, 'enabled') == filter.enabled end)
-- The list of an identity has its keys only, but deleted keys are in no such list.
add_filter(
  is_deleted and filter.externalId,
  function(packed) return external_id_of(read_state(packed).link) == filter.externalId end
)
add_filter(
  filter.expiresBefore,
  function(packed) return struct.unpack('>I6', packed, KEY_FIXED_EXPIRES_AT) < filter.expiresBefore end
)
add_filter(filter.unusedSince, function(packed, fields)
  local _, _, last_used = struct.unpack(KEY_LIVE, packed, #packed - KEY_TAIL_LENGTH + 1)
  -- The state begins with the id.
  local used = last_used > 0 and last_used or tonumber(fields.created or time_in(packed))
  return used < filter.unusedSince
end)
add_filter(filter.creditsBelow, function(packed)
  if not has_flag(packed, 'limited') then return false end
  local state = read_state(packed)
  apply_refill(state, now)
  return state.balance < filter.creditsBelow
end)
add_filter(role, function(_, fields) return fields.roles and string.find(fields.roles, role, 1, true) ~= nil end)
add_filter(permission, function(_, fields) return is_permitted(fields.direct, fields.roles) end)
add_filter(filter.search, function(packed, fields)
  local state = read_state(packed)
  return contains(fields.start)
    or contains(fields.name)
    or contains('key_' .. state.id)
    or contains(external_id_of(state.link)) and identity_of(workspace, state.link) ~= nil
    or contains(fields.meta)
end)

local function matches(record)
  if #filters == 0 then return true end
  local fields = #names == 1 and { state = redis.call('HGET', record, 'state') } or read_fields(record, unpack(names))
  if not fields.state then return false end
  for _, value in pairs(fields) do
    add_work(value)
  end
  for _, is_match in ipairs(filters) do
    if not is_match(fields.state, fields) then return false end
  end
  return true
end

-- The digest of a key, or nil if it is not in the list or begins with another text.
local function digest_at(index)
  local key = string.sub(given, index * key_bytes + 1, (index + 1) * key_bytes)
  if key_bytes == 32 then return key end
  local list_of_api = is_deleted and deleted_keys or key_list
  local list = list_of_api(workspace, string.sub(key, PACKED_ID_BYTES + 1))
  return digest_with_start(workspace, list, string.sub(key, 1, PACKED_ID_BYTES), filter.start)
end

local keys, examined, parts, count = {}, 0, 0, #given / key_bytes
while examined < count and #keys < wanted and parts < REPLY_PARTS_MAX and work < WORK_MAX do
  local digest = digest_at(examined)
  examined, work = examined + 1, work + 1
  if digest and matches(key_record(workspace, digest)) then
    local record, state, api_id = load_key(workspace, digest, now, is_deleted)
    if record then
      local key, key_parts = key_reply(workspace, record, state, api_id)
      key.restorableUntil = is_deleted and redis.call('ZSCORE', purge_queue(workspace), digest)
      keys[#keys + 1], parts = named(key), parts + key_parts
    end
  end
end
return { keys, examined, 1 }
