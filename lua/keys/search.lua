#!lua flags=no-writes
-- Examine some keys: find those that each of several filters matches. It ends when one of them has all keys that it
-- wants; and early when the keys have large metadata or many permissions or limits, so that Redis is not blocked.
--
-- derives  lists of keys and deleted keys, key, API and identity records, permissions, roles, the purge queue
-- ARGV[1]  keys       of each its digest (32 bytes); or its packed id and the last 8 characters of the id of its API
--                     (20); or before these its expiry (26). A key that has another expiry is not returned, and in the
--                     last two forms one whose string does not begin with `start`
-- ARGV[2]  key_bytes  the length of each
-- ARGV[3]  filters    JSON [a filter of keys.listKeys with `wanted`, a limit of keys…]; `search` in lower case;
--                     `deleted` and `start` are those of the first filter
-- returns  {the number of keys that were examined, then for each filter {1 if a key can match, else 0; KeyReply
--          (src/records/records.ts)…}}

local workspace, given, key_bytes, filters, now =
  KEYS[1], ARGV[1], tonumber(ARGV[2]), cjson.decode(ARGV[3]), now_ms(ARGV[4])
local is_deleted, start = filters[1].deleted == true, filters[1].start
local DIGEST_BYTES, EXPIRES_BYTES = 32, 6
local has_expiry = key_bytes == EXPIRES_BYTES + PACKED_ID_BYTES + 8
-- The limit of reads: a key counts as one, and each 500 bytes of metadata or lists as another. With a long text to
-- search for, fewer bytes do: Lua compares all of it wherever its first letter is.
local WORK_MAX = 1000
local BYTES_OF_WORK = 32000 / (64 + #(filters[1].search or ''))

-- The fields to read of a record, and their positions.
local names, position = { 'state' }, {}
local function needs(condition, ...)
  for _, name in ipairs(condition and { ... } or {}) do
    if not position[name] then
      names[#names + 1] = name
      position[name] = #names
    end
  end
end

local work = 0
local function add_work(text) work = work + (text and #text / BYTES_OF_WORK or 0) end

-- Whether a list of permissions of a role has one, by their numbers.
local roles_with = {}
local function role_has(role, permission)
  local id = role .. permission
  if roles_with[id] == nil then
    local list = redis.call('HGET', name_of.role_permissions(workspace), role) or ''
    add_work(list)
    roles_with[id] = string.find(list, permission, 1, true) ~= nil
  end
  return roles_with[id]
end

local function is_permitted(permission, direct, roles)
  if direct and string.find(direct, permission, 1, true) then return true end
  for number in string.gmatch(roles or '', '%d+') do
    if role_has(number, permission) then return true end
  end
  return false
end

local bits = KEY_FLAGS
local function has_flag(packed, name)
  local bit = bits[name]
  return string.byte(packed, KEY_FIXED_FLAGS_AT) % (bit + bit) >= bit
end

-- Whether a plan that is wanted does not exist: deleted keys may still have its name.
local function is_gone(plan_id) return plan_id and not plans.find(workspace, plan_id) end

-- A check for a plan. A deleted key may have had another one with its name (plans.named).
local function plan_check(id)
  local id16 = plans.find(workspace, id)
  return function(_, values) return values[position.planId] == id and (values[position.formerPlan] or id16) == id16 end
end

-- A list with this number in a list of numbers.
local function listed(number) return ',' .. number .. ',' end

local function expires_of(packed) return struct.unpack(KEY_EXPIRES, packed, KEY_FIXED_EXPIRES_AT) end

local function last_used_of(packed)
  local _, _, last_used = struct.unpack(KEY_LIVE, packed, #packed - KEY_TAIL_LENGTH + 1)
  return last_used
end

-- Whether a key that can still be used was used after its successor was created.
local function is_used_after(packed, successor)
  if not successor or not has_flag(packed, 'enabled') or expires_of(packed) <= now then return false end
  return last_used_of(packed) > time_in(string.sub(successor, #'key_' + 1))
end

-- The checks of a filter, cheapest first; nil if no key can pass them. Each gets the packed state and the values of
-- `names`. Checks that most keys fail read only their part of the state: making a table of every state would take most
-- of the time.
local function checks_of(filter)
  local permission = filter.permission and redis.call('HGET', name_of.permission_numbers(workspace), filter.permission)
  local role = filter.role and redis.call('HGET', name_of.role_numbers(workspace), filter.role)
  if filter.permission and not permission or filter.role and not role or is_gone(filter.planId) then return nil end
  -- Keys by their expiry are those of all identities.
  local link = has_expiry and filter.externalId and find_identity_link(workspace, filter.externalId)
  if has_expiry and filter.externalId and not link then return nil end
  permission, role = permission and listed(permission), role and listed(role)
  needs(filter.unusedSince, 'created')
  needs(filter.rerolledInUse ~= nil, 'successor')
  needs(filter.planId, 'planId', 'formerPlan')
  needs(filter.search, 'start', 'name', 'meta')
  needs(permission or role, 'roles')
  needs(permission, 'direct')

  local checks = {}
  local function add(value, check)
    if value ~= nil and value ~= false then checks[#checks + 1] = check end
  end
  add(filter.enabled ~= nil, function(packed) return has_flag(packed, 'enabled') == filter.enabled end)
  -- The list of an identity has its keys only, but deleted keys are in no such list.
  add(
    is_deleted and filter.externalId,
    function(packed) return external_id_of(read_state(packed).link) == filter.externalId end
  )
  add(link, function(packed) return struct.unpack('>I2c0', packed, KEY_LINK_AT) == link end)
  add(filter.expiresBefore, function(packed) return expires_of(packed) < filter.expiresBefore end)
  add(filter.expiresAfter, function(packed) return expires_of(packed) >= filter.expiresAfter end)
  -- Ids begin with their time, and sort by it.
  local first_id = filter.unusedSince and base58_8(filter.unusedSince)
  add(filter.unusedSince, function(packed, values)
    local last_used = last_used_of(packed)
    if last_used > 0 then return last_used < filter.unusedSince end
    local created = values[position.created]
    if created then return tonumber(created) < filter.unusedSince end
    -- The state begins with the id.
    return string.sub(packed, 1, #first_id) < first_id
  end)
  add(
    filter.rerolledInUse ~= nil,
    function(packed, values) return is_used_after(packed, values[position.successor]) == filter.rerolledInUse end
  )
  add(filter.creditsBelow, function(packed)
    if not has_flag(packed, 'limited') then return false end
    local state = read_state(packed)
    apply_refill(state, now)
    -- The balance that a key draws on is that of another one.
    if state.draws then return false end
    return state.balance < filter.creditsBelow
  end)
  add(filter.planId, plan_check(filter.planId))
  add(role, function(_, values)
    local roles = values[position.roles]
    return roles and string.find(roles, role, 1, true) ~= nil
  end)
  add(
    permission,
    function(_, values) return is_permitted(permission, values[position.direct], values[position.roles]) end
  )
  local function contains(text) return text and string.find(string.lower(text), filter.search, 1, true) ~= nil end
  add(filter.search, function(packed, values)
    local state = read_state(packed)
    return contains(values[position.start])
      or contains(values[position.name])
      or contains('key_' .. state.id)
      or contains(external_id_of(state.link)) and identity_of(workspace, state.link) ~= nil
      or contains(values[position.meta])
  end)
  return checks
end

-- The filters that a key can pass: their checks, their replies, and how many keys they want.
local searches, replies = {}, {}
for index, filter in ipairs(filters) do
  local checks = checks_of(filter)
  replies[index] = { checks and 1 or 0 }
  if checks then searches[#searches + 1] = { checks = checks, reply = replies[index], wanted = filter.wanted } end
end
-- Without a check the record need not be read to know that a key matches.
local reads, names_count = #searches > 1 or searches[1] and #searches[1].checks > 0, #names

local function read(record)
  if names_count == 1 then return { redis.call('HGET', record, 'state') } end
  return redis.call('HMGET', record, unpack(names))
end

local function passes(checks, packed, values)
  for index = 1, #checks do
    if not checks[index](packed, values) then return false end
  end
  return true
end

-- The searches that a key with this expiry (nil: with any) matches; nil for none.
local function matching(record, expires)
  if not reads then return searches end
  local values = read(record)
  local packed, found = values[1], nil
  if not packed or expires and expires_of(packed) ~= expires then return nil end
  for index = 1, names_count do
    local value = values[index]
    if value then work = work + #value / BYTES_OF_WORK end
  end
  for index = 1, #searches do
    local search = searches[index]
    if passes(search.checks, packed, values) then
      found = found or {}
      found[#found + 1] = search
    end
  end
  return found
end

-- The digest of a key, or nil if it is not in the list or begins with another text; and its expiry if that is given.
local function key_at(index)
  local key = string.sub(given, index * key_bytes + 1, (index + 1) * key_bytes)
  if key_bytes == DIGEST_BYTES then return key end
  local expires
  if has_expiry then
    expires, key = struct.unpack(KEY_EXPIRES, key), string.sub(key, EXPIRES_BYTES + 1)
  end
  local list_of_api = is_deleted and name_of.deleted_keys or name_of.key_list
  local list, id = list_of_api(workspace, string.sub(key, PACKED_ID_BYTES + 1)), string.sub(key, 1, PACKED_ID_BYTES)
  if start then return digest_with_start(workspace, list, id, start), expires end
  return digest_after(list, id), expires
end

local examined, parts, count, is_full = 0, 0, #given / key_bytes, false

-- Adds a key to the replies of these searches, if it exists.
local function add_to(found, digest)
  local record, state, api_id = load_key(workspace, digest, now, is_deleted)
  if not record then return end
  local key, key_parts = key_reply(workspace, record, state, api_id, now)
  local reply = named(key)
  for _, search in ipairs(found) do
    search.reply[#search.reply + 1], parts = reply, parts + key_parts
    is_full = is_full or #search.reply > search.wanted
  end
end

local record_prefix = name_of.key_record(workspace, '')
if #searches == 0 then examined = count end
while examined < count and not is_full and parts < REPLY_PARTS_MAX and work < WORK_MAX do
  local digest, expires = key_at(examined)
  examined, work = examined + 1, work + 1
  local found = digest and matching(record_prefix .. digest, expires)
  if found then add_to(found, digest) end
end
return { examined, unpack(replies) }
