#!lua flags=no-writes
-- Which keys that are to be moved here a workspace has already, and which identities.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  key and identity records
-- ARGV[1]  digests       32 bytes each
-- ARGV[2]  external_ids  JSON
-- returns  {{for each key its id (without `key_`) here; '' for none, also if it was moved away from here}, {for each
--          identity its id (16) here, or ''}}

-- @include "include/moves"
-- @include "include/names"

local workspace, digests, external_ids = KEYS[1], moves.digests(ARGV[1]), cjson.decode(ARGV[2])

local keys, identities = {}, {}
for index, digest in ipairs(digests) do
  local packed = redis.call('HGET', name_of.key_record(workspace, digest), 'state')
  local is_here = packed and struct.unpack(KEY_EXPIRES, packed, KEY_FIXED_EXPIRES_AT) ~= MOVED
  local api8 = is_here and string.sub(packed, KEY_FIXED_API8_AT, KEY_FIXED_FLAGS_AT - 1)
  keys[index] = is_here and string.sub(packed, 1, 16) .. api8 or ''
end
for index, external_id in ipairs(external_ids) do
  local packed = redis.call('HGET', name_of.identity_record(workspace, external_id), 'state')
  identities[index] = packed and string.sub(packed, 1, 16) or ''
end
return { keys, identities }
