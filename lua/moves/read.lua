#!lua flags=no-writes
-- Everything that is stored of keys that are on their way to another workspace, except their usage.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  key and identity records, windows and their lists, holds that were settled, lists of former keys
-- ARGV[1]  digests    32 bytes each
-- ARGV[2]  bytes_max  after this many bytes no further key is read
-- ARGV[3]  now_ms     '' for Redis's clock
-- returns  {number of digests that were read, {for each of them that is on its way {digest, key id (without `key_`),
--          link, hour of its deletion or '', fields, windows, settled, identity}}}: `fields` are name, value, …;
--          `windows` member, value, milliseconds to live, …; `settled` the same by hour; `identity` {} or
--          {externalId, id (16), fields, windows}

-- @include "include/clock"
-- @include "include/counters"
-- @include "include/identities"
-- @include "include/moves"
-- @include "include/names"
-- @include "include/state"

local workspace, digests, bytes_max, now = KEYS[1], moves.digests(ARGV[1]), tonumber(ARGV[2]), now_ms(ARGV[3])

local bytes = 0
local function counted(list)
  for _, value in ipairs(list) do
    bytes = bytes + #value
  end
  return list
end

local function add_record(list, field, name)
  local value, ttl = redis.call('GET', name), redis.call('PTTL', name)
  if value and ttl > 0 then
    local at = #list
    list[at + 1], list[at + 2], list[at + 3] = field, value, int(ttl)
  end
end

local function windows_of(owner)
  local windows = {}
  for _, member in ipairs(counters_of(workspace, owner)) do
    add_record(windows, member, name_of.window_at(workspace, owner, member))
  end
  return counted(windows)
end

-- Of an identity that was returned with a key before, the fields and windows are empty.
local seen = {}
local function identity_with(link)
  local identity, external_id = identity_of(workspace, link)
  if not identity then return {} end
  if seen[external_id] then return { external_id, identity.id16, {}, {} } end
  seen[external_id] = true
  local fields = counted(redis.call('HGETALL', name_of.identity_record(workspace, external_id)))
  return { external_id, identity.id16, fields, windows_of(identity.id16) }
end

local keys, read = {}, 0
while read < #digests and bytes < bytes_max do
  read = read + 1
  local digest = digests[read]
  local record = name_of.key_record(workspace, digest)
  if redis.call('HEXISTS', record, 'moved') == 1 then
    local fields, hour = counted(redis.call('HGETALL', record)), math.floor(now / HOUR_MS)
    local state = read_state(redis.call('HGET', record, 'state'))
    local _, restorable_until = moves.noted(redis.call('HGET', record, 'moved'))
    local settled = {}
    for past = hour - 4, hour + 1 do
      add_record(settled, int(past), name_of.settled_holds(workspace, state.id, int(past)))
    end
    local deleted_hour = restorable_until
      and redis.call('ZSCORE', name_of.former_keys(workspace, string.sub(state.id, 17)), state.id)
    local identity = restorable_until and {} or identity_with(state.link)
    keys[#keys + 1] =
      { digest, state.id, state.link, deleted_hour or '', fields, windows_of(state.id), counted(settled), identity }
  end
end
return { read, keys }
