#!lua flags=no-writes
-- A page of the records of a kind in order of creation, or the one that a reference names.
--
-- derives  permissions, roles and plans, and their lists
-- ARGV[1]  kind_name  a name of src/domain/records.ts
-- ARGV[2]  reference  its id or its name; '' for a page
-- ARGV[3]  after      the last id of the page before (without its prefix), or ''
-- ARGV[4]  count      limit of the page
-- returns  {{reply of a record (src/records/)…}, 1 if there are more, else 0}

local workspace, kind_name, reference, after, count = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local now = now_ms(ARGV[5])

-- `find` returns what follows the id of a record in its list, by which `reply` reads it; nil for none.
local kinds = {
  permission = { list = name_of.permission_list, find = permission_number, reply = permission_reply },
  role = { list = name_of.role_list, find = role_number, reply = role_reply },
  plan = {
    list = name_of.plan_list,
    find = plans.named,
    reply = function(_, plan_id) return plans.reply(workspace, plan_id, now) end,
  },
}

local kind = kinds[kind_name]
if reference == '' then
  return page_of(workspace, kind.list(workspace), after, 'asc', count, kind.reply, REPLY_PARTS_MAX)
end
local found = kind.find(workspace, reference)
return { { found and (kind.reply(workspace, found)) or nil }, 0 }
