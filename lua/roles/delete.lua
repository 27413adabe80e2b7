#!lua flags=allow-oom
-- Delete a role. Keys refer to it by its number, which no longer exists, so all of them lose it immediately.
--
-- derives  roles and their list, the audit stream
-- ARGV[1]  id_or_name
-- returns  1, or 0 when there is no such role

local workspace, id_or_name, actor, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])
local number = role_number(workspace, id_or_name)
local role = number and read_role(workspace, number)
if not role then return 0 end
local slugs = slugs_of(workspace, role.permissionNumbers)
local _, next_version, reserve = take_stamps(workspace, now, 1, true)

reserve()
renew_rbac_version(workspace, next_version)
redis.call('HDEL', name_of.role_numbers(workspace), role.name)
redis.call('HDEL', name_of.role_names(workspace), number)
redis.call('HDEL', name_of.role_permissions(workspace), number)
redis.call('UNLINK', name_of.role_record(workspace, number))
redis.call('ZREM', name_of.role_list(workspace), string.sub(role.id, 6) .. number)
audit(workspace, now, actor, 'role', role.id, { { 'name', role.name }, { 'permissions', names_text(slugs) } })
return 1
