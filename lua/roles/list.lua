#!lua flags=no-writes
-- A page of roles in order of creation.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  roles and their list
-- ARGV[1]  after      the last id of the page before (without `role_`), or ''
-- ARGV[2]  count      limit of the page
-- returns  {{RoleReply (src/records/rbac.ts)…}, 1 if there are more, else 0}

-- @include "include/names"
-- @include "include/roles"

local workspace, after, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
local from = after == '' and '-' or '(' .. after .. '\255'
local members = redis.call('ZRANGE', name_of.role_list(workspace), from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
local replies = {}
for index = 1, math.min(count, #members) do
  replies[index] = role_reply(workspace, string.sub(members[index], 17))
end
return { replies, #members > count and 1 or 0 }
