#!lua flags=no-writes
-- The usage of keys: their days, their logs, and the current hour in their states. One script reads all three, because
-- counts that move between two reads would be read twice or not at all.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  key lists and records, logs and days of keys
-- ARGV[1]  keys       of a few hundred keys at most, each its id without `key_` (24) and the first 16 of it packed (12)
-- ARGV[2]  first_day  no earlier day is wanted: the days of keys are not read, and '', if they have none from it on
-- ARGV[3]  bytes_max  after this many bytes the remaining keys are left to the next call
-- returns  for each key that was read KEY_USAGE, then its days (src/usage/days.ts), its log (hours as usage_entry in
--          include/usage packs them), and the present externalId and then currentUsage of src/scripts/layout.ts, or ''
--          for no usage. One text, as the server takes longer to read three for each key; 0 if a key has more than
--          KEY_BYTES_MAX

-- @include "include/identities"
-- @include "include/ids"
-- @include "include/keyIds"
-- @include "include/names"
-- @include "include/state"

local workspace, keys, first_day, bytes_max = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local last_day = redis.call('HGET', workspace, 'daysTo')
local have_days = not last_day or first_day <= tonumber(last_day)
-- A key that is verified every hour has a few kilobytes; one whose identity changes often may have more.
local KEY_BYTES_MAX = 4 * 1024 * 1024
local LAST_BYTE = tostring(KEY_BYTES_MAX)
local KEY_BYTES = 24 + PACKED_ID_BYTES

-- The digests of all keys of an API from the first to the last one that is wanted, by their packed ids, if these are
-- not many more: the keys of a query are in order, and to find each by itself takes longer than to read its usage. Keys
-- in another order are found one by one.
local found, found_api8 = {}, nil
local function find_between(first, last)
  local api8 = string.sub(first, 17, 24)
  if api8 ~= string.sub(last, 17, 24) then return end
  found_api8 = api8
  local list = name_of.key_list(workspace, api8)
  -- After the id a member has 32 bytes, none of them above 255.
  local from, to = '[' .. string.sub(first, 25), '(' .. string.sub(last, 25) .. string.rep('\255', 33)
  if redis.call('ZLEXCOUNT', list, from, to) > 2 * #keys / KEY_BYTES then return end
  for _, member in ipairs(redis.call('ZRANGE', list, from, to, 'BYLEX')) do
    found[string.sub(member, 1, PACKED_ID_BYTES)] = string.sub(member, PACKED_ID_BYTES + 1)
  end
end
if #keys > KEY_BYTES then find_between(string.sub(keys, 1, KEY_BYTES), string.sub(keys, -KEY_BYTES)) end

-- The externalId of a state and its current hour; '' if nothing was counted in it. The server decodes the hour, as that
-- is slower here.
local function current_of(packed)
  local usage = string.sub(packed, -USAGE_LENGTH)
  if usage == NO_USAGE then return '' end
  local external_id = external_id_of(struct.unpack('>I2c0', packed, KEY_LINK_AT))
  return external_id .. usage .. struct.pack(COUNT, forbidden_of(packed))
end

local parts, bytes = {}, 0
for at = 1, #keys, KEY_BYTES do
  local key24, packed_id = string.sub(keys, at, at + 23), string.sub(keys, at + 24, at + 23 + PACKED_ID_BYTES)
  local days = have_days and redis.call('GETRANGE', name_of.key_days(workspace, key24), '0', LAST_BYTE) or ''
  local log = redis.call('GETRANGE', name_of.key_usage(workspace, key24), '0', LAST_BYTE)
  if #days + #log > KEY_BYTES_MAX then return 0 end
  local api8 = string.sub(key24, 17)
  local digest = api8 == found_api8 and found[packed_id]
  digest = digest or digest_after(name_of.key_list(workspace, api8), packed_id)
  local packed = digest and redis.call('HGET', name_of.key_record(workspace, digest), 'state')
  local current = packed and current_of(packed) or ''
  local head = struct.pack(KEY_USAGE, #days, #log, #current)
  if #days + #log > 0 then
    parts[#parts + 1] = head .. days .. log .. current
  else
    parts[#parts + 1] = head .. current
  end
  bytes = bytes + #days + #log
  if bytes >= bytes_max then break end
end
return table.concat(parts)
