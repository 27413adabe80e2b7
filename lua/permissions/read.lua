#!lua flags=no-writes
-- Read permissions: one by id or slug, or those with the given numbers.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  permissions and their list
-- ARGV[1]  id_or_slug  '' to read by number
-- ARGV[2]  numbers     a list such as `,3,17,` of at most 1000; those that no longer exist are left out
-- returns  {PermissionReply (src/records/rbac.ts)…}

-- @include "include/permissions"
-- @include "include/rbac"

local workspace, id_or_slug, numbers = KEYS[1], ARGV[1], numbers_in(ARGV[2])
if id_or_slug ~= '' then numbers = { permission_number(workspace, id_or_slug) } end
local replies = {}
for _, number in ipairs(numbers) do
  replies[#replies + 1] = permission_reply(workspace, number)
end
return replies
