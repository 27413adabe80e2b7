#!lua flags=no-writes
-- A page of identities in order of creation, with what an import needs. The page ends early if the identities have many
-- limits or large metadata, so that Redis is not blocked.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  identity records and list
-- ARGV[1]  after      the last id of the page before (without `id_`), or ''
-- ARGV[2]  count      limit of the page
-- ARGV[3]  now_ms     '' for Redis's clock
-- returns  {{{IdentityReply (src/records/records.ts), used_units of include/exported}…}, the last id that was read
--          (without `id_`) if there are more, or ''}

-- @include "include/clock"
-- @include "include/exported"
-- @include "include/identities"
-- @include "include/names"
-- @include "include/reply"

local workspace, after, count, now = KEYS[1], ARGV[1], tonumber(ARGV[2]), now_ms(ARGV[3])
local from = after == '' and '-' or '(' .. after .. '\255'
local members = redis.call('ZRANGE', name_of.identity_list(workspace), from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
local rows, parts = {}, 0
while #rows < math.min(count, #members) and parts < REPLY_PARTS_MAX do
  local external_id = string.sub(members[#rows + 1], 17)
  local identity = load_identity(workspace, external_id)
  local reply, reply_parts = identity_reply(identity, external_id, identity_meta(workspace, external_id))
  rows[#rows + 1], parts = { reply, used_units(identity.limits, now) }, parts + reply_parts
end
return { rows, #members > #rows and string.sub(members[#rows], 1, 16) or '' }
