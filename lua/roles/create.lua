-- Create a role, with any permissions.
--
-- derives  roles, permissions and their lists, the audit stream
-- ARGV[1]  request    JSON {name, description, permissions (slugs), mayCreatePermissions, keptId (of an export, without
--                     `role_`)}; description and keptId may be absent
-- returns  {'created', role id} | {'exists'} | {'create_permission', slug}

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
if redis.call('HEXISTS', name_of.role_numbers(workspace), request.name) == 1 then return { 'exists' } end
if request.keptId and role_number(workspace, 'role_' .. request.keptId) then return { 'exists' } end
local numbers, missing = find_permissions(workspace, request.permissions)
if #missing > 0 and not request.mayCreatePermissions then return { 'create_permission', missing[1] } end
require_room(workspace, actor, 1 + #missing)

local next_id = take_stamps(workspace, now, 1 + #missing)
local id16 = request.keptId or next_id()
create_permissions(workspace, missing, numbers, next_id)
local number = redis.call('HINCRBY', workspace, 'roles', 1)
redis.call('HSET', name_of.role_numbers(workspace), request.name, number)
redis.call('HSET', name_of.role_names(workspace), number, request.name)
set_fields(
  name_of.role_record(workspace, number),
  { id = 'role_' .. id16, name = request.name, description = request.description }
)
if #request.permissions > 0 then
  redis.call('HSET', name_of.role_permissions(workspace), number, list_of(request.permissions, numbers))
end
redis.call('ZADD', name_of.role_list(workspace), 0, id16 .. number)
audit(workspace, now, actor, 'role', 'role_' .. id16, {
  { 'name', nil, request.name },
  { 'description', nil, request.description },
  { 'permissions', nil, names_text(request.permissions) },
})
return { 'created', 'role_' .. id16 }
