-- Replace the permissions of a role.
--
-- derives  roles, permissions and their lists, the audit stream
-- ARGV[1]  request    JSON {roleId, permissions (slugs), mayCreatePermissions}
-- returns  {'set', permission numbers as a list} | {'role_not_found', roleId} | {'create_permission', slug}

local workspace, request, actor, now = KEYS[1], cjson.decode(ARGV[1]), ARGV[2], now_ms(ARGV[3])
local number = role_number(workspace, request.roleId)
if not number then return { 'role_not_found', request.roleId } end
local role_id = redis.call('HGET', name_of.role_record(workspace, number), 'id')
local numbers, missing = find_permissions(workspace, request.permissions)
if #missing > 0 and not request.mayCreatePermissions then return { 'create_permission', missing[1] } end
require_room(workspace, actor, #missing)

local before = redis.call('HGET', name_of.role_permissions(workspace), number) or ''
local slugs = slugs_of(workspace, before)
local next_id, next_version = take_stamps(workspace, now, 1 + #missing)
renew_rbac_version(workspace, next_version)
create_permissions(workspace, missing, numbers, next_id)
local list = list_of(request.permissions, numbers)
write_field(name_of.role_permissions(workspace), number, list)
local change = { 'permissions', names_text(slugs), names_text(request.permissions), before ~= list }
audit(workspace, now, actor, 'role', role_id, { change })
return { 'set', list }
