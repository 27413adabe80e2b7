#!lua flags=no-writes
-- The usage of keys: their days, their logs, and the current hour in their states. One script reads all three, because
-- counts that move between two reads would be read twice or not at all.
--
-- derives  key lists and records, logs and days of keys
-- ARGV[1]  keys       of a few hundred keys at most, each its id without `key_` (24) and the first 16 of it packed (12)
-- ARGV[2]  first_day  no earlier day is wanted: the days of keys are not read, and '', if they have none from it on
-- ARGV[3]  bytes_max  after this many bytes the remaining keys are left to the next call
-- returns  for each key that was read KEY_USAGE, then its days (src/usage/days.ts), its log (hours as usage_entry in
--          include/usage packs them), and the present externalId and then currentUsage of src/scripts/layout.ts, or ''
--          for no usage. One text, as the server takes longer to read three for each key; 0 if a key has more than
--          KEY_BYTES_MAX

local workspace, keys, first_day, bytes_max = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local last_day = redis.call('HGET', workspace, 'daysTo')
local have_days = not last_day or first_day <= tonumber(last_day)
-- A key that is verified every hour has a few kilobytes; one whose identity changes often may have more.
local KEY_BYTES_MAX = 4 * 1024 * 1024
local LAST_BYTE = tostring(KEY_BYTES_MAX)
local KEY_BYTES = 24 + PACKED_ID_BYTES
-- With a million keys, looking up a global name costs a part of a second.
local call, sub = redis.call, string.sub

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

-- The externalId of a state, its current hour and the FORBIDDEN verifications in it; '' if nothing was counted. The
-- server decodes them, as that is slower here. They are not joined: Redis's Lua hashes every string that it creates.
local NO_FORBIDDEN = struct.pack(COUNT, 0)
local function current_of(packed)
  local usage = sub(packed, -USAGE_LENGTH)
  if usage == NO_USAGE then return '', '', '' end
  local link_before = KEY_LINK_AT + 1
  local link_bytes = struct.unpack('>I2', packed, KEY_LINK_AT)
  local external_id = sub(packed, link_before + LINK_EXTERNAL_ID_AT, link_before + link_bytes)
  local forbidden = forbidden_of(packed)
  return external_id, usage, forbidden == 0 and NO_FORBIDDEN or struct.pack(COUNT, forbidden)
end

-- A key has no log before its second hour of a day, and looking for the logs of several keys in one command takes as
-- long as for one. The length of a log must be known before it is read, so they are not read together.
local LOGS_STEP = 16
local logs = {}
for at = 1, #keys, KEY_BYTES do
  logs[#logs + 1] = name_of.key_usage(workspace, sub(keys, at, at + 23))
end
local function have_logs(first) return call('EXISTS', unpack(logs, first, math.min(first + LOGS_STEP - 1, #logs))) > 0 end

local parts, last, bytes, may_have_log, heads = {}, 0, 0, false, {}
for index, log_name in ipairs(logs) do
  if index % LOGS_STEP == 1 then may_have_log = have_logs(index) end
  local at = (index - 1) * KEY_BYTES + 1
  local api8, packed_id = sub(keys, at + 16, at + 23), sub(keys, at + 24, at + 23 + PACKED_ID_BYTES)
  local days = have_days and call('GETRANGE', name_of.key_days(workspace, sub(keys, at, at + 23)), '0', LAST_BYTE) or ''
  local log = may_have_log and call('GETRANGE', log_name, '0', LAST_BYTE) or ''
  if #days + #log > KEY_BYTES_MAX then return 0 end
  local digest = api8 == found_api8 and found[packed_id]
  digest = digest or digest_after(name_of.key_list(workspace, api8), packed_id)
  local packed = digest and call('HGET', name_of.key_record(workspace, digest), 'state')
  local external_id, usage, forbidden = current_of(packed or NO_USAGE)
  local current_bytes = #external_id + #usage + #forbidden
  if #days + #log > 0 then
    parts[last + 1], parts[last + 2], parts[last + 3] = struct.pack(KEY_USAGE, #days, #log, current_bytes), days, log
    last = last + 3
  else
    heads[current_bytes] = heads[current_bytes] or struct.pack(KEY_USAGE, 0, 0, current_bytes)
    last = last + 1
    parts[last] = heads[current_bytes]
  end
  if current_bytes > 0 then
    parts[last + 1], parts[last + 2], parts[last + 3] = external_id, usage, forbidden
    last = last + 3
  end
  bytes = bytes + #days + #log
  if bytes >= bytes_max then break end
end
return table.concat(parts)
