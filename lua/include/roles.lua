-- Roles in replies of scripts.

-- The fields of a role, as RoleReply in src/records/rbac.ts names them, or nil.
local function read_role(workspace, number)
  local role = read_fields(name_of.role_record(workspace, number), 'id', 'name', 'description')
  role.permissionNumbers = redis.call('HGET', name_of.role_permissions(workspace), number) or ''
  return role.id and role or nil
end

-- A role as a named reply, or nil.
local function role_reply(workspace, number)
  local role = read_role(workspace, number)
  return role and named(role)
end
