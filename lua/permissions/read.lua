#!lua flags=no-writes
-- Read permissions by their numbers.
--
-- derives  permissions and their list
-- ARGV[1]  numbers    a list such as `,3,17,` of at most 1000; those that no longer exist are left out
-- returns  {PermissionReply (src/records/rbac.ts)…}

local workspace, numbers, replies = KEYS[1], numbers_in(ARGV[1]), {}
for _, number in ipairs(numbers) do
  replies[#replies + 1] = permission_reply(workspace, number)
end
return replies
