#!lua flags=no-writes
-- Read roles: one by id or name, or those with the given numbers.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  roles and their list
-- ARGV[1]  id_or_name  '' to read by number
-- ARGV[2]  numbers     a list such as `,3,17,` of at most 100; those that no longer exist are left out
-- returns  {RoleReply (src/records/rbac.ts)…}

-- @include "include/permissions"
-- @include "include/rbac"
-- @include "include/roles"

local workspace, id_or_name, numbers = KEYS[1], ARGV[1], numbers_in(ARGV[2])
if id_or_name ~= '' then numbers = { role_number(workspace, id_or_name) } end
local replies = {}
for _, number in ipairs(numbers) do
  replies[#replies + 1] = role_reply(workspace, number)
end
return replies
