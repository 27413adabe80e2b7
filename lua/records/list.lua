#!lua flags=no-writes
-- A page of the records of a kind in order of creation.
--
-- KEYS[1]  workspace  `tg:{ws_…}`
-- derives  permissions, roles and their lists
-- ARGV[1]  kind       a name of src/domain/records.ts
-- ARGV[2]  after      the last id of the page before (without its prefix), or ''
-- ARGV[3]  count      limit of the page
-- returns  {{reply of a record (src/records/)…}, 1 if there are more, else 0}

-- @include "include/names"
-- @include "include/pages"
-- @include "include/rbac"
-- @include "include/roles"

local workspace, kind, after, count = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local list_named = { permission = name_of.permission_list, role = name_of.role_list }
local reply_named = { permission = permission_reply, role = role_reply }
return page_of(workspace, list_named[kind](workspace), after, 'asc', count, reply_named[kind])
