#!lua flags=no-writes
-- A page of roles in order of creation.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  roles and their list
-- ARGV[1]  after      the last id of the page before (without `role_`), or ''
-- ARGV[2]  count      limit of the page
-- returns  {{RoleReply (src/records/rbac.ts)…}, 1 if there are more, else 0}

-- @include "include/names"
-- @include "include/pages"
-- @include "include/roles"

local workspace, after, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
return page_of(workspace, name_of.role_list(workspace), after, 'asc', count, role_reply)
