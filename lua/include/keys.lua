-- What the scripts that manage keys share. Every reading function runs before the first write of its script.

-- A key (24) in the list of its API's keys: the first 16 of its id, packed, and its digest. A key's id ends as the id of its
-- API does, so the list also finds a key by its id and no further index is needed.
local function member_of_api(key24, digest) return pack_id(string.sub(key24, 1, 16)) .. digest end

-- The digest of the key with this id, or nil.
local function digest_of(workspace, key_id)
  local key24 = string.sub(key_id, 5)
  if #key24 ~= 24 or string.sub(key_id, 1, 4) ~= 'key_' then return nil end
  local id = pack_id(string.sub(key24, 1, 16))
  local member = id and redis.call('ZRANGE', key_list(workspace, string.sub(key24, 17)), '[' .. id, '+', 'BYLEX', 'LIMIT', 0, 1)[1]
  if member and string.sub(member, 1, PACKED_ID_BYTES) == id then return string.sub(member, PACKED_ID_BYTES + 1) end
end

-- The next keys (24) of an API in order of creation, after a key id (without `key_`) or '', and their digests.
local function keys_after(workspace, api8, after, count)
  -- What follows the id in a member is 32 bytes, none of which can be above this.
  local from = after == '' and '-' or '(' .. (pack_id(after) or '') .. string.rep('\255', 33)
  local keys, digests = {}, {}
  for index, member in ipairs(redis.call('ZRANGE', key_list(workspace, api8), from, '+', 'BYLEX', 'LIMIT', 0, count)) do
    keys[index], digests[index] = unpack_id(string.sub(member, 1, PACKED_ID_BYTES)) .. api8, string.sub(member, PACKED_ID_BYTES + 1)
  end
  return keys, digests
end

-- The id of a live API, or nil.
local function live_api(workspace, api_id)
  local id = redis.call('HGET', api_record(workspace, string.sub(api_id, -8)), 'id')
  if id == api_id then return id end
end

-- Reads a live key: its record's name and its state, refilled as of now. Nil when unknown, deleted, or of a deleted API.
local function load_key(workspace, digest, now)
  if not digest then return nil end
  local record = key_record(workspace, digest)
  local packed = redis.call('HGET', record, 'state')
  if not packed then return nil end
  local state = read_state(packed)
  if state.deleted then return nil end
  local api_id = redis.call('HGET', api_record(workspace, string.sub(state.id, 17)), 'id')
  if not api_id then return nil end
  apply_refill(state, now)
  return record, state, api_id
end

-- The identity that a key is linked to: its state and externalId, or nil when there is none or it was deleted.
local function identity_of(workspace, link)
  if link == '' then return nil end
  local external_id = string.sub(link, 17)
  local packed = redis.call('HGET', identity_record(workspace, external_id), 'state')
  if not packed or string.sub(packed, 1, 16) ~= string.sub(link, 1, 16) then return nil end
  return read_identity(packed), external_id
end

-- An identity as {id, externalId, meta or false, limits}.
local function show_identity(workspace, identity, external_id)
  return { identity.id, external_id, redis.call('HGET', identity_record(workspace, external_id), 'meta'), limit_rows(identity.limits) }
end

-- When a key was created is the time in its id. It is written only where that is another one: the clock had stepped back
-- (include/ids), or the key comes from elsewhere.
local function write_created(record, id, created)
  if created ~= time_in(id) then redis.call('HSET', record, 'created', int(created)) end
end

local function read_created(written, id) return written or int(time_in(id)) end

-- A script that shows several things ends early when it has come across so many parts (permissions, roles, limits, and each
-- 500 bytes of metadata): a few milliseconds.
local SHOWN_PARTS_MAX = 2000

local function parts_of_meta(meta) return meta and math.floor(#meta / 500) or 0 end

-- A key as {id, API id, enabled, expires or false, last used, limited, balance, refill amount or 0, refill day,
-- {start, created, updated, prefix, bytes, name, meta: each false where unset, but for created}, slugs, role names, limits, identity or false};
-- and how many parts these have in all.
local function show_key(workspace, record, state, api_id)
  local cold = redis.call('HMGET', record, 'start', 'created', 'updated', 'prefix', 'bytes', 'name', 'meta', 'direct', 'roles')
  local direct, roles = cold[8] or '', cold[9] or ''
  cold[8], cold[9] = nil, nil
  cold[2] = read_created(cold[2], state.id)
  local identity, external_id = identity_of(workspace, state.identity)
  local who = identity and show_identity(workspace, identity, external_id) or false
  local slugs, given = effective_slugs(workspace, direct, roles)
  local names = names_of_roles(workspace, roles)
  return { 'key_' .. state.id, api_id, state.enabled and 1 or 0, state.expires < NEVER and int(state.expires), int(state.last_used), state.limited and 1 or 0,
    int(state.balance), state.refilled and int(state.amount) or '0', state.refill_day, cold, slugs, names, limit_rows(state.limits), who },
    given + #names + #state.limits + parts_of_meta(cold[7]) + (who and #who[4] + parts_of_meta(who[3]) or 0)
end

-- Puts a refill rule (or none: nil) into a state. {interval, amount, refillDay}
local function set_refill(state, refill, now)
  state.refilled = refill ~= nil
  state.amount, state.refill_day, state.due = 0, 0, 0
  if refill then
    state.amount = refill.amount
    state.refill_day = refill.interval == 'monthly' and (refill.refillDay or 1) or 0
    state.due = refill_after(now, state.refill_day)
  end
end

-- Keeps the queue of refills in step with a state.
local function queue_refill(workspace, digest, state)
  if state.refilled then
    redis.call('ZADD', refill_queue(workspace), int(state.due), digest)
  else
    redis.call('ZREM', refill_queue(workspace), digest)
  end
end

-- The limits of a new owner, none of which has counted anything.
local function new_limits(wanted, next_id)
  local limits = {}
  for index, w in ipairs(wanted) do
    limits[index] = { limit = w.limit, duration = w.duration, auto = w.autoApply == true, name = w.name, id = next_id(), window = '' }
  end
  return limits
end

-- How long a counter waits for its limit to come back, at most.
local KEPT_DURATION_MAX = 30 * DAY_MS

-- Replaces limits by name: the same name keeps its id, and its count while the duration stays. A counter that no limit
-- of the owner has any longer goes on for itself until it expires, and comes back with its name and duration.
-- Answers the new limits, of which `name_limits` gives ids to those that are new, and for `keep_counters` the members of
-- counters that came back, and the counters that go on for themselves, no more than there is room for.
local function replace_limits(workspace, owner, old, wanted, now)
  local by_name, limits, taken, kept = {}, {}, {}, {}
  for _, l in ipairs(old) do by_name[l.name] = l end
  for index, w in ipairs(wanted) do
    local before = by_name[w.name]
    local limit = { limit = w.limit, duration = w.duration, auto = w.autoApply == true, name = w.name,
      id = before and before.id, window = '' }
    if before and before.duration == w.duration then
      limit.window = before.window
      by_name[w.name] = nil
    else
      local member = window_member(w.duration, w.name)
      limit.window = redis.call('GET', window_at(workspace, owner, member)) or ''
      if limit.window ~= '' then taken[#taken + 1] = member end
    end
    limits[index] = limit
  end
  for _, l in pairs(by_name) do
    if l.window ~= '' then kept[#kept + 1] = { window_member(l.duration, l.name), l.window, math.min(l.duration, KEPT_DURATION_MAX), true } end
  end
  if #kept > 0 then
    for last = #kept, math.max(0, counters_room(workspace, owner, now)) + 1, -1 do kept[last] = nil end
  end
  return limits, { taken = taken, kept = kept }
end

local function name_limits(limits, next_id)
  for _, l in ipairs(limits) do l.id = l.id or next_id() end
end

local function keep_counters(workspace, owner, counters, now)
  for _, member in ipairs(counters.taken) do
    redis.call('UNLINK', window_at(workspace, owner, member))
    redis.call('ZREM', window_list(workspace, owner), member)
  end
  if #counters.kept > 0 then write_counters(workspace, owner, counters.kept, now) end
end

-- The link of a key to an identity: sixteen characters of its id and its externalId; '' without one.
local function find_identity_link(workspace, external_id)
  local packed = redis.call('HGET', identity_record(workspace, external_id), 'state')
  return packed and string.sub(packed, 1, 16) .. external_id
end

local function create_identity(workspace, external_id, next_id, next_version)
  local id16 = next_id()
  redis.call('HSET', identity_record(workspace, external_id), 'state', pack_identity({ id = id16, version = next_version(), limits = {} }))
  redis.call('ZADD', identity_list(workspace), 0, id16 .. external_id)
  return id16 .. external_id
end

-- The keys of an identity. One of them stands in the identity's record, field `key`, and all others in its list: a key goes
-- to the record where that has none, whatever the list holds, and stays where it is until it leaves the identity. So an
-- identity with one key, as most have, has no list. Nobody outside of these functions knows of the two places, but for
-- src/store/analytics.ts.

-- A key (24) as it stands there: its API's last 8 first, so that the keys of one API follow one another.
local function member_under_identity(key24) return string.sub(key24, 17) .. string.sub(key24, 1, 16) end

-- `link` is that of a live identity, or ''.
local function index_under_identity(workspace, link, key24)
  if link == '' then return end
  local member = member_under_identity(key24)
  if redis.call('HSETNX', identity_record(workspace, string.sub(link, 17)), 'key', member) == 0 then
    redis.call('ZADD', identity_keys(workspace, string.sub(link, 1, 16)), 0, member)
  end
end

-- Looks where a key stands, before the script's first write; answers a function that takes it off there.
local function unindexing_under_identity(workspace, link, key24)
  if link == '' then return function() end end
  local record, member = identity_record(workspace, string.sub(link, 17)), member_under_identity(key24)
  -- The record may be that of a later identity with the same externalId: it never has this key.
  if redis.call('HGET', record, 'key') == member then return function() redis.call('HDEL', record, 'key') end end
  return function() redis.call('ZREM', identity_keys(workspace, string.sub(link, 1, 16)), member) end
end

-- Whether a text comes before another, byte by byte, as in a sorted set. Lua's `<` goes by the locale that Redis runs in.
local function comes_before(one, other)
  for position = 1, #one do
    local byte, other_byte = string.byte(one, position), string.byte(other, position)
    if byte ~= other_byte then return byte < other_byte end
  end
  return #one < #other
end

-- The next keys (24) of an identity in an API, in order of creation, after a key id (without `key_`) or ''.
local function identity_keys_after(workspace, link, api8, after, count)
  local last = after ~= '' and api8 .. string.sub(after, 1, 16)
  local members = redis.call('ZRANGE', identity_keys(workspace, string.sub(link, 1, 16)), last and '(' .. last or '[' .. api8, '(' .. api8 .. '~',
    'BYLEX', 'LIMIT', 0, count)
  local in_record = redis.call('HGET', identity_record(workspace, string.sub(link, 17)), 'key')
  if in_record and string.sub(in_record, 1, 8) == api8 and not (last and not comes_before(last, in_record)) then
    local at = 1
    while members[at] and comes_before(members[at], in_record) do at = at + 1 end
    table.insert(members, at, in_record)
  end
  local keys = {}
  for index = 1, math.min(count, #members) do keys[index] = string.sub(members[index], 9) .. api8 end
  return keys
end

-- Removes the record of an identity, and its counters. The list of its keys, all of them now, stays for `kept_ms`. True if it had any.
local function erase_identity(workspace, id16, external_id, kept_ms)
  local record, list = identity_record(workspace, external_id), identity_keys(workspace, id16)
  local in_record, counters = redis.call('HGET', record, 'key'), counters_of(workspace, id16)
  redis.call('UNLINK', record)
  erase_counters(workspace, id16, counters)
  redis.call('ZREM', identity_list(workspace), id16 .. external_id)
  if in_record then redis.call('ZADD', list, 0, in_record) end
  return redis.call('PEXPIRE', list, int(kept_ms)) == 1
end

-- The numbers of role names, or nil and the name that does not exist.
local function find_roles(workspace, names)
  if #names == 0 then return '' end
  local numbers, seen = {}, {}
  for index, number in ipairs(redis.call('HMGET', role_numbers(workspace), unpack(names))) do
    if not number then return nil, names[index] end
    if not seen[number] then
      seen[number] = true
      numbers[#numbers + 1] = number
    end
  end
  return as_list(numbers)
end

-- The numbers of slugs as a table slug -> number, and the slugs that do not exist, each once.
local function find_permissions(workspace, slugs)
  local numbers, missing = {}, {}
  for first = 1, #slugs, 1000 do
    local last = math.min(first + 999, #slugs)
    for index, number in ipairs(redis.call('HMGET', permission_numbers(workspace), unpack(slugs, first, last))) do
      local slug = slugs[first + index - 1]
      if number then
        numbers[slug] = number
      elseif numbers[slug] == nil then
        numbers[slug] = false
        missing[#missing + 1] = slug
      end
    end
  end
  return numbers, missing
end

local function create_permission(workspace, slug, name, description, id16)
  local number = redis.call('HINCRBY', workspace, 'permissions', 1)
  redis.call('HSET', permission_numbers(workspace), slug, number)
  redis.call('HSET', permission_slugs(workspace), number, slug)
  redis.call('HSET', permission_record(workspace, number), 'id', 'perm_' .. id16, 'slug', slug, 'name', name)
  if description then redis.call('HSET', permission_record(workspace, number), 'description', description) end
  redis.call('ZADD', permission_list(workspace), 0, id16 .. number)
  return number
end

-- Makes permissions that are called as their slugs are, and adds their numbers to `numbers` (slug -> number).
local function create_permissions(workspace, slugs, numbers, next_id)
  if #slugs == 0 then return end
  local before = redis.call('HINCRBY', workspace, 'permissions', #slugs) - #slugs
  for first = 1, #slugs, 1000 do
    local by_slug, by_number, members = {}, {}, {}
    for index = first, math.min(first + 999, #slugs) do
      local slug, number, id16 = slugs[index], before + index, next_id()
      numbers[slug] = number
      redis.call('HSET', permission_record(workspace, number), 'id', 'perm_' .. id16, 'slug', slug, 'name', slug)
      local at = #by_slug
      by_slug[at + 1], by_slug[at + 2] = slug, number
      by_number[at + 1], by_number[at + 2] = number, slug
      members[at + 1], members[at + 2] = 0, id16 .. number
    end
    redis.call('HSET', permission_numbers(workspace), unpack(by_slug))
    redis.call('HSET', permission_slugs(workspace), unpack(by_number))
    redis.call('ZADD', permission_list(workspace), unpack(members))
  end
end

-- Slugs as a list of numbers (`,3,17,`), each once, in the order given; '' for none.
local function list_of(slugs, numbers)
  local list, seen = {}, {}
  for _, slug in ipairs(slugs) do
    if not seen[slug] then
      seen[slug] = true
      list[#list + 1] = numbers[slug]
    end
  end
  return as_list(list)
end

-- Writes a field, or removes it where the value is '' or false.
local function write_field(record, field, value)
  if value and value ~= '' then redis.call('HSET', record, field, value) else redis.call('HDEL', record, field) end
end

-- Removes every trace of a key but its usage history. Reads before it writes, so it comes before an operation's other writes.
-- Returns how many counters it had, and how many records went: 0 or 1, which the caller counts.
local function erase_key(workspace, digest, state)
  local unindex, counters = unindexing_under_identity(workspace, state.identity, state.id), counters_of(workspace, state.id)
  local erased = redis.call('UNLINK', key_record(workspace, digest))
  redis.call('ZREM', key_list(workspace, string.sub(state.id, 17)), member_of_api(state.id, digest))
  redis.call('ZREM', refill_queue(workspace), digest)
  unindex()
  erase_counters(workspace, state.id, counters)
  return #counters, erased
end
