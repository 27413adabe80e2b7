#!lua flags=no-writes
-- A page of an API's keys, in order of creation; with an externalId only that identity's.
--
-- KEYS[1]  workspace    `tg:{ws_…}`
-- derives  key list, key, API and identity records, permissions, roles
-- ARGV[1]  api_id
-- ARGV[2]  external_id  '' for all keys
-- ARGV[3]  after        the last key id of the page before (without `key_`), or ''
-- ARGV[4]  count        at most this many
-- ARGV[5]  now_ms       '' for Redis's clock
-- returns  {keys, 1 if there are more}, or false when there is no such API

-- @include "include/clock"
-- @include "include/names"
-- @include "include/calendar"
-- @include "include/state"
-- @include "include/window"
-- @include "include/permissions"
-- @include "include/keys"

local workspace, api_id, external_id, after, count, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), now_ms(ARGV[5])
if not live_api(workspace, api_id) then return false end
local api8 = string.sub(api_id, -8)

local digests = {}
if external_id == '' then
  for _, member in ipairs(keys_after(workspace, api8, after, count + 1)) do
    digests[#digests + 1] = string.sub(member, 25)
  end
else
  local link = find_identity_link(workspace, external_id)
  if link then
    local from = after == '' and '[' .. api8 or '(' .. api8 .. string.sub(after, 1, 16)
    for _, member in ipairs(redis.call('ZRANGE', identity_keys(workspace, string.sub(link, 1, 16)), from, '(' .. api8 .. '~', 'BYLEX', 'LIMIT', 0, count + 1)) do
      digests[#digests + 1] = digest_of(workspace, 'key_' .. string.sub(member, 9) .. api8)
    end
  end
end

local keys = {}
for index = 1, math.min(count, #digests) do
  local record, state = load_key(workspace, digests[index], now)
  if record then keys[#keys + 1] = show_key(workspace, record, state, api_id) end
end
return { keys, #digests > count and 1 or 0 }
