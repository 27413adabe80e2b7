#!lua flags=no-writes
-- Read permissions: one by id or slug, or those with these numbers.
--
-- KEYS[1]  workspace   `tg:{ws_…}`
-- derives  permissions and their list
-- ARGV[1]  id_or_slug  '' to read by number
-- ARGV[2]  numbers     a list such as `,3,17,` of at most 1000; those that no longer exist are left out
-- returns  {{number, {id, name, slug, description or false}}…}

-- @include "include/permissions"
-- @include "include/rbac"

local workspace, id_or_slug, numbers = KEYS[1], ARGV[1], numbers_in(ARGV[2])
if id_or_slug ~= '' then numbers = { permission_number(workspace, id_or_slug) } end
local rows = {}
for _, number in ipairs(numbers) do
  local row = show_permission(workspace, number)
  if row then rows[#rows + 1] = { number, row } end
end
return rows
