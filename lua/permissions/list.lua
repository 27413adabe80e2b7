#!lua flags=no-writes
-- A page of permissions in order of creation.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  permissions and their list
-- ARGV[1]  after      the last id of the page before (without `perm_`), or ''
-- ARGV[2]  count      limit of the page
-- returns  {{PermissionReply (src/records/rbac.ts)…}, 1 if there are more, else 0}

-- @include "include/names"
-- @include "include/pages"
-- @include "include/rbac"

local workspace, after, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
return page_of(workspace, name_of.permission_list(workspace), after, 'asc', count, permission_reply)
