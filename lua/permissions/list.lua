#!lua flags=no-writes
-- A page of permissions in order of creation.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  permissions and their list
-- ARGV[1]  after      the last id of the page before (without `perm_`), or ''
-- ARGV[2]  count      limit of the page
-- returns  {{PermissionReply (src/records/rbac.ts)…}, 1 if there are more, else 0}

-- @include "include/names"
-- @include "include/rbac"

local workspace, after, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
local from = after == '' and '-' or '(' .. after .. '\255'
local members = redis.call('ZRANGE', name_of.permission_list(workspace), from, '+', 'BYLEX', 'LIMIT', 0, count + 1)
local replies = {}
for index = 1, math.min(count, #members) do
  replies[index] = permission_reply(workspace, string.sub(members[index], 17))
end
return { replies, #members > count and 1 or 0 }
