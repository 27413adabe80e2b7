#!lua flags=allow-oom
-- Delete a permission. Keys and roles refer to it by its number, which no longer exists, so all of them lose it
-- immediately.
--
-- derives  permissions and their list, the audit stream
-- ARGV[1]  id_or_slug
-- returns  1, or 0 when there is no such permission

local workspace, id_or_slug, actor, now = KEYS[1], ARGV[1], ARGV[2], now_ms(ARGV[3])
local number = permission_number(workspace, id_or_slug)
local permission = number and read_permission(workspace, number)
if not permission then return 0 end
local _, next_version, reserve = take_stamps(workspace, now, 1, true)

reserve()
renew_rbac_version(workspace, next_version)
redis.call('HDEL', name_of.permission_numbers(workspace), permission.slug)
redis.call('HDEL', name_of.permission_slugs(workspace), number)
redis.call('UNLINK', name_of.permission_record(workspace, number))
redis.call('ZREM', name_of.permission_list(workspace), string.sub(permission.id, 6) .. number)
audit(workspace, now, actor, 'permission', permission.id, { { 'slug', permission.slug }, { 'name', permission.name } })
return 1
