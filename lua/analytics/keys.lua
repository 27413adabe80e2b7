#!lua flags=no-writes
-- The usage of keys: their histories, and the current hour in their states. One script reads both, because an hour that ends
-- between two reads would be read twice or not at all.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  key lists and records, usage histories
-- ARGV[1]  keys       ids without `key_`, 24 characters each, of a few hundred keys at most
-- ARGV[2]  months     `202611`, 6 characters each
-- ARGV[3]  bytes_max  after this many bytes the remaining keys are left to the next call
-- returns  {for each key that was read: its hours, as usage_entry in include/usage packs them; or 0 if it has more than
--          KEY_BYTES_MAX, which ends the list}

-- @include "include/identities"
-- @include "include/keyIds"
-- @include "include/names"
-- @include "include/usage"

local workspace, keys, months, bytes_max = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
-- A key that is verified every hour has at most 220 KB a month; one whose identity changes often may have more.
local KEY_BYTES_MAX = 4 * 1024 * 1024
local answer, bytes = {}, 0
for at = 1, #keys, 24 do
  local key24 = string.sub(keys, at, at + 23)
  local hours, names, key_bytes = {}, {}, 0
  for month_at = 1, #months, 6 do
    local name = key_usage(workspace, key24, string.sub(months, month_at, month_at + 5))
    names[#names + 1], key_bytes = name, key_bytes + redis.call('STRLEN', name)
  end
  if key_bytes > KEY_BYTES_MAX then
    answer[#answer + 1] = 0
    break
  end
  for _, name in ipairs(names) do
    hours[#hours + 1] = redis.call('GET', name) or nil
  end
  local digest = digest_of(workspace, 'key_' .. key24)
  local packed = digest and redis.call('HGET', key_record(workspace, digest), 'state')
  if packed then
    local link = struct.unpack('>I2c0', packed, KEY_LINK_AT)
    hours[#hours + 1] = usage_entry(external_id_of(link), string.sub(packed, #packed - USAGE_LENGTH + 1))
  end
  local history = table.concat(hours)
  answer[#answer + 1], bytes = history, bytes + #history
  if bytes >= bytes_max then break end
end
return answer
