#!lua flags=no-writes
-- A page of root keys with their digests, in order of creation. A page ends early when its root keys have many grants.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  root key list and records
-- ARGV[1]  after      the last id of the page before (without `root_`), or ''
-- ARGV[2]  count      limit of the page
-- returns  {{{digest, RootKeyReply (src/records/rootKeys.ts)}…}, 1 if there are more, else 0}

-- @include "include/fields"
-- @include "include/names"

local workspace, after, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
local GRANT_BYTES_MAX = 1000000
local from = after == '' and '-' or '(' .. after .. string.rep('\255', 33)
local members = redis.call('ZRANGE', name_of.root_key_list(workspace), from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
local root_keys, grant_bytes = {}, 0
while #root_keys < math.min(count, #members) and grant_bytes < GRANT_BYTES_MAX do
  local index = #root_keys + 1
  local digest = string.sub(members[index], 17)
  local record = name_of.root_key_record(workspace, digest)
  local root_key = read_fields(record, 'id', 'name', 'start', 'grants', 'enabled', 'expires', 'created', 'used')
  root_keys[index], grant_bytes = { digest, named(root_key) }, grant_bytes + #root_key.grants
end
return { root_keys, #members > #root_keys and 1 or 0 }
