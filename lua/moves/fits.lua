#!lua flags=no-writes
-- Whether an API can be moved here, and which of its keys and identities the workspace has already.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  API record and key list, the list of dead APIs, the receipt, key and identity records
-- ARGV[1]  api_id
-- ARGV[2]  from          the other workspace (ws_…)
-- ARGV[3]  digests       32 bytes each
-- ARGV[4]  external_ids  JSON
-- returns  {1 or 0, {for each key its id (without `key_`) here; '' for none, also if it was moved away from here}, {for
--          each identity '', or its id (16) here and 1 if it has limits or a balance}}

-- @include "include/moves"
-- @include "include/names"
-- @include "include/state"

local workspace, api_id, from = KEYS[1], ARGV[1], ARGV[2]
local digests, external_ids = moves.digests(ARGV[3]), cjson.decode(ARGV[4])

local keys, identities = {}, {}
for index, digest in ipairs(digests) do
  local packed = redis.call('HGET', name_of.key_record(workspace, digest), 'state')
  local is_here = packed and struct.unpack(KEY_EXPIRES, packed, KEY_FIXED_EXPIRES_AT) ~= MOVED
  local api8 = is_here and string.sub(packed, KEY_FIXED_API8_AT, KEY_FIXED_FLAGS_AT - 1)
  keys[index] = is_here and string.sub(packed, 1, 16) .. api8 or ''
end
for index, external_id in ipairs(external_ids) do
  local packed = redis.call('HGET', name_of.identity_record(workspace, external_id), 'state')
  local identity = packed and packed_identity.read(packed)
  identities[index] = identity and identity.id16 .. ((identity.has_balance or #identity.limits > 0) and '1' or '') or ''
end
return { moves.receives(workspace, api_id, from) and 1 or 0, keys, identities }
