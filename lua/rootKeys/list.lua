#!lua flags=no-writes
-- A page of root keys, in order of creation.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  root key list and records
-- ARGV[1]  after      the last id of the page before (without `root_`), or ''
-- ARGV[2]  count      at most this many
-- returns  {{id, name or false, start, grants, enabled, expires or false, created, used or false}…, 1 if there are more}

-- @include "include/names"

local workspace, after, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
local from = after == '' and '-' or '(' .. after .. string.rep('\255', 33)
local members = redis.call('ZRANGE', root_key_list(workspace), from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
local root_keys = {}
for index = 1, math.min(count, #members) do
  root_keys[index] = redis.call('HMGET', root_key_record(workspace, string.sub(members[index], 17)),
    'id', 'name', 'start', 'grants', 'enabled', 'expires', 'created', 'used')
end
return { root_keys, #members > count and 1 or 0 }
