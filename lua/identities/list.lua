#!lua flags=no-writes
-- A part of a page of identities in order of creation, with or without filters. The part ends early if the identities
-- have many limits or large metadata, so that Redis is not blocked.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  identity records, list and lists of keys
-- ARGV[1]  after      the last id of the part before (without `id_`), or ''
-- ARGV[2]  count      limit of the identities to read
-- ARGV[3]  search     '' for all; else text in lower case that the id or externalId (ASCII) must contain
-- ARGV[4]  wanted     limit of the identities to return
-- ARGV[5]  below      '' for all; else only identities with a balance below this
-- ARGV[6]  now_ms     '' for Redis's clock
-- returns  {{IdentityReply (src/records/records.ts)…}, the last id that was read (without `id_`) or '', 1 if there are
--          more or 0}

-- @include "include/clock"
-- @include "include/identities"
-- @include "include/names"
-- @include "include/reply"

local workspace, after, count, search, wanted = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local below, now = tonumber(ARGV[5]), now_ms(ARGV[6])
local from = after == '' and '-' or '(' .. after .. '\255'
local members = redis.call('ZRANGE', name_of.identity_list(workspace), from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
local rows, last, examined, parts = {}, '', 0, 0
for index = 1, math.min(count, #members) do
  if #rows == wanted or parts >= REPLY_PARTS_MAX then break end
  local id16, external_id = string.sub(members[index], 1, 16), string.sub(members[index], 17)
  last, examined = id16, index
  if
    search == ''
    or string.find(string.lower('id_' .. id16), search, 1, true)
    or string.find(string.lower(external_id), search, 1, true)
  then
    local identity, row_parts = load_identity(workspace, external_id), nil
    local balance = balance_of_identity(workspace, identity, external_id, now)
    if not below or (balance and balance.balance < below) then
      local meta, key_count =
        identity_meta(workspace, external_id), count_all_identity_keys(workspace, identity, external_id)
      rows[#rows + 1], row_parts = identity_reply(identity, external_id, meta, balance, now, key_count)
      parts = parts + row_parts
    else
      parts = parts + #identity.limits
    end
  end
end
return { rows, last, #members > examined and 1 or 0 }
