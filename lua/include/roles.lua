-- Roles, as scripts reply with them.

-- @include "include/names"

-- A role as {id, name, description or false, permission numbers as a list}, or nil.
local function show_role(workspace, number)
  local row = redis.call('HMGET', role_record(workspace, number), 'id', 'name', 'description')
  if not row[1] then return nil end
  row[4] = redis.call('HGET', role_permissions(workspace), number) or ''
  return row
end
